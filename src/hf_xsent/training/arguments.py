"""Define TrainingArguments with our defaults, and refuse combinations of launcher, precision and options that fail.

docs/distributed_training.md lists all combinations.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations import get_available_reporting_integrations, is_deepspeed_available
from transformers.trainer_utils import IntervalStrategy, SchedulerType

from hf_xsent.errors import MissingExtraError, RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.precision import has_bfloat16
from hf_xsent.settings.declare import check_settings, default_of
from hf_xsent.settings.secrets import refuse_secrets
from hf_xsent.training.settings import TrainingSettings

logger = logging.getLogger(__name__)
NO_DEV_FOR_EARLY_STOPPING = "early_stopping_patience needs dev pairs to measure: give --dev, or --dev_pairs above 0"
_IN_BATCH = {"translation_ranking", "matryoshka", "triplet_ranking"}  # objectives with negatives of the batch
_AT_LEAST = {  # fields of TrainingArguments that transformers does not check in one sentence
    **dict.fromkeys(("learning_rate", "weight_decay", "max_grad_norm", "neftune_noise_alpha", "seed", "data_seed"), 0),
    **{"adam_beta1": 0, "adam_beta2": 0, "adam_epsilon": 0, "gradient_accumulation_steps": 1},
}
_BELOW = {"adam_beta1": 1, "adam_beta2": 1, "seed": 2**32, "data_seed": 2**32}
_LAUNCHED = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # set by launchers

# Fields of transformers' TrainingArguments of which only the default works, and why.
_LOADER = "the languages are sampled in proportion to size^alpha: set alpha or one_language_batches instead"
_COMPILATION = "it recompiles the step for every new batch length: use compile_layers instead"
_LIGER = "no Liger kernel exists for these encoders"
REFUSED = {
    "auto_find_batch_size": "it changes the batch, and so the negatives: use pairs_per_chunk, which needs less memory",
    "label_smoothing_factor": "no loss here smooths its labels",
    "liger_kernel_config": _LIGER,
    "torch_compile": _COMPILATION,
    "torch_compile_backend": _COMPILATION,
    "torch_compile_mode": _COMPILATION,
    "train_sampling_strategy": _LOADER,
    "use_liger_kernel": _LIGER,
}
# Fields without effect: the Trainer's own evaluation, prediction and language modelling read them, or its scripts.
WITHOUT_EFFECT = {
    *("batch_eval_metrics", "bf16_full_eval", "eval_accumulation_steps", "eval_do_concat_batches"),
    *("eval_use_gather_object", "fp16_full_eval", "include_for_metrics", "label_names", "per_device_eval_batch_size"),
    *("prediction_loss_only", "average_tokens_across_devices", "include_num_input_tokens_seen", "use_cache"),
    *("length_column_name", "do_train", "do_eval", "do_predict", "resume_from_checkpoint", "local_rank"),
    *("remove_unused_columns", "logging_nan_inf_filter", "dataloader_drop_last", "dataloader_in_order"),
    *("dataloader_multiprocessing_context",),
}


@dataclass
class AlignmentTrainingArguments(TrainingSettings, TrainingArguments):  # type: ignore[misc]  # bf16 may be "auto"
    """Hugging Face's arguments with the defaults and the additions of ``TrainingSettings``."""

    def __post_init__(self) -> None:
        """Check the values; disable load_best_model_at_end without dev or checkpoints, and pinned memory on a CPU."""
        check_settings(self)
        refuse_fields(self, REFUSED)
        check_ranges(self)
        choose_bf16(self)
        refuse_secrets({"hub_token": self.hub_token})  # checkpoints hold the arguments
        _check_sharding(self)
        _check_conflicts(self)
        if self.early_stopping_patience is not None:
            self.restore_callback_states_from_checkpoint = True  # a resumed run continues counting
        if "no" in (self.eval_strategy, self.save_strategy):
            self.load_best_model_at_end = False
        if self.metric_for_best_model in (None, "loss", "eval_loss"):  # transformers' default
            self.metric_for_best_model, self.greater_is_better = "accuracy", True
        with adapted_to_machine(self):
            super().__post_init__()
            check_one_device(self)
        refuse(
            self.log_gradient_norms and self.world_size > 1,
            "log_gradient_norms works in one process: start one, or drop it",
        )
        refuse(self.device.type == "cpu" and self.fp16, "fp16 needs a GPU; on a CPU use --bf16 or neither")
        if self.device.type == "cpu":
            self.dataloader_pin_memory = False

    @classmethod
    def of(cls, arguments: TrainingArguments | None) -> AlignmentTrainingArguments:
        """Convert plain TrainingArguments, with our further settings at their defaults; None: all defaults.

        Values of plain TrainingArguments stay, except those that training on pairs requires, such as
        ``remove_unused_columns=False``, because the collator reads raw text.
        """
        if isinstance(arguments, cls):
            return arguments
        if arguments is None:
            return cls(output_dir="trainer_output")
        values = {field.name: getattr(arguments, field.name) for field in fields(TrainingArguments) if field.init}
        needed = ("remove_unused_columns", "ddp_find_unused_parameters", "ddp_broadcast_buffers")
        return cls(**{name: value for name, value in values.items() if name not in needed})


