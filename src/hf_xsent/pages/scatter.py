"""Draw points of several groups in panels side by side, as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_xsent.files import write_text
from hf_xsent.pages.charts import escape

_SIZE, _EDGE, _HEAD = 360, 24, 40
_COLOURS = ("#2166ac", "#d6604d", "#1b7837", "#762a83", "#b8860b", "#35978f", "#c51b7d", "#666666")


@dataclass(frozen=True)
class Panel:
    """N points, each with its text and its group."""

    title: str
    points: np.ndarray  # N × 2
    texts: Sequence[str]
    groups: Sequence[str]


def write_scatter(path: str | Path, panels: Sequence[Panel]) -> None:
    """Draw panels in two columns, one colour per group, each point with its text."""
    names = list(dict.fromkeys(group for panel in panels for group in panel.groups))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    columns = min(2, len(panels))
    width, height = columns * _SIZE, -(-len(panels) // columns) * _SIZE + _HEAD
    parts = [
        f'<text x="{_EDGE + 70 * number}" y="22" font-size="13" fill="{colours[name]}">● {escape(name)}</text>'
        for number, name in enumerate(names)
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        inside = _panel(panel, colours)
        parts.append(f'<g transform="translate({column * _SIZE} {_HEAD + row * _SIZE})">{inside}</g>')
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="8"><rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    write_text(path, picture)


def _panel(panel: Panel, colours: dict[str, str]) -> str:
    low, high = panel.points.min(0), panel.points.max(0)
    places = _EDGE + (panel.points - low) / np.maximum(high - low, 1e-9) * (_SIZE - 2 * _EDGE)
    side = _SIZE - 8
    parts = [
        f'<rect x="4" y="4" width="{side}" height="{side}" fill="none" stroke="#ccc"/>',
        f'<text x="{_SIZE / 2}" y="16" font-size="12" text-anchor="middle">{escape(panel.title)}</text>',
    ]
    for (x, y), text, group in zip(places.tolist(), panel.texts, panel.groups, strict=True):
        parts.append(
            f'<g fill="{colours[group]}"><circle cx="{x:.1f}" cy="{_SIZE - y:.1f}" r="2.5"/>'
            f'<text x="{x + 3:.1f}" y="{_SIZE - y - 2:.1f}">{escape(text)}</text></g>'
        )
    return "".join(parts)
