"""Build the tables of a model card from the JSON that hf-xsent evaluate writes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from huggingface_hub import EvalResult

from hf_xsent.errors import DataError


@dataclass(frozen=True)
class EvaluationTable:
    """A table of one benchmark's results, and their means for the Hub; ``measured`` is false for a paper's results."""

    title: str
    header: list[str]
    rows: list[list[str]]
    note: str
    results: list[EvalResult] = field(default_factory=list)
    task: str = ""
    languages: list[str] = field(default_factory=list)
    measured: bool = True


@dataclass(frozen=True)
class _Benchmark:
    """How a card names the results of a task.

    ``dataset_id`` is the benchmark's id on the Hub, if the Hub has it, and ``hub_group`` is the group whose
    mean is comparable with the Hub's, if not the mean of all.
    """

    title: str
    rows: tuple[str, str]  # singular and plural
    main: str
    metric: str
    metric_name: str
    dataset_id: str | None = None
    hub_group: str = "all"


_PAIRS = ("pair of languages", "pairs of languages")
_SPEARMAN = ("spearman", "spearman", "Spearman × 100")
_BENCHMARKS = {
    "tatoeba": _Benchmark(
        "Tatoeba", ("language", "languages"), "mean", "accuracy", "accuracy@1", "mteb/tatoeba-bitext-mining"
    ),
    "bucc": _Benchmark("BUCC 2018", _PAIRS, "f1", "f1", "F1"),
    "sts17": _Benchmark("STS 2017", _PAIRS, *_SPEARMAN, "mteb/sts17-crosslingual-sts", "6 tracks, without es-en-wmt"),
    "sts22": _Benchmark("STS22", _PAIRS, *_SPEARMAN, "mteb/sts22-crosslingual-sts"),
}
_HEADINGS = {"forward": "xx→en", "backward": "en→xx", "f1": "F1"}


def read_tables(
    path: str | Path, model: str | None = None, encoding: Mapping[str, Any] = MappingProxyType({})
) -> list[EvaluationTable]:
    """Return a table per benchmark from a results file of one model, or of the one that it names ``model``.

    Results with other settings than ``encoding``, such as another layer, are in tables only, and not for the Hub.
    """
    try:
        runs = json.loads(Path(path).read_text(encoding="utf-8"))["runs"]
        runs = [run for run in runs if model in (None, run["settings"].get("model"))]
        models = {run["settings"].get("model_fingerprint") for run in runs}
        tables = [_table(run, _BENCHMARKS[run["task"]], encoding) for run in runs]
    except OSError as error:
        raise DataError(f"cannot read the results {path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, AttributeError, StopIteration) as error:
        raise DataError(f"{path} is not a results file: write one with hf-xsent evaluate --output") from error
    if len(models) > 1:
        raise DataError(f"{path} has results of several models: evaluate this model alone, with another --output")
    return tables


def with_one_result(tables: Sequence[EvaluationTable]) -> list[EvaluationTable]:
    """Retain the Hub's result of only one table of each benchmark, that of the most languages."""
    largest: dict[str, EvaluationTable] = {}
    for table in tables:
        if table.results and len(table.languages) > len(getattr(largest.get(table.task), "languages", ())):
            largest[table.task] = table
    return [table if largest.get(table.task) is table else replace(table, results=[]) for table in tables]


def _table(run: Mapping[str, Any], benchmark: _Benchmark, encoding: Mapping[str, Any]) -> EvaluationTable:
    """Tabulate one benchmark: a row for each language or pair, and for the mean of each group."""
    scores = run["languages"] | {f"mean of {name}": figures for name, figures in run["groups"].items()}
    columns = list(next(iter(scores.values())))
    count = len({name.split()[0] for name in run["languages"]})  # BUCC's names have the data split as second word
    measured = f"{count} {benchmark.rows[count > 1]}"
    settings = ", ".join(f"{key} {value}" for key, value in run["settings"].items() if key != "model")
    return EvaluationTable(
        title=f"{benchmark.title}, {measured}, {benchmark.metric_name}",
        header=[benchmark.rows[0], *(_HEADINGS.get(column, column) for column in columns)],
        rows=[[name, *(_cell(figures[column]) for column in columns)] for name, figures in scores.items()],
        note=f"{run['protocol']}. {settings}.",
        results=_results(run, benchmark, measured) if _is_of(run, encoding) else [],
        task=run["task"],
        languages=list(run["languages"]),
    )


def _is_of(run: Mapping[str, Any], encoding: Mapping[str, Any]) -> bool:
    return all(run["settings"].get(name, value) == value for name, value in encoding.items())


def _cell(value: float) -> str:
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _results(run: Mapping[str, Any], benchmark: _Benchmark, measured: str) -> list[EvalResult]:
    """Return the mean over all measured languages, or over those that the Hub has, in the Hub's format."""
    if benchmark.dataset_id is None:
        return []
    groups = run["groups"]
    group = benchmark.hub_group if benchmark.hub_group in groups else "all"
    mean = groups[group] if group in groups else next(iter(groups.values()))
    measured = measured if group == "all" else group
    both = ", both directions" if run["task"] == "tatoeba" else ""
    return [
        EvalResult(
            task_type="sentence-similarity",
            dataset_type=benchmark.dataset_id,
            dataset_name=f"{benchmark.title} ({measured}{both})",
            dataset_split="test",
            metric_type=benchmark.metric,
            metric_value=round(mean[benchmark.main], 2),
            metric_name=benchmark.metric_name,
        )
    ]
