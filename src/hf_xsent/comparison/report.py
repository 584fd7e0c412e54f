"""Write the report of a study: report.json, report.md, and report.html (tables and charts)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_xsent.evaluation.opened import short_names
from hf_xsent.evaluation.report import Report, published_scores
from hf_xsent.evaluation.summary import language_name
from hf_xsent.files import write_json, write_text
from hf_xsent.pages.charts import Mark, point_chart
from hf_xsent.pages.document import Document, Html, Part, fold, heading
from hf_xsent.pages.tables import Cell, Table

Results = Mapping[str, Any]
Row = Mapping[str, Any]
MeanAndSd = Sequence[float | None]

PUBLISHED_NOTE = "In italics: published scores on the same test sentences, from other encoders, data and budgets."
INTERVAL_NOTE = (
    "Intervals cover the noise of test items (paired bootstrap) and, for methods with several seeds, that of seeds."
)


def write_report(output: Path, results: Results) -> None:
    """Write the same report as JSON, Markdown and HTML."""
    document = report_document(results)
    write_json(output / "report.json", results)
    write_text(output / "report.md", document.markdown())
    write_text(output / "report.html", document.html())


def report_document(results: Results) -> Document:
    """Return the report with its tables and charts."""
    costs, states = cost_table(results), state_table(results)
    note = "Cost of training, without loading and without measurements on dev and on the tasks."
    sections: dict[str, Sequence[Part]] = {task: _task_section(results, task) for task in results["tasks"]}
    sections |= {
        "Cost of training": [note, costs] if costs.rows else [],
        "Unfinished runs": [states] if states.rows else [],
    }
    return Document(results["title"], [_description(results)], sections)


def _description(results: Results) -> str:
    """Describe start, budget, seeds and poolings."""
    seeds = {run["seed"] for run in results["runs"] if run["seed"] is not None}
    poolings = dict.fromkeys(run["pooling"] for run in results["runs"])
    starts = start_names(results)
    start = next(iter(starts)) if len(starts) == 1 else "the encoder in its column start"
    return (
        f"Every method starts from {start}; each trained one has this budget: {results['budget']}. "
        f"{len(seeds)} seed{'' if len(seeds) == 1 else 's'}, {', '.join(poolings)} pooling. "
        "Scores are means over seeds ± standard deviation."
    )


def _so_far(results: Results) -> str:
    return " so far" * any(run["state"] != "finished" for run in results["runs"])


def verdict(results: Results, task: str) -> str:
    """Name the best method, or state why there is no clear winner."""
    differences = results["differences"].get(task)
    if not differences:
        return ""
    first = row_name(differences["best"])
    near = [row for row in differences["others"] if row["interval"] is None or row["interval"][1] >= 0]
    if not near:
        return f"Best{_so_far(results)}: {first}."
    if all(row["interval"] for row in near):
        return f"No clear winner: noise could explain the lead of {first} over {'; '.join(map(row_name, near))}."
    return f"Highest: {first}, but not every difference has an interval: train more seeds, or measure more items."


def _task_section(results: Results, task: str) -> list[Part]:
    about, differences = results["tasks"][task], difference_table(results, task)
    if not about["columns"]:
        return []
    scores = task_table(results, task)
    parts: list[Part] = [f"{about['protocol']}.{' ' + PUBLISHED_NOTE if scores.quoted else ''}", scores]
    reports = [Report(**run["scores"][task]) for run in results["runs"] if task in run["scores"]]
    parts += [f"{text}." for text in dict.fromkeys(report.cut_texts for report in reports) if text]
    if differences.rows:
        best = row_name(results["differences"][task]["best"])
        parts += [heading(f"Differences to {best}"), f"{verdict(results, task)} {INTERVAL_NOTE}", differences]
    parts.append(heading(f"Score against cost: {column_name(about, about['columns'][0])}"))
    parts.append(Html(_score_against_cost(results, task)))
    return [*parts, *_language_tables(results, task)]


def _score_against_cost(results: Results, task: str) -> str:
    """Draw each method at its cost of training and its score."""
    rows = finished_rows(results)
    methods = list(dict.fromkeys(run["method"] for run in results["runs"]))  # the number is that of a color
    several = len({row["pooling"] for row in rows}) > 1
    marks = []
    for row in rows:
        score, deviation = score_of(row, task, results["tasks"][task]["columns"][0])
        if score is None:
            continue
        minutes = (row["cost"].get("cpu_seconds") or [0.0])[0] / 60
        label = row_name(row) if several else row["method"]
        marks.append(Mark(minutes, score, methods.index(row["method"]), label, deviation or 0.0))
    return point_chart(f"{task}: score against cost", marks, "CPU minutes of training")


def _language_tables(results: Results, task: str) -> Iterator[Part]:
    """List the main score of each language and method, in a table per pooling."""
    rows, main = finished_rows(results), results["tasks"][task]["main"]
    for pooling in dict.fromkeys(row["pooling"] for row in rows):
        of_method = {row["method"]: row["languages"][task] for row in rows if row["pooling"] == pooling}
        scores = [
            [language_name(code), *(score_cell(languages.get(code, {}).get(main)) for languages in of_method.values())]
            for code in dict.fromkeys(code for languages in of_method.values() for code in languages)
        ]
        if scores:
            yield fold(f"By language, {pooling} pooling", Table(["language", *of_method], scores).html())


# Tables


def task_table(results: Results, task: str) -> Table:
    """List the scores of each method, mean ± sd over seeds, then published scores on the same sentences."""
    about, starts = results["tasks"][task], start_names(results)
    named = ["start"] if len(starts) > 1 else []
    columns = [(group, metric) for group, metric in about["columns"]]
    measured = [
        [
            *(row["method"], *(starts[row["model"]] for _ in named), row["pooling"], _seeds(row)),
            *(score_cell(score_of(row, task, column)) for column in columns),
        ]
        for row in finished_rows(results)
    ]
    published: dict[tuple[str, str], dict[tuple[str, str], float]] = {}  # of each model and paper, by column
    for score in published_scores():
        if score["task"] == task:
            scores = {
                (group, name): score[name] for group, name in columns if score["group"] == group and name in score
            }
            published.setdefault((score["model"], score["paper"]), {}).update(scores)
    quoted = [
        [model, *("" for _ in named), paper, "", *(score_cell([scores.get(column), None], 1) for column in columns)]
        for (model, paper), scores in published.items()
        if scores
    ]
    headings = [column_name(about, column) for column in columns]
    return Table(["method", *named, "pooling", "seeds", *headings], [*measured, *quoted], len(quoted))


def difference_table(results: Results, task: str) -> Table:
    """List the difference of each method from the best one, with its 95% interval."""
    rows = []
    for row in results["differences"].get(task, {}).get("others", []):
        low, high = row["interval"] or (None, None)
        shown = "not known" if high is None else f"{low:+.2f} to {high:+.2f}"
        decided = "" if high is None else f"worse{_so_far(results)}" if high < 0 else "within the noise"
        difference = Cell(f"{row['difference']:+.2f}", row["difference"])
        rows.append([row["method"], row["pooling"], difference, shown, decided])
    return Table(["method", "pooling", "difference", "95% interval", "verdict"], rows)


def cost_table(results: Results) -> Table:
    """List the cost of training; that of a resumed run includes the steps before the interruption."""
    rows = [
        [
            row["method"],
            row["pooling"],
            row["steps"],
            _minutes(row["cost"].get("cpu_seconds")),
            _minutes(row["cost"].get("seconds")),
            score_cell(row["cost"].get("peak_mib"), 0),
        ]
        for row in finished_rows(results)
        if row["cost"]
    ]
    return Table(["method", "pooling", "steps", "CPU min", "minutes", "peak MiB"], rows)


def state_table(results: Results) -> Table:
    """List the failed and the unfinished runs, with their errors."""
    rows = []
    for run in results["runs"]:
        if run["state"] != "finished":
            failure = run["failure"] or {}
            numbers = [run["seed"], run["state"], failure.get("exit_code")]
            rows.append([run["method"], run["pooling"], *numbers, failure.get("message", ""), run["folder"]])
    return Table(["method", "pooling", "seed", "state", "exit code", "message", "folder"], rows)


def finished_rows(results: Results) -> list[Row]:
    """Select the rows of the summary that have scores."""
    return [row for row in results["summary"] if row["groups"]]


def start_names(results: Results) -> dict[str, str]:
    """Return the starting encoders of the methods, each with its short name."""
    return short_names([*dict.fromkeys(run["model"] for run in results["runs"])])


def row_name(row: Row) -> str:
    """Name a method with its pooling."""
    return f"{row['method']} ({row['pooling']})"


def column_name(about: Mapping[str, Any], column: Sequence[str]) -> str:
    """Name a column, such as: mean of 36."""
    group, name = column
    return f"{about['headings'][name]} of {group}"


def score_of(row: Row, task: str, column: Sequence[str]) -> MeanAndSd:
    """Return mean and standard deviation of a score in a row of the summary, or two None."""
    group, name = column
    score: MeanAndSd = row["groups"][task].get(group, {}).get(name, (None, None))
    return score


def score_cell(score: MeanAndSd | None, decimals: int = 2) -> Cell:
    """Format mean ± sd; cells sort by the mean."""
    mean, sd = score or (None, None)
    if mean is None:
        return Cell("")
    return Cell(f"{mean:,.{decimals}f}" + ("" if sd is None else f" ± {sd:,.{decimals}f}"), mean)


def _minutes(seconds: MeanAndSd | None) -> Cell:
    return score_cell([None if part is None else part / 60 for part in seconds or (None, None)], 1)


def _seeds(row: Row) -> Cell:
    count, missing = len(row["seeds"]), row["missing"]
    return Cell(f"{count} of {count + missing}" if missing else str(count) if count else "", count)
