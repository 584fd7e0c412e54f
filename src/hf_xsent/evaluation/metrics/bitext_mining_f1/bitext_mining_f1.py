"""Measure F1 of mined sentence pairs, as BUCC does."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from hf_xsent.evaluation.metrics import metric_info
from hf_xsent.mining.calibration import best_threshold, f1_at_threshold
from hf_xsent.mining.margin import MinedPairs


class BitextMiningF1(evaluate.Metric):
    """A prediction is the mined pairs of one set, a reference its gold pairs; the metrics are means over sets.

    A prediction is ``{"source": indices, "target": indices, "score": margins}``, a reference ``{"source": indices,
    "target": indices}``, where pair i is (source[i], target[i]). Without ``threshold``, the
    threshold with the best F1 on the same set is used; published F1 on test sets uses a threshold from other data.
    """

    def _info(self) -> evaluate.MetricInfo:
        numbers = datasets.Sequence(datasets.Value("int64"))
        gold = {"source": numbers, "target": numbers}
        mined = gold | {"score": datasets.Sequence(datasets.Value("float64"))}
        return metric_info(type(self), mined, gold)

    def _compute(self, predictions: Any, references: Any, threshold: float | None = None) -> dict[str, float]:
        measured = []
        for prediction, reference in zip(predictions, references, strict=True):
            gold = set(zip(reference["source"], reference["target"], strict=True))
            mined = _mined(prediction)
            measured.append(
                best_threshold(mined, gold) if threshold is None else f1_at_threshold(mined, gold, threshold)
            )
        names = ("f1", "precision", "recall", "threshold")
        return {name: sum(getattr(scores, name) for scores in measured) / len(measured) for name in names}


def _mined(prediction: dict[str, list[Any]]) -> MinedPairs:
    """Sort pairs by score; ties go to the lower indices. Of a repeated pair, retain the best score."""
    source, target, score = (np.asarray(prediction[name]) for name in ("source", "target", "score"))
    order = np.lexsort((target, source, -score))
    _, first = np.unique(np.stack((source[order], target[order])), axis=1, return_index=True)
    order = order[np.sort(first)]
    unknown = np.zeros(len(order), dtype=np.int64)
    return MinedPairs(source[order], target[order], score[order], score[order], unknown, unknown)
