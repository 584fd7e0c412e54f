"""Evaluate models on tasks, in several views (layer and pooling) and dimensions, and compare them."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

from hf_xsent.errors import OutputError
from hf_xsent.evaluation.evaluation import Evaluation
from hf_xsent.evaluation.opened import OpenedModel, open_models
from hf_xsent.evaluation.registry import load_tasks
from hf_xsent.evaluation.report import Measurement, Report, compare_with_first, read_reports
from hf_xsent.evaluation.settings import EvaluateSettings
from hf_xsent.evaluation.task import Encode, EvaluationTask, Start
from hf_xsent.files import check_writable, digest, write_json, write_text
from hf_xsent.logs import Progress
from hf_xsent.runs.claim import claim
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)


@command(EvaluateSettings)
def evaluate(settings: EvaluateSettings) -> Evaluation:
    """Measure models on tasks: one report per model, task, pooling, layer and dimension.

    A model is a folder, a Hub id or an object with ``encode``, such as a SentenceTransformer; of several, each is
    compared with the first. ``output`` is a JSON file of the results, of models by folder or Hub id; what it has
    already is not measured again.
    ``tasks`` may be a folder with a folder per task, and ``pairs`` are pairs of your own, such as
    ``{"de": "test.tsv"}`` or a Dataset, which ``tasks`` may be, too.

    ```python
    from hf_xsent import evaluate

    evaluation = evaluate(["xlm-roberta-base", "runs/mine"], {"tatoeba": "data/tatoeba"}, languages=["de", "sw"])
    print(evaluation)  # a table
    scores = evaluation.to_pandas()  # or evaluation.reports[1].groups["all"]["mean"]
    print(scores[scores.metric == "mean"])
    ```
    """
    tasks = load_tasks(settings.tasks, settings.languages, settings.pairs, settings.columns)
    if settings.page is not None:
        _check_page(settings.page, [settings.output] if settings.output else [])
    evaluation = _measure_models(settings, tasks)
    if settings.page is not None:
        write_text(settings.page, evaluation.document().html())
    return evaluation


def _check_page(page: str, others: Sequence[str]) -> None:
    """Raise an error if a page cannot be written, or would overwrite another output or a file that is no page."""
    check_writable(page, others)
    path = Path(page)
    if path.is_file() and not path.read_bytes()[:15].lower().startswith(b"<!doctype html"):
        raise OutputError(f"{page} exists and is no page: choose another name")


def _is_suite(tasks: Any) -> bool:
    """Return whether a folder of several tasks is among the tasks."""
    words = [word for word in tasks if isinstance(word, str | os.PathLike)] if isinstance(tasks, list | tuple) else []
    return any("=" not in os.fspath(word) for word in words)


def _measure_models(settings: EvaluateSettings, tasks: Sequence[EvaluationTask]) -> Evaluation:
    """Measure each model after the other, and compare each with the first."""
    opened = open_models(settings, tasks)
    store = None
    if settings.output is not None:
        check_writable(settings.output)
        read_reports(settings.output)  # a file of something else is an error before the first model is measured
        store = Store(f"{settings.output}.work")
    start: Start | None = None
    first: dict[str, Measurement] = {}  # by task
    measurements, names = list[Measurement](), dict[str, str]()
    with closing(opened):
        for model in opened:
            names[model.name] = model.short_name
            for task, new in measure_tasks(model, tasks, store, start):
                if task.name in first:
                    new = [compare_with_first(task, next(iter(names)), first[task.name], new[0])]
                first.setdefault(task.name, new[0])
                measurements += new
                if settings.output is not None:
                    _write_results(settings.output, [measured.report for measured in measurements])
                _warn_of_cut(new[0].report, model.encoder)
                logger.info("%s", "\n".join(measured.report.headline(task) for measured in new))
            if start is None and len(settings.model) > 1:
                start = model.as_start(text for task in tasks if task.needs_start for text in task.inputs())
    varied = len(measurements) > len(names) * len(tasks)
    return Evaluation(tasks, measurements, names, _is_suite(settings.tasks) and not varied, settings.page)


def _write_results(output: str, reports: Sequence[Report]) -> None:
    """Add reports to the JSON file, also while other processes do; a new one replaces the earlier one with its key.

    A report that was compared with a start stays if the new one of the same weights and versions was not.
    """
    with claim(f"{output}.work/results.lock"):
        earlier = {report.key: report for report in read_reports(output)}
        for report in reports:
            before = earlier.pop(report.key, report)
            stays = before.compares and not report.compares and before.measures_as(report)
            earlier[report.key] = before if stays else report
        write_json(output, {"runs": [asdict(report) for report in earlier.values()]})


def _warn_of_cut(report: Report, model: Any) -> None:
    """Warn if texts were longer than the model reads."""
    if report.cut_texts:
        more = model.longest_input > model.max_length
        cure = f"max_length up to {model.longest_input} reads more" if more else "split them into passages"
        logger.warning("%s, %s: %s", report.settings["model"], report.cut_texts, cure)


def measure_tasks(
    model: OpenedModel, tasks: Sequence[EvaluationTask], store: Store | None = None, start: Start | None = None
) -> Iterator[tuple[EvaluationTask, list[Measurement]]]:
    """Yield each task with its measurements, one per view and dimension, as soon as it is measured.

    Measurements that are in the store with the same settings, data and versions are read from it.
    """
    for task in tasks:
        task = task if start is None else task.beside(start)
        variants = [*model.variants] if task.has_views else [(model.settings, model.variants[0][1])]
        if store is None or store.missing(_name(task, view_settings) for view_settings, _ in variants):
            model.prepare(task.inputs())
        measurements = []
        for view_settings, encode in Progress(variants, desc=f"scoring {task.name}", unit=" settings", delay=2):
            write = partial(_measure, task, view_settings, encode)
            measured = write() if store is None else store.get(_name(task, view_settings), write, Measurement.read)
            measurements.append(replace(measured, report=replace(measured.report, data=task.data)))  # as named now
        yield task, measurements


def _measure(
    task: EvaluationTask, view_settings: Mapping[str, Any], encode: Encode, path: Path | None = None
) -> Measurement:
    measurement = Measurement.of(task, view_settings, task.score(encode), encode)
    if path is not None:
        measurement.write(path)
    return measurement


def _name(task: EvaluationTask, view_settings: Mapping[str, Any]) -> str:
    return f"{digest([Report.of(task, view_settings).stamp])}.npz"
