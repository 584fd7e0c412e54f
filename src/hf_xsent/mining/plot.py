"""Plot the scores of mined pairs as a histogram."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hf_xsent.files import write_text
from hf_xsent.pages.charts import histogram, standalone


def write_histogram(path: str | Path, scores: np.ndarray, threshold: float | None, title: str) -> None:
    """Plot the histogram of scores as an SVG, with a line at the threshold."""
    scores = scores[np.isfinite(scores)]  # a ratio may overflow
    low, high = np.quantile(scores, (0.001, 0.999)) if len(scores) else (0.0, 1.0)
    counts, edges = np.histogram(scores, bins=60, range=(low, max(high, low + 1e-6)))
    write_text(path, standalone(histogram(title, counts.tolist(), edges.tolist(), threshold)))
