"""Fine-tune an encoder and measure MLQA, from a recipe and/or flags.

One process:  python trainer_scripts/run_mlqa.py recipe.yaml --model runs/mine --output runs/mine-mlqa
Eight GPUs:   torchrun --nproc_per_node 8 trainer_scripts/run_mlqa.py recipe.yaml --model runs/mine --output …
CPU alone:    python trainer_scripts/run_mlqa.py recipe.yaml --model runs/mine --output runs/mine-mlqa --use_cpu

``hf-xsent finetune --help`` explains the flags; every field of transformers' TrainingArguments is one, too.
"""

from __future__ import annotations

import sys

from hf_xsent.cli import program

if __name__ == "__main__":
    program(["finetune", "mlqa", *sys.argv[1:]])
