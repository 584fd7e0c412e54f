"""Translation ranking (TR): each sentence picks its translation among all targets of the batch (DAP eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.pair_encoding import PairEncoding


def translation_ranking_loss(
    source: Tensor,
    target: Tensor,
    temperature: float = 0.05,
    margin: float = 0.0,
    symmetric: bool = False,
    margin_before_temperature: bool = False,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
) -> Tensor:
    """Mean over the pairs of -log softmax_j(cos(source_i, target_j) / temperature) at j = i.

    ``margin`` is taken off the positive after the division by the temperature, as in the authors' code, or before it.
    ``symmetric`` averages both directions. Where identities are given, another pair that repeats the source or the
    target of pair i is no negative of i. Logits are float32, also under autocast.
    """
    with torch.autocast(source.device.type, enabled=False):
        source, target = (F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1) for x in (source, target))
        pairs = torch.arange(len(source), device=source.device)
        logits = source @ target.T / temperature
        if margin:
            logits = logits - torch.eye(len(pairs), dtype=logits.dtype, device=pairs.device) * (
                margin / temperature if margin_before_temperature else margin
            )
        repeated = torch.zeros_like(logits, dtype=torch.bool)
        for identity in (source_identity, target_identity):
            if identity is not None:
                repeated |= identity[:, None] == identity
        logits = logits.masked_fill(repeated.fill_diagonal_(False), -torch.inf)
        loss = F.cross_entropy(logits, pairs)
        return (loss + F.cross_entropy(logits.T, pairs)) / 2 if symmetric else loss


class TranslationRanking(nn.Module):
    """TR as an objective of a model: its settings, and which part of the encoded pairs it reads."""

    reads: frozenset[str] = frozenset()

    def __init__(
        self,
        temperature: float = 0.05,
        margin: float = 0.0,
        symmetric: bool = False,
        margin_before_temperature: bool = False,
        mask_repeated: bool = True,
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.margin = margin
        self.symmetric = symmetric
        self.margin_before_temperature = margin_before_temperature
        self.mask_repeated = mask_repeated

    def forward(self, pairs: PairEncoding) -> Tensor:
        """The loss of the batch."""
        return translation_ranking_loss(
            pairs.source,
            pairs.target,
            self.temperature,
            self.margin,
            self.symmetric,
            self.margin_before_temperature,
            source_identity=pairs.source_identity if self.mask_repeated else None,
            target_identity=pairs.target_identity if self.mask_repeated else None,
        )
