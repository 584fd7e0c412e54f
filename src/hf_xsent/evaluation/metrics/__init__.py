"""Load the metrics of this package as modules of the library ``evaluate``, without network access.

from hf_xsent.evaluation.metrics import load_metric

load_metric("rank_correlation").compute(predictions=[0.1, 0.7, 0.7], references=[1, 4, 5])
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from hf_xsent.errors import MissingExtraError, RecipeError, did_you_mean

METRICS = (
    "translation_retrieval",
    "bitext_mining_f1",
    "rank_correlation",
    "alignment_error_rate",
    "document_alignment_f1",
)


def load_metric(name: str, **options: Any) -> Any:
    """Load a metric by its name; ``options`` go to ``evaluate.load``."""
    if name not in METRICS:
        raise RecipeError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}{did_you_mean(name, METRICS)}")
    try:
        import evaluate
    except ImportError as error:
        raise MissingExtraError('this needs the library evaluate: pip install "hf-xsent[evaluate]"') from error
    return evaluate.load(str(Path(__file__).parent / name), **options)


def metric_info(metric: type, predictions: Any, references: Any, note: str = "") -> Any:
    """Return the MetricInfo of a metric class, from its docstrings and the features of its inputs."""
    import datasets
    import evaluate

    return evaluate.MetricInfo(
        description=f"{sys.modules[metric.__module__].__doc__}{note}",
        citation="",
        inputs_description=metric.__doc__,
        features=datasets.Features({"predictions": predictions, "references": references}),
    )
