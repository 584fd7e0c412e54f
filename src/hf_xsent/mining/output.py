"""Write mined pairs as tab-separated tables, and their scores as a histogram."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from hf_xsent.files import write_text
from hf_xsent.pages.charts import histogram, standalone


def write_table(output: str | Path, header: Sequence[str], rows: Iterable[Sequence[str]]) -> int:
    """Write the table; return the number of rows below the header."""
    return write_lines(output, chain(["\t".join(header)], map("\t".join, rows))) - 1


def write_lines(output: str | Path, lines: Iterable[str]) -> int:
    """Write lines of text; return their number."""
    count = 0

    def ended() -> Iterator[str]:
        nonlocal count
        for count, line in enumerate(lines, start=1):  # noqa: B007 - returned below
            yield f"{line}\n"

    write_text(output, ended())
    return count


def one_line(text: str) -> str:
    r"""Replace tabs and line separators by spaces; other whitespace, such as a no-break space, stays.

    >>> one_line("a\u2028b\tc\u00a0d")
    'a b c\xa0d'
    """
    return " ".join(text.splitlines()).replace("\t", " ")


def write_histogram(path: str | Path, scores: np.ndarray, threshold: float | None, title: str) -> None:
    """Plot the histogram of scores as an SVG, with a line at the threshold."""
    scores = scores[np.isfinite(scores)]  # a ratio may overflow
    low, high = np.quantile(scores, (0.001, 0.999)) if len(scores) else (0.0, 1.0)
    counts, edges = np.histogram(scores, bins=60, range=(low, max(high, low + 1e-6)))
    write_text(path, standalone(histogram(title, counts.tolist(), edges.tolist(), threshold)))
