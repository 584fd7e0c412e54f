"""Runs of dual pivot: with pairs and without, over features and through the encoder, stopped and resumed."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from training_process import assert_survives_kills, steps, train_together
from training_run import Run
from transformers import AutoModel, AutoTokenizer

from hf_xsent.errors import DataError, RecipeError, TrainingError
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.objectives.adversarial import Adversarial
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.training import pretrain
from hf_xsent.training.dual_pivot.features import FeatureCache

Pairs = list[tuple[str, str]]
CYCLE = {"weight": 5, "negatives": 2, "margin": 0.2}
UNSUPERVISED: dict[str, Any] = {"objectives": {"adversarial": 1, "cycle": CYCLE}}


@pytest.fixture
def run(encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path) -> Run:
    run = Run(tmp_path, encoder_folders["xlm-roberta"], pairs)
    run.settings |= {
        "method": "dual-pivot",
        "objectives": {"triplet_ranking": 1},
        "features": str(tmp_path / "features"),
    }
    return run


def _weights(run: Run) -> dict[str, torch.Tensor]:
    return saved_weights(run.out)


@pytest.mark.parametrize("way", [{}, UNSUPERVISED], ids=["pairs", "no pairs"])
def test_features_train_what_the_encoder_trains(way: dict[str, Any], run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pretrain, "FeatureCache", partial(FeatureCache, dtype="float32"))  # as the encoder computes
    run.start(**way)
    by_features, metrics = _weights(run), run.metrics
    run.start("--overwrite", **way, features="none")
    assert by_features.keys() == _weights(run).keys()
    for name, weight in _weights(run).items():
        torch.testing.assert_close(by_features[name], weight, atol=2e-5, rtol=1e-3)
    losses = [[log["loss"] for log in some if "loss" in log] for some in (metrics, run.metrics)]
    assert len(losses[0]) == 6 and np.allclose(*losses, atol=1e-4)
    assert metrics[0]["eval_accuracy"] == run.metrics[0]["eval_accuracy"]


@pytest.mark.parametrize(
    "way", [{"objectives": {"triplet_ranking": {"negatives": 3}}}, UNSUPERVISED], ids=["pairs", "no pairs"]
)
def test_a_stopped_run_resumes_exactly(way: dict[str, Any], run: Run) -> None:
    run.assert_goes_on_exactly(**way)


@pytest.mark.parametrize("way", [{}, UNSUPERVISED], ids=["pairs", "no pairs"])
def test_the_variant_of_the_authors_trains_through_the_encoder(way: dict[str, Any], run: Run) -> None:
    run.start("--variant", "authors", **way, features=None)
    assert not list(run.folder.rglob("features"))
    assert {"layer_norm.weight", "layer_norm.bias", "linear_map.bias"} < {*_weights(run)}
    recipe = yaml.safe_load((run.out / "recipe.yaml").read_text())
    assert recipe["variant"] == "authors" and recipe["pooling"] == "mean" and recipe["dropout"] == 0.1
    assert recipe["objectives"]["cycle" if way else "triplet_ranking"]["hinge"] is False
    before = _weights(run)
    pretrain.pretrain.run([str(run.out / "recipe.yaml"), "--overwrite"])
    assert all(torch.equal(weight, before[name]) for name, weight in _weights(run).items())


def test_a_stopped_run_of_the_authors_variant_resumes_exactly(run: Run) -> None:
    run.assert_goes_on_exactly(**UNSUPERVISED, variant="authors", features=None)


def test_flags_set_n_alpha_lambda_and_kappa(run: Run) -> None:
    flags = ["--objectives", "adversarial=1", "cycle=5", "--negatives", "3", "--margin", "0.1", "--critic_steps", "4"]
    run.start(*flags, max_steps=1, save_steps=1, eval_steps=1)
    recipe = yaml.safe_load((run.out / "recipe.yaml").read_text())["objectives"]
    assert [recipe["cycle"][key] for key in ("negatives", "margin", "weight")] == [3, 0.1, 5]
    assert recipe["adversarial"]["critic_steps"] == 4


@pytest.mark.parametrize(("paired", "expected"), [(True, 1), (False, 0)])
def test_unpaired_rows_are_shuffled_pair_by_pair_or_each_side_alone(
    paired: bool, expected: int, run: Run, pairs: Pairs
) -> None:
    trainer = run.start(**UNSUPERVISED, paired_rows=paired, features="none", max_steps=1, save_steps=1, eval_steps=1)
    rows: Any = trainer.train_dataset
    found = [(row["source"], row["target"]) in pairs for row in (rows[number] for number in range(len(rows)))]
    assert (sum(found) == len(found)) == bool(expected)


@pytest.mark.parametrize("features", [None, "none"])
def test_a_teacher_s_embeddings_are_learned_from_features_and_through_the_encoder(
    run: Run, encoder_folders: dict[str, Path], features: str | None
) -> None:
    objectives = {"distillation": {"teacher": str(encoder_folders["bert"])}}
    run.start(objectives=objectives, features=features, max_steps=30, learning_rate="1e-2")
    losses = [log["loss"] for log in run.metrics if "loss" in log]
    assert losses[-1] < 0.9 * losses[0]


def test_each_step_of_the_critic_samples_dropout_again(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []
    gradient = Adversarial.critic_gradient

    def remember(objective: Adversarial, pairs: SentencePairs) -> torch.Tensor:
        seen.append(pairs.source)
        return gradient(objective, pairs)

    monkeypatch.setattr(Adversarial, "critic_gradient", remember)
    run.start(**UNSUPERVISED, variant="authors", features=None, max_steps=1, save_steps=1, eval_steps=1)
    assert len(seen) == 2 and not torch.equal(*seen)


def test_a_killed_run_resumes_exactly(run: Run) -> None:
    assert_survives_kills(run, **UNSUPERVISED)


@pytest.mark.slow
def test_two_processes_train_the_extraction_alone(run: Run) -> None:
    """One of them encodes for both."""
    said = train_together(run, **UNSUPERVISED, ddp_backend="gloo", per_device_train_batch_size=2)
    assert steps(run) == 6, said
    assert {name.split(".")[0] for name in _weights(run)} - {"encoder"} == {"layer_scores", "linear_map", "objectives"}
    map_ = _weights(run)["linear_map.weight"]
    assert not torch.equal(map_, torch.eye(len(map_)))
    assert not [*(run.folder / "features").glob("*.part")]


def test_the_critic_comes_back_with_its_optimizer(run: Run) -> None:
    three_steps: dict[str, Any] = {
        "objectives": {"adversarial": {"critic_steps": 3}, "cycle": CYCLE},
        "load_best_model_at_end": False,
    }
    run.start(**three_steps, max_steps=3)
    trainer = run.start("--resume_with_changes", **three_steps, max_steps=6)
    objective: Any = trainer.model.objectives["adversarial"]
    assert int(objective.steps_taken) == 18 and objective.moments.abs().sum() > 0
    assert not {*map(id, trainer.optimizer.param_groups[0]["params"])} & {*map(id, objective.critic.parameters())}


def test_two_files_that_are_not_parallel_train(run: Run, pairs: Pairs) -> None:
    files = [run.folder / "mixed.txt", run.folder / "en.txt"]
    for number, file in enumerate(files):
        file.write_text("".join(pair[number] + "\n" for pair in pairs[: 16 - 5 * number]), encoding="utf-8")
    run.start(**UNSUPERVISED, data=None, unpaired=[str(file) for file in files])
    assert len(list((run.folder / "features").glob("*.npy"))) == 2
    assert json.loads((run.out / "bitext.json").read_text())[str(files[1])]["retained"] == 11
    card = (run.out / "README.md").read_text("utf-8")
    assert "16 sentences in und and 11 in en, which are unpaired" in card and "unpaired sentences per side" in card
    assert "pairs (" not in card and "| sentence pairs |" not in card and "Training on pairs" not in card


def test_a_dry_run_encodes_a_few_sentences(run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: Any) -> None:
    monkeypatch.setattr(pretrain, "_SENTENCES_OF_DRY_RUN", 5)
    with caplog.at_level("INFO", logger="hf_xsent"):
        run.start("--dry_run", "true", features=None)
    encoded = [message for message in caplog.messages if "into the feature cache" in message]
    assert encoded and all(
        "encoding 5 sentences" in message or "encoding 4 sentences" in message for message in encoded
    )
    assert any("features of all sentences, once: about" in one for one in caplog.messages)
    run.start("--dry_run", features=str(run.folder / "shared"))
    assert not run.out.exists() and not (run.folder / "shared").exists()


def test_a_second_run_encodes_nothing(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.start()
    before = {file: file.stat().st_mtime_ns for file in (run.folder / "features").glob("*.npy")}
    run.start("--overwrite", **UNSUPERVISED)
    assert before == {file: file.stat().st_mtime_ns for file in (run.folder / "features").glob("*.npy")}


def test_features_beyond_float16_train_without_the_cache(run: Run, tmp_path: Path) -> None:
    encoder = AutoModel.from_pretrained(run.settings["model"])
    with torch.no_grad():
        encoder.embeddings.LayerNorm.weight *= 1e5
    encoder.save_pretrained(tmp_path / "wide")
    AutoTokenizer.from_pretrained(run.settings["model"]).save_pretrained(tmp_path / "wide")
    run.settings |= {"model": str(tmp_path / "wide")}
    with pytest.raises(DataError, match="infinite feature in float16: .* or give --features none, which computes"):
        run.start(**UNSUPERVISED)
    run.start("--overwrite", features="none", **UNSUPERVISED)


def test_a_nan_loss_is_one_sentence(run: Run) -> None:
    with pytest.raises(TrainingError, match=r"step \d: .* NaN or infinite.*lower the learning rate"):
        run.start(learning_rate="1e30", **UNSUPERVISED)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"method": "dap", **UNSUPERVISED, "features": None}, RecipeError, "adversarial trains over a frozen encoder"),
        ({"unpaired": ["a.txt", "b.txt"]}, RecipeError, "give (--)?unpaired or (--)?data"),
        ({"data": None, "unpaired": ["a.txt"]}, RecipeError, "takes two files, one per language, not 1"),
        ({"data": None, "unpaired": ["a.txt", "b.txt"]}, DataError, "no such file: a.txt"),
        ({"data": None, "unpaired": ["a", "b"], "max_pairs": 5}, RecipeError, "max_pairs has no effect on unpaired"),
        (
            {"data": None, "unpaired": "THERE"},
            RecipeError,
            "unpaired files are for dual pivot without pairs: give",
        ),
        (
            {"data": None, "unpaired": "THERE", "method": "alignment", "objectives": {"masked_language_modeling": 1}},
            RecipeError,
            "for dual pivot .*; other objectives read pairs by --data, also masked_language_modeling",
        ),
        (
            {"data": None, "unpaired": ["en.txt", "de.txt"]},
            DataError,
            "names say en and de, but the target language is en",
        ),
        (
            {"data": None, "unpaired": ["mixed.txt", "de.txt"]},
            DataError,
            "names say und and de, but the target language is en",
        ),
        ({"variant": "authors"}, RecipeError, "layer_norm, dropout .* need each token: drop (--)?features"),
        ({"method": "dap", "objectives": None}, RecipeError, "features caches sums of .* dual pivot, which other"),
        ({"pairs_per_chunk": 2}, RecipeError, "for which pairs_per_chunk is of no use"),
        ({"share_of_start": 0.5}, RecipeError, "for which share_of_start is of no use"),
        ({**UNSUPERVISED, "gradient_accumulation_steps": 2}, RecipeError, "drop it, and use a larger batch"),
    ],
)
def test_settings_that_do_not_fit_raise_errors(
    changes: dict[str, Any], error: type[Exception], message: str, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("de.txt", "en.txt", "mixed.txt"):
        (run.folder / name).write_text("Ja.\n", encoding="utf-8")
    monkeypatch.chdir(run.folder)
    if changes.get("unpaired") == "THERE":
        changes = changes | {"unpaired": [str(run.folder / f"{language}.tsv") for language in ("de", "fr")]}
        changes |= {"target_language": "fr"}
    with pytest.raises(error, match=message):
        run.start(**changes)


def test_a_run_that_replaces_one_with_another_encoder_or_length_has_its_own_features(
    run: Run, encoder_folders: dict[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    changes: list[dict[str, Any]] = [{}, {"model": str(encoder_folders["bert"])}, {"max_length": 6}, {}]
    encoded, weights = [], []
    for change in changes:
        caplog.clear()
        run.start("--overwrite", **change)
        encoded.append("into the feature cache" in caplog.text)
        weights.append(_weights(run)["linear_map.weight"])
    assert encoded == [True, True, True, False]
    assert torch.equal(weights[0], weights[3]) and not torch.equal(weights[0], weights[2])


def test_features_of_dev_pairs_are_those_of_a_run_in_float32(run: Run) -> None:
    run.start(bf16=True)
    files = [*(run.folder / "features").glob("*.npy")]
    arrays = {file.name: np.load(file) for file in files}
    for file in files:
        file.unlink()
    run.start("--overwrite")
    assert all(np.array_equal(np.load(file), arrays[file.name]) for file in files)
