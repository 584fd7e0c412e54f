"""Define TrainingArguments with our defaults, and refuse values and combinations that fail or have no effect."""

from __future__ import annotations

import logging
import os
from copy import copy
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch.utils.data import DataLoader
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.integrations.integration_utils import (
    get_available_reporting_integrations,
    get_reporting_integration_callbacks,
)

from hf_xsent.errors import RecipeError
from hf_xsent.files import refuse_uri
from hf_xsent.models.adapters import refuse_other_adapters
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.precision import USUAL_WIDTH, bfloat16_is_faster
from hf_xsent.runs.run import RunState
from hf_xsent.settings.convert import plain
from hf_xsent.settings.declare import check_settings, default_of
from hf_xsent.settings.secrets import refuse_secrets
from hf_xsent.tensors.gathering import process_count, sum_over_processes
from hf_xsent.training.conflicts import AUTO, facts_of_arguments, facts_of_model, refuse_conflicts
from hf_xsent.training.settings import TrainingSettings

logger = logging.getLogger(__name__)

_AT_LEAST = {"gradient_accumulation_steps": 1, "max_grad_norm": 0, "data_seed": 0}  # fields that no library checks
_LAUNCHED = ("WORLD_SIZE", "PMI_SIZE", "OMPI_COMM_WORLD_SIZE", "MV2_COMM_WORLD_SIZE")  # set by launchers


class CheckedArguments(TrainingArguments):
    """Hugging Face's arguments, whose values are checked in one sentence each; ``bf16`` may be "auto"."""

    def __post_init__(self) -> None:
        """Check the values, and adapt those that this machine does not have."""
        self._convert_numbers()
        refuse_uri(str(self.output_dir))
        check_settings(self)
        refuse_conflicts(facts_of_arguments(self))
        for name, least in _AT_LEAST.items():
            if (value := getattr(self, name)) is not None and value < least:
                raise RecipeError(f"{name} {value} is not at least {least}")
        _choose_bf16(self)
        refuse_secrets({"hub_token": self.hub_token})  # checkpoints hold the arguments
        # transformers raises an error for bf16 without a GPU, and for a backend in one process without a launcher.
        # The settings are restored, because their recipe may run on another machine.
        stated = {name: getattr(self, name) for name in ("use_cpu", "ddp_backend")}
        self.use_cpu = self.use_cpu or ((self.bf16 or self.bf16_full_eval) and not torch.accelerator.is_available())
        if not any(name in os.environ for name in _LAUNCHED):
            self.ddp_backend = None
        if self.eval_strategy == "steps":  # transformers' default is logging_steps, which must not decide results
            self.eval_steps = self.eval_steps or self.save_steps
        states_metric = self.metric_for_best_model is not None
        super().__post_init__()
        if not states_metric:  # transformers' default is the loss, which is not measured
            self.metric_for_best_model = self.greater_is_better = None
        _check_same_precision(self)
        if "num_steps" in (getattr(self.accelerator_config, "gradient_accumulation_kwargs", None) or ()):
            raise RecipeError("accelerator_config: give gradient_accumulation_steps instead of num_steps")
        if self.n_gpu > 1:
            raise RecipeError(
                "one process sees several GPUs: start one process per GPU (torchrun --nproc_per_node N), or choose one "
                "by CUDA_VISIBLE_DEVICES=0"
            )
        for name, value in stated.items():
            setattr(self, name, value)
        if self.device.type == "cpu":
            self.dataloader_pin_memory = False
            if self.fp16:  # which would have no effect
                raise RecipeError("fp16 needs a GPU: on a CPU use --bf16 or neither")
        _try_out(self)

    def _convert_numbers(self) -> None:
        """Replace numbers of numpy and torch, which the recipe cannot hold."""
        for field in fields(self):
            if field.init:
                setattr(self, field.name, plain(getattr(self, field.name)))


@dataclass
class AlignmentTrainingArguments(TrainingSettings, CheckedArguments):  # type: ignore[misc]  # bf16 may be "auto"
    """Hugging Face's arguments with the defaults and the additions of ``TrainingSettings``."""

    def __post_init__(self) -> None:
        """Check the values; disable load_best_model_at_end without dev or checkpoints."""
        share = plain(self.share_of_start)
        if share != AUTO and not (isinstance(share, int | float) and 0 <= share < 1):
            raise RecipeError(f"share_of_start {share!r} is not auto, or a number at least 0 and below 1")
        if "no" in (self.eval_strategy, self.save_strategy):
            self.load_best_model_at_end = False
        if self.metric_for_best_model is None:
            self.metric_for_best_model, self.greater_is_better = "accuracy", True
        super().__post_init__()

    @classmethod
    def of(cls, arguments: TrainingArguments | None) -> AlignmentTrainingArguments:
        """Convert TrainingArguments or a subclass, with our further settings at their defaults; None: all defaults.

        Values stay, except those that training on pairs requires, such as ``remove_unused_columns=False``, because the
        collator reads raw text. A field of a subclass that this class does not have raises an error if it is set.
        """
        if isinstance(arguments, cls):
            return arguments
        if arguments is None:
            return cls(output_dir="trainer_output")
        if not isinstance(arguments, TrainingArguments):
            raise RecipeError("args takes TrainingArguments, such as TrainingArguments('runs/mine')")
        needed = {"remove_unused_columns", "ddp_find_unused_parameters", "ddp_broadcast_buffers"}
        ours, values = {field.name for field in fields(cls)}, {}
        for field in fields(arguments):
            value = getattr(arguments, field.name)
            default = default_of(field)
            if field.name not in ours and value != default and (value or default):
                raise RecipeError(f"{field.name} of {type(arguments).__name__} has no effect here: drop it")
            if field.init and field.name in ours - needed:
                values[field.name] = value
        if values["metric_for_best_model"] == "loss":  # which transformers sets where none is given
            values["metric_for_best_model"] = None
        return cls(**values)


