"""Train a model from a recipe, from flags, or from both (a flag beats the recipe).

  hf-xsent pretrain recipe.yaml --output_dir runs/mine
  hf-xsent pretrain --model xlm-roberta-base --data de=pairs.tsv --output_dir runs/de --max_steps 1000
  torchrun --nproc_per_node 8 trainer_scripts/run_pretrain.py recipe.yaml

Every field of transformers' TrainingArguments is a flag and a recipe key, too; the common ones are listed below.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from hf_xsent.training.recipe import COMMON_TRAINING_FLAGS, DataArguments, ModelArguments, RunArguments


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What help shows; the flags themselves are read by ``training.arguments``."""
    parser.add_argument("recipe", nargs="?", help="Read settings from this YAML or JSON file.")
    for title, arguments in (("model", ModelArguments), ("data", DataArguments), ("run", RunArguments)):
        group = parser.add_argument_group(title)
        for field in fields(arguments):
            group.add_argument(f"--{field.name}", default=field.default, metavar="…", help=field.metadata["help"])
    group = parser.add_argument_group("training")
    for name, meaning in COMMON_TRAINING_FLAGS.items():
        group.add_argument(f"--{name}", metavar="…", help=meaning)


def run(arguments: Sequence[str]) -> None:
    """Hand recipe and flags on as they are."""
    from hf_xsent.training.pretrain import main

    main(arguments)
