"""Load the metrics of this package as metrics of the library ``evaluate``, without network access.

from hf_xsent.evaluation.metrics import load_metric

load_metric("rank_correlation").compute(predictions=[0.1, 0.7, 0.7], references=[1, 4, 5])
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from hf_xsent.errors import RecipeError, did_you_mean, import_extra
from hf_xsent.evaluation.document_alignment import Bead, document_alignment_scores
from hf_xsent.evaluation.retrieval import accuracy_at_1
from hf_xsent.evaluation.similarity import spearman
from hf_xsent.evaluation.word_alignment import alignment_scores
from hf_xsent.mining.calibration import best_threshold, f1_at_threshold
from hf_xsent.mining.margin import MinedPairs


@dataclass(frozen=True)
class MetricKind:
    """A metric: what it computes, and the types of its predictions and references; a list has the type inside it."""

    description: str
    predictions: Any
    references: Any
    compute: Callable[..., dict[str, float]]


def load_metric(name: str, **options: Any) -> Any:
    """Load a metric by its name; ``options`` go to ``evaluate.Metric``."""
    if name not in METRICS:
        raise RecipeError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}{did_you_mean(name, METRICS)}")
    evaluate: Any = import_extra("evaluate", "load_metric", "evaluate")
    import datasets

    kind = METRICS[name]

    def feature(declared: Any) -> Any:
        if isinstance(declared, dict):
            return {key: feature(value) for key, value in declared.items()}
        if isinstance(declared, list):
            inner = feature(declared[0])
            return [inner] if isinstance(inner, dict) else datasets.Sequence(inner)
        return datasets.Value(declared)

    class Metric(evaluate.Metric):
        def _info(self) -> Any:
            features = {"predictions": feature(kind.predictions), "references": feature(kind.references)}
            return evaluate.MetricInfo(
                description=kind.description, citation="", features=datasets.Features(features), module_name=name
            )

        def _compute(self, predictions: Any, references: Any, **arguments: Any) -> dict[str, float]:
            return kind.compute(predictions, references, **arguments)

    return Metric(**options)


def _translation_retrieval(predictions: Any, references: Any) -> dict[str, float]:
    accuracy = accuracy_at_1(np.asarray(predictions, np.float32), np.asarray(references, np.float32))
    return {"forward": accuracy.forward, "backward": accuracy.backward, "mean": accuracy.mean}


def _bitext_mining_f1(predictions: Any, references: Any, threshold: float | None = None) -> dict[str, float]:
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


def _rank_correlation(predictions: Any, references: Any) -> dict[str, float]:
    return {"spearman": spearman(predictions, references)}


def _alignment_error_rate(predictions: Any, references: Any) -> dict[str, float]:
    def links(pairs: Any) -> set[tuple[int, int]]:
        return {(int(source), int(target)) for source, target in pairs}

    sure, possible = ([links(reference[kind]) for reference in references] for kind in ("sure", "possible"))
    return asdict(alignment_scores([links(prediction) for prediction in predictions], sure, possible))


def _document_alignment_f1(predictions: Any, references: Any) -> dict[str, float]:
    def beads(document: Any) -> list[Bead]:
        return [(tuple(map(int, bead["source"])), tuple(map(int, bead["target"]))) for bead in document]

    aligned, gold = ([beads(document) for document in side] for side in (predictions, references))
    return asdict(document_alignment_scores(aligned, gold))


_GOLD = {"source": ["int64"], "target": ["int64"]}
_LINKS = [["int64"]]
METRICS = {
    "translation_retrieval": MetricKind(
        "Accuracy@1 of translations by cosine, in both directions. Predictions are embeddings of source sentences, "
        "references those of their translations, in the same order.",
        ["float32"],
        ["float32"],
        _translation_retrieval,
    ),
    "bitext_mining_f1": MetricKind(
        "F1 of mined sentence pairs, as in BUCC: means over sets. A prediction is {source: indices, target: indices, "
        "score: margins} of one set, a reference its gold pairs. Without threshold, the threshold with the best F1 on "
        "the same set is used; published F1 on test sets uses a threshold from other data.",
        _GOLD | {"score": ["float64"]},
        _GOLD,
        _bitext_mining_f1,
    ),
    "rank_correlation": MetricKind(
        "Spearman's rank correlation × 100, as in STS; ties share their mean rank.",
        "float64",
        "float64",
        _rank_correlation,
    ),
    "alignment_error_rate": MetricKind(
        "Alignment error rate of word links, with precision and recall (Och and Ney, 2003). A prediction is the list "
        "of links of one pair of sentences, each [source position, target position]; a reference is {sure: links, "
        "possible: links}, and sure links also count as possible.",
        _LINKS,
        {"sure": _LINKS, "possible": _LINKS},
        _alignment_error_rate,
    ),
    "document_alignment_f1": MetricKind(
        "Strict and lax precision, recall and F1 of sentence alignments (Sennrich and Volk, 2011). A prediction holds "
        "the beads of one document, {source: sentence numbers, target: sentence numbers}; one side may be empty.",
        [_GOLD],
        [_GOLD],
        _document_alignment_f1,
    ),
}
