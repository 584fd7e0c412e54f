"""Train any method of hf-xsent from a recipe and/or flags.

One process:  python trainer_scripts/run_pretrain.py recipe.yaml --output runs/mine
Eight GPUs:   torchrun --nproc_per_node 8 trainer_scripts/run_pretrain.py recipe.yaml --output runs/mine
CPU alone:    python trainer_scripts/run_pretrain.py recipe.yaml --output runs/mine --use_cpu

``hf-xsent pretrain --help`` explains the flags; every field of transformers' TrainingArguments is one, too.
"""

from __future__ import annotations

import sys

from hf_xsent.cli import program

if __name__ == "__main__":
    program(["pretrain", *sys.argv[1:]])
