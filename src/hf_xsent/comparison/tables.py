"""Build the tables of a report: one per task, one of costs, one of unfinished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.pages.tables import Cell, Table

Results = Mapping[str, Any]
Row = Mapping[str, Any]
MeanAndSd = Sequence[float | None]


def task_table(results: Results, task: str) -> Table:
    """List the scores of each method, mean ± sd over seeds, then published scores on the same sentences."""
    about = results["tasks"][task]
    columns = about["columns"]
    measured = [
        [row["method"], row["pooling"], _seeds(row), *(score_cell(score_of(row, task, column)) for column in columns)]
        for row in finished_rows(results)
    ]
    published = [
        [row["model"], row["paper"], "", *(score_cell([_published(row, column), None], 1) for column in columns)]
        for row in results["published"].get(task, [])
    ]
    headings = [column_name(about, column) for column in columns]
    return Table(["method", "pooling", "seeds", *headings], [*measured, *published], len(published))


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
            _count(row["steps"]),
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
            message = f"{failure['message']} (while {failure['while']})" if failure else ""
            numbers = [run["seed"], run["state"], failure.get("exit_code")]
            rows.append([run["method"], run["pooling"], *numbers, message, run["folder"]])
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


def _published(row: Row, column: Sequence[str]) -> float | None:
    group, name = column
    score: float | None = row["groups"].get(group, {}).get(name)
    return score


def _minutes(seconds: MeanAndSd | None) -> Cell:
    if seconds is None or seconds[0] is None:
        return Cell("")
    return score_cell([None if part is None else part / 60 for part in seconds], 1 if seconds[0] >= 600 else 2)


def _seeds(row: Row) -> Cell:
    count, missing = len(row["seeds"]), row["missing"]
    return Cell(f"{count} of {count + missing}" if missing else str(count) if count else "", count)


def _count(value: int) -> Cell:
    return Cell(f"{value:,}", value)
