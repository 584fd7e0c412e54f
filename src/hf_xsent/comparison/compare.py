"""Run a study: check it, train and measure each run in a separate process, and write the report."""

from __future__ import annotations

import logging
import math
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from hf_xsent.comparison.report import report_document, write_report
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.run import LOG_FILE, Run, run_folder
from hf_xsent.comparison.settings import Budget, CompareSettings
from hf_xsent.comparison.study import Study, Variant, check_data, check_methods, read_study
from hf_xsent.comparison.tasks import read_task
from hf_xsent.errors import OutputError, TrainingError
from hf_xsent.logs import Progress
from hf_xsent.pages.tables import Table
from hf_xsent.runs.checkpoints import RUN_STATE_FILE
from hf_xsent.runs.claim import claim, try_claim
from hf_xsent.runs.stopping import raising_on_sigterm
from hf_xsent.settings.command import command
from hf_xsent.settings.declare import settings_of, types_of
from hf_xsent.training.recipe import build_recipe

logger = logging.getLogger(__name__)

TRIAL_STEPS, DISCARDED_STEPS = 10, 3  # to measure the cost of a method's steps; the first steps are warm-up
_TRIAL = {"max_steps": TRIAL_STEPS, "logging_steps": 1, "eval_strategy": "no", "save_strategy": "no"}
_POLL_SECONDS = 0.5


@dataclass(frozen=True)
class StudyResults:
    """The content of report.json, and the folder of the reports."""

    data: Mapping[str, Any]
    output: Path

    def __str__(self) -> str:
        """Return the report as Markdown."""
        unfinished = sum(run["state"] == "unfinished" for run in self.data["runs"])
        others = f"\n{unfinished} of {len(self.data['runs'])} runs are unfinished: other processes work on them"
        text = f"{report_document(self.data).markdown()}\nreport   {self.output / 'report.html'}"
        return text + others * bool(unfinished)


@dataclass(frozen=True)
class StudyRuns:
    """The runs of a study, which a dry run lists."""

    runs: Sequence[Run]

    def __str__(self) -> str:
        """Format one line per run."""
        to_do = {"training": "to train", "measuring": "to measure"}
        rows = [
            [run.name, run.steps, "finished" if run.finished else to_do[run.stage], run.folder.name]
            for run in self.runs
        ]
        return str(Table(["run", "steps", "state", "folder"], rows))


@command(Study, read_study, settings_of(CompareSettings), types_of(CompareSettings))
def compare(study: Study) -> StudyResults | StudyRuns:
    """Run the unfinished runs of a study, and write the report after each run.

    The report lists failed runs, with which the call ends in an error after all others; the next call tries them again.
    Several processes with the same study and output folder share the runs: each takes the next run that no other
    process works on. A dry run only checks the study and lists its runs.

    ```python
    from hf_xsent import compare

    results = compare("study.yaml", output="runs/study", budget={"steps": 50})
    ```
    """
    with raising_on_sigterm("the same command resumes the study"):
        runs = list_runs(study)
        if study.dry_run:
            return StudyRuns(runs)
        _run_all(study, runs)
        results = _report(study, runs)
    if failed := sum(run["state"] == "failed" for run in results["runs"]):
        raise TrainingError(
            f"{failed} of {len(runs)} runs failed: {study.output / 'report.md'} has the reasons; the same command "
            "retries them"
        )
    return StudyResults(results, study.output)


def list_runs(study: Study) -> list[Run]:
    """Check the study and plan its runs; if another process is doing so, wait for it first.

    For a budget in minutes, measure the cost of a step of each method.
    """
    if study.output.is_file():
        raise OutputError(f"the output folder {study.output} is a file: choose another name")
    if (study.output / RUN_STATE_FILE).is_file():
        raise OutputError(f"{study.output} is the folder of a training run: choose another --output")
    cache_dir = study.output / "cache"
    with claim(study.output / "lock"):
        variants = check_methods(study, cache_dir)
        identities = {name: read_task(name, options, cache_dir).fingerprint for name, options in study.tasks.items()}
        if study.budget.minutes:
            check_data(variants)
        runs = _plan_runs(study, variants, identities)
        left = {(run.method, run.pooling) for run in runs if not (run.finished or run.has_model)}
        check_data(variant for variant in variants if (variant.method.name, variant.pooling) in left)
    return runs


