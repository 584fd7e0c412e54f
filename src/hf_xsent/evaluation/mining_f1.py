"""Measure bitext mining on BUCC 2018: F1 at a threshold that is chosen on gold pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.bucc import TRAINING_SPLITS, BuccSet, find_bucc, split_order
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, Scores
from hf_xsent.mining.calibration import best_threshold, f1_at_threshold
from hf_xsent.mining.margin import MinedPairs, mine_bitext

_K = 4
_PAIRS = {"de-en", "fr-en", "ru-en", "zh-en"}


@dataclass(frozen=True)
class BuccTask(EvaluationTask):
    """BUCC 2018: choose a threshold on the training split of a language pair; apply it to other splits and pairs."""

    sets: Sequence[BuccSet]

    name: ClassVar[str] = "bucc"
    unit: ClassVar[str] = "language pair"
    title: ClassVar[str] = "BUCC 2018"
    protocol: ClassVar[str] = (
        "F1 of pairs mined by ratio margin, k = 4; candidates of both directions are taken by descending score, each "
        "sentence at most once; the threshold maximises F1 on the measured set or, if the result's name has brackets, "
        "on the split or language pair that they name"
    )
    headings: ClassVar[Mapping[str, str]] = {"f1": "F1"} | {
        key: key for key in ("precision", "recall", "found", "gold", "threshold")
    }
    main_metric: ClassVar[str] = "f1"

    read = staticmethod(find_bucc)

    def __post_init__(self) -> None:
        super().__post_init__()
        for test_set in self.sets:
            name = f"BUCC {test_set.pair}, {test_set.split}"
            if not test_set.gold:
                raise DataError(f"{name}: there are no gold pairs: choose a split that has them")
            if min(len(test_set.sources), len(test_set.targets)) < _K:
                raise DataError(f"{name}: mining needs at least {_K} sentences per side")

    def score(self, encode: Encode) -> Scores:
        """Measure F1 of each set at the best threshold of its language pair, and at that of every other pair."""
        mined = [mine_bitext(encode(test_set.sources), encode(test_set.targets), _K) for test_set in self.sets]
        thresholds = self._thresholds(mined)
        last = max((test_set.split for test_set in self.sets), key=split_order)
        own: dict[str, Metrics] = {}
        transferred: dict[str, Metrics] = {}
        groups: dict[str, list[str]] = {}
        rows: dict[str, np.ndarray] = {}
        for test_set, pairs in zip(self.sets, mined, strict=True):
            for pair, (split, threshold) in thresholds.items():
                measured, above = f1_at_threshold(pairs, test_set.gold, threshold), pairs.above(threshold)
                outcomes = _outcomes(test_set, above)
                counts = {"found": len(above), "gold": len(test_set.gold)}
                figures = {key: counts[key] if key in counts else getattr(measured, key) for key in self.headings}
                name = f"{test_set.pair} {test_set.split}"
                if pair != test_set.pair:
                    name += f" ({pair})"
                    transferred[name] = figures
                    groups.setdefault(f"others, {test_set.split} ({pair})", []).append(name)
                else:
                    name += "" if split == test_set.split else f" ({split})"
                    own[name] = figures
                    if {other.pair for other in self.sets if other.split == test_set.split} == _PAIRS:
                        groups.setdefault(f"4 pairs, {test_set.split}", []).append(name)
                    if test_set.split == last:
                        groups.setdefault("all", []).append(name)
                rows[name] = outcomes
        figures_of = own | transferred
        return self.scored({name: rows[name] for name in figures_of}, figures_of, groups)

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute F1 from the correct, found and gold pairs of source sentences."""
        correct, mined, gold = np.moveaxis(rows.sum(-2), -1, 0)
        return {"f1": 200 * correct / np.maximum(1, mined + gold)}

    def _thresholds(self, mined: Sequence[MinedPairs]) -> dict[str, tuple[str, float]]:
        """Return each pair's training split (without test_set, its earliest) and the best threshold on it."""
        thresholds: dict[str, tuple[str, float]] = {}
        both = sorted(
            zip(self.sets, mined, strict=True),
            key=lambda each: (each[0].split not in TRAINING_SPLITS, *split_order(each[0].split)),
        )
        for test_set, pairs in both:
            if test_set.pair not in thresholds:
                thresholds[test_set.pair] = test_set.split, best_threshold(pairs, test_set.gold).threshold
        return {test_set.pair: thresholds[test_set.pair] for test_set in self.sets}


def _outcomes(test_set: BuccSet, mined: MinedPairs) -> np.ndarray:
    """Return the number of correct, found and gold pairs of each source sentence."""
    rows = np.zeros((len(test_set.sources), 3), dtype=np.int64)
    for source, target in mined.rows("source", "target"):
        rows[source, 0] += (source, target) in test_set.gold
        rows[source, 1] += 1
    for source, _ in test_set.gold:
        rows[source, 2] += 1
    return rows
