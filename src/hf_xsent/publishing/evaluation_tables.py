"""Build the tables of a model card from the JSON that hf-xsent evaluate writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult

from hf_xsent.errors import DataError
from hf_xsent.evaluation.registry import TASKS
from hf_xsent.evaluation.report import Report, clear_difference, join_settings, opposite_differences, read_reports
from hf_xsent.evaluation.significance import LEAST_ITEMS, Difference
from hf_xsent.pages.tables import Table

# By task: the name of the metric on the Hub and in tables.
_ON_THE_HUB = {
    "tatoeba": ("accuracy", "accuracy@1"),
    "pairs": ("accuracy", "P@1 beside own language"),
    "mixed_pool": ("accuracy", "accuracy beside own language"),
    "retrieval": ("ndcg_at_10", "nDCG@10 × 100"),
    "sts17": ("spearman", "Spearman × 100"),
    "sts22": ("spearman", "Spearman × 100"),
}
_GROUP_ON_THE_HUB = {"sts17": "6 tracks, without es-en-wmt"}  # whose mean is comparable with the Hub's


@dataclass(frozen=True)
class EvaluationTable:
    """A table of one benchmark's results, and their mean for the Hub."""

    title: str
    table: Table
    note: str
    result: EvalResult | None = None


def read_results(
    paths: Iterable[str | Path], fingerprints: Collection[str], dimensions: int | None = None
) -> list[Report]:
    """Read the results of a model with one of these fingerprints, without its name: a run and its export have two.

    ``dimensions`` are those of its embeddings: results with others, such as those of the run, are not the model's.
    """
    reports = []
    for path in paths:
        named = read_reports(path)
        if not named:
            missing = f"{path} has no results" if Path(path).is_file() else f"no such file: {path}"
            raise DataError(f"{missing}: write results with hf-xsent evaluate --output")
        of_model = [report for report in named if report.settings.get("model_fingerprint") in fingerprints]
        if not of_model:
            others = ", ".join(dict.fromkeys(str(report.settings["model"]) for report in named))
            raise DataError(
                f"{path} has results of {others}, not of this model: evaluate the folder that you publish, or the one "
                "that it was exported from"
            )
        measured = {report.settings.get("dim", dimensions): None for report in of_model}
        if dimensions is not None and dimensions not in measured:
            raise DataError(
                f"{path} has results with {' and '.join(map(str, measured))} dimensions, but this model has "
                f"{dimensions}: evaluate the folder that you publish"
            )
        of_model = [report for report in of_model if dimensions in (None, report.settings.get("dim", dimensions))]
        for report in of_model:
            settings = {name: value for name, value in report.settings.items() if name != "model"}
            reports.append(replace(report, settings=settings))
    return reports


def tabulate(reports: Iterable[Report], encoding: Mapping[str, Any], start: str = "") -> list[EvaluationTable]:
    """Return a table for each result. ``start`` is the encoder before training, with which it may be compared.

    Results of another layer, pooling, length or width than those of ``encoding`` are not for the Hub.
    """
    names = {"dim": "dimensions", "max_length": "max_length", "layer": "layer", "pooling": "pooling"}
    if encoding["layer"] is None:  # a mix of layers, whose sum and mean have the same cosines
        del names["pooling"]
    expected = {name: encoding[known] for name, known in names.items()}
    return [_table(report, expected, start) for report in reports]


def _table(report: Report, expected: Mapping[str, Any], start: str) -> EvaluationTable:
    """Tabulate one benchmark: a row for each language or pair, and for the mean of each group."""
    task = TASKS[report.task]
    place = -1 if report.task == "retention" else 0  # "XQuAD-R de"; elsewhere "de", of BUCC "de-en training"
    names = {name.split()[place] for name in report.languages}
    measured = f"{len(names)} {task.unit}{'s' * (len(names) > 1)}"
    as_exported = all(report.settings.get(name, value) == value for name, value in expected.items())
    return EvaluationTable(
        title=f"{task.title}{f' of {own}' if (own := _own_data(report)) else ''}, {measured}",
        table=_with_start(report.table(task.unit, task), report, start),
        note=f"{report.protocol}. {join_settings(report.settings)}.{_other_differences(report)}",
        result=_result(report, measured) if as_exported and report.task in _ON_THE_HUB else None,
    )


def _other_differences(report: Report) -> str:
    task, of_groups = TASKS[report.task], report.differences
    others = opposite_differences(task, of_groups) if of_groups else []
    if not others:
        return ""
    is_clear = clear_difference(task, of_groups)
    return f" {'Differences in the other direction' if is_clear else 'Other clear differences'}: {'; '.join(others)}."


def _own_data(report: Report) -> str:
    """Return the name of the data of a task that measures any; empty if it has none."""
    return report.data if TASKS[report.task].measures_any_data else ""


def _with_start(table: Table, report: Report, start: str) -> Table:
    """Add the main metric of the model with which the results are compared, if they are, and the difference to it."""
    if not report.differences:
        return table
    compared, metric = report.compared_with, TASKS[report.task].main_metric
    rows = []
    for row, (_, name, metrics) in zip(table.rows, report.rows(), strict=True):
        difference = Difference(*report.differences[name][metric])
        rows.append([*row, metrics[metric] - difference.value, str(difference)])
    heading = f"{TASKS[report.task].headings[metric]}: {'before training' if compared == start else compared}"
    return Table([*table.header, heading, "difference (95% interval over test items)"], rows)


def _result(report: Report, measured: str) -> EvalResult | None:
    """Return the mean over all measured languages, or over those that the Hub has; None if the items are too few."""
    task = TASKS[report.task]
    metric, name = _ON_THE_HUB[report.task]
    group, members = "all", [*report.languages]
    if (comparable := _GROUP_ON_THE_HUB.get(report.task)) in report.groups:
        group = measured = comparable
        members = [*task.groups[group]]
    mean = report.groups[group]
    if mean["pairs"] < LEAST_ITEMS:
        return None
    return EvalResult(
        task_type="information-retrieval" if task.name == "retrieval" else "sentence-similarity",
        dataset_type=report.data or report.task,
        dataset_name=f"{_own_data(report) or task.title} ({measured})",
        dataset_config=", ".join(members),  # huggingface_hub merges results with equal type, config and split
        dataset_split="test",
        metric_type=metric,
        metric_value=round(mean[task.main_metric], 2),
        metric_name=name,
    )
