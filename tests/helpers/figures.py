"""Read the figures of a page's tables, and the result files that a comment above each table names.

``<!-- results: dap_study.json wacse_study.json; besides: 91.4 1.53 -->``: all figures of the table are in these files
of benchmarks/results, except those after ``besides``, which are computed or published. ``<!-- results: computed from
students.json -->``: they are ratios or means of figures in the file. ``<!-- results: none -->``: no file holds them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

RESULTS = Path(__file__).resolve().parents[2] / "benchmarks" / "results"
FIGURE = re.compile(r"(?<![\w./-])\d[\d,]*\.\d+(?![\w/%]|\.\d)")
COMMENT = re.compile(r"<!-- results: (?P<files>[\w. ]+?)(?:; besides: (?P<besides>[\d., ]+))? -->")
FACTORS = (1, 100, 0.01)  # a share is also shown in percent
NOT_RESULTS = {"curves", "recipe", "versions", "settings", "languages"}  # keys of studies beside scores and costs


@dataclass(frozen=True)
class FigureTable:
    """A table with decimal figures, the line of its first row, and what its comment says."""

    line: int
    figures: list[str]
    files: list[str] | None  # None: the table has no comment
    besides: list[str]
    checked: bool  # the files hold its figures

    def unheld(self) -> list[str]:
        """Return the figures that no file of the comment holds."""
        return [figure for figure in self.figures if not any(holds(file, figure) for file in self.files or ())]


def figure_tables(page: Path) -> Iterator[FigureTable]:
    """Yield the tables of a page whose cells have decimal figures."""
    lines = page.read_text("utf-8").splitlines()
    rows = [line.startswith("|") for line in lines]
    starts = [number for number, row in enumerate(rows) if row and not (number and rows[number - 1])]
    for start in starts:
        end = next((number for number in range(start, len(lines)) if not lines[number].startswith("|")), len(lines))
        figures = list(dict.fromkeys(figure for line in lines[start + 2 : end] for figure in FIGURE.findall(line)))
        comment = next((COMMENT.search(line) for line in reversed(lines[max(0, start - 2) : start]) if line), None)
        if figures and comment is None:
            yield FigureTable(start + 1, figures, None, [], False)
        elif figures and comment is not None:
            computed, names = comment["files"].startswith("computed from "), comment["files"].split()
            files = [name for name in names if name.endswith(".json")]
            yield FigureTable(
                start + 1, figures, files, (comment["besides"] or "").split(), bool(files) and not computed
            )


def holds(file: str, figure: str) -> bool:
    """Return whether a value of a result file rounds to the figure."""
    value, half = float(figure.replace(",", "")), 0.5 * 10 ** -len(figure.partition(".")[2]) + 1e-9
    return any(bool((np.abs(_numbers(file) * factor - value) <= half).any()) for factor in FACTORS)


@cache
def _numbers(file: str) -> np.ndarray:
    content = json.loads((RESULTS / file).read_text("utf-8"))
    return np.array(list(_walk(content, NOT_RESULTS if "summary" in content else set())))


def _walk(value: Any, skipped: set[str]) -> Iterator[float]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in skipped:
                yield from _walk(inner, skipped)
                if "seconds" in key:  # which tables show in minutes
                    yield from (number / 60 for number in _walk(inner, skipped))
    elif isinstance(value, list):
        for inner in value:
            yield from _walk(inner, skipped)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield float(value)
