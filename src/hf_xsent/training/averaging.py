"""Average trained weights with those of the start."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.sentence_encoder import SentenceEncoder


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
