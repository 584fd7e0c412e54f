"""Small studies from file to report: nothing is done twice, what is stopped goes on, what fails is told."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from forks import Fork
from study_file import StudyFile, start_runs_as_forks

from hf_xsent.cli import main
from hf_xsent.comparison import compare as comparing
from hf_xsent.comparison.compare import StudyResults, train_and_measure
from hf_xsent.comparison.run import Run
from hf_xsent.errors import OutputError

BROKEN = {"learning_rate": 1e38, "max_grad_norm": 0, "warmup_steps": 0}


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> list[Fork]:
    """The processes of runs."""
    return start_runs_as_forks(monkeypatch)


@pytest.fixture
def begun(forks: list[Fork], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs for which a process was started."""
    names: list[str] = []

    def noted(run: Run) -> bool:
        names.append(run.name)
        return train_and_measure(run)

    monkeypatch.setattr(comparing, "train_and_measure", noted)
    return names


def _run(study: StudyFile, **changes: Any) -> Mapping[str, Any]:
    study.write(**changes)
    return study.compare()


def _when(condition: Callable[[], bool], act: Callable[[], object]) -> None:
    """Act in another thread as soon as the condition holds."""

    def holds() -> bool:
        try:
            return condition()
        except (OSError, ValueError, KeyError):  # of a file that is being written
            return False

    def watch() -> None:
        while not holds():
            time.sleep(0.01)
        act()

    threading.Thread(target=watch, daemon=True).start()


def _steps(run: Run) -> list[int]:
    return [line["step"] for line in run.metrics() if "loss" in line]


@pytest.mark.slow
def test_a_study_is_trained_measured_and_reported_and_nothing_is_done_twice(study: StudyFile, begun: list[str]):
    results = _run(study)
    assert begun == ["none, cls", "TR, cls, seed 0"]
    untrained, trained = results["summary"]
    assert list(trained["languages"]["pairs"]) == ["de", "fr"]
    assert all(0 <= mean <= 100 and sd is None for mean, sd in trained["groups"]["pairs"]["all"].values())
    assert untrained["cost"] == {} and untrained["steps"] == 0
    scores = StudyResults(results, study.out).to_pandas().set_index(["method", "of", "metric"])
    assert scores.loc[("TR", "fr", "beside"), "score"] == trained["languages"]["pairs"]["fr"]["beside"][0]
    (other,) = results["differences"]["pairs"]["others"]
    lost = scores.loc[(other["method"], "all", "beside")]
    assert lost.difference == other["difference"] and scores.difference.count() == 1
    assert lost.heading == "beside own language"
    assert set(scores.seeds) == {0, 1} and len(scores) == 2 * 3 * len(trained["groups"]["pairs"]["all"])
    assert trained["cost"]["cpu_seconds"][0] > 0 and trained["cost"]["peak_mib"][0] > 50
    assert json.loads((study.out / "report.json").read_text()) == json.loads(json.dumps(results))
    (run,) = [run for run in study.runs() if run.seed is not None]
    assert not list(run.training.glob("checkpoint-*"))
    assert (run.training / "config.json").is_file()  # opens by AutoModel

    assert study.compare() == results
    assert len(begun) == 2

    trained_at = (run.training / "model.safetensors").stat().st_mtime_ns
    fewer = {"pairs": study.content["tasks"]["pairs"] | {"languages": ["fr"]}}
    results = _run(study, tasks=fewer)
    assert len(begun) == 4  # measured anew,
    assert (run.training / "model.safetensors").stat().st_mtime_ns == trained_at  # not trained
    assert list(results["summary"][1]["languages"]["pairs"]) == ["fr"]


@pytest.mark.slow
def test_methods_that_train_in_bfloat16_are_measured_in_it(study: StudyFile):
    _run(study, settings=study.content["settings"] | {"bf16": True}, methods={"none": {"train": False}})
    assert {run.measurement("pairs").report.settings["dtype"] for run in study.runs()} == {"bfloat16"}