def _try_out(arguments: Any) -> None:
    """Build what the Trainer will build, for one weight: settings that libraries refuse end before data is read."""
    layer, tried = torch.nn.utils.skip_init(torch.nn.Linear, 1, 1, bias=False), copy(arguments)
    if tried.optim_target_modules is not None:
        tried.optim_target_modules = "all-linear"  # the names are of the model to train
    kind, options = Trainer.get_optimizer_cls_and_kwargs(tried, layer)
    # Optimizers of target modules, and those that need the model, have their weights among the options.
    weights = [options.pop(name) for name in ("params", "model", "optimizer_dict") if name in options]
    options = options if weights else {"weight_decay": arguments.weight_decay} | options
    optimizer = kind(weights[-1] if weights else layer.parameters(), **options)
    schedule, options = arguments.lr_scheduler_type, arguments.lr_scheduler_kwargs
    try:
        get_scheduler(schedule, optimizer, 1, 2, options)
    except TypeError as error:
        cure = "give lr_scheduler_kwargs of this schedule, {} for none"
        raise TypeError(f"lr_scheduler_type {schedule.value} and {options}: {error}; {cure}") from error
    loader: Any = [0]
    DataLoader(loader, num_workers=arguments.dataloader_num_workers)
    callbacks = get_reporting_integration_callbacks(arguments.report_to)
    for name, callback in zip(arguments.report_to, callbacks, strict=True):
        if name not in get_available_reporting_integrations():  # the callback of an installed one may start a run
            callback()


def _choose_bf16(arguments: Any) -> None:
    """Replace ``bf16="auto"`` by what the run in the output folder has, or else by what is faster here."""
    if arguments.bf16 == "auto":
        state = RunState.read(str(arguments.output_dir))
        earlier = None if state is None else state.identity.get("bf16")
        device = "cuda" if torch.cuda.is_available() and not arguments.use_cpu else "cpu"
        if earlier is not None:
            logger.info("bf16 auto: %s, as in the run in %s", str(earlier).lower(), arguments.output_dir)
        arguments.bf16 = bfloat16_is_faster(device, USUAL_WIDTH, training=True) if earlier is None else earlier
    if not isinstance(arguments.bf16, bool):
        raise RecipeError(f"bf16 takes true, false or auto, not {arguments.bf16!r}")


def _check_same_precision(arguments: TrainingArguments) -> None:
    """Raise an error if ``bf16="auto"`` measured other results in other processes."""
    if int(sum_over_processes(torch.tensor(int(arguments.bf16), device=arguments.device))) % process_count():
        raise RecipeError("bf16 auto chose bfloat16 in some processes and float32 in others: set bf16 to true or false")


def check_trainer(arguments: AlignmentTrainingArguments, model: torch.nn.Module, train: Any, dev: Any) -> None:
    """Refuse arguments that do not fit the model or the pairs."""
    config: AlignmentConfig = model.config  # type: ignore[assignment]
    refuse_other_adapters(model, config.lora_rank)
    dtypes = {weight.dtype for weight in model.parameters() if weight.requires_grad}
    facts = {
        "no dev pairs": dev is None,
        "one pair per batch": train is not None and len(train) < 2,
        "float16 weights": torch.float16 in dtypes,
        "bfloat16 weights": torch.bfloat16 in dtypes,
    }
    held = {name for name, holds in facts.items() if holds}
    refuse_conflicts(facts_of_arguments(arguments) | facts_of_model(config, arguments) | held)
    if torch.bfloat16 in dtypes:
        logger.warning(
            "the weights are bfloat16, which rounds away most updates of a small learning rate: open the model with "
            "dtype=torch.float32 (SentenceTransformer: model_kwargs), and compute in bfloat16 by bf16"
        )
    names = ["accuracy", "beside", "accuracy_forward", "accuracy_backward"]
    languages = getattr(train if dev is None else dev, "languages", ())
    check_metric(arguments, [*names, *(f"accuracy_{code}" for code in languages)])


def check_metric(arguments: TrainingArguments, names: list[str]) -> None:
    """Refuse a metric for the best checkpoint, or for the learning rate, that is not among the measured ones."""
    metric = (arguments.metric_for_best_model or names[0]).removeprefix("eval_")
    if metric not in names:
        raise RecipeError(f"metric_for_best_model {metric!r} is not measured: use {', '.join(names)}")
