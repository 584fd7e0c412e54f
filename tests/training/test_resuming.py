"""What --resume continues, and what it refuses: finished runs, changed settings and data."""

from __future__ import annotations

import json
import shutil
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from training_run import Run, unfinish

from hf_xsent import AlignmentTrainer
from hf_xsent.errors import HfXsentError, ModelError, OutputError, RecipeError
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.runs.run import RUN_STATE_FILE, UNFINISHED

CONSTANT = {"lr_scheduler_type": "constant", "warmup_steps": 0, "load_best_model_at_end": False}


def _weights(run: Run) -> dict[str, torch.Tensor]:
    return saved_weights(run.out)


def _assert_equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert [name for name in one if not torch.equal(one[name], other[name])] == []


def _state(run: Run) -> dict[str, Any]:
    return dict(json.loads((run.out / RUN_STATE_FILE).read_text()))


# Finished runs


def test_a_finished_run_is_not_trained_further(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.start(**CONSTANT)
    before = {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}
    with caplog.at_level("INFO", logger="hf_xsent"):
        assert run.start("--resume", **CONSTANT) is None
    assert f"the run in {run.out} is finished, at step 6: nothing to do" in caplog.messages
    assert before == {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}


def test_a_finished_run_without_checkpoints_has_nothing_to_do_but_cannot_change(run: Run) -> None:
    settings = {"save_strategy": "no", "eval_strategy": "no"}
    run.start(**settings)
    assert run.start("--resume", **settings) is None
    with pytest.raises(OutputError, match="is finished and left no checkpoint"):
        run.start("--resume_with_changes", max_steps=9, **settings)


@pytest.mark.parametrize("settings", [CONSTANT, {}, {"max_steps": None, "num_train_epochs": 2}])
def test_a_run_killed_before_its_final_model_ends_with_its_last_step(run: Run, settings: dict[str, Any]) -> None:
    run.start(**settings)
    whole, logged = _weights(run), [[*line] for line in run.metrics]
    unfinish(run.out)
    trainer = run.start("--resume", **settings)
    assert trainer is not None and trainer.state.global_step == 6
    _assert_equal(_weights(run), whole)
    assert [[*line] for line in run.metrics] == logged
    assert max(int(path.name.split("-")[1]) for path in run.out.glob("checkpoint-*")) == 6
    assert _state(run)["finished_at_step"] == 6
    assert [line["step"] for line in run.metrics if "loss" in line] == [1, 2, 3, 4, 5, 6]


def test_a_run_that_stopped_early_does_not_continue(run: Run) -> None:
    settings = {"early_stopping_patience": 1, "learning_rate": "1e-9", "max_steps": 30}
    run.start(**settings)
    assert _state(run)["finished_at_step"] == 6, "the second measurement is no better"
    whole = _weights(run)
    unfinish(run.out)
    trainer = run.start("--resume", **settings)
    assert trainer is not None and trainer.state.global_step == 6
    _assert_equal(_weights(run), whole)


def test_an_overwritten_run_that_was_killed_at_once_is_not_taken_for_finished(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.start(max_steps=3)
    with monkeypatch.context() as patched:
        patched.setattr(AlignmentTrainer, "compute_loss", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            run.start("--overwrite", seed=7)
    assert (run.out / "model.safetensors").is_file()
    trainer = run.start("--resume", seed=7)
    assert trainer is not None and trainer.state.global_step == 6


# Changes


CHANGES: tuple[tuple[dict[str, Any], str], ...] = (
    ({"learning_rate": "1e-4"}, "learning_rate 0.001, now 0.0001"),
    ({"seed": 1}, "seed 42, now 1"),
    ({"per_device_train_batch_size": 2}, "pairs per batch, over all processes 4, now 2"),
    ({"max_steps": 9}, "max_steps 6, now 9"),
    ({"alpha": 1}, "alpha 0.5, now 1.0"),
    ({"pooling": "mean"}, "pooling cls, now mean"),
    ({"objectives": {"translation_ranking": 0.5}}, "objectives.translation_ranking"),
    ({"method": "alignment"}, "method dap, now alignment"),
    ({"data": ["de={folder}/de.tsv"]}, "training pairs of fr 4, now none"),
    ({"data": ["fr={folder}/fr.tsv", "de={folder}/de.tsv"]}, "languages of training pairs"),
    ({"dev_pairs": 3}, "dev pairs of de"),
)


def test_a_run_that_changed_is_refused_with_the_difference(run: Run) -> None:
    run.start()
    unfinish(run.out)
    before = {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}
    for changes, shown in CHANGES:
        stated = changes | {
            key: [one.format(folder=run.folder) for one in changes[key]] for key in changes if key == "data"
        }
        with pytest.raises(OutputError, match=rf"since step 6: .*{shown}.*(--)?resume_with_changes"):
            run.start("--resume", **stated)
    assert before == {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}


def test_another_text_of_the_same_length_is_a_change(run: Run) -> None:
    run.start()
    unfinish(run.out)
    data = run.folder / "fr.tsv"
    data.write_text(data.read_text("utf-8").swapcase(), encoding="utf-8")
    with pytest.raises(OutputError, match="content of training pairs"):
        run.start("--resume")


def test_files_may_move_and_logs_and_chunks_change(run: Run) -> None:
    settings = {"max_steps": 6, "save_steps": 3}
    run.start(**settings)
    whole = _weights(run)
    shutil.rmtree(run.out / "checkpoint-6")
    unfinish(run.out)
    (run.folder / "de.tsv").rename(run.folder / "moved.tsv")
    data = [f"de={run.folder}/moved.tsv", f"fr={run.folder}/fr.tsv"]
    run.start("--resume", data=data, logging_steps=2, save_total_limit=1, **settings)
    _assert_equal(_weights(run), whole)


def test_changes_that_are_allowed_are_recorded(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    run.start(max_steps=3)
    run.start("--resume_with_changes", max_steps=6, learning_rate="2e-3")
    assert "the run resumes with changes" in caplog.text
    (change,) = _state(run)["changes"]
    assert change == {"step": 3, "changed": {"learning_rate": [0.001, 0.002], "max_steps": [3, 6]}}
    assert _state(run)["finished_at_step"] == 6
    assert run.start("--resume", max_steps=6, learning_rate="2e-3") is None
    run.start("--resume_with_changes", max_steps=9, learning_rate="2e-3")
    assert [one["step"] for one in _state(run)["changes"]] == [3, 6]


def test_another_optimizer_does_not_read_the_state_of_the_first(run: Run) -> None:
    run.start(max_steps=3)
    with pytest.raises(
        OutputError, match="a state of the optimizer adamw_torch_fused since step 3, which adafactor cannot"
    ):
        run.start("--resume_with_changes", optim="adafactor", max_steps=6)
    assert run.start("--resume_with_changes", optim="adamw_torch", max_steps=6) is not None
    assert run.start("--resume_with_changes", optim="sgd", max_steps=9) is not None


def test_a_change_that_the_optimizer_cannot_take_is_one_sentence(run: Run) -> None:
    run.start(max_steps=3)
    with pytest.raises(
        OutputError,
        match="the optimizer's state in .*checkpoint-3 is damaged or does not fit this run .* resume with the settings "
        "of that run; with the same settings, delete",
    ):
        run.start("--resume_with_changes", frozen_layers=1, max_steps=3, seed=5)


# Checkpoints


def test_a_checkpoint_of_another_model_is_one_sentence(run: Run) -> None:
    run.start(max_steps=3)
    file = run.out / "checkpoint-3" / "model.safetensors"
    whole = load_file(file)
    name = next(name for name in whole if name.endswith("LayerNorm.weight"))
    for weights, difference in (
        (whole | {name: torch.ones(48)}, f"size mismatch for encoder.{name}"),
        (whole | {"other.weight": torch.ones(3)}, 'Unexpected key.* "encoder.other.weight"'),
        ({key: weight for key, weight in whole.items() if key != name}, f'Missing key.* "encoder.{name}"'),
    ):
        save_file(weights, file, {"format": "pt"})
        with pytest.raises(ModelError, match=f"checkpoint-3 is of another model: .*{difference}"):
            run.start("--resume_with_changes", max_steps=4)


@pytest.mark.parametrize("file", ["trainer_state.json", "optimizer.pt", "model.safetensors", "rng_state.pth"])
def test_a_damaged_file_of_a_checkpoint_is_named_and_the_run_stays_as_it_is(run: Run, file: str) -> None:
    run.start(max_steps=3)
    path = run.out / "checkpoint-3" / file
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    described = {path: path.read_text("utf-8") for path in run.out.glob("*") if path.suffix in (".json", ".yaml")}
    with pytest.raises(HfXsentError, match="checkpoint-3"):
        run.start("--resume_with_changes", max_steps=4, dev_pairs=1)
    assert described == {path: path.read_text("utf-8") for path in described}


def test_the_deletion_of_a_surplus_checkpoint_is_finished(run: Run) -> None:
    settings = {"save_steps": 2, "eval_steps": 2, "save_total_limit": 1, "load_best_model_at_end": False}
    run.start(**settings)
    unfinish(run.out)
    shutil.copytree(run.out / "checkpoint-6", run.out / "checkpoint-4")
    (run.out / "checkpoint-4" / "trainer_state.json").unlink()  # killed while it deleted this one
    run.start("--resume", **settings)
    assert sorted(path.name for path in run.out.glob("checkpoint-*")) == ["checkpoint-6"]


def test_folders_that_are_not_checkpoints_stay_and_count_for_nothing(run: Run) -> None:
    settings = {"save_steps": 2, "save_total_limit": 1, "eval_strategy": "no"}
    run.start(max_steps=2, **settings)
    for name in ("checkpoint-1-kept", "checkpoint-9-kept"):
        shutil.copytree(run.out / "checkpoint-2", run.out / name)
    run.start("--resume_with_changes", max_steps=4, **settings)
    left = {path.name for path in run.out.glob("checkpoint-*")}
    assert left == {"checkpoint-1-kept", "checkpoint-9-kept", "checkpoint-4"}


def test_what_a_kill_left_unfinished_does_not_join_the_final_model(run: Run) -> None:
    run.start()
    whole = sorted(path.name for path in run.out.iterdir())
    unfinish(run.out)
    shutil.copytree(run.out / "checkpoint-3", run.out / UNFINISHED)
    run.start("--resume")
    assert sorted(path.name for path in run.out.iterdir()) == whole


def test_the_best_checkpoint_is_found_in_a_folder_that_was_moved(run: Run) -> None:
    settings = {"learning_rate": "1e-9"}
    run.start(**settings)
    unfinish(run.out)
    shutil.copytree(run.out, run.folder / "moved")
    shutil.rmtree(run.out)
    trainer = run.start("--resume", **settings, output_dir=str(run.folder / "moved"))
    assert trainer is not None and trainer.state.best_model_checkpoint == str(run.folder / "moved" / "checkpoint-6")


def test_a_final_model_that_was_deleted_is_written_again(run: Run) -> None:
    run.start()
    whole = {name: weight.clone() for name, weight in _weights(run).items()}
    (run.out / "model.safetensors").unlink()
    assert run.start("--resume") is not None
    _assert_equal(_weights(run), whole)


def test_resume_with_changes_needs_no_second_flag_and_starts_a_new_run_without_one(run: Run) -> None:
    assert run.start("--resume_with_changes", max_steps=1) is not None
    with pytest.raises(RecipeError):
        run.start("--resume_with_changes", "perhaps")


@pytest.mark.parametrize("schedule", ["constant", "linear"])
def test_a_resumed_run_trains_with_changed_rates(run: Run, schedule: str) -> None:
    settings: dict[str, Any] = {"warmup_steps": 0, "lr_scheduler_type": schedule, "head_learning_rate": "1e-3"}
    settings["objectives"] = {"translation_ranking": 1, "representation_translation": 0.8}
    run.start(**settings)
    unfinish(run.out, "checkpoint-6")
    changes = {"learning_rate": "1e-5", "weight_decay": 0.3, "adam_beta1": 0.5, "head_learning_rate": "1e-4"}
    run.start("--resume_with_changes", **settings | changes)
    rates = [line["learning_rate"] for line in run.metrics if "learning_rate" in line]
    shares = [1, 1, 1, 1, 1, 1] if schedule == "constant" else [1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6]
    assert rates == pytest.approx([1e-3 * one for one in shares[:3]] + [1e-5 * one for one in shares[3:]], rel=1e-6)
    groups = torch.load(run.out / "checkpoint-6" / "optimizer.pt")["param_groups"]
    assert {group["initial_lr"] for group in groups} == {1e-5, 1e-4}
    assert {group["betas"][0] for group in groups} == {0.5}
    assert {group["weight_decay"] for group in groups} == {0.0, 0.3}


@pytest.mark.parametrize(
    "name", ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", "heads.safetensors"]
)
def test_a_checkpoint_that_lacks_a_file_is_not_resumed(run: Run, name: str) -> None:
    settings = {"objectives": {"translation_ranking": 1, "representation_translation": 0.8}}
    run.start(**settings)
    unfinish(run.out, "checkpoint-6")
    (run.out / "checkpoint-3" / name).unlink()
    with pytest.raises(OutputError, match=f"checkpoint-3 lacks {name}: restore it, delete the checkpoint to resume"):
        run.start("--resume", **settings)


def test_a_checkpoint_without_the_weights_of_added_settings_is_of_another_model(run: Run) -> None:
    run.start(objectives={"translation_ranking": 1}, max_steps=3)
    for settings in ({"training_mlp": True}, {"languages": ["de", "fr", "en"]}):
        with pytest.raises(
            ModelError, match="checkpoint-3 is of another model: .*: resume with the recipe of that run"
        ):
            run.start("--resume_with_changes", objectives={"translation_ranking": 1}, max_steps=4, **settings)


def test_a_resume_that_fails_deletes_no_checkpoint(run: Run) -> None:
    run.start(save_steps=1, eval_steps=1, save_total_limit=None)
    unfinish(run.out)
    kept = {path.name for path in run.out.glob("checkpoint-*")}
    with pytest.raises(ModelError, match="is of another model"):
        run.start("--resume_with_changes", objectives={"representation_translation": 1}, save_total_limit=1)
    assert {path.name for path in run.out.glob("checkpoint-*")} == kept != {"checkpoint-6"}


# The best checkpoint


def test_measurements_of_other_dev_pairs_are_not_compared(run: Run) -> None:
    sentences = [line.split("\t")[1] for line in (run.folder / "de.tsv").read_text("utf-8").splitlines()]
    easy = run.folder / "easy.tsv"
    easy.write_text("".join(f"{sentence}\t{sentence}\n" for sentence in sentences), encoding="utf-8")
    settings = {"eval_steps": 1, "save_steps": 1, "save_total_limit": None, "early_stopping_patience": 2}
    run.start(dev=[f"de={easy}"], max_steps=2, **settings)
    unfinish(run.out)
    changed = settings | {"dev": [f"de={run.folder}/de.tsv"], "learning_rate": "1e-9"}
    trainer = run.start("--resume_with_changes", max_steps=4, **changed)
    assert trainer is not None and trainer.state.best_global_step == 4
    assert "before training" not in (run.out / "README.md").read_text("utf-8")
    assert [line["step"] for line in run.metrics if "eval_accuracy" in line] == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "changed", [{"pooling": "mean"}, {"max_length": 6}, {"prompts": {"q": "Wo: "}, "default_prompt_name": "q"}]
)
def test_measurements_by_another_pooling_length_or_prompt_are_not_compared(run: Run, changed: dict[str, Any]) -> None:
    settings = {"eval_steps": 1, "save_steps": 1, "save_total_limit": None}
    run.start(max_steps=2, **settings)
    unfinish(run.out)
    trainer = run.start("--resume_with_changes", max_steps=3, **settings, **changed)
    assert trainer is not None and trainer.state.best_global_step == 3
    assert trainer.state.best_metric == trainer.evaluate()["eval_accuracy"]


def test_a_changed_metric_compares_the_best_checkpoint_by_its_own_value(run: Run) -> None:
    """Beside the other sentences of the query's side, less is found than among the translations alone."""
    run.start(max_steps=3, learning_rate="1e-9")
    unfinish(run.out)
    trainer = run.start("--resume_with_changes", learning_rate="1e-9", metric_for_best_model="beside")
    assert trainer is not None and trainer.state.best_global_step == 6
    assert trainer.state.best_metric == trainer.evaluate()["eval_beside"]


def test_a_changed_metric_finds_the_best_of_all_checkpoints(run: Run) -> None:
    settings: dict[str, Any] = {"eval_steps": 1, "save_steps": 1, "save_total_limit": 9}
    run.start(max_steps=4, **settings)
    unfinish(run.out)
    shutil.rmtree(run.out / "checkpoint-1")  # what is no longer there cannot be the best
    path = run.out / "checkpoint-4" / "trainer_state.json"
    state = json.loads(path.read_text("utf-8"))
    measured = {0: 9.0, 1: 8.0, 2: 5.0, 3: 7.0, 4: 6.0}
    for log in state["log_history"]:
        if "eval_beside" in log:
            log["eval_beside"] = measured[log["step"]]
    path.write_text(json.dumps(state | {"best_global_step": 4}), encoding="utf-8")
    trainer = run.start("--resume_with_changes", max_steps=4, **settings, metric_for_best_model="beside")
    assert trainer is not None and (trainer.state.best_global_step, trainer.state.best_metric) == (3, 7.0)
    _assert_equal(_weights(run), saved_weights(run.out / "checkpoint-3"))
