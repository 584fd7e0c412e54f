"""Build the tables of a report: one per task, one of costs, one of unfinished runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.pages.html import Cell, Table

Results = Mapping[str, Any]
MeanAndSd = Sequence[float | None]


def task_table(results: Results, task: str) -> Table:
    """List the scores of each method, mean ± sd over seeds, then published scores on the same sentences."""
    about = results["tasks"][task]
    columns = about["columns"]
    ours = [
        [
            Cell(row["method"]),
            Cell(row["pooling"]),
            _seeds(row),
            *(score_cell(mean_and_sd_of(row, task, column)) for column in columns),
        ]
        for row in finished(results)
    ]
    quoted = []
    for paper in results["published"].get(task, []):
        scores = (score_cell([paper["groups"].get(group, {}).get(name), None], 1) for group, name in columns)
        quoted.append([Cell(paper["model"]), Cell(paper["paper"]), Cell(""), *scores])
    headings = [column_name(about, column) for column in columns]
    return Table(["method", "pooling", "seeds", *headings], [*ours, *quoted], len(quoted))


def difference_table(results: Results, task: str) -> Table:
    """List the difference of each method from the best one, with its 95% interval."""
    rows = []
    for one in results["differences"].get(task, {}).get("others", []):
        interval = one["interval"]
        shown = "not known" if interval is None else f"{interval[0]:+.2f} to {interval[1]:+.2f}"
        verdict = "" if interval is None else "worse" if interval[1] < 0 else "within the noise"
        difference = Cell(f"{one['difference']:+.2f}", one["difference"])
        rows.append([Cell(one["method"]), Cell(one["pooling"]), difference, Cell(shown), Cell(verdict)])
    return Table(["method", "pooling", "difference", "95% interval", "verdict"], rows)


def winners(results: Results, task: str) -> tuple[list[str], bool]:
    """Name the best method and those not shown to be worse; return whether the noise of all differences is known."""
    found = results["differences"].get(task)
    if not found:
        return [], True
    near = [one for one in found["others"] if one["interval"] is None or one["interval"][1] >= 0]
    return [name_of(one) for one in (found["best"], *near)], all(one["interval"] is not None for one in near)


def name_of(row: Mapping[str, Any]) -> str:
    """Name a method with its pooling."""
    return f"{row['method']}, {row['pooling']}"


def column_name(about: Mapping[str, Any], column: Sequence[str]) -> str:
    """Name a column, such as: mean of 36."""
    group, name = column
    return f"{about['headings'][name]} of {group}"


def mean_and_sd_of(row: Mapping[str, Any], task: str, column: Sequence[str]) -> MeanAndSd:
    """Return mean and standard deviation of a score in a row of the summary, or two None."""
    group, name = column
    value: MeanAndSd = row["groups"][task].get(group, {}).get(name, (None, None))
    return value


def cost_table(results: Results) -> Table:
    """List the cost of training; that of a resumed run includes the steps before the interruption."""
    rows = [
        [
            Cell(row["method"]),
            Cell(row["pooling"]),
            _number(row["steps"]),
            _minutes(row["cost"].get("cpu_seconds")),
            _minutes(row["cost"].get("seconds")),
            score_cell(row["cost"].get("peak_mib"), 0),
        ]
        for row in finished(results)
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
            numbers = [_number(run["seed"]), Cell(run["state"]), _number(failure.get("exit_code"))]
            rows.append([Cell(run["method"]), Cell(run["pooling"]), *numbers, Cell(message), Cell(run["folder"])])
    return Table(["method", "pooling", "seed", "state", "exit code", "message", "folder"], rows)


def finished(results: Results) -> list[Mapping[str, Any]]:
    """Select the rows of the summary that have scores."""
    return [row for row in results["summary"] if row["groups"]]


def score_cell(value: MeanAndSd | None, decimals: int = 2) -> Cell:
    """Format mean ± sd; cells sort by the mean."""
    mean, sd = value or (None, None)
    if mean is None:
        return Cell("")
    return Cell(f"{mean:,.{decimals}f}" + ("" if sd is None else f" ± {sd:,.{decimals}f}"), mean)


def _minutes(seconds: MeanAndSd | None) -> Cell:
    if seconds is None or seconds[0] is None:
        return Cell("")
    return score_cell([None if one is None else one / 60 for one in seconds], 1 if seconds[0] >= 600 else 2)


def _seeds(row: Mapping[str, Any]) -> Cell:
    count, missing = len(row["seeds"]), row["missing"]
    return Cell(f"{count} of {count + missing}" if missing else str(count) if count else "", count)


def _number(value: float | None) -> Cell:
    return Cell("") if value is None else Cell(f"{value:,}", value)
