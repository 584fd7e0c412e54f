"""Tables: rows of cells, as HTML that sorts, or as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True)
class Cell:
    """What a cell shows, and the number that it is sorted by."""

    shown: str
    number: float | None = None


@dataclass(frozen=True)
class Table:
    """A heading a column, and rows of cells; the last ``quoted`` rows are others' and stand back."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    quoted: int = 0

    def html(self, sortable: bool = True) -> str:
        """Numbers flush right; ``sortable`` by each column where scripts run."""
        numbers = self._number_columns()
        heads = "".join(
            f'<th scope="col"{_of_numbers(number)}>{escape(name)}</th>'
            for name, number in zip(self.header, numbers, strict=True)
        )
        first_quoted = len(self.rows) - self.quoted
        lines = "\n".join(
            ('<tr class="quoted">' if place >= first_quoted else "<tr>")
            + "".join(_html(cell, number) for cell, number in zip(row, numbers, strict=True))
            + "</tr>"
            for place, row in enumerate(self.rows)
        )
        kind = ' class="sortable"' if sortable else ""
        body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}\n</tbody>"
        return f'<div class="wide"><table{kind}>\n{body}</table></div>'

    def markdown(self) -> str:
        """The same as text."""
        rules = ["---:" if number else "---" for number in self._number_columns()]
        rows = [[cell.shown.replace("|", "\\|").replace("\n", " ") for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in (self.header, rules, *rows))

    def _number_columns(self) -> list[bool]:
        return [any(row[place].number is not None for row in self.rows) for place in range(len(self.header))]


def _html(cell: Cell, number: bool) -> str:
    sorted_by = "" if cell.number is None else f' data-number="{cell.number:.6g}"'
    kind = _of_numbers(number) or ' dir="auto"'
    return f"<td{kind}{sorted_by}>{escape(cell.shown)}</td>"


def _of_numbers(number: bool) -> str:
    return ' class="number"' if number else ""
