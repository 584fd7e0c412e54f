"""The whole walk on this machine: read bitext, train, compare, export, and write one report page.

  hf-xsent quickstart
  hf-xsent quickstart --model xlm-roberta-base --data de=my.tsv

Without --data it learns from the translations of Django's own messages; without --model, with a small encoder from
scratch. It needs neither a network nor an accelerator.
"""

from __future__ import annotations

import argparse
from itertools import chain, count
from pathlib import Path

from hf_xsent.errors import OutputError

EMBEDDED_LANGUAGES = ("de", "es", "fr", "tr", "ru", "el", "ar", "he", "hi", "ja", "ko", "zh_Hans")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags, with nothing loaded."""
    parser.add_argument("--model", help="Start from this encoder (Hub id or folder) instead of a small new one.")
    parser.add_argument(
        "--data",
        nargs="+",
        metavar="DATA",
        help="Learn from these pairs: my.tsv, de=pairs.tsv, train/{language}-en.tsv …",
    )
    parser.add_argument(
        "--languages",
        nargs="+",
        metavar="CODE",
        default=EMBEDDED_LANGUAGES,
        help=f"Languages of Django's messages; default: {' '.join(EMBEDDED_LANGUAGES)}",
    )
    parser.add_argument(
        "--output", metavar="FOLDER", help="Write here; default: the first free of quickstart, quickstart-2, …"
    )
    parser.add_argument("--steps", type=int, help="Train so many steps; more is better and takes longer.")
    parser.add_argument(
        "--held_out", type=int, default=60, help="Keep so many pairs of each language for the comparison."
    )
    parser.add_argument("--short", action="store_true", help="Train a fraction of the steps: a look, or a check.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of weights, split and data order.")


def run(arguments: argparse.Namespace) -> None:
    """Choose the folder, then walk."""
    from hf_xsent.cli.quickstart_walk import walk

    if arguments.output is None:
        names = chain(["quickstart"], (f"quickstart-{number}" for number in count(2)))
        arguments.output = next(name for name in names if not Path(name).exists())
    elif Path(arguments.output).exists() and any(Path(arguments.output).iterdir()):
        raise OutputError(f"{arguments.output} is not empty: choose another folder with --output")
    walk(arguments)
