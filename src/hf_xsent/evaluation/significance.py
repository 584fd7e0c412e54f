"""Compare the outcomes of two models on the same items: differences with confidence intervals (paired bootstrap).

Koehn (2004): resample the test items with replacement, the same items for both models, and measure the differences on
each resampled set. The interval holds the middle 95% of these differences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_xsent.evaluation.task import Outcomes

SAMPLES = 1000
CONFIDENCE = 0.95
LEAST_ITEMS = 10  # resampling fewer says little about other items
_NUMBERS_AT_ONCE = 1 << 20


@dataclass(frozen=True)
class Difference:
    """The difference of a score between two models, and its 95% confidence interval; None: of too few items."""

    value: float
    low: float | None
    high: float | None

    @property
    def significant(self) -> bool:
        """Whether the interval excludes 0, so that noise in the test items does not explain the difference."""
        return self.low is not None and self.high is not None and (self.low > 0 or self.high < 0)

    def __str__(self) -> str:
        if self.low is None:
            return f"{self.value:+.2f}"
        return f"{self.value:+.2f} ({self.low:+.2f} to {self.high:+.2f})"


def paired_differences(
    metrics: Callable[[np.ndarray], Mapping[str, Any]],
    first: Sequence[Outcomes],
    second: Sequence[Outcomes],
) -> dict[str, dict[str, Difference]]:
    """Return second - first for each language and group, and each of the metrics.

    Each side is one or more runs of a model (such as different seeds), whose scores are averaged.
    """
    parallel, rng = first[0].parallel, np.random.default_rng(0)
    names = list(metrics(next(iter(first[0].rows.values()))))
    measured: dict[str, np.ndarray] = {}  # one number per metric
    resampled: dict[str, np.ndarray] = {}  # samples × metrics

    def scores(rows: np.ndarray) -> np.ndarray:
        return np.stack([np.asarray(value, np.float64) for value in metrics(rows).values()], axis=-1)

    for language, rows in first[0].rows.items():
        sides = [[run.rows[language] for run in runs] for runs in (first, second)]

        def difference(items: np.ndarray, sides: list[list[np.ndarray]] = sides) -> np.ndarray:
            before, after = (np.mean([scores(run[items]) for run in runs], axis=0) for runs in sides)
            return np.asarray(after - before)

        if parallel:  # resample the same items in all languages
            rng = np.random.default_rng(0)
        count = len(rows)
        measured[language] = difference(np.arange(count))
        at_once = max(1, _NUMBERS_AT_ONCE // count)
        sizes = [min(at_once, SAMPLES - start) for start in range(0, SAMPLES, at_once)]
        resampled[language] = np.concatenate([difference(rng.integers(count, size=(size, count))) for size in sizes])
    for group, members in first[0].groups.items():
        measured[group] = np.mean([measured[member] for member in members], axis=0)
        resampled[group] = np.mean([resampled[member] for member in members], axis=0)
    tails = [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2]
    counts = {language: len(rows) for language, rows in first[0].rows.items()}
    of_group: Any = max if parallel else sum  # parallel: the same items in all languages
    counts |= {group: of_group([counts[member] for member in members]) for group, members in first[0].groups.items()}
    intervals = {
        key: np.quantile(samples, tails, axis=0).T.tolist()
        if counts[key] >= LEAST_ITEMS
        else [(None, None)] * len(names)
        for key, samples in resampled.items()
    }
    return {
        key: {
            name: Difference(value, low, high)
            for name, value, (low, high) in zip(names, values.tolist(), intervals[key], strict=True)
        }
        for key, values in measured.items()
    }
