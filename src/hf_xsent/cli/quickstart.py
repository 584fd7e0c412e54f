"""Try everything on this machine: read bitext, train, evaluate, export, and write one report page.

  hf-xsent quickstart
  hf-xsent quickstart --model xlm-roberta-base --data de=my.tsv

Without --data it trains on the translations of Django's messages; without --model, it starts from a small encoder with
random weights. It needs neither a network nor an accelerator.
"""

from __future__ import annotations

import argparse
from itertools import chain, count
from pathlib import Path

from hf_xsent.cli.flags import add_output
from hf_xsent.errors import OutputError

LANGUAGES = ("de", "es", "fr", "tr", "ru", "el", "ar", "he", "hi", "ja", "ko", "zh_Hans")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags without loading torch."""
    add = parser.add_argument
    add("--model", help="Start from this encoder: a folder or a Hub id. (default: a small new one)")
    data = "Train on these pairs: my.tsv, de=pairs.tsv, train/{language}-en.tsv … (default: Django's messages)"
    add("--data", nargs="+", metavar="CODE=FILE", help=data)
    add("--languages", nargs="+", metavar="CODE", default=LANGUAGES, help="Languages of Django's messages.")
    folder = "Write into this folder. (default: the first free of quickstart, quickstart-2, …)"
    add_output(parser, "FOLDER", folder, required=False)
    add("--max_steps", type=int, help="Train for N steps. (default: 300, or 100 with --model)")
    add("--dev_pairs", type=int, default=60, help="Hold out N pairs per language, and evaluate on them.")
    add("--short", action="store_true", help="Train a fifth of the steps.")
    add("--seed", type=int, default=0, help="Seed of weights, split and data order.")


def run(arguments: argparse.Namespace) -> None:
    """Choose the output folder, then run all steps."""
    from hf_xsent.cli.quickstart_steps import run_quickstart

    if arguments.output is None:
        names = chain(["quickstart"], (f"quickstart-{number}" for number in count(2)))
        arguments.output = next(name for name in names if not Path(name).exists())
    elif Path(arguments.output).exists() and not Path(arguments.output).is_dir():
        raise OutputError(f"{arguments.output} is a file: choose a folder with --output")
    elif Path(arguments.output).exists() and any(Path(arguments.output).iterdir()):
        raise OutputError(f"{arguments.output} is not empty: choose another folder with --output")
    run_quickstart(arguments)
