"""Write one report as Markdown and as a self-contained HTML page: a title, a summary and titled sections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from hf_xsent.pages.charts import SERIES
from hf_xsent.pages.tables import Table, markdown_text


class Html(str):
    """HTML, such as a chart, which Markdown omits."""

    __slots__ = ()


Part = str | Table | Html  # text is a paragraph


@dataclass(frozen=True)
class Document:
    """The parts of a report; a section without parts is omitted."""

    title: str
    summary: Sequence[Part]
    sections: Mapping[str, Sequence[Part]]

    def markdown(self) -> str:
        """Return the paragraphs and tables, for a README or a terminal."""
        parts = [f"# {markdown_text(self.title)}", *map(_markdown, self.summary)]
        for title, section in self.sections.items():
            texts = list(filter(None, map(_markdown, section)))
            parts += [f"## {markdown_text(title)}", *texts] if texts else []
        return "\n\n".join(filter(None, parts)) + "\n"

    def html(self) -> str:
        """Return a complete HTML file whose content security policy loads nothing."""
        sections = [
            "\n".join(["<section>", f"<h2>{escape(title)}</h2>", *map(_html, section), "</section>"])
            for title, section in self.sections.items()
            if section
        ]
        body = "\n".join([f"<h1>{escape(self.title)}</h1>", *map(_html, self.summary), *sections])
        names = ("charts.css", "style.css", "sort.js")
        charts, sheet, script = ((files("hf_xsent.pages") / name).read_text("utf-8") for name in names)
        policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
        return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<title>{escape(self.title)}</title>
<style>
{charts}{sheet}</style>
</head>
<body>
<main>
{body}
</main>
<script>
{script}</script>
</body>
</html>
"""


def _markdown(part: Part) -> str:
    if isinstance(part, Table):
        return part.markdown()
    return "" if isinstance(part, Html) else markdown_text(part)


def _html(part: Part) -> str:
    if isinstance(part, Table):
        return part.html()
    return part if isinstance(part, Html) else f"<p>{escape(part)}</p>"


def heading(title: str) -> Html:
    """Return a heading inside a section."""
    return Html(f"<h3>{escape(title)}</h3>")


def fold(summary: str, content: str) -> Html:
    """Return HTML that a click on the summary shows."""
    return Html(f"<details><summary>{escape(summary)}</summary>\n{content}\n</details>")


def legend(series: Mapping[str, int]) -> Html:
    """Return the legend of names and the numbers of their series."""
    names = (f'<span><i class="s{number % SERIES}"></i>{escape(name)}</span>' for name, number in series.items())
    return Html(f'<p class="key">{"".join(names)}</p>')
