"""Triplet ranking: a translation is closer than the hardest and a few random others, by a margin (dual pivot, h)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.gathering import gather_rows, mean_over_processes, sum_over_processes
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs


def triplet_ranking_loss(
    source: Tensor,
    target: Tensor,
    margin: float = 0.0,
    negatives: int = 1,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
) -> Tensor:
    """Mean over the pairs of h(a, b) = Σ max(0, α - sim(a, b) + sim(aₙ, b)) + max(0, α - sim(a, b) + sim(a, bₙ)).

    ``sim`` is the cosine. Of the n = ``negatives`` of each direction one is the hardest of the batch, the others are
    drawn among the rest. Where identities are given, another pair that repeats the source or the target of pair i is no
    negative of i. With several processes, each ranks its own rows against those of all.
    """
    count = sum_over_processes(torch.tensor(len(source), device=source.device))
    identities = (source_identity, target_identity)
    with torch.autocast(source.device.type, enabled=False):
        source, target = (F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1) for x in (source, target))
        loss = _hinges(source, target, identities, margin, negatives)
        loss = loss + _hinges(target, source, identities, margin, negatives)
    return mean_over_processes(loss, count)


def _hinges(
    asking: Tensor, answering: Tensor, identities: tuple[Tensor | None, Tensor | None], margin: float, negatives: int
) -> Tensor:
    """The sum over this process's rows, which have length 1, of what their negatives cost."""
    answering, start = gather_rows(answering)
    scores = asking @ answering.T
    right = torch.arange(start, start + len(asking), device=asking.device)[:, None]
    wrong = torch.ones_like(scores, dtype=torch.bool)
    for identity in identities:
        if identity is not None:
            wrong &= identity[:, None] != gather_rows(identity)[0]
    wrong = wrong.scatter(1, right, False)
    costs = (margin - scores.gather(1, right) + scores).clamp_min(0).masked_fill(~wrong, 0.0)
    hardest = scores.detach().masked_fill(~wrong, -torch.inf).argmax(1, keepdim=True)
    loss = costs.gather(1, hardest).sum()
    if negatives > 1:
        lots = torch.rand_like(scores).masked_fill(~wrong.scatter(1, hardest, False), -1.0)
        drawn = lots.topk(min(negatives - 1, lots.shape[1]))
        loss = loss + (costs.gather(1, drawn.indices) * (drawn.values >= 0)).sum()
    return loss


class TripletRanking(SentenceObjective):
    """Supervised dual pivot: h of the sentences and their translations."""

    def __init__(self, margin: float = 0.0, negatives: int = 1) -> None:
        super().__init__()
        self.margin = margin
        self.negatives = negatives

    def forward(self, pairs: SentencePairs) -> Tensor:
        """The loss of the batch."""
        return triplet_ranking_loss(
            pairs.source, pairs.target, self.margin, self.negatives, pairs.source_identity, pairs.target_identity
        )
