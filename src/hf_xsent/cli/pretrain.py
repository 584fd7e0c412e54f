"""Train a model from a recipe, from flags, or from both (a flag replaces the recipe's value).

  hf-xsent pretrain recipe.yaml --output runs/mine
  hf-xsent pretrain --model xlm-roberta-base --data de=pairs.tsv --output runs/de --max_steps 1000
  torchrun --nproc_per_node 8 trainer_scripts/run_pretrain.py recipe.yaml

A method is a choice of objectives: --objectives translation_ranking=1.0 representation_translation=0.8. Set
their settings by --objectives.translation_ranking.temperature 0.02, or --temperature 0.02 if only one of them has it.
Every field of transformers' TrainingArguments is also a flag and a recipe key; common ones are listed below.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hf_xsent.cli.flags import add_settings
from hf_xsent.objectives.registry import OBJECTIVES, declared_settings
from hf_xsent.settings.model import EncoderSettings, ExtractionSettings, PairSettings
from hf_xsent.training.recipe import (
    HIDDEN_TRAINING_SETTINGS,
    CommonArguments,
    DataSettings,
    RunSettings,
    StartSettings,
    TrainingSettings,
)

_GROUPS = {
    "start": (StartSettings,),
    "model": (EncoderSettings, PairSettings, ExtractionSettings),
    "data": (DataSettings,),
    "run": (RunSettings,),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags for help; ``training.reading`` parses them."""
    parser.usage = "hf-xsent pretrain [recipe.yaml] [--flag value …]"
    parser.add_argument("recipe", nargs="?", help="Read settings from this YAML or JSON file.")
    for title, kinds in _GROUPS.items():
        add_settings(parser, title, *kinds)
    chosen = parser.add_argument_group("objectives", "The losses to train with; the settings of each are listed below.")
    chosen.add_argument(
        "--objectives",
        metavar="NAME=WEIGHT …",
        help=f"Choose among {', '.join(OBJECTIVES)}. (default: those of --method)",
    )
    for name in OBJECTIVES:
        add_settings(parser, f"objectives.{name}", declared_settings(name), prefix=f"objectives.{name}.")
    add_settings(parser, "training", CommonArguments, TrainingSettings, hidden=HIDDEN_TRAINING_SETTINGS)


def run(arguments: Sequence[str]) -> None:
    """Train from a recipe and flags."""
    from hf_xsent.training.pretrain import main

    main(arguments)
