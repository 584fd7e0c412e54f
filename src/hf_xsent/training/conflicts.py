"""Name the settings and facts that exclude each other, each combination with one sentence: the reason and the cure.

docs/distributed_training.md lists the combinations of launchers, precision and objectives that work.
"""

from __future__ import annotations

import math
import os
from collections.abc import Collection
from dataclasses import fields
from typing import Any

from transformers import TrainingArguments
from transformers.trainer_utils import IntervalStrategy

from hf_xsent.errors import RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.settings.declare import default_of

AUTO = "auto"  # share_of_start, which is then chosen
UNUSED_DEV = "dev pairs are not measured"
FOLLOW_METRIC = ("reduce_lr_on_plateau", "greedy")  # schedules that change the rate by a dev metric
_IN_BATCH = {"translation_ranking", "matryoshka", "triplet_ranking"}  # objectives with negatives of the batch

# Each combination of settings that are set and of facts raises its error; | separates alternatives, and {1} is the one
# that the second place of the combination has. What transformers, accelerate or torch refuse themselves is not listed.
CONFLICTS: dict[tuple[str, ...], str] = {
    # Fields of TrainingArguments of which only the default works
    ("auto_find_batch_size",): (
        "{0} changes the batch, and so the results: lower per_device_train_batch_size (pretrain: set pairs_per_chunk)"
    ),
    ("dataloader_persistent_workers",): (
        "{0} draws random numbers once instead of in each epoch, so that a resumed run would end with others: drop it"
    ),
    ("label_smoothing_factor",): "{0} has no effect, because no loss here smooths its labels: drop it",
    ("neftune_noise_alpha",): "{0} scales its noise by the tokens of a row, which has all sentences here: use dropout",
    ("resume_from_checkpoint",): (
        "{0} of the arguments has no effect: give --resume, which continues the run in the output folder (from Python: "
        "train(resume_from_checkpoint=True))"
    ),
    ("save_only_model",): "{0} saves no state from which a stopped run could resume: drop it",
    ("torch_compile|torch_compile_backend|torch_compile_mode",): (
        "{0} would compile the step again for every new batch length: drop it"
    ),
    ("train_sampling_strategy",): (
        "{0} is not supported: drop it; pretrain samples languages by alpha and one_language_batches"
    ),
    ("use_liger_kernel|liger_kernel_config",): "{0} has no effect, since these encoders have no Liger kernel: drop it",
    # Launchers
    ("fsdp",): (
        "FSDP shards weights that dev measurements, averages, adapters and gradient caching need whole: use DDP "
        "(torchrun without --fsdp), or trainer_scripts/deepspeed/zero2.json"
    ),
    ("deepspeed of the launcher only",): (
        "accelerate launch enables deepspeed, but the script does not: also pass --deepspeed to the script"
    ),
    ("ZeRO-3",): (
        "ZeRO-3 shards weights while the model is built, but the objectives' heads are copied from whole layers: use "
        "stage 2, trainer_scripts/deepspeed/zero2.json"
    ),
    # Settings of training
    ("optim_args", "AdamW or Adafactor"): (
        "torch's AdamW and Adafactor take no optim_args: drop them; AdamW has adam_beta1, adam_beta2 and adam_epsilon"
    ),
    ("no steps",): "max_steps 0 and num_train_epochs 0 train nothing: give at least one step, or -1 and epochs",
    # Dev pairs
    ("share_of_start auto", "no dev pairs"): (
        "share_of_start auto compares dev accuracy: give --dev (AlignmentTrainer: eval_dataset)"
    ),
    ("share_of_start auto|largest_drop", "no retention"): "{0} compares scores within languages: give --retention",
    ("retention", "language embeddings"): (
        "{0} embeds sentences without their language, which a model with language embeddings needs: drop --retention, "
        "or train without languages"
    ),
    ("early_stopping_patience|this lr_scheduler_type", "no measurements|no dev pairs"): (
        "{0} needs dev measurements: give --dev (AlignmentTrainer: eval_dataset), and eval_strategy steps or epoch"
    ),
    ("dev", UNUSED_DEV): "eval_strategy no measures no dev pairs: drop --dev, or set eval_strategy to steps or epoch",
    # Objectives and weights of the model
    ("critic", "gradient_accumulation_steps"): (
        "the critic does not support gradient_accumulation_steps: drop it, and use a larger batch"
    ),
    ("negatives of the batch", "one pair per batch"): (
        "a batch of one pair has no negatives: give more pairs and a larger batch, with pairs_per_chunk if memory is "
        "short"
    ),
    ("momentum encoder", "pairs_per_chunk"): (
        "momentum contrast takes its negatives from a queue, so a larger batch adds no negatives: instead of "
        "--pairs_per_chunk use --gradient_accumulation_steps, which is equivalent here"
    ),
    ("momentum encoder", "deepspeed", "bf16|fp16"): (
        "DeepSpeed stores the momentum encoder in half precision, which rounds its small updates to zero: use "
        "torchrun without --deepspeed, or drop --{2}"
    ),
    ("frozen encoder", "frozen_layers|frozen_word_embeddings|share_of_start|pairs_per_chunk|deepspeed"): (
        "dual pivot trains few weights over a frozen encoder, for which {1} is of no use: drop it"
    ),
    ("float16 weights",): (
        "weights in float16 cannot be trained: open the model with dtype=torch.float32, and compute in half precision "
        "by bf16 or fp16"
    ),
    ("bfloat16 weights", "momentum encoder"): (
        "the momentum encoder averages weights, and bfloat16 rounds its small updates to zero: open the model with "
        "dtype=torch.float32, and compute in bfloat16 by bf16"
    ),
}


