"""Write the report of a study: report.json, report.md, report.html (tables, charts, learning curves), and TASK.svg."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from os.path import commonprefix
from pathlib import Path
from statistics import mean
from typing import Any

from hf_xsent.comparison.tables import (
    Results,
    column_name,
    cost_table,
    difference_table,
    finished_rows,
    headline,
    row_name,
    state_table,
    task_table,
)
from hf_xsent.data.languages import find_language
from hf_xsent.errors import HfXsentError
from hf_xsent.files import write_json, write_text
from hf_xsent.pages.charts import Mark, bar_chart, curve_chart, point_chart, standalone
from hf_xsent.pages.document import Document, Html, Part, fold, heading, legend

DEV_ACCURACY = "eval_accuracy"
PUBLISHED_NOTE = "In italics: published scores on the same test sentences, from other encoders, data and budgets."
INTERVAL_NOTE = (
    "Intervals cover the noise of test items (paired bootstrap) and, for methods with several seeds, that of seeds."
)


def write_report(output: Path, results: Results) -> None:
    """Write the same report as JSON, Markdown and HTML, and the chart of each task's score against cost as SVG."""
    document = report_document(results)
    write_json(output / "report.json", results)
    write_text(output / "report.md", document.markdown())
    write_text(output / "report.html", document.html())
    if finished_rows(results):
        for task in results["tasks"]:
            write_text(output / f"{task}.svg", standalone(_score_against_cost(results, task)))


def report_document(results: Results) -> Document:
    """Return the report with its tables and charts."""
    costs, states = cost_table(results), state_table(results)
    note = "Cost of training, without loading and without measurements on dev and on the tasks."
    sections: dict[str, Sequence[Part]] = {task: _task_section(results, task) for task in results["tasks"]}
    sections |= {
        "Learning curves": _learning_curves(results),
        "Cost of training": [note, costs] if costs.rows else [],
        "Unfinished runs": [states] if states.rows else [],
        "How each method was trained": [*_recipes(results)],
    }
    return Document(results["title"], [_description(results)], sections)


def _description(results: Results) -> str:
    """Describe starting encoder, budget, seeds and poolings."""
    seeds = {run["seed"] for run in results["runs"] if run["seed"] is not None}
    poolings = dict.fromkeys(run["pooling"] for run in results["runs"])
    return (
        f"Every method starts from {results['model']}; each trained one gets {results['budget']}. "
        f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'}, {', '.join(poolings)} pooling. "
        "Scores are means over seeds ± standard deviation."
    )


def verdict(results: Results, task: str) -> str:
    """Name the best method, or state why there is no clear winner."""
    differences = results["differences"].get(task)
    if not differences:
        return ""
    first = row_name(differences["best"])
    near = [row for row in differences["others"] if row["interval"] is None or row["interval"][1] >= 0]
    if not near:
        return f"Best: {first}."
    if all(row["interval"] for row in near):
        return f"No clear winner: noise could explain the lead of {first} over {'; '.join(map(row_name, near))}."
    return f"Highest: {first}, but not every difference has an interval: train more seeds."


def _task_section(results: Results, task: str) -> list[Part]:
    about, differences = results["tasks"][task], difference_table(results, task)
    if not about["columns"]:
        return []
    scores = task_table(results, task)
    parts: list[Part] = [f"{about['protocol']}.{' ' + PUBLISHED_NOTE if scores.quoted else ''}", scores]
    if differences.rows:
        best = row_name(results["differences"][task]["best"])
        parts += [heading(f"Differences to {best}"), f"{verdict(results, task)} {INTERVAL_NOTE}", differences]
    parts.append(heading(f"Score against cost: {column_name(about, about['columns'][0])}"))
    parts.append(Html(_score_against_cost(results, task)))
    return [*parts, *setting_curves(results, task), *_language_bars(results, task)]


def _series(results: Results) -> dict[str, int]:
    """Number the methods: the number chooses the color in charts."""
    return {name: number for number, name in enumerate(dict.fromkeys(run["method"] for run in results["runs"]))}


def _score_against_cost(results: Results, task: str) -> str:
    """Draw each method at its cost of training and its score."""
    rows, series = finished_rows(results), _series(results)
    several = len({row["pooling"] for row in rows}) > 1
    marks = []
    for row in rows:
        score, deviation = headline(results, row, task)
        minutes = (row["cost"].get("cpu_seconds") or [0.0])[0] / 60
        label = row_name(row) if several else row["method"]
        marks.append(Mark(minutes, score, series[row["method"]], label, deviation))
    return point_chart(f"{task}: score against cost", marks, "CPU minutes of training")


