"""Evaluate a model on the benchmarks."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.evaluation.registry import load_tasks
from hf_xsent.evaluation.report import Report
from hf_xsent.evaluation.runner import describe, evaluate_tasks
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.text_encoder import View

Tasks = Mapping[str, str | os.PathLike[str]] | Sequence[EvaluationTask]


def evaluate(
    model: Any,
    tasks: Tasks,
    languages: Mapping[str, Iterable[str]] | None = None,
    *,
    pooling: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    dims: Sequence[int] | None = None,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
    output: str | Path | None = None,
    on_result: Callable[[EvaluationTask, list[Report]], None] | None = None,
) -> list[Report]:
    """Measure a model on tasks: one report per task, or per task, pooling, layer and dimension.

    ``model`` is a folder, a Hub id or any object with ``encode``; pooling and layer are then its own. ``tasks`` maps
    names (tatoeba, bucc, sts17, sts22) to folders or Hub ids, or is a list from ``load_tasks``; ``languages`` restricts
    a task of a mapping to some languages. ``output`` is a JSON file of the results; tasks whose results it already has
    are not measured again. ``on_result`` is called after each task.

    ```python
    from hf_xsent import evaluate

    for report in evaluate("runs/mine", {"tatoeba": "path/to/tatoeba"}, {"tatoeba": ["de", "sw"]}):
        print(report.task, report.groups["all"]["mean"])
    ```
    """
    if isinstance(tasks, str | os.PathLike):
        raise RecipeError(f"tasks maps names to folders, such as {{'tatoeba': {os.fspath(tasks)!r}}}, not a string")
    if languages and not isinstance(tasks, Mapping):
        raise RecipeError("languages restrict tasks given by name: give them to load_tasks instead")
    chosen = load_tasks(tasks, languages) if isinstance(tasks, Mapping) else list(tasks)
    reports: list[Report] = []
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        embedder, views = open_in_views(name, pooling, layers, max_length, precision, device)
        measured = evaluate_tasks(embedder, chosen, describe(embedder, name), views, dims, output)
    else:
        if any(one is not None for one in (pooling, layers, dims, max_length, output)):
            raise ModelError("pooling, layers, dims, max_length and output need a model given by its folder or Hub id")
        measured = _of_object(model, chosen)
    for task, found in measured:
        reports += found
        if on_result is not None:
            on_result(task, found)
    return reports


def open_in_views(
    name: str,
    pooling: Sequence[str] | None = None,
    layers: Sequence[int] | None = None,
    max_length: int | None = None,
    precision: str = "float32",
    device: str | None = None,
) -> tuple[SentenceEmbedder, list[View]]:
    """Open a model; return it and the views (layer and pooling) to measure, by default the model's own."""
    options: Any = {"max_length": max_length, "precision": precision, "device": device}
    embedder = SentenceEmbedder.from_pretrained(name, **options)
    views = [
        View(layer, one)
        for one in (pooling or [embedder.pooling])
        for layer in ([embedder.view.layer] if layers is None else layers)
    ]
    return embedder, views


def _of_object(model: Any, tasks: Sequence[EvaluationTask]) -> Iterator[tuple[EvaluationTask, list[Report]]]:
    """Measure any object with ``encode``."""
    if not hasattr(model, "encode"):
        raise ModelError(f"{type(model).__name__} has no encode: give a folder, a Hub id or a model that encodes text")

    def encode(sentences: Sequence[str]) -> np.ndarray:
        return np.asarray(model.encode(list(sentences)), dtype=np.float32)

    for task in tasks:
        yield task, [Report.of(task, {"model": type(model).__name__}, task.score(encode))]
