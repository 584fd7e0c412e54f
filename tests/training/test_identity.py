"""Each training argument decides results, unless it is declared or listed not to."""

from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent import AlignmentTrainingArguments
from hf_xsent.training.identity import identify_training


@pytest.mark.parametrize("eval_strategy", ["no", "steps"])
@pytest.mark.parametrize(
    ("changes", "differ"),
    [
        ({"logging_steps": 7, "save_total_limit": 5, "pairs_per_chunk": 2, "dataloader_num_workers": 1}, set()),
        ({"share_of_start": 0.3}, {"share_of_start"}),
        ({"max_grad_norm": 5.0, "ignore_data_skip": True}, {"max_grad_norm", "ignore_data_skip"}),
        ({"gradient_accumulation_steps": 2}, {"batch of a step, over all processes"}),
        ({"per_device_train_batch_size": 2, "gradient_accumulation_steps": 2}, set()),
        ({"num_train_epochs": 5}, {"num_train_epochs"}),
        ({"num_train_epochs": 5, "max_steps": 3}, {"num_train_epochs", "max_steps"}),
    ],
)
def test_only_what_decides_results_is_identified(
    tmp_path: Path, changes: dict[str, object], differ: set[str], eval_strategy: str
) -> None:
    settings = {"output_dir": str(tmp_path), "use_cpu": True, "per_device_train_batch_size": 4}
    settings["eval_strategy"] = eval_strategy
    before, now = (
        identify_training(AlignmentTrainingArguments(**settings | one))  # type: ignore[arg-type]
        for one in ({}, changes)
    )
    assert {name for name in {*before, *now} if before.get(name) != now.get(name)} == differ
