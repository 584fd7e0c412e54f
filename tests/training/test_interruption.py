"""Runs that are killed, told to stop, or break: what was saved stays, and going on changes nothing."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
from typing import Any

import pytest
import torch
from training_process import (
    SCRIPT,
    arguments_of,
    assert_same,
    assert_survives_kills,
    begin,
    losses,
    steps,
    torchrun,
    train_together,
    wait,
)
from training_run import Run, unfinish

from hf_xsent import AlignmentTrainer, load_bitext
from hf_xsent.errors import ModelError, OutputError, Stopped, TrainingError
from hf_xsent.evaluation.task import Metrics
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.training import trainer as trainer_module
from hf_xsent.training.callbacks import StopOnSignal

DAP = {"objectives": {"translation_ranking": 1, "representation_translation": 0.8}, "pairs_per_chunk": 2}


def _stop_twice_and_resume(
    run: Run, monkeypatch: pytest.MonkeyPatch, stops: list[int], settings: dict[str, Any]
) -> None:
    """Train anew with a signal in each of these two steps, resuming after each."""
    on_step_end = StopOnSignal.on_step_end

    def signalled(self: StopOnSignal, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step in stops:
            stops.remove(state.global_step)
            os.kill(os.getpid(), signal.SIGTERM)
        on_step_end(self, args, state, control, **kwargs)

    monkeypatch.setattr(StopOnSignal, "on_step_end", signalled)
    for flag in ("--overwrite", "--resume"):
        with pytest.raises(Stopped):
            run.start(flag, **settings)
    run.start("--resume", **settings)


def test_a_run_killed_twice_ends_bit_by_bit_as_the_uninterrupted_one(run: Run) -> None:
    assert_survives_kills(run, **DAP)


@pytest.mark.slow
def test_when_one_of_two_processes_dies_the_run_ends_and_can_resume(run: Run) -> None:
    settings = {"ddp_backend": "gloo", "max_steps": 39, "eval_steps": 3, "save_steps": 3}  # in an epoch of 2
    train_together(run, **settings)
    weights, uninterrupted = saved_weights(run.out), losses(run)

    process = torchrun(SCRIPT, *arguments_of(run, "--overwrite", **settings))
    wait(process, lambda: 4 <= steps(run) < 39)
    workers = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(workers.split()[-1]), signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode != 0
    train_together(run, "--resume", **settings)
    assert_same(run, weights, uninterrupted)


@pytest.mark.parametrize("workers", [0, 1])
def test_sigterm_saves_says_so_and_the_run_resumes(run: Run, workers: int) -> None:
    """The signal reaches all processes of the group, as that of ``timeout`` does."""
    settings = {"max_steps": 40, "eval_strategy": "no", "save_strategy": "no", "dataloader_num_workers": workers}
    run.start(**settings)
    weights, uninterrupted = saved_weights(run.out), losses(run)

    process = begin(run, "--overwrite", **settings)
    wait(process, lambda: 3 <= steps(run) < 40)
    os.killpg(process.pid, signal.SIGTERM)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 143
    assert "stopped by SIGTERM after step" in said
    assert "--resume" in said
    assert "Traceback" not in said
    assert len(list(run.out.glob("checkpoint-*"))) == 1
    run.start("--resume", **settings)
    assert_same(run, weights, uninterrupted)
    assert not list(run.out.glob("checkpoint-*")), "an uninterrupted run has none"


def test_a_checkpoint_that_a_signal_saved_is_not_the_best(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dev accuracy falls from measurement to measurement, so that a checkpoint of step 4 would be the best."""
    settings: dict[str, Any] = {"max_steps": 15, "eval_steps": 1, "save_steps": 5}
    falling = iter(range(1000, 0, -1))

    def measured(*_: Any, **__: Any) -> dict[str, Metrics]:
        accuracy = next(falling) / 10
        return {"de": dict.fromkeys(("mean", "forward", "backward", "beside"), accuracy)}

    monkeypatch.setattr(trainer_module, "retrieval_by_language", measured)
    run.start(**settings)
    weights = saved_weights(run.out)
    checkpoints = sorted(path.name for path in run.out.glob("checkpoint-*"))
    _stop_twice_and_resume(run, monkeypatch, [4, 11], settings)
    assert sorted(path.name for path in run.out.glob("checkpoint-*")) == checkpoints
    for name, weight in saved_weights(run.out).items():
        assert torch.equal(weight, weights[name]), name


