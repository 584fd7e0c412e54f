"""Declare the flags that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Collection
from typing import Any

from hf_xsent.settings.declaring import declared, help_of, metavar_of

_SHARED: dict[str, dict[str, Any]] = {
    "pairs": {"help": "Read sentence pairs from this file: TSV, Moses pairs, TMX, JSONL or Parquet."},
    "--language": {"default": "und", "help": "Language code of the source side, und if unknown."},
    "--columns": {"nargs": 2, "metavar": ("SOURCE", "TARGET"), "help": "Read these two columns, by name or number."},
    "--pooling": {"help": "Pool by cls, mean or max. (default: the model's; mean for a plain encoder)"},
    "--max_length": {"type": int, "help": "Truncate sentences to N tokens. (default: the model's)"},
    "--precision": {
        "choices": ("float32", "auto", "bfloat16", "float16"),
        "default": "float32",
        "help": "Encode in this precision; auto: bfloat16 if the device computes it in hardware.",
    },
    "--device": {"help": "Compute on this torch device. (default: a GPU if available, of N processes one each)"},
    "--k": {"type": int, "default": 4, "help": "Average N nearest neighbours in the margin."},
    "--sample": {"type": int, "default": 1000, "help": "Measure at most N pairs per language."},
    "--overwrite": {"action": "store_true", "help": "Replace an earlier export in that folder."},
}


def add_shared(parser: argparse.ArgumentParser, *names: str) -> None:
    """Declare flags that several commands share."""
    for name in names:
        parser.add_argument(name, **_SHARED[name])


def add_settings(parser: Any, title: str, *kinds: type, prefix: str = "", hidden: Collection[str] = ()) -> None:
    """Declare a flag for each setting of some dataclasses, in a new group if it has a title."""
    group = parser.add_argument_group(title) if title else parser
    for kind in kinds:
        for name, one in declared(kind).items():
            if name not in hidden:
                group.add_argument(f"--{prefix}{name}", metavar=metavar_of(one), help=help_of(one).replace("%", "%%"))
