"""Write tables as text for a terminal, as Markdown, and as HTML that sorts."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

_FEW_COLUMNS = 7  # tables with more use a smaller font, so that a page of 1280 pixels shows all columns
_NUMBER = ' class="number"'


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the number to sort by."""

    text: str
    number: float | None = None

    @classmethod
    def of(cls, value: object) -> Cell:
        """Return a value as a cell; floats have two decimals, None is empty."""
        if isinstance(value, Cell):
            return value
        text = f"{value:.2f}" if isinstance(value, float) else "" if value is None else str(value)
        return cls(text, value if isinstance(value, int | float) else None)


@dataclass(frozen=True)
class Table:
    """One heading per column, and rows of cells or values; the last ``quoted`` rows are published scores, in italics.

    >>> print(Table(["name", "x"], [["a", 1.0], ["longer", 22]]))
    name       x
    ------  ----
    a       1.00
    longer    22
    """

    header: Sequence[str]
    rows: Sequence[Sequence[object]]
    quoted: int = 0

    def __str__(self) -> str:
        """Return plain text: the first column flush left, the others flush right."""
        lines = [self.header, *([cell.text for cell in row] for row in self._cells())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        first, *rest = ["  ".join([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])]) for line in lines]
        return "\n".join([first, "  ".join("-" * width for width in widths), *rest])

    def markdown(self) -> str:
        """Return Markdown, with numbers flush right."""
        rules = ["---:" if number else "---" for number in self._number_columns()]
        header = [markdown_text(name) for name in self.header]
        rows = [[markdown_text(cell.text) for cell in row] for row in self._cells()]
        return "\n".join("| " + " | ".join(line) + " |" for line in (header, rules, *rows))

    def html(self) -> str:
        """Return HTML, with numbers flush right; the script of a page sorts by each column."""
        numbers, heads, lines = self._number_columns(), "", ""
        for name, number in zip(self.header, numbers, strict=True):
            heads += f'<th scope="col"{_NUMBER if number else ""}>{escape(name)}</th>'
        for index, row in enumerate(self._cells()):
            cells = "".join(map(_html, row, numbers, self.header))
            quoted = ' class="quoted"' if index >= len(self.rows) - self.quoted else ""
            lines += f"<tr{quoted}>{cells}</tr>\n"
        body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>"
        wide = "wide many" if len(self.header) > _FEW_COLUMNS else "wide"
        return f'<div class="{wide}"><table class="sortable">\n{body}</table></div>'

    def _cells(self) -> list[list[Cell]]:
        return [[Cell.of(value) for value in row] for row in self.rows]

    def _number_columns(self) -> list[bool]:
        rows = self._cells()
        return [any(row[place].number is not None for row in rows) for place in range(len(self.header))]


def markdown_text(text: str) -> str:
    r"""Escape pipes, backslashes, backticks and HTML in a name, and join its lines, for a table cell of Markdown.

    >>> markdown_text("a|b <i>`c`")
    'a\\|b &lt;i&gt;\\`c\\`'
    """
    return re.sub(r"([|`\\])", r"\\\1", escape(" ".join(text.split()), quote=False))


def _html(cell: Cell, number: bool, heading: str) -> str:
    """Return a cell with its heading, which narrow screens show because they render each row as a block."""
    sort_key = "" if cell.number is None else f' data-number="{cell.number:.6g}"'
    kind = _NUMBER if number else ' dir="auto"'
    return f'<td{kind}{sort_key} data-label="{escape(heading)}">{escape(cell.text)}</td>'
