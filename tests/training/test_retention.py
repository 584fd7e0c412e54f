"""What training loses within languages: measured, and weighed against alignment by a share of the start."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from training_run import Run

from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.publishing.model_card import facts_of_run

SHORT: dict[str, Any] = {"max_steps": 2, "save_steps": 2, "eval_steps": 2, "load_best_model_at_end": False}


@pytest.fixture
def scores(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The scores that the task will measure, one after the other."""
    waiting: list[float] = []

    def score(encode: Any) -> Any:
        assert encode(["Ein Hund.", "A dog."]).shape == (2, 32)
        return SimpleNamespace(groups={"all": {"score": waiting.pop(0)}})

    def load(folder: str) -> Any:
        return SimpleNamespace(score=score, fingerprint=f"texts of {folder}")

    monkeypatch.setattr(RetentionTask, "load", load)
    return waiting


def test_a_run_states_what_it_lost(run: Run, scores: list[float]) -> None:
    scores += [80.0, 78.5, 78.5, 70.0]
    trainer = run.start(retention="benchmarks", **SHORT)
    sentence = "The score within languages was 80.00 before training and is 78.50 after it."
    assert sentence in facts_of_run(run.out)["training"] and sentence in (run.out / "README.md").read_text("utf-8")
    trainer.train(overwrite=True)  # from the trained weights
    (line,) = [line for line in run.metrics if "retention" in line]
    assert (line["retention_before"], line["retention"]) == (78.5, 70.0)


def test_weights_are_averaged_with_those_of_the_start(run: Run) -> None:
    run.start(**SHORT)
    trained = saved_weights(run.out)
    start = load_file(f"{run.settings['model']}/model.safetensors")
    run.start("--overwrite", share_of_start=0.3, **SHORT)
    for name, weight in saved_weights(run.out).items():
        expected = trained[name].lerp(start[name.removeprefix("encoder.")], 0.3)
        torch.testing.assert_close(weight, expected, atol=1e-6, rtol=1e-5, msg=name)
    assert "The weights are averaged with those of the start, whose share is 0.3." in facts_of_run(run.out)["training"]


def test_a_dry_run_measures_nothing_at_its_end(run: Run) -> None:
    run.start("--dry_run", retention="benchmarks", share_of_start=0.1, **SHORT)
    run.start("--dry_run", lr_scheduler_type="reduce_lr_on_plateau", **SHORT)