def setting_curves(results: Results, task: str) -> list[Part]:
    """Draw the main score of a task as a function of the study's ``plot`` setting.

    Methods that differ only in this setting are the points of one curve.
    """
    setting, about = results.get("plot"), results["tasks"][task]
    recipes = {row_name(run): run["recipe"] for run in results["runs"]}
    points: dict[str, list[tuple[float, float]]] = {}
    names: dict[str, list[str]] = {}
    for row in finished_rows(results):
        recipe = recipes[row_name(row)]
        value = recipe.get(setting)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, int | float):
            others = json.dumps([row["pooling"], {**recipe, setting: None}], sort_keys=True, default=str)
            points.setdefault(others, []).append((value, headline(results, row, task)[0]))
            names.setdefault(others, []).append(f"{row['pooling']} pooling: {row['method']}")
    curves: dict[str, tuple[int, list[tuple[float, float]]]] = {}
    for number, (others, line) in enumerate(points.items()):
        if len(line) > 1:
            name = commonprefix(names[others]).strip(" ,:")
            curves[f"{name} ({number + 1})" if name in curves else name] = (number, sorted(line))
    if not curves:
        return []
    title = f"{task}, {column_name(about, about['columns'][0])}, by {setting}"
    return [heading(title), Html(curve_chart(title, curves, str(setting), named=True))]


def _language_bars(results: Results, task: str) -> Iterator[Part]:
    """Draw a chart per pooling, with one bar per language and method."""
    rows, series, main = finished_rows(results), _series(results), results["tasks"][task]["main"]
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        of_method = {row["method"]: row["languages"][task] for row in rows if row["pooling"] == pooling}
        codes = dict.fromkeys(code for languages in of_method.values() for code in languages)
        values = {
            _language(code): [of_method.get(method, {}).get(code, {}).get(main, [None])[0] for method in series]
            for code in codes
        }
        if values:
            chart = bar_chart(f"{task} by language, {pooling} pooling", values, list(series))
            yield fold(f"By language, {pooling} pooling", f"{legend(series)}\n{chart}")


def _learning_curves(results: Results) -> list[Part]:
    """Draw dev accuracy and the loss of each objective over steps, one chart per pooling."""
    series, parts, drawn = _series(results), list[Part](), set[str]()
    kinds = dict.fromkeys(kind for run in results["runs"] for kind in run["curves"])
    for kind in sorted(kinds, key=lambda kind: kind != DEV_ACCURACY):
        for pooling in dict.fromkeys(run["pooling"] for run in results["runs"]):
            runs = [run for run in results["runs"] if run["pooling"] == pooling]
            means = {method: mean_curve([run for run in runs if run["method"] == method], kind) for method in series}
            curves = {method: (series[method], curve) for method, curve in means.items() if len(curve) > 1}
            if curves:
                drawn.update(curves)
                name = "Accuracy on dev" if kind == DEV_ACCURACY else f"Loss of {kind.replace('_', ' ')}"
                title = f"{name}, {pooling} pooling"
                parts += [heading(title), Html(curve_chart(title, curves, "step"))]
    return [legend({name: number for name, number in series.items() if name in drawn}), *parts] if parts else []


def mean_curve(runs: Sequence[Mapping[str, Any]], kind: str) -> list[tuple[float, float]]:
    """Average a curve over seeds, at the steps that all runs logged; use only finished runs, if there are any."""
    logged = [run for run in runs if run["curves"].get(kind)]
    averaged = [run for run in logged if run["state"] == "finished"] or logged
    curves = [dict(run["curves"][kind]) for run in averaged]
    steps = [step for step in curves[0] if all(step in curve for curve in curves)] if curves else []
    return [(step, mean(curve[step] for curve in curves)) for step in steps]


def _recipes(results: Results) -> Iterator[Part]:
    """List the recipe of each method, and the versions of the libraries."""
    trained = {run["method"]: run["recipe"] for run in results["runs"] if run["seed"] is not None}
    for method, recipe in trained.items():
        yield fold(method, f"<pre>{escape(json.dumps(recipe, indent=1, ensure_ascii=False))}</pre>")
    if trained:
        yield Html(f"<p>{escape(', '.join(f'{name} {number}' for name, number in results['versions'].items()))}</p>")


def _language(code: str) -> str:
    try:
        return find_language(code).name
    except HfXsentError:
        return code
