"""Each training argument decides results, unless it is declared or listed not to."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from transformers import TrainingArguments

from hf_xsent import AlignmentTrainingArguments
from hf_xsent.training.identity import NOT_DECIDING, identify_training

# A new field of transformers fails the test below: add it here, or to NOT_DECIDING if it decides no results.
DECIDING = {
    *("max_steps", "learning_rate", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "optim", "optim_args"),
    *("optim_target_modules", "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm"),
    *("average_tokens_across_devices", "label_smoothing_factor", "bf16", "fp16", "tf32", "use_liger_kernel"),
    *("liger_kernel_config", "neftune_noise_alpha", "eval_strategy", "eval_steps", "eval_delay", "save_strategy"),
    *("save_steps", "load_best_model_at_end", "metric_for_best_model", "greater_is_better", "ignore_data_skip"),
    *("full_determinism", "seed", "data_seed", "dataloader_drop_last", "train_sampling_strategy"),
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
