from __future__ import annotations

import numpy as np
import pytest

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.metrics import load_metric

evaluate = pytest.importorskip("evaluate", reason="evaluate is not installed: pip install 'hf-xsent[evaluate]'")


def test_the_metric_is_that_of_a_library() -> None:
    metric = load_metric("translation_retrieval")
    assert isinstance(metric, evaluate.Metric)
    assert metric.description


def test_retrieval_counts_both_directions() -> None:
    angles = [np.deg2rad(side) for side in ([0, 40, 100], [10, 12, 80])]
    source, target = (np.stack([np.cos(side), np.sin(side)], 1).tolist() for side in angles)
    found = load_metric("translation_retrieval").compute(predictions=source, references=target)
    assert found == {
        "forward": 100.0,
        "backward": pytest.approx(200 / 3),
        "mean": pytest.approx(250 / 3),
    }


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(RecipeError, match="unknown metric 'rank': use translation_retrieval"):
        load_metric("rank")
