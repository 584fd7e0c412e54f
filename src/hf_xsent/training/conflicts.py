"""Name the settings and facts that exclude each other, each combination with one sentence: the reason and the cure.

docs/distributed_training.md lists the combinations of launchers, precision and objectives that work.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection
from dataclasses import fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from hf_xsent.errors import RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.settings.declare import default_of

AUTO = "auto"  # share_of_start, which is then chosen
FOLLOW_METRIC = ("reduce_lr_on_plateau", "greedy")  # schedules that change the rate by a dev metric
_IN_BATCH = {"translation_ranking", "matryoshka", "triplet_ranking"}  # objectives with negatives of the batch

# Each combination of settings that are set and of facts raises its error; | separates alternatives, and {1} is the one
# that the second place of the combination has.
CONFLICTS: dict[tuple[str, ...], str] = {
    # Machine
    ("several GPUs in one process",): (
        "one process sees several GPUs: start one process per GPU (torchrun --nproc_per_node N), or choose one by "
        "CUDA_VISIBLE_DEVICES=0"
    ),
    ("fp16", "on a CPU"): "fp16 needs a GPU; on a CPU use --bf16 or neither",
    # Launchers
    ("fsdp",): (
        "FSDP shards weights that dev measurements, averages, adapters and gradient caching need whole: use DDP "
        "(torchrun without --fsdp), or trainer_scripts/deepspeed/zero2.json"
    ),
    ("deepspeed of the launcher only",): (
        "accelerate launch enables deepspeed, but the script does not: also pass --deepspeed to the script"
    ),
    ("objectives", "ZeRO-3"): (
        "ZeRO-3 shards weights while the model is built, but the objectives' heads are copied from whole layers: use "
        "stage 2, trainer_scripts/deepspeed/zero2.json"
    ),
    # Settings of training
    ("optim_args", "torch's AdamW"): (
        "torch's AdamW takes no optim_args: use adam_beta1, adam_beta2, adam_epsilon and weight_decay"
    ),
    ("optim_args", "Adafactor"): "transformers builds Adafactor without optim_args: drop them",
    ("no steps",): (
        "max_steps 0 and num_train_epochs 0 train nothing: give at least one step, or -1 and more than 0 epochs"
    ),
    # Dev pairs
    (
        "automatic share",
        "no dev pairs",
    ): "share_of_start auto compares dev accuracy: give --dev, or --dev_pairs above 0",
    (
        "automatic share",
        "no retention",
    ): "share_of_start auto compares scores within languages: give --retention",
    ("retention", "language embeddings"): (
        "texts of retention have no language, which language embeddings need: drop retention, or drop languages"
    ),
    ("largest_drop", "no retention"): "largest_drop compares scores within languages: give --retention",
    ("early_stopping_patience|this lr_scheduler_type", "no measurements|no dev pairs"): (
        "{0} needs dev measurements: give --dev, or --dev_pairs above 0, and eval_strategy steps or epoch"
    ),
    # Objectives and weights of the model
    ("critic", "gradient_accumulation_steps"): (
        "the critic does not support gradient_accumulation_steps: drop it, and use a larger batch"
    ),
    ("negatives of the batch", "one pair per batch"): (
        "a batch of one pair has no negatives: use a larger batch, with pairs_per_chunk if memory is short"
    ),
    ("momentum encoder", "pairs_per_chunk"): (
        "momentum contrast takes its negatives from a queue, so a larger batch adds no negatives: instead of "
        "--pairs_per_chunk use --gradient_accumulation_steps, which is equivalent here"
    ),
    ("momentum encoder", "deepspeed", "bf16|fp16"): (
        "DeepSpeed stores the momentum encoder in half precision, which rounds its small updates to zero: use "
        "torchrun without --deepspeed, or drop --{2}"
    ),
    ("frozen encoder", "frozen_layers|frozen_word_embeddings|share_of_start"): (
        "dual pivot freezes the whole encoder, so that {1} has no effect: drop it"
    ),
    ("frozen encoder", "pairs_per_chunk"): (
        "pairs_per_chunk saves no memory over a frozen encoder, which stores no activations: drop it"
    ),
    ("frozen encoder", "deepspeed"): "dual pivot trains too few weights to shard: drop --deepspeed, use DDP",
    ("float16 weights",): (
        "weights in float16 cannot be trained: open the model with dtype=torch.float32, and compute in half precision "
        "by bf16 or fp16"
    ),
    ("bfloat16 weights", "momentum encoder"): (
        "the momentum encoder averages weights, and bfloat16 rounds its small updates to zero: open the model with "
        "dtype=torch.float32, and compute in bfloat16 by bf16"
    ),
    ("head_learning_rate", "no heads"): (
        "head_learning_rate has no effect, because the objectives have no weights: drop it"
    ),
    # Arguments of the Trainer
    ("head_learning_rate", "optimizer of the caller|optimizer_cls_and_kwargs"): (
        "head_learning_rate has no effect on a given optimizer: drop it, and give the optimizer a group of parameters "
        "with this rate"
    ),
    ("compute_loss_func|compute_metrics|preprocess_logits_for_metrics|model_init",): (
        "{0} has no effect here: the model's objectives are the loss, and dev pairs give the metrics"
    ),
}


def refuse_conflicts(facts: Collection[str]) -> None:
    """Raise the error of the first combination whose settings and facts all hold."""
    for combination, sentence in CONFLICTS.items():
        held = [next((name for name in part.split("|") if name in facts), None) for part in combination]
        if None not in held:
            raise RecipeError(sentence.format(*held))


def facts_of_arguments(arguments: TrainingArguments) -> set[str]:
    """Return the names of the fields that are set, and what else the arguments and this machine decide."""
    set_fields = {
        field.name
        for field in fields(arguments)
        if ((value := getattr(arguments, field.name)) or _is_zero(value)) and value != default_of(field)
    }
    launched = {flag for flag in ("fsdp", "deepspeed") if os.environ.get(f"ACCELERATE_USE_{flag.upper()}") == "true"}
    stage = _read_config(arguments.deepspeed).get("zero_optimization", {}).get("stage", 0)
    facts = {
        "fsdp": "fsdp" in launched,
        "deepspeed of the launcher only": "deepspeed" in launched - set_fields,
        "on a CPU": arguments.use_cpu or not torch.accelerator.is_available(),
        "ZeRO-3": int(stage) == 3,
        "no measurements": arguments.eval_strategy == IntervalStrategy.NO,
        "automatic share": getattr(arguments, "share_of_start", 0) == AUTO,
        "no retention": getattr(arguments, "retention", None) is None,
        "no steps": arguments.max_steps == 0 or (arguments.max_steps < 0 and arguments.num_train_epochs <= 0),
        "torch's AdamW": arguments.optim.startswith("adamw_torch"),
        "Adafactor": arguments.optim == "adafactor",
        "this lr_scheduler_type": arguments.lr_scheduler_type in FOLLOW_METRIC,
    }
    return set_fields | {name for name, holds in facts.items() if holds}


def facts_of_model(config: AlignmentConfig, arguments: TrainingArguments) -> set[str]:
    """Return what the objectives of a model need, and whether a batch has one pair only."""
    facts = {
        "critic": config.needs.critic,
        "momentum encoder": config.needs.momentum_encoder,
        "frozen encoder": config.freezes_encoder,
        "language embeddings": bool(config.languages),
        "negatives of the batch": bool(_IN_BATCH & {*config.objectives}) and not config.hard_negatives,
        "one pair per batch": arguments.train_batch_size * arguments.world_size < 2,
    }
    return {name for name, holds in facts.items() if holds}


def _is_zero(value: Any) -> bool:
    """Return whether a value is the number 0, which is a value as others are."""
    return value == 0 and not isinstance(value, bool)


def _read_config(config: Any) -> dict[str, Any]:
    """Read a config from a JSON file, JSON text or a mapping."""
    if not isinstance(config, str | Path):
        return dict(config or {})
    try:
        text = str(config) if str(config).lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the config {config}: {error}") from error
