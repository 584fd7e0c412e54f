"""Map sentence embeddings by a linear layer with dropout on its output: dual pivot's maps and critic."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from transformers import initialization as init


class LinearMap(nn.Linear):
    """A linear layer with dropout on its output."""

    def __init__(self, inputs: int, outputs: int, bias: bool = False, dropout: float = 0.0) -> None:
        super().__init__(inputs, outputs, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, vectors: Tensor) -> Tensor:
        """Return the mapped vectors."""
        mapped: Tensor = self.dropout(super().forward(vectors))
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
