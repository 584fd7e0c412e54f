"""Write report pages as HTML: the page, legends, and tables that sort (or as Markdown)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from hf_xsent.pages.charts import SERIES

_FEW_COLUMNS = 7  # tables with more use a smaller font, so that a page of 1280 pixels shows all columns
_NUMBER = ' class="number"'


def page(title: str, body: str, style: str = "") -> str:
    """Return a complete HTML file whose content security policy loads nothing."""
    names = ("charts.css", "style.css", "sort.js")
    charts, sheet, script = ((files("hf_xsent.pages") / name).read_text("utf-8") for name in names)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
    sorts = f"<script>\n{script}</script>\n" if 'class="sortable"' in body else ""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(title)}</title>
<style>
{charts}{sheet}{style}</style>
</head>
<body>
<main>
{body}
</main>
{sorts}</body>
</html>
"""


def markdown_text(text: str) -> str:
    r"""Escape pipes, backslashes, backticks and HTML in a name, and join its lines, for a table cell of Markdown.

    >>> markdown_text("a|b <i>`c`")
    'a\\|b &lt;i&gt;\\`c\\`'
    """
    return re.sub(r"([|`\\])", r"\\\1", escape(" ".join(text.split()), quote=False))


def legend(series: Mapping[str, int]) -> str:
    """Return the legend of names and the numbers of their series."""
    names = (f'<span><i class="s{number % SERIES}"></i>{escape(name)}</span>' for name, number in series.items())
    return f'<p class="key">{"".join(names)}</p>'


@dataclass(frozen=True)
class Cell:
    """The text of a cell, and the number to sort by."""

    text: str
    number: float | None = None


@dataclass(frozen=True)
class Table:
    """One heading per column, and rows of cells; the last ``quoted`` rows are published scores, in italics."""

    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    quoted: int = 0

    def html(self, sortable: bool = True) -> str:
        """Return HTML, numbers flush right; a script sorts by each column if ``sortable``."""
        numbers, heads, lines = self._number_columns(), "", ""
        for name, number in zip(self.header, numbers, strict=True):
            heads += f'<th scope="col"{_NUMBER if number else ""}>{escape(name)}</th>'
        for index, row in enumerate(self.rows):
            cells = "".join(map(_html, row, numbers, self.header))
            quoted = ' class="quoted"' if index >= len(self.rows) - self.quoted else ""
            lines += f"<tr{quoted}>{cells}</tr>\n"
        kind = ' class="sortable"' if sortable else ""
        body = f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{lines}</tbody>"
        wide = "wide many" if len(self.header) > _FEW_COLUMNS else "wide"
        return f'<div class="{wide}"><table{kind}>\n{body}</table></div>'

    def markdown(self) -> str:
        """Return Markdown."""
        rules = ["---:" if number else "---" for number in self._number_columns()]
        header = [markdown_text(name) for name in self.header]
        rows = [[markdown_text(cell.text) for cell in row] for row in self.rows]
        return "\n".join("| " + " | ".join(line) + " |" for line in (header, rules, *rows))

    def _number_columns(self) -> list[bool]:
        return [any(row[place].number is not None for row in self.rows) for place in range(len(self.header))]


def _html(cell: Cell, number: bool, heading: str) -> str:
    """Return a cell with its heading, which narrow screens show because they render each row as a block."""
    sort_key = "" if cell.number is None else f' data-number="{cell.number:.6g}"'
    kind = _NUMBER if number else ' dir="auto"'
    return f'<td{kind}{sort_key} data-label="{escape(heading)}">{escape(cell.text)}</td>'
