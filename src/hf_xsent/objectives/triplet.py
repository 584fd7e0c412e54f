"""Triplet ranking: separate a translation by a margin from the hardest and from random negatives (dual pivot).

    h(a, b) = Σ_n max(0, α - sim(a, b) + sim(a_n, b)) + max(0, α - sim(a, b) + sim(a, b_n))      (section 3.1)

``sim`` is the cosine. Of the n negatives of each direction one is the hardest of the batch, the others are random.

>>> a, b = torch.eye(2), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
>>> sim = F.cosine_similarity(a[:, None], b, dim=-1)  # of two pairs, each the other's only negative
>>> hinges = [(0.2 - sim[i, i] + sim[j, k]).clamp_min(0) for i in (0, 1) for j, k in ((1 - i, i), (i, 1 - i))]
>>> torch.allclose(triplet_ranking_loss(a, b, margin=0.2), sum(hinges) / 2)
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declaring import setting
from hf_xsent.tensors.gathering import gather_rows, mean_over_rows


@dataclass(frozen=True)
class TripletRankingSettings(ObjectiveSettings):
    """The settings of triplet ranking."""

    margin: float = setting(0.0, "Margin (α in the paper): a pair's cosine must exceed a negative's by this much.")
    negatives: int = setting(
        1,
        "Negatives of a sentence in each direction: one is the hardest of the batch, further ones random.",
        at_least=1,
    )


def triplet_ranking_loss(
    source: Tensor,
    target: Tensor,
    margin: float = 0.0,
    negatives: int = 1,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
) -> Tensor:
    """Compute the mean of h over the pairs.

    With identities, a pair that repeats the source or the target of pair i is not a negative of i. Each process ranks
    its own queries against the candidates of all processes.
    """
    identities = (source_identity, target_identity)
    with torch.autocast(source.device.type, enabled=False):
        source, target = (F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1) for x in (source, target))
        loss = _hinges(source, target, identities, margin, negatives)
        loss = loss + _hinges(target, source, identities, margin, negatives)
    return mean_over_rows(loss, source)


def _hinges(
    queries: Tensor, candidates: Tensor, identities: tuple[Tensor | None, Tensor | None], margin: float, negatives: int
) -> Tensor:
    """Return the sum over this process's queries, vectors of length 1, of the hinges of their negatives."""
    candidates, first = gather_rows(candidates)
    cosines = queries @ candidates.T
    positives = torch.arange(first, first + len(queries), device=queries.device)[:, None]
    negative = torch.ones_like(cosines, dtype=torch.bool)
    for identity in identities:
        if identity is not None:
            negative &= identity[:, None] != gather_rows(identity)[0]
    negative = negative.scatter(1, positives, False)
    hinges = (margin - cosines.gather(1, positives) + cosines).clamp_min(0).masked_fill(~negative, 0.0)
    hardest = cosines.detach().masked_fill(~negative, -torch.inf).argmax(1, keepdim=True)
    loss = hinges.gather(1, hardest).sum()
    if negatives > 1:
        lots = torch.rand_like(cosines).masked_fill(~negative.scatter(1, hardest, False), -1.0)
        sampled = lots.topk(min(negatives - 1, lots.shape[1]))
        loss = loss + (hinges.gather(1, sampled.indices) * (sampled.values >= 0)).sum()
    return loss


class TripletRanking(SentenceObjective):
    """Separate translations from hard and random negatives by a margin (supervised dual pivot)."""

    Settings = TripletRankingSettings

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the mean of h over the batch."""
        options = (self.settings.margin, self.settings.negatives, pairs.source_identity, pairs.target_identity)
        return triplet_ranking_loss(pairs.source, pairs.target, *options)
