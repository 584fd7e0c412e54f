"""How many pairs have which score, as a picture: where a threshold could stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from hf_xsent.files import write_text
from hf_xsent.pages.charts import histogram, standalone


def write_histogram(path: str | Path, scores: np.ndarray, threshold: float | None = None, title: str = "") -> None:
    """An SVG of the scores' distribution, with a line at the threshold."""
    low, high = (float(np.quantile(scores, share)) for share in (0.001, 0.999)) if len(scores) else (0.0, 1.0)
    high = max(high, low + 1e-6)
    counts, edges = np.histogram(scores, bins=60, range=(low, high))
    write_text(path, standalone(histogram(title, counts.tolist(), edges.tolist(), threshold)))