@pytest.mark.slow
def test_a_run_that_breaks_is_an_error_while_the_others_continue(
    study: StudyFile, begun: list[str], capsys: pytest.CaptureFixture[str]
):
    study.write(methods={"broken": BROKEN, "none": {"train": False}, "TR": None})
    assert main(["compare", str(study.path), "--output", str(study.out)]) == 2
    said = capsys.readouterr()
    assert "1 of 3 runs failed" in said.err
    report = (study.out / "report.md").read_text("utf-8")
    assert "| broken | cls | 0 | failed | 2 | step" in report
    assert "Traceback" not in (study.out / "report.html").read_text("utf-8")
    report = json.loads((study.out / "report.json").read_text())
    assert [run["state"] for run in report["runs"]] == ["finished", "failed", "finished"]

    (model,) = study.out.glob("runs/tr-*/training/model.safetensors")
    model.unlink()  # the scores do not need it
    begun.clear()
    study.write(methods={"none": {"train": False}, "renamed": None})
    assert main(["compare", str(study.path), "--output", str(study.out)]) == 0
    assert begun == []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_comparison_that_is_stopped_saves_the_run_at_work_and_resumes_from_there(
    number: int, study: StudyFile, forks: list[Fork], caplog: pytest.LogCaptureFixture
):
    study.write(methods={"TR": None}, budget={"steps": 250}, settings=study.content["settings"] | {"save_steps": 1000})
    (run,) = study.runs()

    _when(lambda: len(_steps(run)) >= 3, lambda: os.kill(os.getpid(), number))
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for jobs in the background
    try:
        with pytest.raises(KeyboardInterrupt):
            study.compare()
    finally:
        signal.signal(signal.SIGINT, ignored)
    assert "stopped during run 1 of 1: the same command continues it" in caplog.text
    (checkpoint,) = run.training.glob("checkpoint-*")
    assert len(_steps(run)) < 250 and not run.has_model and run.failure() is None
    before = run.metrics()[: int(checkpoint.name.split("-")[1])]
    assert study.compare()["runs"][0]["state"] == "finished"
    assert run.metrics()[: len(before)] == before  # of the first piece, as it was logged then
    assert _steps(run) == list(range(1, 251))


@pytest.mark.slow
def test_a_run_that_is_killed_is_an_error_and_resumes_from_its_checkpoint(study: StudyFile, forks: list[Fork]):
    study.write(methods={"TR": None}, budget={"steps": 60}, settings=study.content["settings"] | {"save_steps": 5})
    (run,) = study.runs()
    saved = run.training / "checkpoint-5" / "trainer_state.json"
    _when(lambda: len(_steps(run)) >= 6 and saved.is_file(), lambda: forks[-1].kill())
    assert not train_and_measure(run)
    assert run.failure() == {"exit_code": -9, "message": "ended by the signal Killed, perhaps out of memory"}
    assert not run.has_model
    first = run.metrics()[0]
    assert train_and_measure(run) and run.finished and run.failure() is None
    assert run.metrics()[0] == first
    assert _steps(run) == list(range(1, 61))


@pytest.mark.slow
def test_processes_with_one_output_folder_share_the_runs(study: StudyFile, monkeypatch: pytest.MonkeyPatch):
    start_runs_as_forks(monkeypatch)
    study.write(seeds=[0, 1, 2])
    names: list[tuple[str, str]] = []

    def second(run: Run) -> bool:
        names.append(("second", run.name))
        return train_and_measure(run)

    def first(run: Run) -> bool:
        names.append(("first", run.name))
        monkeypatch.setattr(comparing, "train_and_measure", second)
        during = study.compare()  # as another process would, while this run is claimed
        assert [row["method"] for row in during["runs"] if row["state"] == "unfinished"] == ["none"]
        return train_and_measure(run)

    monkeypatch.setattr(comparing, "train_and_measure", first)
    results = study.compare()
    assert names == [("first", "none, cls"), *(("second", f"TR, cls, seed {seed}") for seed in range(3))]
    assert all(row["state"] == "finished" for row in results["runs"])


def test_a_dry_run_estimates_the_time_of_each_training_that_is_left(study: StudyFile) -> None:
    study.write(seeds=[0, 1])
    table: Any = comparing.compare(study.path, output=study.out, dry_run=True)
    trained = [[f"TR, cls, seed {seed}", 4, "1 minute", "to do"] for seed in (0, 1)]
    assert [row[:4] for row in table.rows] == [["none, cls", 0, "", "to do"], *trained]
    assert not (study.out / "runs").exists()


def test_an_output_folder_that_is_a_file_is_an_error(study: StudyFile):
    study.write()
    study.out = study.path
    with pytest.raises(OutputError, match="study.yaml is a file, not a folder"):
        study.compare()