def refuse_conflicts(facts: Collection[str]) -> None:
    """Raise the error of the first combination whose settings and facts all hold."""
    for combination, sentence in CONFLICTS.items():
        held = [next((name for name in part.split("|") if name in facts), None) for part in combination]
        if None not in held:
            raise RecipeError(sentence.format(*held))


def facts_of_arguments(arguments: TrainingArguments) -> set[str]:
    """Return the names of the fields that are set, and what else the arguments and the launcher decide."""
    set_fields = set()
    for field in fields(arguments):
        value = getattr(arguments, field.name)
        if value is not None and value is not False and value != default_of(field):
            set_fields.add(field.name)
    launched = {flag for flag in ("fsdp", "deepspeed") if os.environ.get(f"ACCELERATE_USE_{flag.upper()}") == "true"}
    facts = {
        "fsdp": "fsdp" in launched,
        "deepspeed of the launcher only": "deepspeed" in launched - set_fields,
        "no measurements": arguments.eval_strategy == IntervalStrategy.NO,
        UNUSED_DEV: arguments.eval_strategy == IntervalStrategy.NO and not getattr(arguments, "share_of_start", 0),
        "share_of_start auto": getattr(arguments, "share_of_start", 0) == AUTO,
        "no retention": getattr(arguments, "retention", None) is None,
        "AdamW or Adafactor": arguments.optim.startswith(("adamw_torch", "adafactor")),
        "no steps": arguments.max_steps == 0 or (arguments.max_steps < 0 and arguments.num_train_epochs <= 0),
        "this lr_scheduler_type": arguments.lr_scheduler_type in FOLLOW_METRIC,
    }
    return set_fields | {name for name, holds in facts.items() if holds}


def facts_of_model(config: AlignmentConfig, arguments: TrainingArguments) -> set[str]:
    """Return what the objectives of a model need, and how the arguments split its weights and batches."""
    deepspeed = getattr(arguments, "hf_deepspeed_config", None)
    facts = {
        "ZeRO-3": deepspeed is not None and deepspeed.is_zero3(),
        "critic": config.needs.critic,
        "momentum encoder": config.needs.momentum_encoder,
        "language embeddings": bool(config.languages),
        "frozen encoder": config.freezes_encoder,
        "negatives of the batch": bool(_IN_BATCH & {*config.objectives}) and not config.hard_negatives,
        "one pair per batch": arguments.train_batch_size * arguments.world_size < 2,
    }
    return {name for name, holds in facts.items() if holds}


def schedule_options(arguments: TrainingArguments, steps: int) -> dict[str, Any] | None:
    """Return the options of the learning-rate schedule; ``num_decay_steps`` below 1 is a share of the steps."""
    options: Any = arguments.lr_scheduler_kwargs
    decay, warmup = (options or {}).get("num_decay_steps", 0), arguments.get_warmup_steps(steps)
    if 0 < decay < 1:
        return {**options, "num_decay_steps": max(0, min(math.ceil(decay * steps), steps - warmup))}
    if decay and warmup + decay > steps:
        raise RecipeError(
            f"warmup_steps {warmup} and num_decay_steps {decay} are more than the {steps} steps of the run: give "
            "shares of the steps, such as 0.1 and 0.5"
        )
    return dict(options) if options else None
