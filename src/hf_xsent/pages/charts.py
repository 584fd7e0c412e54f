"""Draw charts as SVG text: grouped bars and points, one colour per series."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape as escape_html
from importlib.resources import files

WIDTH = 480  # SVG units: small enough that text stays readable on a phone
_HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 260, 52, 14, 14, 40
_LABELS, _VALUES = 128, 40  # widths left and right of bars
_LETTER, _LINE = 7.6, 13  # approximate width and height on a phone

SERIES = 8  # colours

SVG = '<svg xmlns="http://www.w3.org/2000/svg" '
_NOT_IN_XML = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")

Points = Sequence[tuple[float, float]]
Box = tuple[float, float, float, float]  # left, top, right, bottom


@dataclass(frozen=True)
class Mark:
    """A point with a name and the deviation of its value."""

    x: float
    y: float
    series: int
    label: str
    deviation: float = 0.0


def escape(text: str) -> str:
    """Escape text for SVG, without the control characters that XML does not allow."""
    return escape_html(_NOT_IN_XML.sub("", text))


def bar_chart(
    title: str, rows: Mapping[str, Sequence[float | None]], series: Sequence[str], top: float = 100, key: bool = False
) -> str:
    """Draw horizontal bars from 0 to ``top``: one group per row, one bar per series; ``key`` adds a legend."""
    thick = 11 if len(series) <= 3 else 9
    pitch = (thick + 2) * len(series) + 8
    head = 20 if key else 0
    height, inner = head + pitch * len(rows) + 24, WIDTH - _LABELS - _VALUES
    parts = _key(series, _LABELS, inner // len(series)) if key else []
    for tick in range(5):
        x, value = _LABELS + inner * tick / 4, top * tick / 4
        parts.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{head}" y2="{height - 20}"/>')
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - 4}" text-anchor="middle">{value:g}</text>')
    for number, (name, values) in enumerate(rows.items()):
        above, middle = head + number * pitch + 4, head + number * pitch + pitch / 2 + 4
        parts.append(f'<text x="{_LABELS - 8}" y="{middle:.1f}" text-anchor="end">{escape(name)}</text>')
        for place, measured in enumerate(values):
            if measured is None:
                continue
            y, width = above + place * (thick + 2), inner * max(0.0, measured) / top
            parts.append(
                f'<rect class="s{place % SERIES}" x="{_LABELS}" y="{y}" width="{width:.1f}" height="{thick}" rx="2">'
                f"<title>{escape(f'{name}, {series[place]}: {measured:.2f}')}</title></rect>"
                f'<text class="value" x="{_LABELS + width + 5:.1f}" y="{y + thick - 1}">{measured:.1f}</text>'
            )
    return svg(title, parts, height)


def point_chart(title: str, marks: Sequence[Mark], across: str) -> str:
    """Draw named points with a line for the deviation; place each name where it covers no other name or point."""
    spread = [(mark.x * 1.05, mark.y + sign * mark.deviation) for mark in marks for sign in (-1, 1)]
    axes = Axes.around([(0.0, spread[0][1]), *spread] if spread else [])
    parts = axes.draw(across)
    taken = [(axes.x(mark.x) - 6, axes.y(mark.y) - 6, axes.x(mark.x) + 6, axes.y(mark.y) + 6) for mark in marks]
    for mark in sorted(marks, key=lambda mark: -mark.y):
        x, y, colour = axes.x(mark.x), axes.y(mark.y), f"s{mark.series % SERIES}"
        if mark.deviation:
            ends = [f"{axes.y(mark.y + sign * mark.deviation):.1f}" for sign in (-1, 1)]
            parts.append(f'<line class="curve {colour}" x1="{x:.1f}" x2="{x:.1f}" y1="{ends[0]}" y2="{ends[1]}"/>')
        parts.append(
            f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="5"><title>{escape(mark.label)}: '
            f"{mark.x:.3g}, {mark.y:.2f}</title></circle>"
        )
        parts.append(place_name(x, y, mark.label, taken))
    lowest = max([_HEIGHT, *(math.ceil(bottom) + 4 for _, _, _, bottom in taken)])
    return svg(title, parts, lowest)


def place_name(x: float, y: float, name: str, taken: list[Box]) -> str:
    """Write a name beside its point, or increasingly far above and below it, where nothing is ``taken`` yet."""
    width = _LETTER * len(name)
    boxes = (
        (left, y - 7 + down, left + width, y - 7 + down + _LINE)
        for away in range(0, _HEIGHT, 5)
        for down in (away, -away)
        for left in (x + 9, x - 9 - width, x - width / 2)
    )
    left, top, right, bottom = next(
        (box for box in boxes if box[0] > _LEFT and box[1] > 0 and box[2] < WIDTH and _is_free(box, taken)),
        (x + 9, y, x + 9 + width, y + _LINE),
    )
    taken.append((left, top, right, bottom))
    return f'<text class="name" x="{left:.1f}" y="{top + 10:.1f}">{escape(name)}</text>'


def _is_free(box: Box, taken: Sequence[Box]) -> bool:
    """Return whether a box covers no other."""
    left, top, right, bottom = box
    return all(left >= other[2] or other[0] >= right or top >= other[3] or other[1] >= bottom for other in taken)


def _key(names: Sequence[str], left: int, width: int) -> list[str]:
    """Draw the legend of the series."""
    return [
        f'<g class="word s{number % SERIES}"><text x="{left + width * number}" y="12">● {escape(name)}</text></g>'
        for number, name in enumerate(names)
    ]


@dataclass(frozen=True)
class Axes:
    """A map from values to SVG coordinates."""

    low: float
    high: float
    bottom: float
    top: float

    @classmethod
    def around(cls, points: Points) -> Axes:
        """Return axes around all points, with margins above and below."""
        xs, ys = [x for x, _ in points] or [0.0], [y for _, y in points] or [0.0]
        span = (max(ys) - min(ys)) or abs(max(ys)) or 1.0
        high = max(xs) if max(xs) > min(xs) else min(xs) + 1.0
        return cls(min(xs), high, min(ys) - 0.08 * span, max(ys) + 0.08 * span)

    def x(self, value: float) -> float:
        """Return the horizontal coordinate of a value."""
        return _LEFT + (value - self.low) / (self.high - self.low) * (WIDTH - _LEFT - _RIGHT)

    def y(self, value: float) -> float:
        """Return the vertical coordinate of a value."""
        return _HEIGHT - _BOTTOM - (value - self.bottom) / (self.top - self.bottom) * (_HEIGHT - _TOP - _BOTTOM)

    def draw(self, across: str) -> list[str]:
        """Draw lines and numbers at round values, and the name of the horizontal axis."""
        parts = []
        for value in ticks(self.bottom, self.top):
            y = self.y(value)
            parts.append(f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
            parts.append(f'<text class="tick" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
        for value in ticks(self.low, self.high):
            x = self.x(value)
            parts.append(
                f'<text class="tick" x="{x:.1f}" y="{_HEIGHT - _BOTTOM + 16}" text-anchor="middle">{value:g}</text>'
            )
        middle = (_LEFT + WIDTH - _RIGHT) / 2
        parts.append(f'<text class="tick" x="{middle}" y="{_HEIGHT - 6}" text-anchor="middle">{escape(across)}</text>')
        return parts


def ticks(low: float, high: float, about: int = 5) -> list[float]:
    """Return about ``about`` round numbers from ``low`` to ``high``.

    >>> ticks(0, 100)
    [0, 20, 40, 60, 80, 100]
    >>> ticks(0.993, 1.021)
    [1.0, 1.01, 1.02]
    """
    rough = (high - low) / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = power * next(factor for factor in (1, 2, 5, 10) if factor * power >= rough * 0.999)
    first = math.ceil(low / step - 1e-9)
    values = [round(number * step, 12) for number in range(first, math.floor(high / step + 1e-9) + 1)]
    return [int(value) if float(value).is_integer() and step >= 1 else value for value in values]


def standalone(svg: str) -> str:
    """Return a chart as a separate SVG file."""
    style = (files("hf_xsent.pages") / "charts.css").read_text(encoding="utf-8")
    ground = f'<style>\n{style}</style>\n<rect class="paper" width="100%" height="100%"/>'
    head, _, rest = svg.partition("\n")
    return f"{head.replace('<svg ', SVG, 1)}\n{ground}\n{rest}\n"


def svg(title: str, parts: Sequence[str], height: int = _HEIGHT) -> str:
    """Return a chart from its parts."""
    return "\n".join(
        [f'<svg viewBox="0 0 {WIDTH} {height}" role="img" aria-label="{escape(title)}">', *parts, "</svg>"]
    )
