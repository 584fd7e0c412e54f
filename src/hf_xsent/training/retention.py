"""Keep what a run needs of the model before training, and average the trained weights with those of the start."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from hf_xsent.errors import RecipeError
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.sentence_encoder import SentenceEncoder


def start_of_run(encoder: Any, needs: Mapping[str, Callable[[], Any]], begins: bool) -> dict[str, Any]:
    """Return what a run ``needs`` of the model before training: of the model now if the run ``begins``.

    It stays with the encoder, which has other weights when the run resumes after an interruption in this process.
    """
    if begins or not hasattr(encoder, "start_of_run"):
        encoder.start_of_run = {}
        encoder.start_of_run = {name: of_now() for name, of_now in needs.items()}
    start: dict[str, Any] = encoder.start_of_run
    for name in needs.keys() - start.keys():
        raise RecipeError(f"{name} needs the weights before training, which the model no longer has: open it again")
    return start


def starting_weights(model: SentenceEncoder) -> dict[str, Tensor]:
    """Copy the weights of the encoder and of a linear map into main memory, before training."""
    weights = plain_weights(model.encoder) | dict(_weights_of_map(model))
    return {name: weight.detach().to("cpu", copy=True) for name, weight in weights.items()}


@torch.no_grad()
def average_with_start(model: SentenceEncoder, start: Mapping[str, Tensor], share: float) -> None:
    """Set the weights to (1 - share) × trained + share × starting weights (Wortsman et al., 2022)."""
    model.merge_adapters()
    for name, weight in (*model.encoder.named_parameters(), *_weights_of_map(model)):
        weight.lerp_(start[name].to(weight), share)


def _weights_of_map(model: SentenceEncoder) -> list[tuple[str, nn.Parameter]]:
    """Return the weights of the linear map after pooling, if the model has one."""
    return [] if model.linear_map is None else list(model.linear_map.named_parameters(prefix="linear_map"))
