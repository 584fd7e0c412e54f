"""Declare the settings of the mining commands, without importing torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_xsent.data.pair_settings import BitextSettings, PairSettings
from hf_xsent.errors import RecipeError
from hf_xsent.settings.common import EncodingSettings, WorkSettings, output_setting
from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class SearchSettings(EncodingSettings, WorkSettings):
    """How embeddings are stored and searched."""

    memory_mib: int = setting(
        512, "Maximum memory of the search's blocks, in MiB.", at_least=0, results=False, local=True
    )
    dtype: str = setting("float32", "Store embeddings in this precision.", choices=("float32", "float16"))


@dataclass(frozen=True, kw_only=True)
class MineSettings(SearchSettings):
    """Find translations among the lines of two text files.

    hf-xsent mine news.zh.txt news.en.txt --model runs/mine --output pairs.tsv --threshold 1.06
    hf-xsent mine vectors/source vectors/target --model runs/mine --output pairs.tsv   # Parquet: text, embedding
    torchrun --nproc_per_node 8 --no-python hf-xsent mine …   # share encoding and search among processes
    hf-xsent mine … --engine ray --address auto   # or among Ray workers, which must share the work folder

    Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
    """

    source: str = setting(
        None,
        "Sentences of one language, one per line of at most 1,000 characters, plain or .gz, .bz2, .xz, .zst; or "
        "Parquet with text and embedding.",
        positional=True,
        required=True,
    )
    target: str = setting(None, "Sentences of the other language, one per line.", positional=True, required=True)
    output: str = output_setting("Write the pairs to this TSV, JSONL or Parquet file, best first.")
    margin: str = setting(
        "ratio",
        "Score by cosine / neighbours' mean cosine (ratio), cosine - that mean (distance), or cosine (absolute).",
        choices=("ratio", "distance", "absolute"),
    )
    candidates: str = setting(
        "max",
        "Take best targets of sources (forward), the reverse (backward), both (intersection), or each once (max).",
        choices=("max", "forward", "backward", "intersection"),
    )
    threshold: float | None = setting(None, "Minimum score of a pair; 1.06 is usual for ratio.")
    calibrate: str | None = setting(
        None,
        "Choose the threshold with the best F1 on this TSV of some gold pairs (texts or line numbers).",
        metavar="GOLD",
    )
    licence: str | None = setting(
        None, "Write this licence into the column licence of each pair; training counts it in the card.", local=True
    )
    top: int | None = setting(None, "Write the N best pairs. (default: all)", at_least=1)
    index: str | None = setting(
        None,
        "Search a faiss index such as IVF4096,Flat; auto: from a million sentences per side. (default: exact search)",
    )
    probes: int | None = setting(
        None,
        "Number of cells of an IVF index to search per sentence (nprobe). (default: until recall is 95% on a sample)",
        at_least=1,
    )
    vectors: str | None = setting(
        None,
        "Also write sentences and vectors as Parquet to FOLDER/source and FOLDER/target.",
        metavar="FOLDER",
        local=True,
    )
    on_error: str = setting(
        "raise",
        "At a line that is not text, stop (raise), or skip, count and report it (skip).",
        choices=("raise", "skip"),
    )
    k: int = setting(4, "Average the cosines of N nearest neighbours in the margin.", at_least=1)

    def __post_init__(self) -> None:
        """Refuse two ways to choose the threshold, and probes without an index that has cells."""
        if self.threshold is not None and self.calibrate is not None:
            raise RecipeError("--threshold and --calibrate both choose the minimum score: give one of them")
        if self.probes is not None and not any(kind in str(self.index) for kind in ("auto", "IVF", "IMI")):
            raise RecipeError("--probes is for IVF indexes: give --index, such as IVF4096,Flat, or drop --probes")


@dataclass(frozen=True, kw_only=True)
class MineNegativesSettings(SearchSettings, BitextSettings):
    """Mine hard negatives: for each pair, the nearest sentences of both languages that are not its translations.

    hf-xsent mine-negatives "train/{language}-en.tsv.xz" --model runs/mine --output negatives
    hf-xsent pretrain --data "negatives/{language}.jsonl" --hard_negatives 2 …
    torchrun --nproc_per_node 8 --no-python hf-xsent mine-negatives …   # share encoding and search among processes

    Interrupted? The same command resumes: embeddings and neighbours are cached in the work folder.
    """

    data: list[Any] | dict[str, Any] | Any = setting(
        None,
        "Sentence pairs by language, in the format of hf-xsent pretrain --data; in Python also in memory.",
        positional=True,
        required=True,
        metavar="CODE=FILE",
    )
    output: str = output_setting("Write LANGUAGE.jsonl with all pairs into this folder.", "FOLDER")
    negatives: int = setting(
        4,
        "Write at most N source negatives and N target negatives per pair, the best by margin first.",
        at_least=1,
        at_most=32,
    )
    max_share: float = setting(
        0.95,
        "Drop candidates that score above X times the score of the pair: they may be translations, too.",
        above=0,
        at_most=1,
    )


@dataclass(frozen=True, kw_only=True)
class ScoreSettings(EncodingSettings, WorkSettings, PairSettings):
    """Score the pairs of a bitext file by cosine, and filter them.

    hf-xsent score crawled.tsv --model runs/mine --output scored.tsv
    hf-xsent score pairs.tsv --model runs/mine -o clean.tsv --language de --filter min_score=0.7 max_length_ratio=2
    """

    output: str = output_setting("Write the scored pairs to this TSV, JSONL or Parquet file.")
    filter: list[str] | bool | None = setting(
        None,
        "Write only pairs that pass the cleaning rules, report what each removed; RULE=VALUE changes a rule.",
        metavar="RULE=VALUE",
    )
