"""Each training argument decides results, unless it is declared or listed not to."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from transformers import TrainingArguments

from hf_xsent import AlignmentTrainingArguments
from hf_xsent.training.identity import DECIDING, identify_training

# A new field of transformers fails the test below: add it here, or to DECIDING if it decides results.
NOT_DECIDING = {
    *("output_dir", "logging_strategy", "logging_steps", "logging_first_step", "log_on_each_node"),
    *("logging_nan_inf_filter", "log_level", "log_level_replica", "disable_tqdm", "report_to", "run_name"),
    *("project", "trackio_space_id", "trackio_bucket_id", "debug", "trackio_static_space_id"),
    *("include_num_input_tokens_seen", "skip_memory_metrics", "include_for_metrics", "per_device_train_batch_size"),
    *("gradient_accumulation_steps", "num_train_epochs", "auto_find_batch_size", "gradient_checkpointing"),
    *("gradient_checkpointing_kwargs", "activation_checkpointing", "activation_checkpointing_kwargs"),
    *("torch_compile", "torch_compile_backend", "torch_compile_mode", "use_cache", "torch_empty_cache_steps"),
    *("use_cpu", "accelerator_config", "parallelism_config", "local_rank", "ddp_find_unused_parameters"),
    *("ddp_bucket_cap_mb", "ddp_broadcast_buffers", "ddp_static_graph", "ddp_backend", "ddp_timeout", "fsdp"),
    *("fsdp_config", "deepspeed", "eval_on_start", "per_device_eval_batch_size", "prediction_loss_only"),
    *("eval_do_concat_batches", "eval_use_gather_object", "eval_accumulation_steps", "batch_eval_metrics"),
    *("bf16_full_eval", "fp16_full_eval", "save_only_model", "save_on_each_node", "save_total_limit"),
    *("enable_jit_checkpoint", "resume_from_checkpoint", "restore_callback_states_from_checkpoint", "push_to_hub"),
    *("hub_token", "hub_private_repo", "hub_model_id", "hub_strategy", "hub_always_push", "hub_revision"),
    *("dataloader_num_workers", "dataloader_pin_memory", "dataloader_persistent_workers"),
    *("dataloader_prefetch_factor", "dataloader_multiprocessing_context", "dataloader_in_order"),
    *("remove_unused_columns", "label_names", "length_column_name", "do_train", "do_eval", "do_predict"),
}


def test_every_field_of_transformers_is_known_to_decide_results_or_not() -> None:
    known = {field.name for field in fields(TrainingArguments) if field.init}
    assert known - NOT_DECIDING - DECIDING == set()
    assert set() == DECIDING & NOT_DECIDING


@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({"logging_steps": 7, "save_total_limit": 5, "pairs_per_chunk": 2, "dataloader_num_workers": 1}, set()),
        ({"ema_decay": 0.9}, {"ema_decay"}),
        ({"neftune_noise_alpha": 5.0, "ignore_data_skip": True}, {"neftune_noise_alpha", "ignore_data_skip"}),
        ({"gradient_accumulation_steps": 2}, {"batch of a step, over all processes"}),
        ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}, set()),
        ({"num_train_epochs": 5}, {"num_train_epochs"}),
        ({"num_train_epochs": 5, "max_steps": 3}, {"num_train_epochs", "max_steps"}),
    ],
)
def test_only_what_decides_results_is_identified(tmp_path: Path, changes: dict[str, object], differ: set[str]) -> None:
    settings = {"output_dir": str(tmp_path), "use_cpu": True, "per_device_train_batch_size": 4, "eval_strategy": "no"}
    before, now = (
        identify_training(AlignmentTrainingArguments(**settings | one))  # type: ignore[arg-type]
        for one in ({}, changes)
    )
    assert {name for name in {*before, *now} if before.get(name) != now.get(name)} == differ