def check_ranges(arguments: TrainingArguments) -> None:
    """Check the numbers of transformers' fields, and that the integrations to report to are installed."""
    for name, bound in _AT_LEAST.items():
        value = getattr(arguments, name)
        refuse(value is not None and not value >= bound, f"{name} {value} is not at least {bound}")
    for name, bound in _BELOW.items():
        value = getattr(arguments, name)
        refuse(value is not None and value >= bound, f"{name} {value} is not below {bound}")
    available = ["none", "all", *get_available_reporting_integrations()]
    for name in [arguments.report_to] if isinstance(arguments.report_to, str) else arguments.report_to or []:
        refuse(name not in available, f"report_to {name!r} is unknown or not installed: use {', '.join(available)}")


def check_weights(arguments: AlignmentTrainingArguments, model: torch.nn.Module, config: AlignmentConfig) -> None:
    """Refuse weights in half precision where their updates would be lost."""
    dtypes = {weight.dtype for weight in model.parameters() if weight.requires_grad}
    refuse(
        torch.float16 in dtypes,
        "weights in float16 cannot be trained: open the model with dtype=torch.float32, and compute in half precision "
        "by bf16 or fp16",
    )
    averaged = "ema_decay" if arguments.ema_decay is not None else "momentum_contrast"
    refuse(
        torch.bfloat16 in dtypes and (arguments.ema_decay is not None or config.needs.momentum_encoder),
        f"{averaged} averages weights, and bfloat16 rounds its small updates to zero: open the model with "
        "dtype=torch.float32, and compute in bfloat16 by bf16",
    )


def refuse_fields(arguments: TrainingArguments, reasons: dict[str, str]) -> None:
    """Raise an error for the first of these fields that has another value than its default."""
    defaults = {field.name: default_of(field) for field in fields(TrainingArguments)}
    for name, reason in reasons.items():
        if getattr(arguments, name) not in (None, defaults[name]):
            raise RecipeError(f"{name} does not work here: {reason}")


def refuse(condition: Any, sentence: str) -> None:
    """Raise an error with this sentence if the condition holds."""
    if condition:
        raise RecipeError(sentence)


def _check_conflicts(arguments: AlignmentTrainingArguments) -> None:
    """Refuse settings that exclude each other."""
    half = arguments.bf16 or arguments.fp16
    refuse(
        arguments.early_stopping_patience is not None and arguments.eval_strategy == "no",
        "early_stopping_patience counts dev measurements, but eval_strategy is no: set it to steps or epoch",
    )
    refuse(
        arguments.ema_decay is not None and arguments.deepspeed and half,
        "DeepSpeed stores the weights in half precision, which rounds the small updates of ema_decay to zero: "
        "use torchrun without --deepspeed, or drop --bf16 and --fp16",
    )
    if arguments.compile_layers:
        refuse(
            arguments.gradient_checkpointing or getattr(arguments, "activation_checkpointing", False),
            "compile_layers has no effect with activation checkpointing: drop one of the two",
        )
        refuse(
            shutil.which(os.environ.get("CXX", "g++")) is None,
            "compile_layers needs a C++ compiler: install g++, or drop --compile_layers",
        )
    if arguments.log_gradient_norms:
        splits = ("pairs_per_chunk", "deepspeed", "fsdp")
        names = [name for name in splits if getattr(arguments, name)]
        names += ["gradient_accumulation_steps"] * (arguments.gradient_accumulation_steps > 1)
        refuse(
            names,
            f"log_gradient_norms needs the gradient of the whole batch in one place, which {' and '.join(names)} "
            "splits: drop one of the two",
        )
        refuse(
            arguments.logging_strategy != "steps",
            "log_gradient_norms measures at logging steps: set logging_strategy to steps",
        )


