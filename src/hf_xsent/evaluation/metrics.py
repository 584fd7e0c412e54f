"""Load translation retrieval as a metric of the library ``evaluate``, without network access.

from hf_xsent.evaluation.metrics import load_metric

load_metric("translation_retrieval").compute(predictions=source_embeddings, references=target_embeddings)
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from datasets import Features, List, Value

from hf_xsent.errors import RecipeError, import_extra
from hf_xsent.evaluation.translation_retrieval import TatoebaTask, retrieval_hits


def load_metric(name: str) -> Any:
    """Load the metric ``translation_retrieval``."""
    if name != translation_retrieval.__name__:
        raise RecipeError(f"unknown metric {name!r}: use {translation_retrieval.__name__}")
    evaluate: Any = import_extra("evaluate", "load_metric", "evaluate")

    class Metric(evaluate.Metric):
        _compute = staticmethod(translation_retrieval)

        def _info(self) -> Any:
            features = Features(predictions=List(Value("float32")), references=List(Value("float32")))
            about = inspect.getdoc(translation_retrieval)
            return evaluate.MetricInfo(description=about, citation="", features=features, module_name=name)

    return Metric()


def translation_retrieval(predictions: Any, references: Any) -> dict[str, float]:
    """Compute accuracy@1 of translations by cosine, in both directions.

    Predictions are embeddings of source sentences, references those of their translations, in the same order.
    """
    hits = retrieval_hits(np.asarray(predictions, np.float32), np.asarray(references, np.float32))
    return {name: float(value) for name, value in TatoebaTask.metrics(hits).items()}
