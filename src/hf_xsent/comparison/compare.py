"""Run a study: check it, train and measure each run in a separate process, and write the report."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from hf_xsent.comparison.report import report_document, write_report
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.run import LOG_FILE, Run, run_folder
from hf_xsent.comparison.settings import CompareSettings
from hf_xsent.comparison.study import Study, Variant, check_data, check_each, check_methods, read_study
from hf_xsent.errors import TrainingError
from hf_xsent.evaluation.registry import load_task
from hf_xsent.logs import configure_logging, quiet
from hf_xsent.pages.tables import Table
from hf_xsent.runs.claim import claim
from hf_xsent.settings.command import command
from hf_xsent.settings.declare import settings_of, types_of
from hf_xsent.training.measuring import readable_time, seconds_per_step
from hf_xsent.training.pretrain import pretrain

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class StudyResults:
    """The content of report.json, and the folder of the reports."""

    data: Mapping[str, Any]
    output: Path

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each method, pooling, task, language or group (``of``), and metric.

        ``difference``, ``low`` and ``high`` are those to the best method, of the score that the verdict is about.
        """
        from pandas import DataFrame

        rows = [
            {"method": row["method"], "pooling": row["pooling"], "task": task, "of": name, "metric": metric}
            | {"heading": self.data["tasks"][task]["headings"].get(metric, metric), "score": mean, "sd": sd}
            | {"seeds": len(row["seeds"]), **self._difference(row, task, name, metric)}
            for row in self.data["summary"]
            for task, groups in row["groups"].items()
            for name, metrics in (row["languages"][task] | groups).items()
            for metric, (mean, sd) in metrics.items()
        ]
        return DataFrame(rows)

    def _difference(self, row: Mapping[str, Any], task: str, name: str, metric: str) -> dict[str, Any]:
        """Return the difference of a score that the verdict is about, also by another name of the same group."""
        (group, main), groups = self.data["tasks"][task]["columns"][0], row["groups"][task]
        is_main = metric == main and groups.get(name) == groups.get(group)
        values: tuple[Any, ...] = (None, None, None)
        for other in self.data["differences"][task].get("others", ()) if is_main else ():
            if (other["method"], other["pooling"]) == (row["method"], row["pooling"]):
                values = (other["difference"], *(other["interval"] or (None, None)))
        return dict(zip(("difference", "low", "high"), values, strict=True))

    def __str__(self) -> str:
        """Return the report as Markdown."""
        return f"{report_document(self.data).markdown()}\nreport   {self.output / 'report.html'}"

    __repr__ = __str__


@command(Study, read_study, settings_of(CompareSettings), types_of(CompareSettings))
def compare(study: Study) -> StudyResults | Table:
    """Run the unfinished runs of a study, and write the report after each run.

    The report lists failed runs, with which the call ends in an error after all others; the next call tries them again.
    Several processes with the same study and output folder share the runs: each takes the next run that no other
    process works on. A dry run checks the study, and returns a table of its runs with the estimated time of training.

    ```python
    from hf_xsent import compare

    results = compare("study.yaml", output="runs/study", budget={"steps": 50})
    print(results)  # the report
    scores = results.to_pandas()  # means over seeds
    ```
    """
    configure_logging()
    runs = list_runs(study)
    if study.dry_run:
        return _dry_run(runs)
    with _sigterm_as_interrupt():
        _run_all(study, runs)
    results = _report(study, runs)
    if failed := sum(run["state"] == "failed" for run in results["runs"]):
        raise TrainingError(
            f"{failed} of {len(runs)} runs failed: {study.output / 'report.md'} has the reasons; the same command "
            "retries them"
        )
    return StudyResults(results, study.output)


def list_runs(study: Study) -> list[Run]:
    """Check the study and plan its runs; if another process is doing so, wait for it first."""
    cache_dir = study.output / "cache"
    with claim(study.output / "lock"):
        variants = check_methods(study, cache_dir)
        checks = {f"tasks.{name}": partial(load_task, name, study.tasks[name], cache_dir) for name in study.tasks}
        tasks = dict(zip(study.tasks, check_each(checks), strict=True))
        runs = _plan_runs(study, variants, {name: task.fingerprint for name, task in tasks.items()})
        left = {(run.method, run.pooling) for run in runs if not run.finished}  # to train, or only to measure
        unfinished = [variant for variant in variants if (variant.method.name, variant.pooling) in left]
        check_data(unfinished, study.budget, tasks.values())
    return runs


