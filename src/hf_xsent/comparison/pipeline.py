"""Carry a study from its file to its report: check everything, then run each method in a process of its own."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from hf_xsent.comparison.planning import check_data, check_methods, pairs_per_second, plan_runs
from hf_xsent.comparison.report import write_reports
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.runs import Run
from hf_xsent.comparison.study import Study, read_study
from hf_xsent.comparison.supervision import carry_out, stopped_by_sigterm
from hf_xsent.comparison.tasks import read_task
from hf_xsent.errors import OutputError, TrainingError
from hf_xsent.files import lock

logger = logging.getLogger(__name__)


def compare(file: str | Path, output: str | Path, changes: Sequence[str] = ()) -> dict[str, Any]:
    """Run what is missing of the study, write the report after each run, and return it as data.

    A failed run is in the report, and the next call tries it again; the others go on meanwhile.
    """
    study, output = read_study(file, changes), Path(output)
    with _alone_in(output), stopped_by_sigterm():
        runs = _prepare(study, output)
        _work_off(study, runs, output)
        results = collect(study, runs)
        write_reports(output, results)
    return results


def list_runs(file: str | Path, output: str | Path, changes: Sequence[str] = ()) -> list[Run]:
    """List the runs of ``compare`` after all its checks; a budget in minutes trains some steps to measure the pace."""
    with _alone_in(Path(output)):
        return _prepare(read_study(file, changes), Path(output))


def _prepare(study: Study, output: Path) -> list[Run]:
    """Plan the runs of a study, after all checks of training and of the tasks."""
    cache_dir = output / "cache"
    variants = check_methods(study, cache_dir)
    identities = {name: read_task(name, options, cache_dir).fingerprint for name, options in study.tasks.items()}
    if study.budget.unit == "minutes":
        check_data(variants)
    runs = plan_runs(study, variants, output, identities, _pace)
    left = {(run.method, run.pooling) for run in runs if not (run.finished or run.trained)}
    check_data(variant for variant in variants if (variant.method.name, variant.pooling) in left)
    return runs


def _work_off(study: Study, runs: Sequence[Run], output: Path) -> None:
    """Run one after the other, with a bar over the steps of all."""
    left = [run for run in runs if not run.finished]
    logger.info("%d of %d runs are left to do", len(left), len(runs))
    with tqdm(total=sum(run.steps for run in left), unit="step", desc="comparing", disable=None) as bar:
        done = 0

        def watch(run: Run) -> None:
            bar.set_description(f"{run.name} ({run.doing})")
            bar.update(done + run.steps_done - bar.n)

        for number, run in enumerate(left, 1):
            logger.info("run %d of %d: %s, %s", number, len(left), run.name, run.folder)
            carry_out(run, watch)
            done += run.steps
            write_reports(output, collect(study, runs))


def _pace(trial: Run) -> float:
    """Measure pairs per second by a short run, whose metrics the next call reads again."""
    pace = pairs_per_second(trial)
    if pace is None:
        logger.info("a few steps to learn the pace of %s", trial.name)
        carry_out(trial)
        pace = pairs_per_second(trial)
    if pace is None:
        reason = (trial.failure() or {}).get("message", "its steps were not logged")
        raise TrainingError(f"the pace of {trial.name} could not be measured: {reason} ({trial.folder})")
    return pace


@contextmanager
def _alone_in(output: Path) -> Iterator[None]:
    """Lock the folder: two comparisons in it would train the same runs."""
    if output.is_file():
        raise OutputError(f"the output folder {output} is a file: choose another name")
    with lock(output / "lock", f"another comparison works in {output}: wait for it, or choose another folder"):
        yield
