"""Define TrainingArguments with our defaults, and refuse combinations of launcher, precision and options that fail.

docs/distributed_training.md lists all combinations.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
from transformers import TrainingArguments
from transformers.integrations import is_deepspeed_available

from hf_xsent.errors import MissingExtraError, RecipeError
from hf_xsent.models.precision import has_bfloat16
from hf_xsent.settings.declare import check_settings
from hf_xsent.settings.secrets import refuse_secrets
from hf_xsent.training.settings import TrainingSettings

logger = logging.getLogger(__name__)
_LAUNCHED = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # set by launchers


@dataclass
class AlignmentTrainingArguments(TrainingSettings, TrainingArguments):  # type: ignore[misc]  # bf16 may be "auto"
    """Hugging Face's arguments with the defaults and the additions of ``TrainingSettings``."""

    def __post_init__(self) -> None:
        """Check the values; disable load_best_model_at_end without dev or checkpoints, and pinned memory on a CPU."""
        check_settings(self)
        choose_bf16(self)
        refuse_secrets({"hub_token": self.hub_token})  # checkpoints hold the arguments
        _check_sharding(self)
        self._check_compilation()
        if self.auto_find_batch_size:
            raise RecipeError(
                "auto_find_batch_size changes the batch, and so the negatives: use --pairs_per_chunk, which needs less "
                "memory and changes no gradient"
            )
        if self.early_stopping_patience is not None:
            if self.eval_strategy == "no":
                raise RecipeError(
                    "early_stopping_patience counts dev measurements, but eval_strategy is no: set it to steps or epoch"
                )
            self.restore_callback_states_from_checkpoint = True  # a resumed run continues counting
        self._check_averages()
        if "no" in (self.eval_strategy, self.save_strategy) or self.average_checkpoints is not None:
            self.load_best_model_at_end = False
        if self.load_best_model_at_end and self.metric_for_best_model in (None, "loss"):  # transformers' default
            self.metric_for_best_model, self.greater_is_better = "accuracy", True
        with fitted_to_machine(self):
            super().__post_init__()
            check_one_device(self)
        if self.log_gradient_norms:
            self._check_gradient_norms()
        if self.device.type == "cpu" and self.fp16:
            raise RecipeError("fp16 needs a GPU; on a CPU use --bf16 or neither")
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
        stated = {one.name: getattr(arguments, one.name) for one in fields(TrainingArguments) if one.init}
        needed = ("remove_unused_columns", "ddp_find_unused_parameters", "ddp_broadcast_buffers")
        return cls(**{name: value for name, value in stated.items() if name not in needed})

    def _check_averages(self) -> None:
        if self.ema_decay is not None and self.deepspeed and (self.bf16 or self.fp16):
            raise RecipeError(
                "DeepSpeed stores the weights in half precision, which rounds the small updates of ema_decay to zero: "
                "use torchrun without --deepspeed, or drop --bf16 and --fp16"
            )
        if self.average_checkpoints is None:
            return
        if self.ema_decay is not None:
            raise RecipeError("ema_decay and average_checkpoints both average the weights: drop one of the two")
        if self.save_strategy == "no":
            raise RecipeError("average_checkpoints averages checkpoints, but save_strategy is no: set it to steps")
        if self.save_total_limit is not None and self.save_total_limit <= self.average_checkpoints:
            raise RecipeError(
                f"save_total_limit {self.save_total_limit} must be above average_checkpoints "
                f"{self.average_checkpoints}, because it includes the best checkpoint: set it to "
                f"{self.average_checkpoints + 1}"
            )

    def _check_gradient_norms(self) -> None:
        for flag, splits in (
            ("pairs_per_chunk", self.pairs_per_chunk is not None),
            ("gradient_accumulation_steps", self.gradient_accumulation_steps > 1),
            ("deepspeed", bool(self.deepspeed)),
            ("fsdp", bool(self.fsdp)),
        ):
            if splits:
                raise RecipeError(
                    f"log_gradient_norms needs the gradient of the whole batch in one place, which {flag} splits: drop "
                    "one of the two"
                )
        if self.world_size > 1:
            raise RecipeError("log_gradient_norms works in one process: start one, or drop it")
        if self.logging_strategy != "steps":
            raise RecipeError("log_gradient_norms measures at logging steps: set logging_strategy to steps")

    def _check_compilation(self) -> None:
        if self.torch_compile or self.torch_compile_backend or self.torch_compile_mode:
            raise RecipeError(
                "torch_compile recompiles the step for every new batch length: use --compile_layers instead"
            )
        if not self.compile_layers:
            return
        if self.gradient_checkpointing or getattr(self, "activation_checkpointing", False):
            raise RecipeError("compile_layers has no effect with activation checkpointing: drop one of the two")
        if shutil.which(os.environ.get("CXX", "g++")) is None:
            raise RecipeError("compile_layers needs a C++ compiler: install g++, or drop --compile_layers")


