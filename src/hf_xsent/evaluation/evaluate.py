"""Evaluate models on tasks, in several views (layer and pooling) and dimensions, and compare them."""

from __future__ import annotations

import logging
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.evaluation.opened import is_name, open_models, reading
from hf_xsent.evaluation.registry import load_tasks
from hf_xsent.evaluation.report import (
    NOTE,
    Measurement,
    Report,
    compare_with_first,
    comparison_table,
    read_reports,
    task_table,
)
from hf_xsent.evaluation.settings import EvaluateSettings
from hf_xsent.evaluation.summary import notes, summary_page, summary_table
from hf_xsent.evaluation.task import Encode, EvaluationTask, ModelEncoder, Start
from hf_xsent.evaluation.vectors import SentenceVectors
from hf_xsent.files import check_writable, digest, write_json, write_text
from hf_xsent.logs import Progress
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_config
from hf_xsent.models.sentence_encoder import View
from hf_xsent.models.text_encoder import TextEncoder
from hf_xsent.runs.claim import claim
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

logger = logging.getLogger(__name__)


@dataclass(frozen=True, repr=False)
class Evaluation:
    """The reports of all models, tasks, poolings, layers and dimensions; of several models, by their short names."""

    tasks: Sequence[EvaluationTask]
    reports: Sequence[Report]
    models: Mapping[str, str] = field(default_factory=dict)  # short names by model
    suite: bool = False

    def __str__(self) -> str:
        """Format one table of all tasks of a suite, else one per task, or per task and model; then the notes."""
        if self.suite:
            table = f"{summary_table(self.tasks, self.by_model)}\n{NOTE if len(self.by_model) == 2 else ''}"
            return "\n".join([table, *self.notes])
        tables = []
        for task in self.tasks:
            if len(self.models) > 1:
                tables.append(comparison_table(task, {name: of[task.name] for name, of in self.by_model.items()}))
            else:
                tables.append(task_table(task, [report for report in self.reports if report.task == task.name]))
        return "\n\n".join([*tables, *self.notes]) + "\n"

    __repr__ = __str__

    def to_pandas(self) -> Any:
        """Return a data frame with a row for each model, task, language or group of languages (``of``), and metric.

        ``heading`` is the metric's name in tables; ``difference``, ``low`` and ``high`` are those to the first model.
        """
        from pandas import DataFrame

        headings = {task.name: task.headings for task in self.tasks}
        rows = [row for report in self.reports for row in report.records(headings[report.task])]
        return DataFrame([{**row, "model": self.models.get(row["model"], row["model"])} for row in rows])

    @property
    def notes(self) -> list[str]:
        """Sentences on how to read the results."""
        return notes(self.by_model)

    @property
    def by_model(self) -> dict[str, dict[str, Report]]:
        """The first report of each model and task."""
        reports: dict[str, dict[str, Report]] = {}
        for report in self.reports:
            model = report.settings["model"]
            reports.setdefault(self.models.get(model, model), {}).setdefault(report.task, report)
        return reports


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
        check_writable(settings.page, [settings.output] if settings.output else [])
    if all(map(is_name, settings.model.values() if isinstance(settings.model, Mapping) else settings.model)):
        evaluation = _evaluate_models(settings, tasks)
    else:
        evaluation = _evaluate_objects(settings, tasks)
    if settings.page is not None:
        write_text(settings.page, summary_page(tasks, evaluation.by_model).html())
    return evaluation


def _is_suite(tasks: Any) -> bool:
    """Return whether a folder of several tasks is among the tasks."""
    words = [word for word in tasks if isinstance(word, str | os.PathLike)] if isinstance(tasks, list | tuple) else []
    return any("=" not in os.fspath(word) for word in words)


def _evaluate_models(settings: EvaluateSettings, tasks: Sequence[EvaluationTask]) -> Evaluation:
    """Measure models given by their names, and compare each with the first."""
    layers = None if settings.layers is None else parse_layers(settings.layers)
    poolings = [name for names in settings.pooling or () for name in names.split(",")]
    by_name = settings.model if isinstance(settings.model, Mapping) else {}
    models = [os.fspath(model) for model in by_name.values() or settings.model]
    if len({*map(os.path.realpath, models)}) < len(models):
        raise RecipeError(f"evaluate compares different models, but one is given twice: {', '.join(models)}")
    names = dict(zip(models, by_name, strict=True)) if by_name else short_names(models)
    choices = {"pooling": poolings, "layers": layers, "dims": settings.dims}
    varied = [name for name, values in choices.items() if len(values or ()) > 1]
    if varied and (len(names) > 1 or settings.page is not None):
        raise RecipeError(f"--{varied[0]} takes one value if models are compared, or with --page")
    reading: dict[str, Any] = {name: getattr(settings, name) for name in ("max_length", "precision", "device")}
    for model in names:
        if not Path(model).is_dir():
            load_config(model)  # a name that nothing has is an error before the first model is measured
    store, reports = None, list[Report]()
    if settings.output is not None:
        check_writable(settings.output)
        read_reports(settings.output)  # a file of something else is an error before the first model is measured
        store = Store(f"{settings.output}.work")
    start: Start | None = None
    first: dict[str, Measurement] = {}  # by task
    for model in names:
        embedder = SentenceEmbedder.from_pretrained(model, **reading)
        views = [
            View(layer, pooling)
            for pooling in poolings or [embedder.view.pooling]
            for layer in ([embedder.view.layer] if layers is None else layers)
        ]
        described = describe(embedder, model)
        dims = [embedder.width] if settings.dims is None else settings.dims
        check_views(embedder, views, dims)
        vectors = SentenceVectors(embedder, views, (text for task in tasks for text in task.inputs()))
        for task, measurements in measure_tasks(vectors, tasks, described, views, dims, store, start):
            new = [measurement.report for measurement in measurements]
            if task.name in first:
                new = [compare_with_first(task, next(iter(names)), first[task.name], measurements[0])]
            first.setdefault(task.name, measurements[0])
            reports += new
            if settings.output is not None:
                _write_results(settings.output, reports)
            _warn_of_cut(new[0], embedder)
            logger.info("%s", "\n".join(report.headline(task) for report in new))
        if start is None and len(names) > 1:
            vectors.release_model(text for task in tasks if task.needs_start for text in task.inputs())
            start = Start(described["model_fingerprint"], vectors.of(views[0], dims[0]))
    return Evaluation(tasks, reports, names, _is_suite(settings.tasks) and not varied)


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


