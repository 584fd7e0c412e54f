"""Declare the settings of ``evaluate``, without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from hf_xsent.settings.common import EncodingSettings
from hf_xsent.settings.declare import setting


@dataclass(frozen=True, kw_only=True)
class EvaluateSettings(EncodingSettings):
    """Evaluate checkpoints, exported folders or supported encoders, on your pairs and questions or on benchmarks.

    hf-xsent evaluate xlm-roberta-base runs/mine --suite data --output results.json --page results.html
    hf-xsent evaluate runs/mine --tasks tatoeba=data/tatoeba --languages 36 --output results.json
    hf-xsent evaluate runs/mine --pairs de=test.tsv sw=more.tsv
    hf-xsent evaluate xlm-roberta-base runs/mine --tasks retrieval=collection   # your queries, in the files of BEIR
    hf-xsent evaluate xlm-roberta-base --tasks tatoeba=mteb/tatoeba-bitext-mining sts17=data/sts17
    hf-xsent evaluate xlm-roberta-base --tasks tatoeba=data/tatoeba --layers 0-12 --pooling mean cls   # encodes once
    hf-xsent evaluate runs/mine --tasks tatoeba=data/tatoeba --dims 384 128 64
    hf-xsent evaluate runs/a runs/b --tasks tatoeba=data/tatoeba   # one table with differences and 95% intervals
    """

    model: list[Any] | dict[str, Any] = setting(
        None,
        "Models to evaluate: folders or Hub ids, in Python also objects with encode, perhaps by names, such as "
        "{'start': model}. With several, compare each with the first.",
        positional=True,
        required=True,
    )
    tasks: list[Any] | dict[str, Any] | Any = setting(
        None,
        "Tasks, each with its folder or Hub id (docs/evaluation.md lists them), or a folder with the data of several: "
        "measure all whose data is there (not word_alignment), and print one table. In Python also a list from "
        "load_tasks, or pairs in memory. (default: the task of --pairs)",
        metavar="TASK=SOURCE",
        by_position=True,
        aliases=("suite",),
    )
    pairs: list[Any] | dict[str, Any] | Any = setting(
        None,
        "Measure retrieval on your sentence pairs, in the format of pretrain --data: de=test.tsv; in Python also a "
        "Dataset, a data frame or a list of pairs.",
        metavar="CODE=FILE",
    )
    columns: list[str] | None = setting(
        None,
        "Columns of the sentences of --pairs, by name or number from 0: text_de text_en; of one file: de=0,1. "
        "(default: found by header)",
        named=True,
        metavar="COLUMN",
    )
    languages: list[str] | dict[str, Any] | None = setting(
        None,
        "Evaluate only these languages: de fr; by task: tatoeba=de,fr bucc=zh-en sts17=ar-ar; of Tatoeba also the "
        "groups 4, 5, 8, 14, 28, 36 and 112. (default: all)",
        metavar="CODE",
    )
    pooling: list[str] | None = setting(  # type: ignore[assignment]
        None, "Pool by cls, mean or max, one table each. (default: the model's; mean for a plain encoder)"
    )
    layers: list[int | str] | None = setting(
        None,
        "Use the hidden states of these layers: 8, 0-12 or 0,6,12; 0 is the embeddings. (default: the last)",
        aliases=("layer",),
    )
    dims: list[int] | None = setting(
        None, "Truncate embeddings to N dimensions, one table each. (default: all)", at_least=1, aliases=("dim",)
    )
    output: str | None = setting(
        None,
        "Write the results to this JSON file, and cache them in OUTPUT.work: the same command measures only what is "
        "missing. (default: only show them)",
        metavar="FILE",
        local=True,
        aliases=("o",),
    )
    page: str | None = setting(
        None,
        "Write a page with tables, charts, and the pairs and questions that fail to this HTML file. (default: none)",
        metavar="FILE",
        local=True,
    )

    def __post_init__(self) -> None:
        """Take a single path as a list of one."""
        for name in ("tasks", "pairs"):
            if isinstance(value := getattr(self, name), str | os.PathLike):
                object.__setattr__(self, name, [os.fspath(value)])


@dataclass(frozen=True, kw_only=True)
class TaskSettings:
    """Options of a task; each task takes some of them."""

    data: list[str] | None = setting(
        None, "Folder or Hub id; pairs: files, in the format of pretrain --data; required.", named=True
    )
    languages: list[str] | None = setting(
        None, "Measure only these languages or pairs; of Tatoeba also groups, such as 36."
    )
    max_pairs: int | None = setting(
        None, "mixed_pool, language_probe, xsim, pairs: measure the first N lines of each language.", at_least=1
    )
    columns: list[str] | None = setting(
        None, "pairs: the columns that have the sentences, as of pretrain --columns.", named=True
    )
    target_language: str | None = setting(
        None,
        "pairs: the language of the target sentences. (default: en; in studies that of the recipes)",
    )
    choose: str | None = setting(None, "Word alignment: the measured set on which the layer is chosen; required.")