@pytest.mark.parametrize("save_strategy", ["epoch", "steps", "no"])
@pytest.mark.parametrize("steps_of_run", [None, 5])
def test_a_signal_in_the_last_step_of_an_epoch_loses_no_measurement(
    run: Run, monkeypatch: pytest.MonkeyPatch, save_strategy: str, steps_of_run: int | None
) -> None:
    settings: dict[str, Any] = {"max_steps": steps_of_run, "num_train_epochs": 2, "eval_strategy": "epoch"}
    settings |= {"save_strategy": save_strategy, "save_steps": 3, "load_best_model_at_end": save_strategy == "epoch"}

    def measured() -> list[tuple[int, float]]:
        return [(line["step"], line["eval_accuracy"]) for line in run.metrics if "eval_accuracy" in line]

    trainer = run.start(**settings)
    last = trainer.state.max_steps
    weights, uninterrupted, accuracies = saved_weights(run.out), losses(run), measured()
    checkpoints = sorted(path.name for path in run.out.glob("checkpoint-*"))
    assert [step for step, _ in accuracies] == [0, 3, last]
    _stop_twice_and_resume(run, monkeypatch, [3, last], settings)
    assert measured() == accuracies
    assert sorted(path.name for path in run.out.glob("checkpoint-*")) == checkpoints
    assert_same(run, weights, uninterrupted)


@pytest.mark.parametrize("stops", [[2, 5], [4, 5]])
def test_a_signal_in_the_step_of_an_early_stop_leaves_its_checkpoint(
    run: Run, monkeypatch: pytest.MonkeyPatch, stops: list[int]
) -> None:
    settings: dict[str, Any] = {"save_strategy": "epoch", "eval_steps": 1, "load_best_model_at_end": False}
    settings |= {"max_steps": 9, "early_stopping_patience": 1, "save_total_limit": 9}

    def measured(*_: Any, **__: Any) -> dict[str, Metrics]:
        accuracies.append(accuracies[-1] + 1 if len(accuracies) < 6 else 0)
        return {"de": dict.fromkeys(("mean", "forward", "backward", "beside"), accuracies[-1])}

    monkeypatch.setattr(trainer_module, "retrieval_by_language", measured)
    accuracies = [0.0]
    run.start(**settings)
    checkpoints = sorted(path.name for path in run.out.glob("checkpoint-*"))
    assert checkpoints == ["checkpoint-3", "checkpoint-5"], "which ends the second epoch"
    accuracies = [0.0]
    _stop_twice_and_resume(run, monkeypatch, stops, settings)
    assert sorted(path.name for path in run.out.glob("checkpoint-*")) == checkpoints


def test_a_resumed_run_that_saves_the_best_has_the_checkpoints_of_an_uninterrupted_one(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"save_strategy": "best", "eval_steps": 2, "max_steps": 9, "save_total_limit": 2}
    accuracy_at = {0: 1.0, 2: 2.0, 4: 3.0, 6: 0.0, 8: 0.0, 9: 0.0}

    def measured(trainer: Any, *_: Any, **__: Any) -> dict[str, float]:
        return {"accuracy": accuracy_at[trainer.state.global_step]}

    monkeypatch.setattr(AlignmentTrainer, "_measure_dev", measured)
    run.start(**settings)
    checkpoints = sorted(path.name for path in run.out.glob("checkpoint-*"))
    assert checkpoints == ["checkpoint-2", "checkpoint-4"]
    _stop_twice_and_resume(run, monkeypatch, [5, 7], settings)
    assert sorted(path.name for path in run.out.glob("checkpoint-*")) == checkpoints


