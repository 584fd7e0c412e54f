"""Spearman's rank correlation, times 100, as STS is measured by."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate

from hf_xsent.evaluation.similarity import spearman


class RankCorrelation(evaluate.Metric):
    """Predictions are scores of sentence pairs, references their gold scores; equal values share their mean rank."""

    def _info(self) -> evaluate.MetricInfo:
        number = datasets.Value("float64")
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__class__.__doc__,
            features=datasets.Features({"predictions": number, "references": number}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        return {"spearman": spearman(predictions, references)}
