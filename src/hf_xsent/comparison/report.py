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
    finished,
    mean_and_sd_of,
    name_of,
    state_table,
    task_table,
    winners,
)
from hf_xsent.data.languages import find_language
from hf_xsent.errors import HfXsentError
from hf_xsent.files import write_json, write_text
from hf_xsent.pages.charts import Mark, bar_chart, curve_chart, point_chart, standalone
from hf_xsent.pages.html import legend, markdown_text, page

DEV_ACCURACY = "eval_accuracy"
_COST_NOTE = "<p>Cost of training, without loading and without measurements on dev and on the tasks.</p>\n"
PUBLISHED_NOTE = "In italics: published scores on the same test sentences, from other encoders, data and budgets."


def write_reports(output: Path, results: Results) -> None:
    """Write the same report as JSON, Markdown and HTML, and the chart of each task's score against cost as SVG."""
    write_json(output / "report.json", results)
    write_text(output / "report.md", render_markdown(results))
    write_text(output / "report.html", render_page(results))
    if finished(results):
        for task in results["tasks"]:
            write_text(output / f"{task}.svg", standalone(_score_against_cost(results, task)))


def render_markdown(results: Results) -> str:
    """Render the tables for a README or a terminal."""
    parts = [f"# {markdown_text(results['title'])}", markdown_text(describe(results))]
    for task, about in results["tasks"].items():
        if about["columns"]:
            note = f" {PUBLISHED_NOTE}" if task in results["published"] else ""
            about_task = f"{markdown_text(about['protocol'])}.{note}"
            parts += [f"## {markdown_text(task)}", about_task, task_table(results, task).markdown()]
            parts += [markdown_text(verdict(results, task))] + [
                table.markdown() for table in [difference_table(results, task)] if table.rows
            ]
    for title, table in (("Cost of training", cost_table(results)), ("Unfinished runs", state_table(results))):
        if table.rows:
            parts += [f"## {title}", table.markdown()]
    return "\n\n".join(parts) + "\n"


def render_page(results: Results) -> str:
    """Render one self-contained HTML page."""
    methods = _numbers(results)
    costs, states = cost_table(results), state_table(results)
    sections = [
        *(_task_section(results, task, methods) for task in results["tasks"]),
        _curve_section(results, methods),
        _section("Cost of training", _COST_NOTE + costs.html() if costs.rows else ""),
        _section("Unfinished runs", states.html() if states.rows else ""),
        _section("How each method was trained", _recipes(results)),
    ]
    body = f"<h1>{escape(results['title'])}</h1>\n{_summary(results)}\n" + "\n".join(filter(None, sections))
    return page(results["title"], body)


def describe(results: Results) -> str:
    """Describe starting encoder, budget, seeds and poolings."""
    ((unit, amount),) = results["budget"].items()
    seeds = {run["seed"] for run in results["runs"] if run["seed"] is not None}
    poolings = list(dict.fromkeys(run["pooling"] for run in results["runs"]))
    return (
        f"Every method starts from {results['model']}; each trained one gets {_amount(amount)} {unit}. "
        f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'}, {', '.join(poolings)} pooling. "
        "Scores are means over seeds ± standard deviation."
    )


def _summary(results: Results) -> str:
    """Render the description, the best method of each task, and the cost of all runs."""
    best: list[str] = []
    for task, about in results["tasks"].items():
        scores = [_headline(results, row, task)[0] for row in finished(results)]
        if scores:
            words = f"{task}, {column_name(about, about['columns'][0])}. {verdict(results, task)}"
            best.append(f"<div><strong>{max(scores):.2f}</strong><span>{escape(words)}</span></div>")
    runs = results["runs"]
    done = sum(run["state"] == "finished" for run in runs)
    minutes = sum(run["cost"].get("cpu_seconds", 0) for run in runs) / 60
    spent, unit = (minutes, "minutes") if minutes < 100 else (minutes / 60, "hours")
    counts = (
        f"<div><strong>{done} of {len(runs)}</strong><span>runs finished</span></div>\n"
        f"<div><strong>{spent:.1f}</strong><span>CPU {unit} of training</span></div>"
    )
    return f'<p>{escape(describe(results))}</p>\n<div class="figures">\n{"".join(best)}\n{counts}\n</div>'