def choose_bf16(arguments: Any) -> None:
    """Replace ``bf16="auto"`` by whether the device computes bfloat16 in hardware."""
    if arguments.bf16 == "auto":
        device = "cuda" if torch.cuda.is_available() and not arguments.use_cpu else "cpu"
        arguments.bf16 = has_bfloat16(device)
        logger.info("bf16 auto: training in %s on %s", "bfloat16" if arguments.bf16 else "float32", device)
    if not isinstance(arguments.bf16, bool):
        raise RecipeError(f"bf16 takes true, false or auto, not {arguments.bf16!r}")


@contextmanager
def fitted_to_machine(arguments: TrainingArguments) -> Iterator[None]:
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


def check_momentum_contrast(arguments: AlignmentTrainingArguments) -> None:
    """Refuse settings that fail with a momentum encoder and its queue."""
    if arguments.pairs_per_chunk is not None:
        raise RecipeError(
            "momentum contrast takes its negatives from a queue, so a larger batch adds no negatives: "
            "instead of --pairs_per_chunk use --gradient_accumulation_steps, which is equivalent here"
        )
    if arguments.deepspeed and (arguments.bf16 or arguments.fp16):
        raise RecipeError(
            "DeepSpeed stores the momentum encoder in half precision, which rounds its small updates to zero: "
            "use torchrun without --deepspeed, or drop --bf16 and --fp16"
        )
    if arguments.fsdp:
        raise RecipeError(
            "the momentum encoder averages full weights, which FSDP shards: "
            "use DDP (torchrun without --fsdp) or trainer_scripts/deepspeed/zero2.json"
        )


def _check_sharding(arguments: AlignmentTrainingArguments) -> None:
    """Refuse options that FSDP or DeepSpeed ignores, or on which it fails later."""
    for flag in ("fsdp", "deepspeed"):
        if os.environ.get(f"ACCELERATE_USE_{flag.upper()}", "false") == "true" and not getattr(arguments, flag):
            raise RecipeError(
                f"accelerate launch enables {flag}, but the script does not: also pass --{flag} to the script"
            )
    if arguments.deepspeed:
        if not is_deepspeed_available():  # import deepspeed may find trainer_scripts/deepspeed
            raise MissingExtraError("--deepspeed needs DeepSpeed: DS_BUILD_OPS=0 pip install 'hf-xsent[deepspeed]'")
        if int(_read_settings(arguments.deepspeed).get("zero_optimization", {}).get("stage", 0)) == 3:
            raise RecipeError(
                "ZeRO-3 shards weights while the model is built, but the objectives' heads are copied from whole "
                "layers: use stage 2, trainer_scripts/deepspeed/zero2.json"
            )
    if arguments.fsdp:
        for flag in ("share_of_start", "ema_decay", "average_checkpoints"):
            if getattr(arguments, flag):
                raise RecipeError(f"{flag} averages full weights, which FSDP shards: drop it, or use DDP")
        if arguments.use_cpu or not torch.cuda.is_available():
            raise RecipeError("FSDP needs a GPU: on CPUs drop --fsdp, torchrun uses DDP")
        if arguments.pairs_per_chunk is not None:
            raise RecipeError(
                "gradient caching calls the encoder directly, where FSDP does not gather the sharded weights: "
                "drop --pairs_per_chunk, or use DDP or trainer_scripts/deepspeed/zero2.json"
            )
        if str(_read_settings(arguments.fsdp_config or {}).get("version", 2)) == "1":
            raise RecipeError("FSDP 1 flattens weights of different learning rates into one tensor: use version 2")


def _read_settings(config: Any) -> dict[str, Any]:
    """Read settings from a JSON file, JSON text or a mapping."""
    if not isinstance(config, str | Path):
        return dict(config)
    try:
        text = str(config) if str(config).lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the settings {config}: {error}") from error
