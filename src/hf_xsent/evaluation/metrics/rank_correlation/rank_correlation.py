"""Measure Spearman's rank correlation × 100, as in STS."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hf_xsent.evaluation.metrics import metric_info
from hf_xsent.evaluation.similarity import spearman


class RankCorrelation(evaluate.Metric):
    """Predictions are scores of sentence pairs, references their gold scores; ties share their mean rank."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return metric_info(type(self), number, number)

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"spearman": spearman(predictions, references)}
