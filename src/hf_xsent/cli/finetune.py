"""Fine-tune an encoder on a task in English, or in several languages, and measure every language.

  hf-xsent finetune xnli --model runs/mine --train en=multinli.train.tsv --xnli data/xnli --output runs/mine-xnli
  hf-xsent finetune mlqa --model runs/mine --train en=train-v1.1.json --mlqa data/mlqa --xquad data/xquad --output …
  hf-xsent finetune xnli trainer_scripts/recipes/xnli-translate-train.yaml --model runs/mine --train en=… de=… fr=…

Every field of transformers' TrainingArguments is also a flag and a recipe key; common ones are listed below. The
results are in results.json and results.txt of the output folder, next to the published ones.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from hf_xsent.cli.flags import add_settings
from hf_xsent.finetuning.arguments import CommonFineTuningArguments, FineTuningSettings, MlqaSettings, XnliSettings
from hf_xsent.settings.declaring import recipe_fields

TASKS = {"xnli": XnliSettings, "mlqa": MlqaSettings}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the flags for help; ``training.reading`` parses them."""
    parser.add_argument("task", choices=list(TASKS), help="Natural language inference, or question answering.")
    parser.add_argument("recipe", nargs="?", help="Read settings from this YAML or JSON file.")
    add_settings(parser, "encoder and data", FineTuningSettings)
    for title, settings in TASKS.items():
        add_settings(parser, title, settings, hidden=recipe_fields(FineTuningSettings))
    add_settings(parser, "training", CommonFineTuningArguments)


def run(arguments: Sequence[str]) -> None:
    """Fine-tune from a recipe and flags; print the tables."""
    from hf_xsent.errors import RecipeError

    task, *rest = arguments or [""]
    if task not in TASKS:
        raise RecipeError(f"unknown task {task!r}: write hf-xsent finetune {' or '.join(TASKS)}")
    if task == "xnli":
        from hf_xsent.finetuning.xnli import main
    else:
        from hf_xsent.finetuning.mlqa import main
    for report in main(rest):
        print(report.table(), end="\n\n")
