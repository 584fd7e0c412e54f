"""Our metrics as modules of the library ``evaluate``, loaded from this package without any network.

from hf_xsent.evaluation.metrics import load_metric

load_metric("rank_correlation").compute(predictions=[0.1, 0.7, 0.7], references=[1, 4, 5])
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hf_xsent.errors import MissingExtraError, RecipeError, nearest

METRICS = (
    "translation_retrieval",
    "bitext_mining_f1",
    "rank_correlation",
    "alignment_error_rate",
    "document_alignment_f1",
)


def metric_path(name: str) -> Path:
    """The folder that ``evaluate.load`` takes."""
    if name not in METRICS:
        raise RecipeError(f"unknown metric {name!r}: use one of {', '.join(METRICS)}{nearest(name, METRICS)}")
    return Path(__file__).parent / name


def load_metric(name: str, **options: Any) -> Any:
    """The module of this name."""
    try:
        import evaluate
    except ImportError as error:
        raise MissingExtraError('this needs the library evaluate: pip install "hf-xsent[evaluate]"') from error
    return evaluate.load(str(metric_path(name)), **options)
