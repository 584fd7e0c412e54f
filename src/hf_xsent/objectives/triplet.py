"""Triplet ranking: separate a translation by a margin from the hardest and from random negatives (dual pivot).

    h(a, b) = Σ_k max(0, α - sim(a, b) + sim(a_k, b)) + max(0, α - sim(a, b) + sim(a, b_k))      (section 3.1)

``sim`` is the cosine, and each max(…) the cost of a negative. Each direction has n negatives, k = 1 … n (setting
``negatives``): the hardest of the batch and n - 1 random ones. The loss is the mean of all costs, as in the authors'
code; with n negatives per direction, that is the mean of h over the pairs, divided by 2n. So neither the scale of the
loss nor the effect of its weight depends on n.

With ``hinge=False``, as in the authors' code, a cost is sim(a_k, b) - sim(a, b), without clamping. The margin is then
only a filter: random negatives with a cost below -α are dropped.

>>> a, b = torch.eye(2), torch.tensor([[0.6, 0.8], [0.0, 1.0]])
>>> sim = F.cosine_similarity(a[:, None], b, dim=-1)  # two pairs: the only negative of each is the other
>>> costs = torch.stack([sim[j, k] - sim[i, i] for i in (0, 1) for j, k in ((1 - i, i), (i, 1 - i))])
>>> torch.allclose(triplet_ranking_loss(a, b, margin=0.2), (0.2 + costs).clamp_min(0).mean())
True
>>> torch.allclose(triplet_ranking_loss(a, b, hinge=False), costs.mean())
True
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs, share_sentence
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.gathering import gather_rows, mean_over_processes, sum_over_processes


@dataclass(frozen=True)
class TripletRankingSettings(ObjectiveSettings):
    """The settings of triplet ranking."""

    margin: float = setting(
        0.0,
        "Margin (α in the paper). With hinge: cos(pair) must exceed cos(negative) by this much. Without: drop random "
        "negatives with cos(negative) < cos(pair) - margin.",
    )
    negatives: int = setting(
        1,
        "Negatives of each query (n in the paper): the hardest of the batch, and n - 1 random ones.",
        at_least=1,
    )
    hinge: bool = setting(
        True,
        "Cost of a negative: max(0, margin + cos(negative) - cos(pair)). False: cos(negative) - cos(pair), not clamped "
        "at 0, as in the authors' code.",
    )
    random_negatives: str = setting(
        "exact",
        "How to draw random negatives. exact: n - 1 per sentence. bernoulli: each candidate with probability "
        "(n - 1) / (batch - 1), as in the authors' code. n is the value of the setting `negatives`.",
        choices=("exact", "bernoulli"),
    )
    mask_repeated: bool = setting(True, "Pairs that share a sentence are not negatives of each other.")


def triplet_ranking_loss(
    source: Tensor,
    target: Tensor,
    margin: float = 0.0,
    negatives: int = 1,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
    *,
    hinge: bool = True,
    random_negatives: str = "exact",
) -> Tensor:
    """Compute the mean cost of the selected negatives of all pairs in both directions.

    With identities, a pair that shares a sentence with pair i is not a negative of i. Each process ranks its own
    queries against the candidates of all processes.
    """
    identities = [identity for identity in (source_identity, target_identity) if identity is not None]
    with torch.autocast(source.device.type, enabled=False):
        source, target = (F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1) for x in (source, target))
        total, count = source.new_zeros(()), torch.zeros((), dtype=torch.long, device=source.device)
        for queries, candidates in ((source, target), (target, source)):
            candidates, first = gather_rows(candidates)
            cosines = queries @ candidates.T
            positives = torch.arange(first, first + len(queries), device=queries.device)[:, None]
            pairs = torch.stack(identities, 1) if identities else positives  # or no pair shares a sentence
            negative = ~share_sentence(pairs, gather_rows(pairs)[0])
            costs = cosines - cosines.gather(1, positives)
            hardest = cosines.detach().masked_fill(~negative, -torch.inf).argmax(1, keepdim=True)
            selected = torch.zeros_like(negative).scatter(1, hardest, True)
            if negatives > 1:
                draw = draw_bernoulli if random_negatives == "bernoulli" else draw_exactly
                drawn = draw(negative & ~selected, negatives - 1)
                selected |= drawn if hinge else drawn & (costs + margin >= 0)
            # Drop candidates drawn by draw_bernoulli that are not negatives, and the argmax of a row without negatives.
            selected &= negative
            costs = (margin + costs).clamp_min(0) if hinge else costs
            total, count = total + costs.masked_fill(~selected, 0.0).sum(), count + selected.sum()
    return mean_over_processes(total, sum_over_processes(count))


def draw_exactly(others: Tensor, count: int) -> Tensor:
    """Draw ``count`` of the candidates marked in each row of ``others``, or all if there are fewer; return a mask."""
    lots = torch.rand(others.shape, device=others.device).masked_fill(~others, -1.0)
    drawn = lots.topk(min(count, lots.shape[1])).indices
    return torch.zeros_like(others).scatter(1, drawn, True) & others


def draw_bernoulli(others: Tensor, count: int) -> Tensor:
    """Draw each candidate with probability count / (batch - 1); the caller drops those that are not negatives."""
    return torch.rand(others.shape, device=others.device) < count / max(1, others.shape[1] - 1)


class TripletRanking(SentenceObjective):
    """Separate translations from hard and random negatives by a margin (supervised dual pivot)."""

    Settings = TripletRankingSettings

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the mean cost over the batch."""
        return ranking_loss(self.settings, pairs.source, pairs.target, pairs.source_identity, pairs.target_identity)


def ranking_loss(settings: TripletRankingSettings, source: Tensor, target: Tensor, *identities: Tensor) -> Tensor:
    """Compute the loss with these settings; with mask_repeated, pairs that share a sentence are not negatives."""
    return triplet_ranking_loss(
        source,
        target,
        settings.margin,
        settings.negatives,
        *(identities if settings.mask_repeated else ()),
        hinge=settings.hinge,
        random_negatives=settings.random_negatives,
    )
