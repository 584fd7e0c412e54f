"""Every log says what training has cost so far; a run that goes on counts on."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import transformers
from training_process import losses
from training_run import Run, unfinish

from hf_xsent.errors import Interrupted, Stopped
from hf_xsent.runs.run import checkpoint_step, checkpoints_of
from hf_xsent.training import callbacks
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.callbacks import ProgressBar, StopOnSignal, read_metrics


def test_the_log_counts_seconds_and_memory_up(run: Run):
    run.start()
    logs = [line for line in run.metrics if "loss" in line]
    assert len(logs) == 6
    for what in ("seconds", "cpu_seconds", "peak_mib"):
        assert [log[what] for log in logs] == sorted(log[what] for log in logs)
        assert logs[0][what] > 0
    assert 50 < logs[-1]["peak_mib"] < 20_000
    assert not [line for line in run.metrics if "eval_accuracy" in line and "cpu_seconds" in line]


def test_a_resumed_run_counts_from_its_checkpoint(run: Run):
    run.start()
    shutil.rmtree(run.out / "checkpoint-6")
    (run.out / "model.safetensors").unlink()
    state_file = run.out / "checkpoint-3" / "trainer_state.json"
    state = json.loads(state_file.read_text())
    for log in state["log_history"]:
        log |= {"cpu_seconds": 1000.0, "seconds": 2000.0, "peak_mib": 77_777} if "cpu_seconds" in log else {}
    state_file.write_text(json.dumps(state))
    run.start("--resume")
    after = [line for line in run.metrics if line["step"] > 3 and "loss" in line]
    assert all(1000 < log["cpu_seconds"] < 1100 and 2000 < log["seconds"] < 2100 for log in after)
    assert {log["peak_mib"] for log in after} == {77_777}


@pytest.mark.parametrize("of", [{"save_steps": 4}, {"save_strategy": "epoch", "max_steps": -1, "num_train_epochs": 2}])
def test_a_run_resumed_between_two_logs_has_the_log_of_an_uninterrupted_one(run: Run, of: dict[str, Any]) -> None:
    settings = {"logging_steps": 3, "max_steps": 10, "eval_strategy": "no"} | of
    run.start(**settings)
    whole, (last, before) = losses(run), checkpoints_of(run.out)
    assert any(line["step"] == checkpoint_step(before) and "cpu_seconds" in line for line in run.metrics)
    unfinish(run.out, last.name)
    run.start("--resume", **settings)
    assert losses(run) == whole


def test_a_line_that_a_killed_process_has_not_completed_is_skipped(tmp_path: Path) -> None:
    assert read_metrics(tmp_path / "metrics.jsonl") == []
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"step": 2, "lo')
    assert read_metrics(tmp_path / "metrics.jsonl") == [{"step": 1}]


def test_the_time_left_does_not_count_a_measurement_before_the_first_step(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bar, arguments = ProgressBar(), SimpleNamespace(disable_tqdm=False)
    state = SimpleNamespace(max_steps=3, global_step=0, is_world_process_zero=True)
    bar.on_train_begin(arguments, state, None)
    time.sleep(0.3)  # a measurement
    bar.on_step_begin(arguments, state, None)
    assert bar.bar is not None and bar.bar.format_dict["elapsed"] < 0.2
    state.global_step = 1
    bar.on_step_end(arguments, state, None)
    assert bar.bar.n == 1
    bar.on_train_end(arguments, state, None)
    assert bar.bar is None


def test_progress_is_shown_whatever_is_logged(tmp_path: Path) -> None:
    transformers.logging.set_verbosity_error()  # as each command sets it
    assert AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True).disable_tqdm is False


def test_after_the_last_step_the_log_says_what_follows(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    bar, arguments = ProgressBar(), SimpleNamespace(disable_tqdm=False)
    control = SimpleNamespace(should_evaluate=True, should_save=True)
    state = SimpleNamespace(max_steps=2, global_step=0, is_world_process_zero=True)
    for step in (1, 2):
        bar.on_step_begin(arguments, state, control)
        state.global_step = step
        bar.on_step_end(arguments, state, control)
        assert (bar.bar is None) == (step == 2)  # no bar repeats "00:00 left"
    assert caplog.messages == ["step 2 was the last: measuring the dev pairs, then saving a checkpoint"]


# Signals

ARGUMENTS, STATE = SimpleNamespace(device="cpu"), SimpleNamespace()


@pytest.mark.parametrize(
    ("number", "error", "exit_code"), [(signal.SIGTERM, Stopped, 143), (signal.SIGINT, Interrupted, 130)]
)
def test_a_signal_requests_a_checkpoint_at_the_end_of_the_step(
    number: int, error: type[Stopped], exit_code: int
) -> None:
    before = signal.getsignal(number)
    stop, control = StopOnSignal(), SimpleNamespace(should_save=False)
    stop.on_train_begin(ARGUMENTS, STATE, control)
    stop.on_step_end(ARGUMENTS, STATE, control)
    assert not control.should_save
    os.kill(os.getpid(), number)
    stop.on_step_end(ARGUMENTS, STATE, control)
    stop.on_train_end(ARGUMENTS, STATE, control)
    assert control.should_save and stop.requested == number
    assert type(stop.error("after step 3")) is error and stop.error("").exit_code == exit_code
    assert signal.getsignal(number) == before


def test_a_second_ctrl_c_stops_at_once_but_an_echo_of_the_first_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, now = StopOnSignal(), 100.0
    monkeypatch.setattr("hf_xsent.training.callbacks.time.monotonic", lambda: now)
    stop.on_train_begin(ARGUMENTS, STATE, SimpleNamespace())
    try:
        os.kill(os.getpid(), signal.SIGINT)
        now += 0.5
        os.kill(os.getpid(), signal.SIGINT)  # as torchrun sends after the terminal did
        now += 1
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        stop.on_train_end(ARGUMENTS, STATE, SimpleNamespace())


def test_a_worker_lives_some_seconds_after_sigterm_and_ends_without_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(callbacks, "_WORKER_LIVES", 1.0)
    context = multiprocessing.get_context("fork")
    ready = context.Event()

    def work() -> None:
        callbacks.outlive_sigterm(0)
        ready.set()
        time.sleep(60)

    worker: Any = context.Process(target=work)
    worker.start()
    assert ready.wait(20)
    os.kill(worker.pid, signal.SIGTERM)
    worker.join(0.3)
    assert worker.is_alive()
    worker.join(20)
    assert worker.exitcode == 0