def _plan_runs(study: Study, variants: Iterable[Variant], identities: Mapping[str, str]) -> list[Run]:
    """Plan the runs: untrained methods first, then all methods and poolings seed by seed."""
    planned: list[tuple[int, Run]] = []
    for variant in variants:
        method, pooling, _ = variant
        steps = study.budget.steps_of(variant.pairs_per_step)
        for number, seed in enumerate(method.seeds):
            recipe = {"cache_dir": str(study.output / "cache")} | method.recipe
            recipe["max_steps"] = 0 if seed is None else steps
            run = Run(Path(), method.name, pooling, seed, recipe, study.tasks, dict(identities))
            folder = run_folder(study.output / "runs", run)
            planned.append((-1 if seed is None else number, replace(run, folder=folder)))
    return [run for _, run in sorted(planned, key=lambda numbered: numbered[0])]


def _dry_run(runs: Sequence[Run]) -> Table:
    """List the runs; estimate the time of each training that is left from a few steps of its method."""
    rows, times = list[list[object]](), dict[tuple[str, str], str]()
    for run in runs:
        method, left = (run.method, run.pooling), not (run.finished or run.has_model)
        if left and method not in times:
            logger.info("a few steps of %s", run.name)
            with quiet():
                trainer: Any = pretrain(**run.settings(), dry_run=True)
            step = seconds_per_step(trainer.args, len(trainer.train_dataset), trainer.state.log_history)
            times[method] = readable_time(run.steps * step)
        state = "finished" if run.finished else "to do"
        rows.append([run.name, run.steps, times[method] if left else "", state, run.folder.name])
    return Table(["run", "steps", "training", "state", "folder"], rows)


def _run_all(study: Study, runs: Sequence[Run]) -> None:
    """Run each unfinished run that no other process works on."""
    left = [run for run in runs if not run.finished]
    logger.info("%d of %d runs are unfinished", len(left), len(runs))
    for number, run in enumerate(left, 1):
        with claim(run.folder / "claim", wait=False) as ours:
            if not ours:
                logger.info("another process works on run %d of %d: %s", number, len(left), run.name)
            elif not run.finished:  # by another process meanwhile
                logger.info("run %d of %d: %s, %s", number, len(left), run.name, run.folder / LOG_FILE)
                try:
                    train_and_measure(run)
                except KeyboardInterrupt:
                    logger.warning("stopped during run %d of %d: the same command continues it", number, len(left))
                    raise
                _report(study, runs)


@contextmanager
def _sigterm_as_interrupt() -> Iterator[None]:
    """Let SIGTERM stop a study as Ctrl-C does: the run saves before the command ends."""
    if threading.current_thread() is not threading.main_thread():  # which alone receives signals
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _report(study: Study, runs: Sequence[Run]) -> dict[str, Any]:
    """Write the report of all runs and return it as data."""
    with claim(study.output / "lock"):
        results = collect(study, runs)
        write_report(study.output, results)
    return results


def train_and_measure(run: Run) -> bool:
    """Train and measure the run in a process that logs to ``log.txt``; return whether it succeeded."""
    run.write_job()
    log = run.folder / LOG_FILE
    began_at = log.stat().st_size if log.is_file() else 0
    with log.open("ab") as file:
        process = subprocess.Popen(
            [sys.executable, "-m", "hf_xsent.comparison.process", str(run.folder)],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C reaches only the parent, which sends SIGTERM to it
        )
        with process:
            try:
                code = process.wait()
            except BaseException:
                process.terminate()
                process.wait()  # until it has saved
                raise
    if code != 0:
        reason = _reason(code, log.read_bytes()[began_at:].decode("utf-8", "replace"))
        run.record_failure(code, reason)
        logger.error("%s failed: %s (%s)", run.name, reason, log)
    return code == 0


def _reason(code: int, text: str) -> str:
    """Describe a failure by its signal, by its ``HfXsentError``, or else by the last line of the log."""
    if code < 0:
        return f"ended by the signal {signal.strsignal(-code)}" + ", perhaps out of memory" * (code == -signal.SIGKILL)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    ours = [line.partition("hf-xsent: ")[2] for line in lines if "hf-xsent: " in line]
    return (ours or lines or ["the log is empty"])[-1]
