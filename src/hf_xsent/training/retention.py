"""Measure what training loses within languages, and average the trained weights with those of the start."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hf_xsent.evaluation.retention import RetentionTask
from hf_xsent.evaluation.task import ModelEncoder
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.training.conflicts import AUTO

logger = logging.getLogger(__name__)

SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5)  # of the start, from which ``share_of_start: auto`` chooses


def identify_retention(arguments: Any, loaded: Retention | None = None) -> dict[str, str]:
    """Return the content of the data of a run's retention, if its share of the start or its verdict depends on it."""
    if arguments.retention is None or (arguments.share_of_start != AUTO and arguments.largest_drop is None):
        return {}
    task = RetentionTask.load(arguments.retention) if loaded is None else loaded.task
    return {"content of retention": task.fingerprint}


class Retention:
    """The score within languages, in percent, of a model before and after training.

    ``folder`` has the data of the task ``retention`` of ``evaluate``: similarity of sentences, answers to questions.
    """

    def __init__(self, folder: str) -> None:
        self.task = RetentionTask.load(folder)
        self.before = self.after = float("nan")

    def score(self, embedder: Any) -> float:
        """Measure the mean score over tasks and languages."""
        scores = self.task.score(ModelEncoder(embedder))
        return float(scores.groups["all"]["score"])

    def problem(self, largest_drop: float | None, saved_in: str | None) -> str | None:
        """Return a sentence if the score fell by more than the largest drop that is allowed."""
        if largest_drop is None or self.before - self.after <= largest_drop:
            return None
        saved = "" if saved_in is None else f"the run is saved in {saved_in}; "
        return (
            f"the score within languages fell from {self.before:.2f} to {self.after:.2f}, more than largest_drop "
            f"{largest_drop:g}: {saved}keep more of the start by share_of_start, or train with the objective "
            "interpolation"
        )


def starting_weights(model: SentenceEncoder) -> dict[str, Tensor]:
    """Copy the weights that embed sentences into main memory, before training."""
    weights = plain_weights(model.encoder) | dict(_other_weights(model))
    return {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}


@torch.no_grad()
def average_with_start(model: SentenceEncoder, start: Mapping[str, Tensor], share: float) -> None:
    """Set the weights to (1 - share) × trained + share × starting weights (Wortsman et al., 2022)."""
    model.merge_adapters()
    for name, weight in (*model.encoder.named_parameters(), *_other_weights(model)):
        weight.lerp_(start[name].to(weight), share)


def _other_weights(model: SentenceEncoder) -> list[tuple[str, nn.Parameter]]:
    """Return the weights of the linear map after pooling and of the language embeddings, if the model has them."""
    parts = {name: getattr(model, name, None) for name in ("linear_map", "language_embeddings")}
    return [pair for name, part in parts.items() if part is not None for pair in part.named_parameters(prefix=name)]


def choose_share(
    model: SentenceEncoder, start: Mapping[str, Tensor], accuracy: Callable[[], float], score: Callable[[], float]
) -> float:
    """Return the share of the start with the highest sum of dev accuracy and score within languages.

    The weights are the trained ones before and after.
    """
    model.merge_adapters()
    trained = starting_weights(model)
    sums: dict[float, float] = {}
    for share in SHARES:
        average_with_start(model, start, share)
        sums[share] = accuracy() + score()
        logger.info("share of the start %.1f: dev accuracy + score within languages = %.2f", share, sums[share])
        average_with_start(model, trained, 1.0)  # the trained weights again
    return max(sums, key=lambda share: sums[share])