def _plan_runs(study: Study, variants: Iterable[Variant], identities: Mapping[str, str]) -> list[Run]:
    """Plan the runs: untrained methods first, then all methods and poolings seed by seed."""
    planned: list[tuple[int, Run]] = []
    for variant in variants:
        steps = None
        for number, seed in enumerate(variant.method.seeds):
            steps = 0 if seed is None else steps or _steps(study, variant)
            run = _plan_run(study, variant, seed, {"max_steps": steps})
            run = replace(run, tasks=study.tasks, identities=dict(identities), keep_model=study.keep_models)
            planned.append((-1 if seed is None else number, run))
    return [run for _, run in sorted(planned, key=lambda numbered: numbered[0])]


def _plan_run(
    study: Study, variant: Variant, seed: int | None, changes: Mapping[str, Any], folder: str = "runs"
) -> Run:
    """Plan one run, without its tasks."""
    method, cache = variant.method, {"cache_dir": str(study.output / "cache")}
    run = Run(Path(), method.name, variant.pooling, seed, study.model, {**cache, **method.recipe, **changes})
    return replace(run, folder=run_folder(study.output / folder, method.name, seed, build_recipe([run.settings()])))


def _steps(study: Study, variant: Variant) -> int:
    """Return the number of steps of the budget; for minutes, measure the cost of a step in a short run."""
    if study.budget.minutes:
        trial = _plan_run(study, variant, variant.method.seeds[0], _TRIAL, "pace")
        trial = replace(trial, keep_model=False)
        return max(1, round(study.budget.minutes / _step_minutes(trial)))
    training = variant.plan.recipe.training
    return steps_of(study.budget, training.train_batch_size * training.gradient_accumulation_steps)


def steps_of(budget: Budget, pairs_a_step: int) -> int:
    """Convert a budget of steps or pairs to steps, rounded up."""
    return budget.steps or math.ceil(budget.amount / pairs_a_step)


def _step_minutes(trial: Run) -> float:
    """Return the median cost of a step of a short run, in CPU minutes on a CPU and in minutes otherwise; run it once.

    CPU minutes do not depend on what else runs on the machine.
    """
    clock = "seconds" if torch.accelerator.is_available() and not trial.recipe.get("use_cpu") else "cpu_seconds"
    for attempt in range(2):
        ends = [line[clock] for line in trial.metrics() if "pairs_per_second" in line]
        if len(ends) == TRIAL_STEPS:
            return statistics.median(end - start for start, end in pairwise(ends[DISCARDED_STEPS - 1 :])) / 60
        if attempt == 0:
            logger.info("measuring the cost of a step of %s", trial.name)
            train_and_measure(trial)
    reason = (trial.failure() or {}).get("message", "its steps were not logged")
    raise TrainingError(f"cannot measure the cost of a step of {trial.name}: {reason} ({trial.folder})")


def _run_all(study: Study, runs: Sequence[Run]) -> None:
    """Run each unfinished run that no other process works on, with a progress bar over the steps of all."""
    started, left = time.time(), [run for run in runs if not run.finished]
    logger.info("%d of %d runs are unfinished", len(left), len(runs))
    with Progress(total=sum(run.steps for run in left), unit=" steps", desc="comparing") as bar:
        for number, run in enumerate(left, 1):
            with try_claim(run.folder / "claim") as ours:
                if not ours:
                    logger.info("another process works on run %d of %d: %s", number, len(left), run.name)
                elif not (run.finished or run.failed_since(started)):  # by another process meanwhile
                    logger.info("run %d of %d: %s, %s", number, len(left), run.name, run.folder)
                    ended = sum(other.steps for other in left if other.finished or other.failed_since(started))
                    train_and_measure(run, partial(_show, bar, ended))
                    _report(study, runs)


def _show(bar: Progress, ended: int, run: Run) -> None:
    """Show the current run and the steps of it and of all ended runs."""
    bar.set_description(f"{run.name} ({run.stage})")
    bar.update(ended + run.steps_done - bar.n)


def _report(study: Study, runs: Sequence[Run]) -> dict[str, Any]:
    """Write the report of all runs and return it as data."""
    with claim(study.output / "lock"):
        results = collect(study, runs)
        write_report(study.output, results)
    return results


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
        name = next((number.name for number in signal.Signals if number == -code), f"signal {-code}")
        return f"killed by {name}" + (", perhaps out of memory" if name == "SIGKILL" else "")
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition("hf-xsent: ")[2] for line in lines if "hf-xsent: " in line]
    return (ours or lines or ["the log is empty"])[-1]
