"""Declare the settings of export, trim-vocab and publish, without importing torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from hf_xsent.errors import RecipeError
from hf_xsent.settings.declare import setting

HUB_ID = r"\w[\w.-]*/\w[\w.-]*"


@dataclass(frozen=True, kw_only=True)
class ExportFolderSettings:
    """Where an export is written."""

    output: str = setting(
        None, "Write the export into this new or empty folder.", metavar="FOLDER", required=True, aliases=("o",)
    )
    overwrite: bool = setting(False, "Replace an earlier export in that folder, and its card.")


@dataclass(frozen=True, kw_only=True)
class ExportSettings(ExportFolderSettings):
    """Write a trained model as a plain folder that AutoModel and SentenceTransformer open without hf-xsent.

    hf-xsent export runs/mine --output exported-mine
    hf-xsent export runs/mine --output exported-mine --onnx int8 --gguf q8_0
    hf-xsent export runs/1 --average runs/2 runs/3 --output exported/mean
    """

    model: Any = setting(
        None,
        "Export this run, checkpoint or export: a folder; in Python also a model or its trainer.",
        positional=True,
        required=True,
    )
    tokenizer: Any = setting(None, "In Python, the tokenizer of a model.", shown=False, by_position=True)
    average: list[str] | None = setting(
        None,
        "Export the mean of the weights of the model and of these, which were trained from the same encoder.",
        metavar="FOLDER",
    )
    dtype: str = setting("float32", "Store the weights in this precision.", choices=("float32", "float16"))
    dim: int | None = setting(
        None,
        "Let sentence-transformers truncate embeddings to N dimensions; evaluate --dims shows what that costs. "
        "(default: all)",
        at_least=1,
    )
    max_length: int | None = setting(
        None, "Let the export read up to N tokens of a text. (default: as many as the model)", at_least=3
    )
    remove_language: list[str] | None = setting(
        None,
        "Add a linear layer that removes the language from embeddings, without training. It is computed from the first "
        "texts of each language in these files: one sentence per line, or pairs in the format of pretrain --data.",
        named=True,
        metavar="CODE=FILE",
    )
    target_language: str = setting("en", "Language code of the target side of the pairs of --remove_language.")
    verify: bool = setting(True, "Open the export with SentenceTransformer and compare embeddings with the model's.")
    onnx: str | None = setting(
        None,
        "Add ONNX files, too; int8: also quantized ones.",
        choices=("float32", "int8"),
    )
    openvino: bool = setting(False, "Add OpenVINO files, too; implies ONNX files.")
    gguf: list[str] | None = setting(
        None, "Add GGUF files for llama.cpp with weights of these precisions.", choices=("float16", "q8_0")
    )
    check: bool = setting(
        False,
        "Open the export in each runtime that is installed (ONNX Runtime, OpenVINO, fastembed, LangChain, "
        "transformers.js, llama.cpp), compare with SentenceTransformer, and write the results into the model card.",
    )
    node: str | None = setting(
        None,
        "For --check: a folder in which npm installed @huggingface/transformers and node-llama-cpp. (default: the "
        "current folder)",
        metavar="FOLDER",
        local=True,
    )

    def __post_init__(self) -> None:
        """Check the settings that need each other."""
        if self.node is not None and not self.check:
            raise RecipeError("--node is for opening the export in other runtimes: add --check")
        if self.remove_language and self.gguf:
            raise RecipeError("--gguf files cannot have the linear layer of --remove_language: drop one of the two")


@dataclass(frozen=True, kw_only=True)
class TrimSettings(ExportFolderSettings):
    """Trim a model's vocabulary to what some languages need: a smaller model for them.

    hf-xsent trim-vocab runs/mine -o trimmed --data "train/{language}-en.tsv" --languages de fr
    hf-xsent trim-vocab xlm-roberta-base --output trimmed --data de=pairs.tsv --pieces 40000
    hf-xsent trim-vocab xlm-roberta-base --output trimmed --text de=news.de.txt en=news.en.txt
    """

    model: str = setting(None, "Trim this model: a folder or a Hub id.", positional=True, required=True)
    data: list[str] | None = setting(
        None,
        "Keep the word pieces that these pairs use; format of hf-xsent pretrain --data.",
        named=True,
        metavar="CODE=FILE",
    )
    text: list[str] | None = setting(
        None,
        "Keep the word pieces that these files use, one sentence per line: de=news.de.txt.",
        named=True,
        metavar="CODE=FILE",
    )
    texts: dict[str, Any] | None = setting(None, "In Python, sentences by language.", shown=False, by_position=True)
    languages: list[str] | None = setting(
        None, "Use these languages: de fr. (default: all of --data and --text)", metavar="CODE"
    )
    target_language: str = setting("en", "Language code of the target side, und if unknown.")
    pieces: int | None = setting(
        None, "Keep at most N word pieces. (default: all that the texts use, and all characters)", at_least=1
    )
    cache_dir: str | None = setting(
        None,
        "Cache the cleaned bitext in this folder. (default: hf_xsent/bitext in HF_HOME)",
        metavar="FOLDER",
        local=True,
    )


@dataclass(frozen=True, kw_only=True)
class PublishSettings:
    """Write the model card of an exported folder and upload the folder to the Hub; the same command resumes.

    hf-xsent publish exported-mine org/mine --results results.json --license apache-2.0 --dry_run
    hf-xsent publish exported-mine org/mine --private

    What the flags of the card state is stored in the folder (training.json), from which the card is written each time.
    A card that was edited is not changed.
    """

    folder: str = setting(None, "Upload this folder, written by hf-xsent export.", positional=True, required=True)
    repository: str = setting(None, "Hub id of the model: org/name.", positional=True, required=True)
    private: bool = setting(False, "Create the repository as private.")
    revision: str | None = setting(
        None, "Upload to this branch; create it if missing. (default: main)", metavar="BRANCH"
    )
    dry_run: bool = setting(False, "Write the card, check the folder, list files; upload nothing.")
    license: str | None = setting(None, "Card: licence of the weights: apache-2.0, cc-by-nc-4.0, …")
    results: list[str] | None = setting(
        None,
        "Card: report these results of hf-xsent evaluate --output, in place of earlier ones. (default: keep those)",
        metavar="FILE",
    )
    base_model: str | None = setting(
        None,
        "Card: Hub id of the encoder, or its folder if it is not there. (default: the recipe's model)",
        metavar="ORG/NAME",
    )
    languages: list[str] | None = setting(
        None, "Card: languages of the model. (default: those of the run's data)", metavar="CODE"
    )
    datasets: list[str] | None = setting(None, "Card: Hub ids of the data sets used in training.", metavar="ORG/NAME")
    name: str | None = setting(None, "Card: name of the model. (default: that of the repository)")

    def __post_init__(self) -> None:
        """Check ids on the Hub."""
        if self.repository is not None and not re.fullmatch(HUB_ID, self.repository):
            raise RecipeError(
                f"repository {self.repository!r} is not ORG/NAME, an id on the Hub with your account or organization; "
                "to share it without the Hub, copy the exported folder, which is complete"
            )
        for name in self.datasets or ():
            if not re.fullmatch(HUB_ID, name):
                raise RecipeError(
                    f"datasets {name!r} is not ORG/NAME, an id on the Hub: name other data in your own text"
                )
