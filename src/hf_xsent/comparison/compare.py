"""Run a study: check it, train and measure each run in a separate process, and write the report."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hf_xsent.comparison.planning import check_data, check_methods, plan_runs, step_minutes
from hf_xsent.comparison.report import write_report
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.runs import LOG_FILE, Run
from hf_xsent.comparison.study import Study, read_study
from hf_xsent.comparison.tasks import read_task
from hf_xsent.errors import OutputError, TrainingError
from hf_xsent.locks import lock, try_lock
from hf_xsent.logs import Progress
from hf_xsent.runs.checkpoints import RUN_STATE_FILE
from hf_xsent.stopping import raising_on_sigterm

logger = logging.getLogger(__name__)

_POLL_SECONDS = 0.5


def compare(file: str | Path, output: str | Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Run the unfinished runs of a study, write the report after each run, and return the report as data.

    The report lists failed runs; the other runs continue, and the next call tries failed runs again. Several processes
    with the same study and output folder share the runs: each takes the next run that no other process works on.
    ``changes`` override the study: ``["model=xlm-roberta-base", "budget.steps=50"]``.

    ```python
    from hf_xsent import compare

    results = compare("study.yaml", "runs/study")
    ```
    """
    study, output = read_study(file, changes), Path(output)
    with raising_on_sigterm("the same command resumes the study"):
        runs = _prepare(study, output)
        _run_all(study, runs, output)
        return _report(study, runs, output)


def list_runs(file: str | Path, output: str | Path, changes: Sequence[str] = ()) -> list[Run]:
    """Check the study and list its runs; for a budget in minutes, measure the cost of a step of each method."""
    return _prepare(read_study(file, changes), Path(output))


def _prepare(study: Study, output: Path) -> list[Run]:
    """Check the study and plan its runs; if another process is doing so, wait for it first."""
    if output.is_file():
        raise OutputError(f"the output folder {output} is a file: choose another name")
    if (output / RUN_STATE_FILE).is_file():
        raise OutputError(f"{output} is the folder of a training run: choose another --output")
    cache_dir = output / "cache"
    with lock(output / "lock"):
        variants = check_methods(study, cache_dir)
        identities = {name: read_task(name, options, cache_dir).fingerprint for name, options in study.tasks.items()}
        if study.budget.unit == "minutes":
            check_data(variants)
        runs = plan_runs(study, variants, output, identities, _step_minutes)
        left = {(run.method, run.pooling) for run in runs if not (run.finished or run.has_model)}
        check_data(variant for variant in variants if (variant.method.name, variant.pooling) in left)
    return runs


def _run_all(study: Study, runs: Sequence[Run], output: Path) -> None:
    """Run each unfinished run that no other process works on, with a progress bar over the steps of all."""
    started, left = time.time(), [run for run in runs if not run.finished]
    logger.info("%d of %d runs are unfinished", len(left), len(runs))
    with Progress(total=sum(run.steps for run in left), unit=" steps", desc="comparing") as bar:
        for number, run in enumerate(left, 1):
            with try_lock(run.folder / "claim") as ours:
                if not ours:
                    logger.info("another process works on run %d of %d: %s", number, len(left), run.name)
                elif not (run.finished or run.failed_since(started)):  # by another process meanwhile
                    logger.info("run %d of %d: %s, %s", number, len(left), run.name, run.folder)
                    ended = sum(one.steps for one in left if one.finished or one.failed_since(started))
                    train_and_measure(run, partial(_show, bar, ended))
                    _report(study, runs, output)


def _show(bar: Progress, ended: int, run: Run) -> None:
    """Show the current run and the steps of it and of all ended runs."""
    bar.set_description(f"{run.name} ({run.stage})")
    bar.update(ended + run.steps_done - bar.n)


def _report(study: Study, runs: Sequence[Run], output: Path) -> dict[str, Any]:
    """Write the report of all runs and return it as data."""
    with lock(output / "lock"):
        results = collect(study, runs)
        write_report(output, results)
    return results


def _step_minutes(trial: Run) -> float:
    """Return the cost of a step in a short run; train it if its metrics are missing."""
    cost = step_minutes(trial)
    if cost is None:
        logger.info("measuring the cost of a step of %s", trial.name)
        train_and_measure(trial)
        cost = step_minutes(trial)
    if cost is None:
        reason = (trial.failure() or {}).get("message", "its steps were not logged")
        raise TrainingError(f"cannot measure the cost of a step of {trial.name}: {reason} ({trial.folder})")
    return cost


def train_and_measure(run: Run, watch: Callable[[Run], None] = lambda run: None) -> bool:
    """Train and measure the run in a process that logs to ``log.txt``; return whether it succeeded."""
    run.write_job()
    log = run.folder / LOG_FILE
    began_at = log.stat().st_size if log.is_file() else 0
    with log.open("ab") as file:
        code = _wait(
            subprocess.Popen(
                [sys.executable, "-m", "hf_xsent.comparison.process", str(run.folder)],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C reaches only the parent, which sends SIGTERM to it
            ),
            lambda: watch(run),
        )
    if code != 0:
        reason = _reason(code, log.read_bytes()[began_at:].decode("utf-8", "replace"))
        run.record_failure(code, reason)
        logger.error("%s failed while %s: %s (%s)", run.name, run.stage, reason, log)
    return code == 0


def _wait(process: subprocess.Popen[bytes], watch: Callable[[], None]) -> int:
    """Wait for the exit code; after an exception here, terminate the process and wait until it has saved."""
    with process:
        try:
            while process.poll() is None:
                time.sleep(_POLL_SECONDS)
                watch()
        except BaseException:
            process.terminate()
            try:
                process.wait()
            except BaseException:
                process.kill()
                raise
            raise
    return int(process.returncode)


def _reason(code: int, text: str) -> str:
    """Describe a failure by its signal, by its ``HfXsentError``, or else by the last line of the log."""
    if code < 0:
        name = next((one.name for one in signal.Signals if one == -code), f"signal {-code}")
        return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition("hf-xsent: ")[2] for line in lines if "hf-xsent: " in line]
    return (ours or lines or ["the log is empty"])[-1]
