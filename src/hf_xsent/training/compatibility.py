"""Check which launchers, precisions and options go together; docs/distributed_training.md holds the whole table."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any, Protocol

import torch
from transformers import TrainingArguments

from hf_xsent.errors import MissingExtraError, RecipeError


class PairTrainingArguments(Protocol):
    """The fields of AlignmentTrainingArguments that the checks read."""

    fsdp: Any
    fsdp_config: Any
    deepspeed: Any
    use_cpu: bool
    bf16: bool
    fp16: bool
    pairs_per_chunk: int | None
    share_of_start: float


def check_support(arguments: PairTrainingArguments) -> None:
    """Refuse, before anything starts, options that would fail later or silently do something else."""
    for flag in ("fsdp", "deepspeed"):
        if os.environ.get(f"ACCELERATE_USE_{flag.upper()}", "false") == "true" and not getattr(arguments, flag):
            raise RecipeError(f"accelerate launch was told of {flag}, the script was not: give --{flag} to the script")
    if arguments.deepspeed:
        if importlib.util.find_spec("deepspeed") is None:
            raise MissingExtraError("--deepspeed needs DeepSpeed: DS_BUILD_OPS=0 pip install 'hf-xsent[deepspeed]'")
        if _zero_stage(arguments.deepspeed) == 3:
            raise RecipeError(
                "ZeRO-3 splits weights while the model is built, but heads start from copies of whole layers: "
                "use stage 2, trainer_scripts/deepspeed/zero2.json"
            )
    if arguments.fsdp:
        if arguments.share_of_start:
            raise RecipeError("share_of_start averages whole weights, which FSDP splits: leave it out, or use DDP")
        if arguments.use_cpu or not torch.cuda.is_available():
            raise RecipeError("accelerate runs FSDP on accelerators alone: on CPUs leave --fsdp out, torchrun uses DDP")
        if arguments.pairs_per_chunk is not None:
            raise RecipeError(
                "gradient caching encodes outside of the call that FSDP gathers weights for: "
                "leave out --pairs_per_chunk, or use DDP or trainer_scripts/deepspeed/zero2.json"
            )
        if str(_settings(arguments.fsdp_config or {}).get("version", 2)) == "1":
            raise RecipeError("FSDP 1 flattens weights that have learning rates of their own: use version 2")


def check_one_device(arguments: TrainingArguments) -> None:
    """Refuse several GPUs in one process: torch's DataParallel would split batches and losses."""
    if arguments.n_gpu > 1:
        raise RecipeError(
            f"one process sees {arguments.n_gpu} GPUs: start one for each (torchrun --nproc_per_node "
            f"{arguments.n_gpu}), or choose one by CUDA_VISIBLE_DEVICES=0"
        )


def check_momentum_contrast(arguments: PairTrainingArguments, contrasts: bool) -> None:
    """Refuse what the momentum encoder and its queue do not go with."""
    if not contrasts:
        return
    if arguments.pairs_per_chunk is not None:
        raise RecipeError(
            "momentum contrast takes its negatives from a queue, so that a larger batch has no more of them: "
            "instead of --pairs_per_chunk use --gradient_accumulation_steps, which is the same here"
        )
    if arguments.deepspeed and (arguments.bf16 or arguments.fp16):
        raise RecipeError(
            "DeepSpeed keeps the momentum encoder in half precision, in which its small steps are lost: "
            "use torchrun without --deepspeed, or leave out --bf16 and --fp16"
        )
    if arguments.fsdp:
        raise RecipeError(
            "the momentum encoder follows whole weights, which FSDP splits: "
            "use DDP or trainer_scripts/deepspeed/zero2.json"
        )


def _zero_stage(config: Any) -> int:
    return int(_settings(config).get("zero_optimization", {}).get("stage", 0))


def _settings(config: Any) -> dict[str, Any]:
    """Read settings from a file, from JSON text, or as given."""
    if not isinstance(config, str | Path):
        return dict(config)
    try:
        text = str(config) if str(config).lstrip().startswith("{") else Path(config).read_text(encoding="utf-8")
        return dict(json.loads(text))
    except (OSError, ValueError) as error:
        raise RecipeError(f"cannot read the settings {config}: {error}") from error
