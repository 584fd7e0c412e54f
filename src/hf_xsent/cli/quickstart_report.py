"""The quickstart's report: one page of its own, without network or scripts, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from hf_xsent.data.languages import find_language

_ROW, _LEFT, _WIDTH = 34, 130, 640  # of the bar chart, in SVG units
_CURVE_WIDTH, _CURVE_HEIGHT, _MARGIN = 640, 220, 42


def write_report(path: Path, results: Mapping[str, Any]) -> None:
    """Fill the template with charts and tables."""
    template = Template(files("hf_xsent.cli").joinpath("quickstart_report.html").read_text(encoding="utf-8"))
    accuracy = results["accuracy"]
    count = len(accuracy)
    page = template.substitute(
        before=f"{sum(one['before'] for one in accuracy.values()) / count:.1f}",
        after=f"{sum(one['after'] for one in accuracy.values()) / count:.1f}",
        languages=count,
        pairs=f"{sum(results['pairs'].values()):,}",
        held_out=f"{sum(results['held_out'].values()):,}",
        steps=results["steps"],
        seconds=results["seconds"],
        model=escape(str(results["model"])),
        bars=_bars(accuracy),
        curve=_curve(results["losses"]),
        search=_rows(results["search"]),
    )
    path.write_text(page, encoding="utf-8")


def _bars(accuracy: Mapping[str, Mapping[str, float]]) -> str:
    """Two bars a language, before and after."""
    height = _ROW * len(accuracy) + 24
    box = f"0 0 {_LEFT + _WIDTH + 60} {height}"
    parts = [f'<svg viewBox="{box}" role="img" aria-label="Accuracy before and after, by language">']
    for tick in range(0, 101, 25):
        x = _LEFT + _WIDTH * tick / 100
        parts.append(f'<line class="grid" x1="{x}" x2="{x}" y1="0" y2="{height - 20}"/>')
        parts.append(f'<text class="tick" x="{x}" y="{height - 4}" text-anchor="middle">{tick}%</text>')
    for number, (code, one) in enumerate(accuracy.items()):
        top = number * _ROW + 4
        parts.append(f'<text x="{_LEFT - 10}" y="{top + 17}" text-anchor="end">{escape(_name(code))}</text>')
        for kind, y in (("before", top), ("after", top + 13)):
            width = _WIDTH * one[kind] / 100
            parts.append(f'<rect class="{kind}" x="{_LEFT}" y="{y}" width="{width:.1f}" height="11" rx="2"/>')
            parts.append(f'<text class="value" x="{_LEFT + width + 6:.1f}" y="{y + 10}">{one[kind]:.0f}</text>')
    return "\n".join([*parts, "</svg>"])


def _curve(losses: Sequence[Sequence[float]]) -> str:
    """The training loss over steps, as a line."""
    if len(losses) < 2:
        return "<p>Too few steps for a curve.</p>"
    last, highest = losses[-1][0], max(loss for _, loss in losses)
    inner_width, inner_height = _CURVE_WIDTH - 2 * _MARGIN, _CURVE_HEIGHT - 2 * _MARGIN
    points = " ".join(
        f"{_MARGIN + inner_width * step / last:.1f},{_MARGIN + inner_height * (1 - loss / highest):.1f}"
        for step, loss in losses
    )
    bottom = _CURVE_HEIGHT - _MARGIN
    return f"""<svg viewBox="0 0 {_CURVE_WIDTH} {_CURVE_HEIGHT}" role="img" aria-label="Training loss by step">
<line class="grid" x1="{_MARGIN}" x2="{_CURVE_WIDTH - _MARGIN}" y1="{bottom}" y2="{bottom}"/>
<text class="tick" x="{_MARGIN - 6}" y="{_MARGIN + 4}" text-anchor="end">{highest:.1f}</text>
<text class="tick" x="{_MARGIN - 6}" y="{bottom + 4}" text-anchor="end">0</text>
<text class="tick" x="{_CURVE_WIDTH - _MARGIN}" y="{bottom + 18}" text-anchor="end">step {last:.0f}</text>
<polyline class="curve" points="{points}"/>
</svg>"""


def _rows(search: Sequence[Sequence[Any]]) -> str:
    return "\n".join(
        f'<tr><td dir="auto">{escape(query)}</td><td>{escape(found)}</td><td class="number">{cosine:.2f}</td></tr>'
        for query, found, cosine in search
    )


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name
