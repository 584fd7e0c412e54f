"""Name what decides the results of training: settings, data and the starting model, to compare when a run resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

from transformers import TrainingArguments

from hf_xsent.runs.origin import Origin
from hf_xsent.settings.declare import decides_results

# The fields of transformers' TrainingArguments that decide results. All others only decide where, when and how fast a
# run computes, logs and saves; batch and epochs are compared as pairs per step and steps.
DECIDING = {
    *("max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args"),
    *("optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("bf16", "fp16", "tf32", "eval_strategy", "eval_steps", "eval_delay", "save_strategy"),
    *("save_steps", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "ignore_data_skip"),
    *("full_determinism", "seed", "data_seed", "dataloader_drop_last"),
}
_OF_TRANSFORMERS = {field.name for field in fields(TrainingArguments)}


def identify_training(training: TrainingArguments) -> dict[str, Any]:
    """Return the training arguments that decide results, ours among them unless they are declared not to."""
    identity = {
        field.name: getattr(training, field.name)
        for field in fields(training)
        if field.init and (field.name in DECIDING if field.name in _OF_TRANSFORMERS else decides_results(field))
    }
    for kind in ("eval", "save"):
        if identity[f"{kind}_strategy"] == "no":
            del identity[f"{kind}_steps"]
    if training.max_steps <= 0:
        identity["num_train_epochs"] = training.num_train_epochs
    batch = training.train_batch_size * training.world_size
    identity["batch of a step, over all processes"] = batch * training.gradient_accumulation_steps
    return identity


def identify_method(config: Any) -> dict[str, Any]:
    """Return the settings of a model of this package, a teacher by its content."""
    identity = {"method": config.model_type, **dict(_flat(config.recipe()))}
    return {name: Origin(value).identity if name.endswith("teacher") else value for name, value in identity.items()}


def identify_pairs(bitext: Any, name: str) -> dict[str, Any]:
    """Return a dataset's languages in their order, the number of pairs of each, and a hash of all pairs."""
    dataset = getattr(bitext, "sides", bitext)
    identity: dict[str, Any] = {f"languages of {name} pairs": [*dataset.ranges]}  # their order decides that of pairs
    identity |= {f"{name} pairs of {code}": len(rows) for code, rows in dataset.ranges.items()}
    return identity | {f"content of {name} pairs": dataset.identity}


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
