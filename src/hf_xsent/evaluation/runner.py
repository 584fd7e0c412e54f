"""Measure one model on several tasks and in several views (layer and pooling), and skip finished tasks."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_xsent.errors import ModelError, OutputError
from hf_xsent.evaluation.report import Report, read_reports
from hf_xsent.evaluation.task import Encode, EvaluationTask, Outcomes, check_distinct
from hf_xsent.files import check_free_space, check_writable, write_json
from hf_xsent.logs import Progress
from hf_xsent.models.encode_interface import check_finite
from hf_xsent.models.fingerprint import fingerprint_model

if TYPE_CHECKING:
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.sentence_encoder import View


def describe(embedder: SentenceEmbedder, name_or_path: str | Path) -> dict[str, Any]:
    """Return the settings that all reports of a model share: all except view and dimension."""
    return {
        "model": str(name_or_path),
        "model_fingerprint": fingerprint_model(str(name_or_path)),
        "max_length": embedder.max_length,
        "dtype": str(embedder.model.dtype).removeprefix("torch."),
    } | ({"prompt": embedder.prompt} if embedder.prompt else {})


def evaluate_tasks(
    embedder: SentenceEmbedder,
    tasks: Sequence[EvaluationTask],
    settings: Mapping[str, Any],
    views: Sequence[View] | None = None,
    dims: Sequence[int] | None = None,
    output: str | Path | None = None,
    outcomes: dict[str, Outcomes] | None = None,
) -> Iterator[tuple[EvaluationTask, list[Report]]]:
    """Yield each task with its reports, one per view and dimension, as soon as it is measured.

    ``settings`` describe the model (``describe``). ``output`` is a JSON file of one model, written after each task.
    A task is skipped if the file has all its reports with the same settings, data and versions. A new report replaces
    the old one of the same settings and data; all others stay.
    ``outcomes`` is filled with the outcomes of each measured task, in the last view and dimension.
    """
    check_distinct(tasks)
    measured = settings_of_views(embedder, settings, views, dims)
    views = list(dict.fromkeys(view for view, *_ in measured))
    if output is not None:
        check_writable(output)
    known = {} if output is None else {report.stamp: report for report in _known(output, settings)}
    found: dict[str, list[Report]] = {}
    for task in tasks:
        stamps = [Report.of(task, stated).stamp for _, _, stated in measured]
        if all(stamp in known for stamp in stamps):
            found[task.name] = [known[stamp] for stamp in stamps]
    missing = [task for task in tasks if task.name not in found]
    vectors = SentenceVectors(embedder, views, (one for task in missing for one in task.sentences()))
    for task in tasks:
        if task.name not in found:
            vectors.add(task.sentences())
            bar = Progress(measured, desc=f"scoring {task.name}", unit=" settings", delay=2)
            found[task.name] = []
            for view, dim, stated in bar:
                scores, details = task.measure(vectors.of(view, dim))
                found[task.name].append(Report.of(task, stated, scores))
                if outcomes is not None:
                    outcomes[task.name] = details
        if output is not None:
            done = [report for one in tasks for report in found.get(one.name, [])]
            replaced = {report.subject for report in done}
            others = [report for report in known.values() if report.subject not in replaced]
            write_json(output, {"runs": [asdict(report) for report in (*others, *done)]})
        yield task, found[task.name]


def settings_of_views(
    embedder: SentenceEmbedder,
    settings: Mapping[str, Any],
    views: Sequence[View] | None = None,
    dims: Sequence[int] | None = None,
) -> list[tuple[View, int, dict[str, Any]]]:
    """Return each view and dimension with the settings for its report.

    Raise an error if the model lacks a layer, a pooling or a dimension.
    """
    views = [embedder.view] if views is None else views
    dims = [embedder.width] if dims is None else dims
    _check(embedder, views, dims)
    return [
        (view, dim, {**settings, "pooling": view.pooling, "layer": view.layer, "dim": dim})
        for view, dim in product(views, dims)
    ]


class SentenceVectors:
    """Embeddings by view, in memory-mapped temporary files, because a sweep over layers can exceed memory."""

    def __init__(self, embedder: SentenceEmbedder, views: Sequence[View], sentences: Iterable[str]) -> None:
        self._embedder = embedder
        self._views = list(views)
        self._rows: dict[str, int] = {}  # of the sentences encoded so far
        shape = (max(1, len(set(sentences))), embedder.width)  # of all sentences
        needed = len(self._views) * shape[0] * shape[1] * 4
        cure = "choose fewer layers at once, or set TMPDIR to a larger disk"
        check_free_space(tempfile.gettempdir(), needed, "the vectors", cure)
        self._vectors = {}
        for view in self._views:
            with tempfile.TemporaryFile() as file:
                self._vectors[view] = np.memmap(file, np.float32, "w+", shape=shape)

    def add(self, sentences: Iterable[str]) -> None:
        """Encode the sentences that are not encoded yet."""
        new = [one for one in dict.fromkeys(sentences) if one not in self._rows]
        if not new:
            return
        start = len(self._rows)
        into = [self._vectors[view][start : start + len(new)] for view in self._views]
        self._embedder.encode_views(new, self._views, show_progress=True, into=into)
        precision = str(self._embedder.model.dtype).removeprefix("torch.")
        for vectors in into:
            check_finite(vectors, precision, lambda row: f"the sentence {new[row][:40]!r}")
        self._rows |= {one: start + place for place, one in enumerate(new)}

    def of(self, view: View, dim: int) -> Encode:
        """Return an encoder that looks up embeddings in this view, truncated to ``dim`` dimensions."""

        def encode(sentences: Sequence[str]) -> np.ndarray:
            return np.asarray(self._vectors[view][[self._rows[one] for one in sentences], :dim])

        return encode


def _known(output: str | Path, settings: Mapping[str, Any]) -> list[Report]:
    """Read the reports of the file; raise an error if they are of another model."""
    reports, ours = read_reports(output), settings.get("model_fingerprint")
    for report in reports:
        if report.settings.get("model_fingerprint") != ours:
            raise OutputError(
                f"{output} holds results of another model ({report.settings.get('model')}): choose another file"
            )
    return reports


def _check(embedder: SentenceEmbedder, views: Sequence[View], dims: Sequence[int]) -> None:
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
