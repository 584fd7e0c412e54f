"""Draw points of several groups in panels side by side, as an SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_xsent.files import write_text
from hf_xsent.pages.charts import Box, escape, overlap

_SIZE, _EDGE, _HEAD = 360, 24, 18
_NAME = 64  # width of a name in the legend
_FONT, _LINE, _RADIUS = 8, 9, 2.5
_TITLE = 20  # height of a panel's title
_COLOURS = ("#2166ac", "#d6604d", "#1b7837", "#762a83", "#b8860b", "#35978f", "#c51b7d", "#666666")


@dataclass(frozen=True)
class Panel:
    """N points, each with its text and its group."""

    title: str
    points: np.ndarray  # N × 2
    texts: Sequence[str]
    groups: Sequence[str]


def write_scatter(path: str | Path, panels: Sequence[Panel]) -> None:
    """Draw panels in two columns, one colour per group, each point labelled unless the label would overlap."""
    names = list(dict.fromkeys(group for panel in panels for group in panel.groups))
    colours = {name: _COLOURS[number % len(_COLOURS)] for number, name in enumerate(names)}
    columns = min(2, len(panels))
    in_a_row = (columns * _SIZE - _EDGE) // _NAME
    head = _HEAD * -(-len(names) // in_a_row) + 14
    width, height = columns * _SIZE, -(-len(panels) // columns) * _SIZE + head
    parts = [
        f'<text x="{_EDGE + _NAME * (number % in_a_row)}" y="{_HEAD * (number // in_a_row) + 20}" font-size="13" '
        f'fill="{colours[name]}">● {escape(name)}</text>'
        for number, name in enumerate(names)
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        inside = _panel(panel, colours)
        parts.append(f'<g transform="translate({column * _SIZE} {head + row * _SIZE})">{inside}</g>')
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" '
        f'font-size="{_FONT}"><rect width="{width}" height="{height}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    write_text(path, picture)


def _panel(panel: Panel, colours: dict[str, str]) -> str:
    low, high = panel.points.min(0), panel.points.max(0)
    places = _EDGE + (panel.points - low) / np.maximum(high - low, 1e-9) * (_SIZE - 2 * _EDGE)
    places[:, 1] = _SIZE - places[:, 1] * (1 - _TITLE / _SIZE)
    taken: list[Box] = [(x - _RADIUS, y - _RADIUS, x + _RADIUS, y + _RADIUS) for x, y in places.tolist()]
    side = _SIZE - 8
    parts = [
        f'<rect x="4" y="4" width="{side}" height="{side}" fill="none" stroke="#ccc"/>',
        f'<text x="{_SIZE / 2}" y="16" font-size="12" text-anchor="middle">{escape(panel.title)}</text>',
    ]
    for (x, y), text, group in zip(places.tolist(), panel.texts, panel.groups, strict=True):
        label = ""
        if box := _free_box(x, y, _width(text), taken):
            taken.append(box)
            label = f'<text x="{box[0]:.1f}" y="{box[3] - 2:.1f}">{escape(text)}</text>'
        circle = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{_RADIUS}"><title>{escape(text)}</title></circle>'
        parts.append(f'<g fill="{colours[group]}">{circle}{label}</g>')
    return "".join(parts)


def _width(text: str) -> float:
    """Return the approximate width of a text; letters of East Asian scripts are as wide as the font is high."""
    return sum(_FONT if character >= "\u1100" else 0.62 * _FONT for character in text)


def _free_box(x: float, y: float, width: float, taken: Sequence[Box]) -> Box | None:
    """Return a box beside the point that covers no other point or label; None if there is none."""
    for left in (x + _RADIUS + 1, x - _RADIUS - 1 - width, x - width / 2):
        for top in (y - _LINE / 2, y - _LINE - _RADIUS, y + _RADIUS):
            box = (left, top, left + width, top + _LINE)
            inside = left > 4 and box[2] < _SIZE - 4 and top > _TITLE and box[3] < _SIZE - 4
            if inside and not any(overlap(box, other) for other in taken):
                return box
    return None
