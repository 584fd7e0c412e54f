"""Unsupervised dual pivot: a critic that tells languages apart, and maps between them that return where they began.

Both read sentences of two languages that need not translate each other: row i of one side says nothing of the other's.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.gathering import mean_over_processes, sum_over_processes
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs
from hf_xsent.objectives.triplet import triplet_ranking_loss


class Adversarial(SentenceObjective):
    """L_adv = -L_disc, with L_disc = d(source) - d(target) as in Wasserstein GANs; d is linear.

    The loss moves what makes the sentence vectors. The critic d is moved by ``critic_loss`` alone, with an optimizer
    and steps of its own: to all others its weights are constants.
    """

    def __init__(self, width: int, clip: float | None = None, penalty: float | None = None) -> None:
        super().__init__()
        self.critic = nn.Linear(width, 1, bias=False).requires_grad_(False)
        self.clip = clip
        self.penalty = penalty

    def forward(self, pairs: SentencePairs) -> Tensor:
        """L_adv of the batch."""
        return -score_difference(pairs.source, pairs.target, self.critic.weight.detach())

    def critic_loss(self, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """L_disc with this weight of the critic; a gradient penalty pulls the length of its gradient to 1.

        A linear critic has the same gradient everywhere, its weight: there is nothing to interpolate.
        """
        loss = score_difference(source.detach(), target.detach(), weight)
        return loss if self.penalty is None else loss + self.penalty * (weight.norm() - 1).square()

    @torch.no_grad()
    def clip_critic(self) -> None:
        """Keep each weight of the critic within ``clip`` of zero."""
        if self.clip is not None:
            self.critic.weight.clamp_(-self.clip, self.clip)


def score_difference(source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Mean of d over the sources minus mean of d over the targets, of all processes."""
    count = sum_over_processes(torch.tensor(len(source), device=source.device))
    difference = F.linear(source, weight.to(source.dtype)).sum() - F.linear(target, weight.to(target.dtype)).sum()
    return mean_over_processes(difference, count)


class CycleConsistency(SentenceObjective):
    """L_cycle = h(s, G(F(s))) + h(F(G(t)), t): a sentence is found again after both maps; h is the triplet ranking."""

    def __init__(self, width: int, margin: float = 0.0, negatives: int = 1) -> None:
        super().__init__()
        self.to_target = nn.Linear(width, width, bias=False)
        self.to_source = nn.Linear(width, width, bias=False)
        self.margin = margin
        self.negatives = negatives

    def forward(self, pairs: SentencePairs) -> Tensor:
        """L_cycle of the batch."""
        source, target = pairs.source, pairs.target
        source_again = self.to_source(self.to_target(source))
        target_again = self.to_target(self.to_source(target))
        of_source = triplet_ranking_loss(source, source_again, self.margin, self.negatives, pairs.source_identity)
        of_target = triplet_ranking_loss(target_again, target, self.margin, self.negatives, pairs.target_identity)
        return of_source + of_target
