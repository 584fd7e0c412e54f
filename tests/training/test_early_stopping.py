from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead, load_bitext
from hf_xsent.data.bitext import Bitext
from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.task import Metrics
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.training import trainer as trainer_module

Start = Callable[..., AlignmentTrainer]


@pytest.fixture
def bitext(tmp_path: Path, pairs: list[tuple[str, str]]) -> Bitext:
    (tmp_path / "de.tsv").write_text("".join(f"{one}\t{other}\n" for one, other in pairs), encoding="utf-8")
    return load_bitext(str(tmp_path / "{language}.tsv"), cleaning=None, cache_dir=tmp_path / "cache")


@pytest.fixture
def start(encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext, monkeypatch: pytest.MonkeyPatch) -> Start:
    """A trainer that measures after every step and finds these accuracies, by step."""

    def build(accuracies: list[float], **settings: Any) -> AlignmentTrainer:
        defaults: dict[str, Any] = {
            "output_dir": str(tmp_path / "run"),
            "use_cpu": True,
            "report_to": "none",
            "max_steps": len(accuracies),
            "eval_steps": 1,
            "save_steps": 1,
            "save_total_limit": None,
            "eval_on_start": False,
        }
        torch.manual_seed(0)
        folder = encoder_folders["bert"]
        model = XlmrWithRTLHead.from_backbone(str(folder), objectives={"translation_ranking": 1.0})
        arguments = AlignmentTrainingArguments(**defaults | settings)
        trainer = AlignmentTrainer(model, arguments, bitext, bitext, AutoTokenizer.from_pretrained(folder))

        def measured(*_: Any, **__: Any) -> dict[str, Metrics]:
            accuracy = accuracies[trainer.state.global_step - 1]
            return {"de": dict.fromkeys(("mean", "forward", "backward", "beside"), accuracy)}

        monkeypatch.setattr(trainer_module, "retrieval_by_language", measured)
        return trainer

    return build


ACCURACIES = [10.0, 50.0, 40.0, 50.5, 45.0, 46.0, 90.0]


@pytest.mark.parametrize(
    ("settings", "last", "best"),
    [
        ({}, 7, 7),
        ({"early_stopping_patience": 1}, 3, 2),
        ({"early_stopping_patience": 2}, 6, 4),
        ({"early_stopping_patience": 3}, 7, 7),
    ],
)
def test_training_stops_when_dev_has_not_got_better_for_so_long(
    start: Start, tmp_path: Path, settings: dict[str, Any], last: int, best: int
) -> None:
    trainer = start(ACCURACIES, **settings)
    trainer.train()
    assert trainer.state.global_step == last
    assert trainer.state.best_model_checkpoint == str(tmp_path / "run" / f"checkpoint-{best}")


def test_a_trainer_that_trains_again_counts_again(start: Start) -> None:
    trainer = start(ACCURACIES, early_stopping_patience=2)
    for _ in range(2):
        trainer.train(overwrite=True)
        assert trainer.state.global_step == 6


def test_of_equal_measurements_the_later_is_the_best(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    trainer = start([40.0, 50.0, 50.0, 45.0])
    trainer.train()
    assert (trainer.state.best_global_step, trainer.state.best_metric) == (3, 50.0)
    assert f"the model of the best step, 3, is in {tmp_path / 'run'}" in caplog.messages


@pytest.mark.parametrize(
    ("at_start", "warnings"),
    [
        (40.0, []),
        (50.0, ["dev accuracy is not above that before training: 50.00 at the start, at most 50.00"]),
        (
            99.0,
            [
                "all dev measures are 99.00 or more before training: these pairs are too easy",
                "99.00 at the start, at most 50",
            ],
        ),
    ],
)
def test_a_start_that_training_does_not_surpass_is_reported(
    start: Start, at_start: float, warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    start([45.0, 50.0, at_start], eval_on_start=True, max_steps=2).train()  # the last one is that of step 0
    found = [record.message for record in caplog.records if "before training" in record.message]
    assert len(found) == len(warnings)
    assert all(part in message for part, message in zip(warnings, found, strict=True))


def test_a_resumed_run_continues_counting(start: Start, tmp_path: Path) -> None:
    start(ACCURACIES, early_stopping_patience=2).train()
    shutil.rmtree(tmp_path / "run" / "checkpoint-6")
    again = start(ACCURACIES, early_stopping_patience=2)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"), allow_changes=True)
    assert again.state.global_step == 6


def test_a_trainer_without_dev_set_is_refused(encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext) -> None:
    arguments = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True, early_stopping_patience=2)
    folder = encoder_folders["bert"]
    model = XlmrWithRTLHead.from_backbone(str(folder))
    with pytest.raises(RecipeError, match="needs dev measurements: give dev .AlignmentTrainer: eval_dataset"):
        AlignmentTrainer(model, arguments, bitext, processing_class=AutoTokenizer.from_pretrained(folder))


def test_the_best_of_the_saved_checkpoints_is_loaded_though_another_step_was_better(
    start: Start, tmp_path: Path
) -> None:
    trainer = start([10.0, 90.0, 50.0, 60.0, 20.0, 20.0, 20.0, 30.0], save_steps=4)
    trainer.train()
    best = tmp_path / "run" / "checkpoint-4"
    assert (trainer.state.best_model_checkpoint, trainer.state.best_metric) == (str(best), 60.0)
    final, saved = (saved_weights(folder) for folder in (tmp_path / "run", best))
    assert all(torch.equal(final[name], weight) for name, weight in saved.items())


def test_measurements_between_checkpoints_count_for_early_stopping(start: Start) -> None:
    trainer = start([10.0, 90.0, 50.0, 60.0, 70.0, 80.0, 80.0, 80.0], save_steps=4, early_stopping_patience=3)
    trainer.train()
    assert trainer.state.global_step == 5 and trainer.state.best_global_step == 4


def test_a_resumed_run_waits_as_long_as_its_own_patience_says(start: Start, tmp_path: Path) -> None:
    start(ACCURACIES, early_stopping_patience=2).train()
    shutil.rmtree(tmp_path / "run" / "checkpoint-6")
    again = start(ACCURACIES, early_stopping_patience=3)
    again.train(resume_from_checkpoint=str(tmp_path / "run" / "checkpoint-5"), allow_changes=True)
    assert again.state.global_step == 7