def verdict(results: Results, task: str) -> str:
    """Name the best method, or state why there is no clear winner."""
    names, known = winners(results, task)
    if not names:
        return ""
    first, *others = names
    if not others:
        return f"Best: {first}."
    if known:
        return f"No clear winner: noise could explain the lead of {first} over {'; '.join(others)}."
    return f"Highest: {first}, but not every difference has an interval: train more seeds."


def _headline(results: Results, row: Mapping[str, Any], task: str) -> tuple[float, float]:
    """Return mean and standard deviation of the score that ranks methods, the first column of the task's table."""
    value, deviation = mean_and_sd_of(row, task, results["tasks"][task]["columns"][0])
    return value or 0.0, deviation or 0.0


def _task_section(results: Results, task: str, methods: Mapping[str, int]) -> str:
    rows, about = finished(results), results["tasks"][task]
    if not rows:
        return ""
    first = column_name(about, about["columns"][0])
    parts = [
        f"<p>{escape(about['protocol'])}.{' ' + PUBLISHED_NOTE if task in results['published'] else ''}</p>",
        task_table(results, task).html(),
        _differences(results, task),
        f"<h3>Score against cost: {escape(first)}</h3>",
        _score_against_cost(results, task),
        _plot(results, task),
        *_bars(rows, task, about["main"], methods),
    ]
    return _section(task, "\n".join(parts))


def _score_against_cost(results: Results, task: str) -> str:
    """Draw each method at its cost of training and its score."""
    rows, methods = finished(results), _numbers(results)
    marks = [
        Mark(
            (row["cost"].get("cpu_seconds") or [0.0])[0] / 60,
            _headline(results, row, task)[0],
            methods[row["method"]],
            name_of(row) if len({row["pooling"] for row in rows}) > 1 else row["method"],
            _headline(results, row, task)[1],
        )
        for row in rows
    ]
    return point_chart(f"{task}: score against cost", marks, "CPU minutes of training")


def _numbers(results: Results) -> dict[str, int]:
    """Number the methods: the number chooses the color in charts."""
    return {name: number for number, name in enumerate(dict.fromkeys(run["method"] for run in results["runs"]))}


def _differences(results: Results, task: str) -> str:
    """Render the differences to the best method."""
    table = difference_table(results, task)
    if not table.rows:
        return ""
    best = name_of(results["differences"][task]["best"])
    note = (
        "The interval covers the noise of test items (paired bootstrap) and, for methods with several seeds, the noise "
        "of seeds."
    )
    return f"<h3>Differences to {escape(best)}</h3>\n<p>{escape(verdict(results, task))} {note}</p>\n{table.html()}"


def _plot(results: Results, task: str) -> str:
    """Draw the main score of a task as a function of the study's ``plot`` setting.

    Methods that differ only in this setting are the points of one curve.
    """
    setting, about = results.get("plot"), results["tasks"][task]
    recipes = {(run["method"], run["pooling"]): run["recipe"] for run in results["runs"]}
    points: dict[str, list[tuple[float, float]]] = {}
    names: dict[str, list[str]] = {}
    for row in finished(results):
        recipe = recipes[row["method"], row["pooling"]]
        value = recipe.get(setting)
        value = value[0] if isinstance(value, list) and len(value) == 1 else value
        if isinstance(value, int | float):
            others = json.dumps([row["pooling"], {**recipe, setting: None}], sort_keys=True, default=str)
            points.setdefault(others, []).append((value, _headline(results, row, task)[0]))
            pooling = f"{row['pooling']} pooling: " if len({one for _, one in recipes}) > 1 else ""
            names.setdefault(others, []).append(pooling + row["method"])
    curves: dict[str, tuple[int, list[tuple[float, float]]]] = {}
    for number, (others, some) in enumerate(points.items()):
        if len(some) > 1:
            name = commonprefix(names[others]).strip(" ,:")
            curves[f"{name} ({number + 1})" if name in curves else name] = (number, sorted(some))
    if not curves:
        return ""
    title = f"{task}, {column_name(about, about['columns'][0])}, by {setting}"
    return f"<h3>{escape(title)}</h3>\n{curve_chart(title, curves, str(setting), named=True)}"


