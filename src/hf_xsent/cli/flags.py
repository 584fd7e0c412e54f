"""Declare the flags that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import Any

from hf_xsent.settings.declare import help_of, metavar_of, settings_of

_SHARED: dict[str, dict[str, Any]] = {
    "--model": {"required": True, "help": "Encode with this model: a folder or a Hub id."},
    "--work": {
        "metavar": "FOLDER",
        "help": "Cache intermediate results in this folder; the same command resumes from them. (default: OUTPUT.work)",
    },
    "pairs": {"help": "Read sentence pairs from this file: TSV, Moses pairs, TMX, JSONL or Parquet."},
    "--language": {"default": "und", "help": "Language code of the source side, und if unknown."},
    "--target_language": {"default": "en", "help": "Language code of the target side, und if unknown."},
    "--columns": {
        "nargs": 2,
        "metavar": ("SOURCE", "TARGET"),
        "help": "Read these two columns, by name or number. (default: found by header or content)",
    },
    "--tatoeba": {
        "metavar": "FOLDER",
        "help": "Measure on Tatoeba: a folder of tatoeba.xxx-eng.* files, or a Hub id.",
    },
    "--memory_mib": {"type": int, "default": 512, "help": "Maximum memory of the search's blocks, in MiB."},
    "--vectors": {
        "dest": "vector_dtype",
        "choices": ("float32", "float16"),
        "default": "float32",
        "help": "Store embeddings in this precision.",
    },
    "--pooling": {"help": "Pool by cls, mean or max. (default: the model's; mean for a plain encoder)"},
    "--max_length": {"type": int, "help": "Truncate sentences to N tokens. (default: the model's)"},
    "--precision": {
        "choices": ("float32", "auto", "bfloat16", "float16"),
        "default": "float32",
        "help": "Encode in this precision; auto: bfloat16 if the device computes it in hardware.",
    },
    "--device": {"help": "Compute on this torch device. (default: a GPU per process if available, else the CPU)"},
    "--k": {"type": int, "default": 4, "help": "Average the cosines of N nearest neighbours in the margin."},
    "--sample": {"type": int, "default": 1000, "help": "Measure at most N pairs per language."},
    "--overwrite": {"action": "store_true", "help": "Replace an earlier export in that folder."},
}


def add_shared(parser: argparse.ArgumentParser, *names: str, **changes: Any) -> None:
    """Declare flags that several commands share; ``changes`` replace settings of argparse."""
    for name in names:
        parser.add_argument(name, **{**_SHARED[name], **changes})


def add_output(parser: argparse.ArgumentParser, kind: str, text: str, required: bool = True) -> None:
    """Declare where results are written: ``kind`` is FILE or FOLDER."""
    parser.add_argument("--output", "-o", required=required, metavar=kind, help=text)


@contextmanager
def resumable(arguments: argparse.Namespace) -> Iterator[None]:
    """Set the default of --work; on SIGTERM in the block, name the folder from which the same command resumes."""
    from hf_xsent.runs.stopping import raising_on_sigterm

    arguments.work = arguments.work or f"{arguments.output.rstrip('/')}.work"
    with raising_on_sigterm(f"finished work is in {arguments.work}, from which the same command continues"):
        yield


def add_settings(parser: Any, title: str, *kinds: type, prefix: str = "", hidden: Collection[str] = ()) -> None:
    """Declare a flag for each setting of some dataclasses, in a new group if it has a title."""
    group = parser.add_argument_group(title) if title else parser
    for kind in kinds:
        for name, one in settings_of(kind).items():
            if name not in hidden:
                names = ("--output", "--output_dir", "-o") if name == "output_dir" else (f"--{prefix}{name}",)
                group.add_argument(*names, metavar=metavar_of(one), help=help_of(one).replace("%", "%%"))
