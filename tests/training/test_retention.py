"""What training loses within languages: measured, limited, and weighed against alignment by a share of the start."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from training_run import Run

from hf_xsent.errors import OutputError, RecipeError, TrainingError
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.runs.run import RunState
from hf_xsent.training import retention
from hf_xsent.training.retention import SHARES, starting_weights

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

    monkeypatch.setattr(retention.RetentionTask, "load", load)
    return waiting


def test_a_run_states_what_it_lost_and_ends_with_an_error_if_that_is_too_much(run: Run, scores: list[float]) -> None:
    scores += [80.0, 78.5, 80.0, 78.5]  # no further ones: the last run is not trained again
    run.start(retention="benchmarks", largest_drop=2, **SHORT)
    sentence = "The score within languages was 80.00 before training and is 78.50 after it."
    assert sentence in ModelFacts.read(run.out).sentences() and sentence in (run.out / "README.md").read_text("utf-8")
    with pytest.raises(TrainingError, match="fell from 80.00 to 78.50, more than largest_drop 1: the run is saved in"):
        run.start("--overwrite", retention="benchmarks", largest_drop=1, **SHORT)
    state = RunState.read(run.out)
    assert state is not None and state.finished_at_step == 2 and (run.out / "model.safetensors").is_file()
    with pytest.raises(TrainingError, match="fell from 80.00 to 78.50, more than largest_drop 1: the run is saved in"):
        run.start("--resume", retention="benchmarks", largest_drop=1, **SHORT)
    with pytest.raises(OutputError, match=r"changed since step 2: largest_drop 1.0, now 2.0: restore this"):
        run.start("--resume", retention="benchmarks", largest_drop=2, **SHORT)


@pytest.mark.parametrize("settings", [{"largest_drop": 9}, {"share_of_start": "auto"}])
def test_other_texts_on_which_the_result_or_the_verdict_depends_are_a_change(
    run: Run, scores: list[float], settings: dict[str, Any]
) -> None:
    scores += [80.0] * 8
    run.start(retention="benchmarks", **settings, **SHORT)
    with pytest.raises(OutputError, match="content of retention texts of benchmarks, now texts of others: restore"):
        run.start("--resume", retention="others", **settings, **SHORT)


def test_the_data_are_read_once_to_check_and_once_to_measure(
    run: Run, scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    load, folders = retention.RetentionTask.load, list[str]()
    monkeypatch.setattr(retention.RetentionTask, "load", lambda folder: folders.append(folder) or load(folder))
    scores += [80.0, 80.0]
    run.start(retention="benchmarks", largest_drop=9, **SHORT)
    assert folders == ["benchmarks"] * 2


def test_the_share_with_the_highest_sum_of_both_scores_is_chosen(
    run: Run, scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    run.start(**SHORT)
    trained = saved_weights(run.out)
    start = load_file(f"{run.settings['model']}/model.safetensors")
    monkeypatch.setattr("hf_xsent.training.trainer.AlignmentTrainer._measure_dev", lambda *_: {"accuracy": 50.0})
    scores += [80.0, *(79.0 if share == 0.3 else 70.0 for share in SHARES), 79.0]
    run.start("--overwrite", retention="benchmarks", share_of_start="auto", **SHORT)
    for name, weight in saved_weights(run.out).items():
        expected = trained[name].lerp(start[name.removeprefix("encoder.")], 0.3)
        torch.testing.assert_close(weight, expected, atol=1e-6, rtol=1e-5, msg=name)
    said = ModelFacts.read(run.out).sentences()
    assert "The weights are averaged with those of the start, whose share is 0.3." in said


def test_choosing_a_share_leaves_all_trained_weights_as_they_were(encoder_folders: dict[str, Path]) -> None:
    model = SentenceEncoderForPreTraining.from_backbone(str(encoder_folders["bert"]))
    model.set_linear_map(LinearMap(32, 32))
    start = starting_weights(model)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn_like(weight))
    trained = {name: weight.clone() for name, weight in model.state_dict().items()}
    assert retention.choose_share(model, start, iter([2.0, *range(5)][:6]).__next__, lambda: 0.0) == 0.5
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, trained[name]), name


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"share_of_start": "auto"}, "share_of_start auto compares scores within languages: give --retention"),
        ({"largest_drop": 1}, "largest_drop compares scores within languages: give --retention"),
        ({"share_of_start": "auto", "retention": "benchmarks", "dev_pairs": 0}, "compares dev accuracy: give --dev"),
        (
            {"retention": "benchmarks", "languages": ["de", "en", "fr"]},
            "embeds sentences without their language",
        ),
        ({"share_of_start": "much"}, "share_of_start 'much' is not auto, or a number"),
        ({"share_of_start": 1.0}, "share_of_start 1.0 is not auto, or a number"),
    ],
)
def test_settings_without_what_they_compare_are_refused(run: Run, settings: dict[str, Any], reason: str) -> None:
    with pytest.raises(RecipeError, match=reason):
        run.start(**settings)
    assert not run.out.exists()


def test_a_dry_run_measures_nothing_at_its_end(run: Run, scores: list[float]) -> None:
    run.start("--dry_run", retention="benchmarks", share_of_start="auto", largest_drop=1, **SHORT)
    run.start("--dry_run", lr_scheduler_type="reduce_lr_on_plateau", **SHORT)


def test_the_share_needs_no_measurements_during_training(run: Run, scores: list[float]) -> None:
    scores += [80.0] * 8
    run.start(retention="benchmarks", share_of_start="auto", eval_strategy="no", max_steps=1, save_steps=1)
    assert scores == []


def test_each_training_measures_its_start_and_uploads_no_model_that_lost_too_much(
    run: Run, scores: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    scores += [90.0, 80.0, 80.0, 70.0]
    trainer = run.start(retention="benchmarks", **SHORT)
    assert trainer is not None
    uploads: list[str] = []
    monkeypatch.setattr(trainer, "push_to_hub", lambda: uploads.append("model"))
    monkeypatch.setattr(trainer.args, "push_to_hub", True)
    monkeypatch.setattr(trainer.args, "largest_drop", 1)
    with pytest.raises(TrainingError, match="fell from 80.00 to 70.00"):
        trainer.train(overwrite=True)
    assert uploads == [] and scores == []