def _bars(rows: Sequence[Mapping[str, Any]], task: str, main: str, methods: Mapping[str, int]) -> Iterator[str]:
    """Draw a chart per pooling, with one bar per language and method."""
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        of_method = {row["method"]: row["languages"][task] for row in rows if row["pooling"] == pooling}
        codes = dict.fromkeys(code for languages in of_method.values() for code in languages)
        values = {
            _language(code): [of_method.get(method, {}).get(code, {}).get(main, [None])[0] for method in methods]
            for code in codes
        }
        if not values:
            continue
        chart = bar_chart(f"{task} by language, {pooling} pooling", values, list(methods))
        yield f"<details><summary>By language, {pooling} pooling</summary>\n{legend(methods)}\n{chart}\n</details>"


def _curve_section(results: Results, methods: Mapping[str, int]) -> str:
    """Draw dev accuracy and the loss of each objective over steps, one chart per pooling."""
    parts: list[str] = []
    drawn: set[str] = set()
    kinds = dict.fromkeys(kind for run in results["runs"] for kind in run["curves"])
    for kind in sorted(kinds, key=lambda kind: kind != DEV_ACCURACY):
        for pooling in dict.fromkeys(run["pooling"] for run in results["runs"]):
            runs = [run for run in results["runs"] if run["pooling"] == pooling]
            means = {method: mean_curve([run for run in runs if run["method"] == method], kind) for method in methods}
            curves = {method: (methods[method], curve) for method, curve in means.items() if len(curve) > 1}
            if curves:
                drawn.update(curves)
                name = "Accuracy on dev" if kind == DEV_ACCURACY else f"Loss of {kind.replace('_', ' ')}"
                title = f"{name}, {pooling} pooling"
                parts.append(f"<h3>{escape(title)}</h3>\n{curve_chart(title, curves, 'step', kind != DEV_ACCURACY)}")
    named = legend({method: color for method, color in methods.items() if method in drawn})
    return _section("Learning curves", "\n".join([named, *parts])) if parts else ""


def mean_curve(runs: Sequence[Mapping[str, Any]], kind: str) -> list[tuple[float, float]]:
    """Average a curve over seeds, at the steps that all runs logged; use only finished runs, if there are any."""
    logged = [run for run in runs if run["curves"].get(kind)]
    some = [run for run in logged if run["state"] == "finished"] or logged
    values = [dict(run["curves"][kind]) for run in some]
    steps = [step for step in values[0] if all(step in one for one in values)] if values else []
    return [(step, mean(one[step] for one in values)) for step in steps]


def _recipes(results: Results) -> str:
    """List the recipe of each method, and the versions of the libraries."""
    parts = []
    for method, run in {run["method"]: run for run in results["runs"]}.items():
        if run["seed"] is not None:
            recipe = json.dumps(run["recipe"], indent=1, ensure_ascii=False)
            parts.append(f"<details><summary>{escape(method)}</summary><pre>{escape(recipe)}</pre></details>")
    versions = ", ".join(f"{name} {version}" for name, version in results["versions"].items())
    return "\n".join([*parts, f"<p>{escape(versions)}</p>"]) if parts else ""


def _section(title: str, content: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{content}\n</section>" if content else ""


def _amount(amount: float) -> str:
    """Format a budget with thousands separators."""
    return f"{int(amount):,}" if amount == int(amount) else f"{amount:,}"


def _language(code: str) -> str:
    try:
        return find_language(code).name
    except HfXsentError:
        return code
