"""Fine-tune an encoder on a task in English, or in several languages, and measure every language.

  hf-xsent finetune xnli --model runs/mine --train en=multinli.train.tsv --xnli data/xnli --output_dir runs/mine-xnli
  hf-xsent finetune mlqa --model runs/mine --train en=train-v1.1.json --mlqa data/mlqa --xquad data/xquad --output_dir …
  hf-xsent finetune xnli trainer_scripts/recipes/xnli-translate-train.yaml --model runs/mine --train en=… de=… fr=…

``hf-xsent finetune xnli --help`` shows the flags; every field of transformers' TrainingArguments is one, too. Results
go into results.json and results.txt of the output folder, with the published figures beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import fields

from hf_xsent.finetuning.arguments import MlqaArguments, XnliArguments

TASKS = {"xnli": XnliArguments, "mlqa": MlqaArguments}
TRAINING_FLAGS = {
    "output_dir": "Write checkpoints, the fine-tuned model and the results into this folder.",
    "num_train_epochs": "Pass so often through the training data (or give --max_steps); default 2.",
    "per_device_train_batch_size": "Records a step and process; switched ones are two rows.",
    "learning_rate": "Peak learning rate; default 5e-5.",
    "warmup_steps": "Steps of rising learning rate; below 1, a share of all steps.",
    "eval_strategy": "Measure --dev: no, steps (every --eval_steps) or epoch.",
    "save_steps": "Write a checkpoint every so many steps.",
    "seed": "Seed of the head's weights, dropout and data order.",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """What help shows; the flags themselves are read by ``training.arguments``."""
    tasks = parser.add_subparsers(metavar="TASK", required=True)
    for name, arguments in TASKS.items():
        task = tasks.add_parser(name, help=(arguments.__doc__ or "").strip(), description=arguments.__doc__)
        task.add_argument("recipe", nargs="?", help="Read settings from this YAML or JSON file.")
        for field in fields(arguments):
            task.add_argument(f"--{field.name}", default=field.default, metavar="…", help=field.metadata["help"])
        group = task.add_argument_group("training")
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
