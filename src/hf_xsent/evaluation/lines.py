"""A figure over layers, as a picture: one line for each way to make sentence vectors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from xml.sax.saxutils import escape

_WIDTH, _HEIGHT, _EDGE = 640, 320, 44
_COLOURS = ("#369", "#c33", "#393", "#963")


def write_lines(path: str | Path, lines: Mapping[str, Mapping[int, float]], across: str, up: str) -> None:
    """An SVG of lines through points, from 0 to 100 upwards, each with its name at its last point."""
    places = sorted({place for line in lines.values() for place in line})
    last = max(*places, 1)

    def x(place: float) -> float:
        return _EDGE + place / last * (_WIDTH - 4 * _EDGE)

    def y(value: float) -> float:
        return _HEIGHT - _EDGE - value / 100 * (_HEIGHT - 2 * _EDGE)

    parts = [
        f'<text x="{x(place):.1f}" y="{_HEIGHT - _EDGE + 18}" text-anchor="middle">{place}</text>' for place in places
    ]
    for tick in range(0, 101, 20):
        parts.append(f'<text x="{_EDGE - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{tick}</text>')
        parts.append(f'<line x1="{_EDGE}" x2="{x(last):.1f}" y1="{y(tick):.1f}" y2="{y(tick):.1f}" stroke="#ddd"/>')
    parts.append(f'<text x="{x(last / 2):.1f}" y="{_HEIGHT - 8}" text-anchor="middle">{escape(across)}</text>')
    parts.append(f'<text x="{_EDGE}" y="20">{escape(up)}</text>')
    for number, (name, line) in enumerate(lines.items()):
        colour, points = _COLOURS[number % len(_COLOURS)], sorted(line.items())
        through = " ".join(f"{x(place):.1f},{y(value):.1f}" for place, value in points)
        parts.append(f'<polyline points="{through}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{x(place):.1f}" cy="{y(value):.1f}" r="3" fill="{colour}">'
            f"<title>{escape(name)}, {place}: {value:.1f}</title></circle>"
            for place, value in points
        ]
        end, height = points[-1]
        parts.append(f'<text x="{x(end) + 8:.1f}" y="{y(height) + 4:.1f}" fill="{colour}">{escape(name)}</text>')
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>{"".join(parts)}</svg>\n'
    )
    Path(path).write_text(picture, encoding="utf-8")