def test_a_run_resumed_from_a_best_checkpoint_at_the_end_of_an_epoch_has_the_loss_of_this_epoch(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: dict[str, Any] = {"save_strategy": "best", "logging_strategy": "epoch", "eval_steps": 3, "max_steps": 9}
    monkeypatch.setattr(
        AlignmentTrainer, "_measure_dev", lambda self, *_: {"accuracy": -abs(self.state.global_step - 6)}
    )
    run.start(**settings)
    uninterrupted = losses(run)
    unfinish(run.out)
    run.start("--resume", **settings)
    assert losses(run) == uninterrupted and [step for step, _ in uninterrupted] == [3, 6, 9]


def test_ctrl_c_saves_and_says_how_to_resume_and_a_second_run_is_refused_meanwhile(run: Run) -> None:
    settings = {"max_steps": 400, "eval_strategy": "no", "save_strategy": "no"}
    process = begin(run, **settings)
    wait(process, lambda: 3 <= steps(run) < 400)
    for flag in ("--overwrite", "--resume"):
        with pytest.raises(OutputError, match="out is in use by another process"):
            run.start(flag, **settings)
    process.send_signal(signal.SIGINT)
    said = process.communicate(timeout=60)[1]
    assert process.returncode == 130
    assert "Ctrl-C again stops at once" in said
    assert "stopped by Ctrl-C after step" in said
    assert "continue with --resume (of an AlignmentTrainer: train(resume_from_checkpoint=True))" in said
    assert "Traceback" not in said
    (checkpoint,) = run.out.glob("checkpoint-*")
    step = int(checkpoint.name.split("-")[1])
    trainer = run.start("--resume_with_changes", **settings | {"max_steps": step + 2})
    assert trainer is not None and trainer.state.global_step == step + 2


def test_a_full_disk_in_the_metrics_is_one_sentence(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"eval_strategy": "no", "save_steps": 2, "load_best_model_at_end": False}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    step = AlignmentTrainer.training_step

    def full_after_three(trainer: AlignmentTrainer, *args: Any, **kwargs: Any) -> Any:
        if trainer.state.global_step == 3:
            resource.setrlimit(resource.RLIMIT_FSIZE, ((run.out / "metrics.jsonl").stat().st_size, limits[1]))
        return step(trainer, *args, **kwargs)

    with monkeypatch.context() as patched:
        patched.setattr(AlignmentTrainer, "training_step", full_after_three)
        try:
            with pytest.raises(OSError, match="File too large: .*metrics.jsonl"):
                run.start(**settings)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    trainer = run.start("--resume", **settings)
    assert trainer is not None
    assert [step for step, _ in losses(run)] == [1, 2, 3, 4, 5, 6]


def test_an_output_folder_that_cannot_be_written_is_named(run: Run) -> None:
    (run.folder / "file").write_text("x")
    with pytest.raises(NotADirectoryError, match="file/out"):
        run.start(output_dir=str(run.folder / "file" / "out"))


def test_a_cache_that_cannot_be_written_is_named(run: Run) -> None:
    (run.folder / "file").write_text("x")
    with pytest.raises(OutputError, match="file is a file, not a folder"):
        run.start(cache_dir=str(run.folder / "file" / "cache"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large: .*new/de"):
            load_bitext({"de": str(run.folder / "de.tsv")}, cache_dir=run.folder / "new")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_damaged_starting_weights_are_one_sentence(run: Run) -> None:
    start = run.folder / "start"
    shutil.copytree(run.settings["model"], start)
    weights = start / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    with pytest.raises(ModelError, match=r"start' has no readable weights \(model.safetensors\)"):
        run.start(model=str(start))


def test_a_full_disk_costs_no_checkpoint_that_was_whole(run: Run) -> None:
    run.start(max_steps=3)
    smaller = (run.out / "checkpoint-3/model.safetensors").stat().st_size // 2
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (smaller, limits[1]))
    try:
        with pytest.raises(Exception, match="File too large|failed writing"):
            run.start("--resume_with_changes")  # more steps
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [one.name for one in run.out.glob("*checkpoint*")] == ["checkpoint-3"]
    run.start("--resume")
    assert (run.out / "model.safetensors").is_file() and not (run.out / "_unfinished").exists()


def test_a_nan_loss_names_step_losses_and_weights(run: Run) -> None:
    reason = r"step \d: loss is NaN or infinite \(translation_ranking \w+\); weights are NaN or infinite, \w+\..*"
    reason += (
        r"lower the learning rate; outside a study, --resume_with_changes \(from Python: train\(allow_changes=True\)\)"
    )
    with pytest.raises(TrainingError, match=reason):
        run.start(learning_rate="1e38", max_grad_norm=0, eval_strategy="no", warmup_steps=0)


def test_embeddings_that_overflow_are_the_learning_rates_fault(run: Run) -> None:
    with pytest.raises(TrainingError, match="^step 1: embeddings of dev pairs are NaN or infinite; .*: lower the"):
        run.start(learning_rate="1e30", warmup_steps=0, save_steps=1, eval_steps=1, max_steps=2)


def test_a_final_model_that_cannot_be_written_leaves_the_earlier_one(run: Run) -> None:
    settings = {"eval_strategy": "no", "save_strategy": "no"}
    run.start(**settings)
    model = (run.out / "model.safetensors").read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(model) // 2, limits[1]))
    try:
        with pytest.raises(Exception, match="File too large|failed writing"):
            run.start("--overwrite", **settings)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (run.out / "model.safetensors").read_bytes() == model


def test_nan_gradients_do_not_reach_the_weights(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    began = AlignmentTrainer.train
    trainers = []

    def train(trainer: AlignmentTrainer, *args: Any, **kwargs: Any) -> Any:
        trainers.append(trainer)
        trainer.model.backbone.word_embeddings.weight.register_hook(lambda gradient: gradient * float("nan"))
        return began(trainer, *args, **kwargs)

    monkeypatch.setattr(AlignmentTrainer, "train", train)
    with pytest.raises(TrainingError, match="step 1: gradients are NaN or infinite.*all weights are finite"):
        run.start()
    assert all(weight.isfinite().all() for weight in trainers[0].model.parameters())