def short_names(models: Sequence[str]) -> dict[str, str]:
    """Map models to names without their first folders, as far as they still differ.

    >>> short_names(["org/e5", "runs/a/model", "runs/b/model"])
    {'org/e5': 'e5', 'runs/a/model': 'a/model', 'runs/b/model': 'b/model'}
    """
    parts = [Path(model).parts or (model,) for model in models]
    endings = [[str(Path(*path[-count:])) for count in range(1, 1 + len(path))] for path in parts]
    counts = Counter(ending for of_model in endings for ending in of_model)
    return {
        model: next((ending for ending in of_model if counts[ending] == 1), of_model[-1])
        for model, of_model in zip(models, endings, strict=True)
    }


def describe(embedder: SentenceEmbedder, name_or_path: str | Path) -> dict[str, Any]:
    """Return the settings that all reports of a model share: all except view and dimension."""
    return {
        "model": str(name_or_path),
        "model_fingerprint": identify_model(str(name_or_path)),
        "max_length": embedder.max_length,
        "dtype": str(embedder.model.dtype).removeprefix("torch."),
    } | ({"prompt": embedder.prompt} if embedder.prompt else {})


def measure_tasks(
    vectors: SentenceVectors,
    tasks: Sequence[EvaluationTask],
    described: Mapping[str, Any],
    views: Sequence[View],
    dims: Sequence[int],
    store: Store | None = None,
    start: Start | None = None,
) -> Iterator[tuple[EvaluationTask, list[Measurement]]]:
    """Yield each task with its measurements, one per view and dimension, as soon as it is measured.

    ``described`` are settings that identify the model (``describe``). Measurements that are in the store with the same
    settings, data and versions are read from it.
    """
    for task in tasks:
        task = task if start is None else task.beside(start)
        variants = [
            (view, dim, {**described, "pooling": view.pooling, "layer": view.layer, "dim": dim})
            for view, dim in product(views, dims)
        ]
        if store is None or store.missing(_name(task, view_settings) for *_, view_settings in variants):
            vectors.add(task.inputs())
        measurements = []
        for view, dim, view_settings in Progress(variants, desc=f"scoring {task.name}", unit=" settings", delay=2):
            write = partial(_measure, task, view_settings, vectors.of(view, dim))
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


def parse_layers(values: Sequence[int | str]) -> list[int]:
    """Return the layers that numbers and ranges name, each once.

    >>> parse_layers(["0-2,8", 2])
    [0, 1, 2, 8]
    """
    layers: list[int] = []
    for part in (part for value in values for part in str(value).split(",") if part):
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", part)
        if ends is None or (ends[2] and int(ends[2]) < int(ends[1])):
            raise RecipeError(f"--layers takes numbers and ranges such as 8 or 0-12, not {part!r}")
        layers += range(int(ends[1]), int(ends[2] or ends[1]) + 1)
    return list(dict.fromkeys(layers))


def check_views(embedder: SentenceEmbedder, views: Sequence[View], dims: Sequence[int]) -> None:
    """Raise an error if the model lacks a view or a dimension, or has language embeddings."""
    embedder.check_views(views)
    for dim in dims:
        if not 1 <= dim <= embedder.width:
            raise ModelError(f"dim {dim} does not exist: the embeddings of this model have {embedder.width} dimensions")
    if embedder.model.config.languages:
        raise ModelError(
            "evaluate does not support models with language embeddings (their config has languages): use "
            "retrieval_by_language in Python instead"
        )


def _evaluate_objects(settings: EvaluateSettings, tasks: Sequence[EvaluationTask]) -> Evaluation:
    """Measure objects with ``encode`` beside folders, and compare each with the first."""
    names = ("pooling", "layers", "dims", "precision", "device", "output")
    if unused := [name for name in names if getattr(settings, name) != getattr(EvaluateSettings, name)]:
        listed = f"{' and '.join(unused)} {'need' if len(unused) > 1 else 'needs'}"
        raise ModelError(
            f"{listed} models that are named by a folder or Hub id: save the opened ones, name the folders"
        )
    reports: list[Report] = []
    start: Start | None = None
    first: dict[str, Measurement] = {}  # by task
    models = open_models(settings.model)
    with reading(models.values(), settings.max_length):
        for name, model in models.items():
            length = getattr(model, "max_length" if isinstance(model, TextEncoder) else "max_seq_length", None)
            described = {"model": name} | ({"max_length": length} if length else {})
            encode = ModelEncoder(model)
            for task in tasks:
                task = task if start is None else task.beside(start)
                measured = Measurement.of(task, described, task.score(encode), encode)
                before = first.setdefault(task.name, measured)
                compared = start and compare_with_first(task, next(iter(models)), before, measured)
                reports.append(compared or measured.report)
                _warn_of_cut(measured.report, model)
            start = start or Start(name, encode)
    return Evaluation(tasks, reports, {name: name for name in models}, _is_suite(settings.tasks))