def _check_sharding(arguments: AlignmentTrainingArguments) -> None:
    """Refuse options that FSDP or DeepSpeed ignores, or on which it fails later."""
    for flag in ("fsdp", "deepspeed"):
        launched = os.environ.get(f"ACCELERATE_USE_{flag.upper()}", "false") == "true"
        refuse(
            launched and not getattr(arguments, flag),
            f"accelerate launch enables {flag}, but the script does not: also pass --{flag} to the script",
        )
    if arguments.deepspeed:
        if not is_deepspeed_available():  # import deepspeed may find trainer_scripts/deepspeed
            raise MissingExtraError("--deepspeed needs DeepSpeed: DS_BUILD_OPS=0 pip install 'hf-xsent[deepspeed]'")
        stage = int(_read_config(arguments.deepspeed).get("zero_optimization", {}).get("stage", 0))
        refuse(
            stage == 3,
            "ZeRO-3 shards weights while the model is built, but the objectives' heads are copied from whole "
            "layers: use stage 2, trainer_scripts/deepspeed/zero2.json",
        )
    if arguments.fsdp:
        for flag in ("share_of_start", "ema_decay"):
            refuse(getattr(arguments, flag), f"{flag} averages full weights, which FSDP shards: drop it, or use DDP")
        refuse(
            arguments.use_cpu or not torch.cuda.is_available(),
            "FSDP needs a GPU: on CPUs drop --fsdp, torchrun uses DDP",
        )
        refuse(
            arguments.pairs_per_chunk is not None,
            "gradient caching calls the encoder directly, where FSDP does not gather the sharded weights: "
            "drop --pairs_per_chunk, or use DDP or trainer_scripts/deepspeed/zero2.json",
        )
        refuse(
            str(_read_config(arguments.fsdp_config or {}).get("version", 2)) == "1",
            "FSDP 1 flattens weights of different learning rates into one tensor: use version 2",
        )


def check_arguments_of_model(arguments: AlignmentTrainingArguments, config: AlignmentConfig) -> None:
    """Refuse arguments that do not fit the objectives of a model or its frozen encoder."""
    if config.needs.momentum_encoder:
        _check_momentum_contrast(arguments)
    if config.needs.critic and arguments.gradient_accumulation_steps > 1:
        raise RecipeError("the critic does not support gradient_accumulation_steps: drop it, and use a larger batch")
    alone = arguments.train_batch_size * arguments.world_size < 2 and not config.hard_negatives
    refuse(
        alone and _IN_BATCH & {*config.objectives},
        "a batch of one pair has no negatives: use a larger batch, with pairs_per_chunk if memory is short",
    )
    if config.freezes_encoder:
        refuse(arguments.frozen_layers, "dual pivot freezes the whole encoder: drop frozen_layers")
        if arguments.pairs_per_chunk is not None:
            raise RecipeError(
                "pairs_per_chunk saves no memory over a frozen encoder, which stores no activations: drop it"
            )
        if arguments.deepspeed or arguments.fsdp:
            raise RecipeError("dual pivot trains too few weights to shard: drop --fsdp and --deepspeed, use DDP")


