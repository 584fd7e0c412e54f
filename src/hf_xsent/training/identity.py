"""Name what decides the results of training: settings, data and the starting model, to compare when a run resumes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_xsent.data.arrow import read_batches
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.pivot import PivotBitext
from hf_xsent.errors import ModelError
from hf_xsent.files import digest
from hf_xsent.runs.identity import identify_model
from hf_xsent.settings.declare import decides_results

if TYPE_CHECKING:
    from transformers import TrainingArguments

_SAMPLED_ROWS = 200  # of each language

# The fields of transformers' TrainingArguments that only decide where, when and how fast a run computes, logs and
# saves. All others decide results.
NOT_DECIDING = {
    *(
        "output_dir",
        "logging_strategy",
        "logging_steps",
        "logging_first_step",
        "log_on_each_node",
        "logging_nan_inf_filter",
        "log_level",
    ),
    *(
        "log_level_replica",
        "disable_tqdm",
        "report_to",
        "run_name",
        "project",
        "trackio_space_id",
        "trackio_bucket_id",
        "debug",
    ),
    *("trackio_static_space_id", "include_num_input_tokens_seen", "skip_memory_metrics", "include_for_metrics"),
    *("per_device_train_batch_size", "gradient_accumulation_steps", "num_train_epochs"),  # compared as batch and steps
    *("auto_find_batch_size", "gradient_checkpointing", "gradient_checkpointing_kwargs", "activation_checkpointing"),
    *("activation_checkpointing_kwargs", "torch_compile", "torch_compile_backend", "torch_compile_mode", "use_cache"),
    *("torch_empty_cache_steps", "use_cpu", "accelerator_config", "parallelism_config", "local_rank"),
    *("ddp_find_unused_parameters", "ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend"),
    *(
        "ddp_timeout",
        "fsdp",
        "fsdp_config",
        "deepspeed",
        "eval_on_start",
        "per_device_eval_batch_size",
        "prediction_loss_only",
    ),
    *(
        "eval_do_concat_batches",
        "eval_use_gather_object",
        "eval_accumulation_steps",
        "batch_eval_metrics",
        "bf16_full_eval",
    ),
    *("fp16_full_eval", "save_only_model", "save_on_each_node", "save_total_limit", "enable_jit_checkpoint"),
    *(
        "resume_from_checkpoint",
        "restore_callback_states_from_checkpoint",
        "push_to_hub",
        "hub_token",
        "hub_private_repo",
    ),
    *(
        "hub_model_id",
        "hub_strategy",
        "hub_always_push",
        "hub_revision",
        "dataloader_num_workers",
        "dataloader_pin_memory",
    ),
    *("dataloader_persistent_workers", "dataloader_prefetch_factor", "dataloader_multiprocessing_context"),
    *(
        "dataloader_in_order",
        "remove_unused_columns",
        "label_names",
        "length_column_name",
        "do_train",
        "do_eval",
        "do_predict",
    ),
}


def identify_training(training: TrainingArguments) -> dict[str, Any]:
    """Return the training arguments that decide results: all but those that are declared or listed not to."""
    identity = {
        field.name: getattr(training, field.name)
        for field in fields(training)
        if field.init and field.name not in NOT_DECIDING and decides_results(field)
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
    return {name: _content(value) if name.endswith("teacher") else value for name, value in identity.items()}


def identify_start(model: Any) -> str | None:
    """Return the content of the encoder or model that a model was made from, if it is known."""
    name = starting_model(model)
    return None if name is None else _content(name)


def starting_model(model: Any) -> str | None:
    """Return the Hub id or folder that a model was made from, if it is known."""
    return getattr(model, "_source", None) or getattr(model, "name_or_path", None) or None


def identify_pairs(bitext: Any, name: str) -> dict[str, Any]:
    """Return a dataset's languages, and the number of pairs, the size and a sample of the texts of each."""
    dataset = getattr(bitext, "sides", bitext)
    sizes: dict[str, int] = {}
    stored = dataset.bitext if isinstance(dataset, PivotBitext) else dataset
    if isinstance(stored, Bitext):
        sizes = {code: sum(batch.nbytes for batch in read_batches(path)) for code, path in stored.files.items()}
    identity: dict[str, Any] = {f"languages of {name} pairs": [*dataset.ranges]}  # their order decides that of pairs
    for code, rows in dataset.ranges.items():
        sample = np.linspace(rows.start, rows.stop - 1, min(_SAMPLED_ROWS, len(rows)), dtype=np.int64)
        content = digest([sizes.get(code), dataset.__getitems__(sample.tolist())])
        identity[f"{name} pairs of {code}"] = f"{len(rows)} ({content})"
    return identity


def _content(model: str | None) -> str | None:
    try:
        return None if model is None else identify_model(model)
    except ModelError:  # loaded with other arguments than its name alone, such as a token
        return model


def _flat(settings: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
