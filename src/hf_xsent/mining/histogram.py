"""How many pairs have which score, as a picture: where a threshold could stand."""

from __future__ import annotations

from pathlib import Path
from xml.sax.saxutils import escape

import numpy as np

_WIDTH, _HEIGHT, _EDGE = 640, 240, 40


def write_histogram(path: str | Path, scores: np.ndarray, threshold: float | None = None, title: str = "") -> None:
    """An SVG of the scores' distribution, with a line at the threshold."""
    low, high = (float(np.quantile(scores, share)) for share in (0.001, 0.999)) if len(scores) else (0.0, 1.0)
    high = max(high, low + 1e-6)
    counts, edges = np.histogram(scores, bins=60, range=(low, high))
    top = max(1, int(counts.max()))

    def across(score: float) -> float:
        return _EDGE + (score - low) / (high - low) * (_WIDTH - 2 * _EDGE)

    def up(count: float) -> float:
        return _HEIGHT - _EDGE - count / top * (_HEIGHT - 2 * _EDGE)

    bars = [
        f'<rect x="{across(left):.1f}" y="{up(count):.1f}" width="{across(right) - across(left) - 0.5:.1f}" '
        f'height="{_HEIGHT - _EDGE - up(count):.1f}"><title>{left:.3f} to {right:.3f}: {count}</title></rect>'
        for left, right, count in zip(edges[:-1], edges[1:], counts.tolist(), strict=True)
    ]
    labels = [
        f'<text x="{across(score):.1f}" y="{_HEIGHT - _EDGE + 16}" text-anchor="middle">{score:.3f}</text>'
        for score in np.linspace(low, high, 5)
    ]
    labels.append(f'<text x="{_EDGE - 4}" y="{up(top):.1f}" text-anchor="end">{top:,}</text>')
    labels.append(f'<text x="{_WIDTH / 2}" y="20" text-anchor="middle">{escape(title)}</text>')
    if threshold is not None and low <= threshold <= high:
        place = f"{across(threshold):.1f}"
        labels.append(f'<line x1="{place}" x2="{place}" y1="{_EDGE}" y2="{_HEIGHT - _EDGE}" stroke="#c33"/>')
        labels.append(f'<text x="{place}" y="{_EDGE - 4}" text-anchor="middle" fill="#c33">{threshold:.3f}</text>')
    picture = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" '
        f'font-size="11"><rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
        f'<g fill="#369">{"".join(bars)}</g>{"".join(labels)}</svg>\n'
    )
    Path(path).write_text(picture, encoding="utf-8")
