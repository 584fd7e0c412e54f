"""Fine-tune an encoder on a task in English, or in several languages, and measure every language.

  hf-xsent finetune xnli --model runs/mine --train en=multinli.train.tsv --xnli data/xnli --output_dir runs/mine-xnli
  hf-xsent finetune mlqa --model runs/mine --train en=train-v1.1.json --mlqa data/mlqa --xquad data/xquad --output_dir …
  hf-xsent finetune xnli trainer_scripts/recipes/xnli-translate-train.yaml --model runs/mine --train en=… de=… fr=…

Every field of transformers' TrainingArguments is a flag and a recipe key, too; the common ones are listed below.
Results go into results.json and results.txt of the output folder, with the published figures beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from hf_xsent.finetuning.arguments import FineTuneArguments, MlqaArguments, XnliArguments
from hf_xsent.settings.declaring import help_of, metavar_of

TASKS = {"xnli": XnliArguments, "mlqa": MlqaArguments}
TRAINING_FLAGS = {
    "output_dir": "Write checkpoints, the fine-tuned model and the results into this folder.",
    "num_train_epochs": "Pass so often through the training data (or give --max_steps); default 2.",
    "per_device_train_batch_size": "Records a step and process; switched ones are two rows.",
    "learning_rate": "Peak learning rate; default 5e-5.",
    "warmup_steps": "Steps of rising learning rate; below 1, a share of all steps.",
    "eval_strategy": "Measure --dev: no, steps (every --eval_steps) or epoch; default epoch.",
    "save_steps": "Write a checkpoint every so many steps.",
    "seed": "Seed of the head's weights, dropout and data order.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What help shows; the flags themselves are read by ``training.arguments``."""
    parser.add_argument("task", choices=list(TASKS), help="Natural language inference, or question answering.")
    parser.add_argument("recipe", nargs="?", help="Read settings from this YAML or JSON file.")
    shared = {field.name: field for field in fields(FineTuneArguments)}
    for title, arguments in (("encoder and data", FineTuneArguments), *TASKS.items()):
        group = parser.add_argument_group(title)
        for field in fields(arguments):
            if arguments is FineTuneArguments or field.name not in shared:
                group.add_argument(f"--{field.name}", metavar=metavar_of(field), help=help_of(field))
    group = parser.add_argument_group("training")
    for flag, meaning in TRAINING_FLAGS.items():
        group.add_argument(f"--{flag}", metavar="…", help=meaning)


def run(arguments: Sequence[str]) -> None:
    """Hand recipe and flags on as they are; print the tables."""
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
