from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.metrics import METRICS, load_metric

evaluate = pytest.importorskip("evaluate", reason="evaluate is not installed: pip install 'hf-xsent[evaluate]'")


@pytest.fixture(params=METRICS)
def metric(request: pytest.FixtureRequest) -> Any:
    return load_metric(request.param)


def test_each_metric_is_one_of_evaluate(metric: Any) -> None:
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


def test_mined_pairs_are_measured_at_the_best_or_a_given_threshold() -> None:
    metric = load_metric("bitext_mining_f1")
    mined = {"source": [2, 0, 1], "target": [2, 0, 1], "score": [1.0, 1.5, 1.4]}
    gold = {"source": [0, 1], "target": [0, 1]}
    best = metric.compute(predictions=[mined], references=[gold])
    assert best == {"f1": 100, "precision": 100, "recall": 100, "threshold": pytest.approx(1.2)}
    strict = metric.compute(predictions=[mined], references=[gold], threshold=1.45)
    assert strict == {"f1": pytest.approx(200 / 3), "precision": 100, "recall": 50, "threshold": 1.45}


def test_a_repeated_prediction_counts_once() -> None:
    mined = {"source": [0, 0, 1], "target": [0, 0, 1], "score": [1.2, 1.5, 1.4]}
    gold = {"source": [0, 1], "target": [0, 1]}
    best = load_metric("bitext_mining_f1").compute(predictions=[mined], references=[gold])
    assert (best["f1"], best["precision"], best["recall"]) == (100, 100, 100)


def test_an_unknown_metric_is_an_error() -> None:
    with pytest.raises(RecipeError, match="unknown metric 'rank': use one of"):
        load_metric("rank")
