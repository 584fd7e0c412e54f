"""Show the results of several tasks and models together: one table, and a page with a chart per task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.errors import HfXsentError
from hf_xsent.evaluation.report import NOTE, Report, join_settings
from hf_xsent.evaluation.significance import Difference
from hf_xsent.evaluation.task import EvaluationTask
from hf_xsent.pages.charts import bar_chart
from hf_xsent.pages.document import Document, Html, Part, fold, heading, legend
from hf_xsent.pages.tables import Table

Reports = Mapping[str, Mapping[str, Report]]  # by model and task


def summary_table(tasks: Sequence[EvaluationTask], reports: Reports) -> Table:
    """List the figures of each task, a column per model; of two models, their difference too."""
    rows = [row for task in tasks for row in _rows(task, [of_model[task.name] for of_model in reports.values()])]
    return Table(["", *reports, *(["difference"] * (len(reports) == 2))], rows)


def _rows(task: EvaluationTask, reports: Sequence[Report]) -> list[list[object]]:
    """Return a row for each figure of a task that was measured, or its main metric."""
    rows: list[list[object]] = []
    for label, figure in {**task.figures, f"{task.title}: {task.headings[task.main_metric]}": task.main_metric}.items():
        group, metric = ("all", figure) if isinstance(figure, str) else figure
        values = [report.groups.get(group, {}).get(metric) for report in reports]
        if all(value is None for value in values) or (rows and label not in task.figures):
            continue
        row: list[object] = [label, *values]
        if len(reports) == 2:
            row.append(_change(values, reports[1].differences.get(group, {}).get(metric)))
        rows.append(row)
    return rows


def _change(values: Sequence[float | None], interval: Sequence[float] | None) -> str:
    """Format a difference, marked if its interval excludes 0."""
    before, after = values
    if before is None or after is None:
        return ""
    return f"{after - before:+.2f}{' *' if interval and Difference(*interval).significant else '  '}"


_PREFERS_OWN_LANGUAGE = 5.0  # points between alone and beside


def notes(reports: Reports) -> list[str]:
    """Return sentences on how to read the results: texts of different lengths, a single model that needs training."""
    if len(reports) == 1:
        return [*filter(None, map(_own_language, *(of_model.values() for of_model in reports.values())))]
    lengths = {
        name: settings["max_length"]
        for name, of_model in reports.items()
        if "max_length" in (settings := next(iter(of_model.values())).settings)
    }
    if len({*lengths.values()}) < 2:
        return []
    each = ", ".join(f"{name} {length}" for name, length in lengths.items())
    return [
        f"models read texts of different lengths in tokens ({each}): compare them on the same texts with "
        f"--max_length {min(lengths.values())} (in Python max_length={min(lengths.values())})"
    ]


def _own_language(report: Report) -> str:
    """Say that a model prefers sentences in the language of the query, and what changes it; empty if it does not."""
    scores = report.groups.get("all", {})
    alone, beside = scores.get("alone", scores.get("mean", 0.0)), scores.get("beside")
    if beside is None or alone - beside < _PREFERS_OWN_LANGUAGE:
        return ""
    return (
        f"{report.task}: {alone:.2f} alone, but {beside:.2f} beside the query's own language, which this model "
        "prefers: training on pairs, or on more of them, changes that, as does hf-xsent export --remove_language "
        "(docs/search.md)"
    )


_BEYOND = 101  # the rank of a right text that is not among the 100 nearest


def failing(items: Mapping[str, Sequence[Mapping[str, Any]]], most: int, longest: int) -> tuple[str, Table] | None:
    """Tabulate the items whose right text some model (by name) did not find first, those of the last model first.

    Return a title and the first ``most`` items, with texts of at most ``longest`` characters; None if there are none.
    """
    rows = [row for row in zip(*items.values(), strict=True) if not all(item["correct"] for item in row)]
    rows.sort(key=lambda row: (row[-1]["correct"], -(row[-1].get("rank") or _BEYOND)))
    names = ("text", "language", "item", "right")
    cells = [
        [*(_cut(row[0][name], longest) for name in names), *(_found(item, longest) for item in row)]
        for row in rows[:most]
    ]
    first = f", the first {most}" if len(rows) > most else ""
    title = f"{len(rows):,} of {len(next(iter(items.values()))):,} texts for which not the right one was found first"
    return (f"{title}{first}", Table([*names, *(f"{name} finds" for name in items)], cells)) if rows else None


def _found(item: Mapping[str, Any], longest: int) -> str:
    """Return the text that was found in place of the right one, with the rank of that where it is known."""
    if item["correct"]:
        return "the right one"
    if item["found"] is None:
        return "no text: the vector is zero"
    what = _cut(item["found"], longest) or "an empty text"
    more = ["own language"] * item["own_language"]
    more += [f"the right one: {item['rank'] or 'beyond 100'}"] if "rank" in item else []
    return f"{what} ({', '.join(more)})" if more else what


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def summary_page(
    tasks: Sequence[EvaluationTask], reports: Reports, further: Mapping[str, Sequence[Part]] | None = None
) -> Document:
    """Return a page with the table of all tasks, charts and tables by language of each task, and further parts."""
    names = list(reports)
    shown = legend({name: number for number, name in enumerate(names)})
    explained = [NOTE] * (len(names) == 2) + notes(reports)
    sections: dict[str, Sequence[Part]] = {"All tasks": [summary_table(tasks, reports), *explained]}
    for task in tasks:
        of_task = {name: reports[name][task.name] for name in names}
        parts: list[Part] = [f"{task.protocol}.", *([shown] if len(names) > 1 else [])]
        for metric in task.charts:
            if chart := _bars(f"{task.title}: {task.headings[metric]}", metric, of_task):
                parts += [heading(f"{task.headings[metric]}, by language"), Html(chart)]
        parts += [fold(f"{name}: all figures", report.table("", task).html()) for name, report in of_task.items()]
        sections[task.title] = [*parts, *(further or {}).get(task.name, ())]
    about = [f"{name}: {join_settings(next(iter(reports[name].values())).settings)}" for name in names]
    return Document("Evaluation of " + ", ".join(names), about, sections)


def _bars(title: str, metric: str, reports: Mapping[str, Report]) -> str:
    """Draw one bar per language and model; of a language in two scripts, the second has its code as name."""
    rows: dict[str, list[float | None]] = {}
    for code in dict.fromkeys(code for report in reports.values() for code in report.languages):
        values = [report.languages.get(code, {}).get(metric) for report in reports.values()]
        if any(value is not None for value in values):
            rows[code if language_name(code) in rows else language_name(code)] = values
    return bar_chart(title, rows, list(reports)) if rows else ""


def language_name(code: str) -> str:
    """Return the English name of a language, or the text itself if it is not the code of one, such as ``de-en``.

    >>> language_name("deu"), language_name("de-en"), language_name("STS ar")
    ('German', 'de-en', 'STS ar')
    """
    if "-" in code:
        return code
    try:
        return find_language(code).name
    except HfXsentError:
        return code
