"""Measure the alignment error rate of word links, with precision and recall (Och and Ney, 2003)."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hf_xsent.evaluation.metrics import metric_info
from hf_xsent.evaluation.word_alignment import alignment_scores


class AlignmentErrorRate(evaluate.Metric):
    """A prediction is the list of links of one pair of sentences, each [source position, target position].

    A reference is ``{"sure": links, "possible": links}``; sure links also count as possible.
    """

    def _info(self) -> evaluate.MetricInfo:
        links = datasets.Sequence(datasets.Sequence(datasets.Value("int64")))
        return metric_info(type(self), links, {"sure": links, "possible": links})

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        sure, possible = ([_links(reference[kind]) for reference in references] for kind in ("sure", "possible"))
        scores = alignment_scores([_links(prediction) for prediction in predictions], sure, possible)
        return {"error_rate": scores.error_rate, "precision": scores.precision, "recall": scores.recall}


def _links(pairs: Any) -> set[tuple[int, int]]:
    return {(int(source), int(target)) for source, target in pairs}
