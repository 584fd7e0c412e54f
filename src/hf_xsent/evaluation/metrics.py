"""Load the metrics of this package as metrics of the library ``evaluate``, without network access.

from hf_xsent.evaluation.metrics import load_metric

load_metric("translation_retrieval").compute(predictions=source_embeddings, references=target_embeddings)
"""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from datasets import Features, List, Value

from hf_xsent.errors import RecipeError, did_you_mean, import_extra
from hf_xsent.evaluation.translation_retrieval import TatoebaTask, retrieval_hits
from hf_xsent.mining.calibration import best_threshold, f1_at_threshold
from hf_xsent.mining.margin import MinedPairs


def load_metric(name: str, **options: Any) -> Any:
    """Load a metric by its name; ``options`` go to ``evaluate.Metric``."""
    if name not in METRICS:
        raise RecipeError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}{did_you_mean(name, METRICS)}")
    evaluate: Any = import_extra("evaluate", "load_metric", "evaluate")
    compute, predictions, references = METRICS[name]

    class Metric(evaluate.Metric):
        _compute = staticmethod(compute)

        def _info(self) -> Any:
            features = Features(predictions=predictions, references=references)
            about = inspect.getdoc(compute)
            return evaluate.MetricInfo(description=about, citation="", features=features, module_name=name)

    return Metric(**options)


def translation_retrieval(predictions: Any, references: Any) -> dict[str, float]:
    """Compute accuracy@1 of translations by cosine, in both directions.

    Predictions are embeddings of source sentences, references those of their translations, in the same order.
    """
    hits = retrieval_hits(np.asarray(predictions, np.float32), np.asarray(references, np.float32))
    return {name: float(value) for name, value in TatoebaTask.metrics(hits).items()}


def bitext_mining_f1(predictions: Any, references: Any, threshold: float | None = None) -> dict[str, float]:
    """Compute F1 of mined sentence pairs, as in BUCC: means over sets.

    A prediction is {source: indices, target: indices, score: margins} of one set, a reference its gold pairs. Without
    threshold, the threshold with the best F1 on the same set is used; published F1 on test sets uses a threshold from
    other data.
    """
    measured = []
    for prediction, reference in zip(predictions, references, strict=True):
        gold = set(zip(reference["source"], reference["target"], strict=True))
        mined = _mined(prediction)
        measured.append(best_threshold(mined, gold) if threshold is None else f1_at_threshold(mined, gold, threshold))
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


_PAIRS = {"source": List(Value("int64")), "target": List(Value("int64"))}
METRICS = {  # by name: its function, and the types of a prediction and of a reference
    "translation_retrieval": (translation_retrieval, List(Value("float32")), List(Value("float32"))),
    "bitext_mining_f1": (bitext_mining_f1, {**_PAIRS, "score": List(Value("float64"))}, _PAIRS),
}