def _check_momentum_contrast(arguments: AlignmentTrainingArguments) -> None:
    """Refuse settings that fail with a momentum encoder and its queue."""
    refuse(
        arguments.pairs_per_chunk is not None,
        "momentum contrast takes its negatives from a queue, so a larger batch adds no negatives: "
        "instead of --pairs_per_chunk use --gradient_accumulation_steps, which is equivalent here",
    )
    refuse(
        arguments.deepspeed and (arguments.bf16 or arguments.fp16),
        "DeepSpeed stores the momentum encoder in half precision, which rounds its small updates to zero: "
        "use torchrun without --deepspeed, or drop --bf16 and --fp16",
    )
    refuse(
        arguments.fsdp,
        "the momentum encoder averages full weights, which FSDP shards: use DDP (torchrun without --fsdp) or "
        "trainer_scripts/deepspeed/zero2.json",
    )


def refuse_parts(parts: Mapping[str, Any]) -> None:
    """Refuse arguments of the Trainer that would have no effect."""
    for name in ("compute_loss_func", "compute_metrics", "preprocess_logits_for_metrics", "model_init"):
        refuse(
            parts.get(name) is not None,
            f"{name} has no effect here: the model's objectives are the loss, and dev pairs give the metrics",
        )


def check_dev(arguments: AlignmentTrainingArguments, dev: Any) -> None:
    """Refuse settings that need dev measurements, or a metric, that the run does not have."""
    plateau = arguments.lr_scheduler_type == SchedulerType.REDUCE_ON_PLATEAU
    if dev is None or arguments.eval_strategy == IntervalStrategy.NO:
        refuse(arguments.early_stopping_patience is not None, NO_DEV_FOR_EARLY_STOPPING)
        refuse(
            plateau, "lr_scheduler_type reduce_lr_on_plateau needs dev measurements: give dev pairs and eval_strategy"
        )
        return
    refuse(
        arguments.fsdp,
        "encoding dev pairs needs full weights, which FSDP shards: drop --dev, give --dev_pairs 0, and measure the "
        "saved model by hf-xsent evaluate",
    )
    names = ["accuracy", "accuracy_forward", "accuracy_backward", *(f"accuracy_{code}" for code in dev.languages)]
    metric = str(arguments.metric_for_best_model).removeprefix("eval_")
    refuse(
        (plateau or arguments.load_best_model_at_end) and metric not in names,
        f"metric_for_best_model {metric!r} is not measured: use {', '.join(names)}",
    )


def choose_bf16(arguments: Any) -> None:
    """Replace ``bf16="auto"`` by whether the device computes bfloat16 in hardware."""
    if arguments.bf16 == "auto":
        device = "cuda" if torch.cuda.is_available() and not arguments.use_cpu else "cpu"
        arguments.bf16 = has_bfloat16(device)
        logger.info("bf16 auto: training in %s on %s", "bfloat16" if arguments.bf16 else "float32", device)
    if not isinstance(arguments.bf16, bool):
        raise RecipeError(f"bf16 takes true, false or auto, not {arguments.bf16!r}")


@contextmanager
def adapted_to_machine(arguments: TrainingArguments) -> Iterator[None]:
    """Within the block, set use_cpu for bf16 without a GPU, and unset ddp_backend for one process without a launcher.

    transformers raises an error in both cases. Afterwards restore the stated settings, because their recipe may run on
    another machine.
    """
    stated = {name: getattr(arguments, name) for name in ("use_cpu", "ddp_backend")}
    arguments.use_cpu = arguments.use_cpu or (arguments.bf16 and not torch.accelerator.is_available())
    if not any(name in os.environ for name in _LAUNCHED):
        arguments.ddp_backend = None
    yield
    for name, value in stated.items():
        setattr(arguments, name, value)


def check_one_device(arguments: TrainingArguments) -> None:
    """Refuse several GPUs in one process, where torch's DataParallel would split each batch and its loss."""
    if arguments.n_gpu > 1:
        raise RecipeError(
            f"one process sees {arguments.n_gpu} GPUs: start one process per GPU (torchrun --nproc_per_node "
            f"{arguments.n_gpu}), or choose one by CUDA_VISIBLE_DEVICES=0"
        )


def _read_config(config: Any) -> dict[str, Any]:
    """Read a config from a JSON file, JSON text or a mapping."""
    if not isinstance(config, str | Path):
        return dict(config)
    try:
        text = str(config) if str(config).lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the config {config}: {error}") from error
