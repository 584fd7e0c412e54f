"""Map sentence embeddings by a linear layer: dual pivot's maps and critic, and the layer of a model such as LaBSE."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init

ACTIVATIONS = {"Identity": nn.Identity, "Tanh": nn.Tanh}


class LinearMap(nn.Linear):
    """A linear layer with an activation and dropout on its output."""

    def __init__(
        self, inputs: int, outputs: int, bias: bool = False, dropout: float = 0.0, activation: str = "Identity"
    ) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the mapped vectors."""
        mapped: Tensor = self.dropout(self.activation(super().forward(vectors)))
        return mapped

    @torch.no_grad()
    def start(self, identity: bool = False) -> None:
        """Initialize to the identity, or at random as torch does, without changing loaded weights."""
        if identity:
            init.eye_(self.weight)
        else:
            init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            bound = 0.0 if identity else 1 / math.sqrt(self.in_features)
            init.uniform_(self.bias, -bound, bound)
