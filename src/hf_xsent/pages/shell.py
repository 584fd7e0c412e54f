"""What all report pages have in common: head, style, and the script by which tables sort."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib.resources import files

from hf_xsent.pages.charts import SERIES


def page(title: str, body: str, style: str = "") -> str:
    """A whole HTML file, which by its own policy loads nothing."""
    room = files("hf_xsent.pages")
    sheet, script = (room.joinpath(name).read_text(encoding="utf-8") for name in ("style.css", "sort.js"))
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
{sheet}{style}</style>
</head>
<body>
<main>
{body}
</main>
{sorts}</body>
</html>
"""


def key(series: Mapping[str, int]) -> str:
    """Which name has the colour of which series."""
    names = (f'<span><i class="s{number % SERIES}"></i>{escape(name)}</span>' for name, number in series.items())
    return f'<p class="key">{"".join(names)}</p>'
