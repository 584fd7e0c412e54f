"""Measure accuracy@1 of translations by cosine, in both directions."""

from __future__ import annotations

from typing import Any

import datasets
import evaluate
import numpy as np

from hf_xsent.evaluation.metrics import metric_info
from hf_xsent.evaluation.retrieval import PROTOCOL, accuracy_at_1


class TranslationRetrieval(evaluate.Metric):
    """Predictions are embeddings of source sentences, references those of their translations, in the same order."""

    def _info(self) -> evaluate.MetricInfo:
        vectors = datasets.Sequence(datasets.Value("float32"))
        return metric_info(type(self), vectors, vectors, note=f" {PROTOCOL}.")

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        accuracy = accuracy_at_1(np.asarray(predictions, np.float32), np.asarray(references, np.float32))
        return {"forward": accuracy.forward, "backward": accuracy.backward, "mean": accuracy.mean}
