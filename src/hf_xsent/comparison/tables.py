"""Build the tables of a report: one per task, one of costs, one of unfinished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.evaluation.report import published_scores
from hf_xsent.pages.tables import Cell, Table

Results = Mapping[str, Any]
Row = Mapping[str, Any]
MeanAndSd = Sequence[float | None]


def task_table(results: Results, task: str) -> Table:
    """List the scores of each method, mean ± sd over seeds, then published scores on the same sentences."""
    about = results["tasks"][task]
    columns = [(group, metric) for group, metric in about["columns"]]
    measured = [
        [row["method"], row["pooling"], _seeds(row), *(score_cell(score_of(row, task, column)) for column in columns)]
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
        [model, paper, "", *(score_cell([scores.get(column), None], 1) for column in columns)]
        for (model, paper), scores in published.items()
        if scores
    ]
    headings = [column_name(about, column) for column in columns]
    return Table(["method", "pooling", "seeds", *headings], [*measured, *quoted], len(quoted))


def difference_table(results: Results, task: str) -> Table:
    """List the difference of each method from the best one, with its 95% interval."""
    rows = []
    for row in results["differences"].get(task, {}).get("others", []):
        low, high = row["interval"] or (None, None)
        shown = "not known" if high is None else f"{low:+.2f} to {high:+.2f}"
        decided = "" if high is None else "worse" if high < 0 else "within the noise"
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


def row_name(row: Row) -> str:
    """Name a method with its pooling."""
    return f"{row['method']}, {row['pooling']}"


def column_name(about: Mapping[str, Any], column: Sequence[str]) -> str:
    """Name a column, such as: mean of 36."""
    group, name = column
    return f"{about['headings'][name]} of {group}"


def headline(results: Results, row: Row, task: str) -> tuple[float, float]:
    """Return mean and standard deviation of the score that ranks methods, the first column of the task's table."""
    score, deviation = score_of(row, task, results["tasks"][task]["columns"][0])
    return score or 0.0, deviation or 0.0


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
