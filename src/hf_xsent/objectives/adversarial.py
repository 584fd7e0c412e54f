"""Unsupervised dual pivot: a critic that distinguishes two languages, and cycle-consistent maps between them.

    L_disc = d(y_s) - d(y_t), d linear (Wasserstein);    L_adv = -L_disc                          (section 3.2)
    L_cycle = h(y_s, G(F(y_s))) + h(F(G(y_t)), y_t), h the triplet ranking;    L = L_adv + λ L_cycle

The sentences of the two languages are unpaired: row i of one side is unrelated to row i of the other.

>>> source, target, d = torch.eye(2), torch.ones(2, 2), torch.tensor([[0.5, 1.0]])
>>> torch.allclose(score_difference(source, target, d), (source @ d.T).mean() - (target @ d.T).mean())
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.objectives.base import SIDES, Needs, Parts, SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.objectives.triplet import TripletRankingSettings, triplet_ranking_loss
from hf_xsent.settings.declaring import setting
from hf_xsent.tensors.gathering import mean_over_rows


@dataclass(frozen=True)
class AdversarialSettings(ObjectiveSettings):
    """The settings of the critic."""

    critic_steps: int = setting(
        2, "Steps of the critic before each step of the other weights (κ in the paper).", at_least=1
    )
    clip: float | None = setting(
        None, "Clamp the critic's weights to [-clip, clip] after each of its steps; without it, no clamping.", above=0
    )


@dataclass(frozen=True)
class CycleConsistencySettings(TripletRankingSettings):
    """The settings of the triplet ranking in the cycle; the weight is λ."""

    margin: float = setting(
        0.0,
        "Margin (α in the paper): the cosine of a sentence and its round trip must exceed a negative's by this much.",
    )


class Adversarial(SentenceObjective):
    """Train dual pivot's mix of layers and linear map so that a critic cannot distinguish two languages (L_adv).

    A separate optimizer trains the critic d by ``critic_loss``.
    """

    Settings = AdversarialSettings
    needs = Needs(embeddings=SIDES, pairs=False, frozen_encoder=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.critic_steps = settings.critic_steps
        self.critic = nn.Linear(parts.encoder_config.hidden_size, 1, bias=False).requires_grad_(False)

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_adv of the batch."""
        return -score_difference(pairs.source, pairs.target, self.critic.weight.detach())

    def critic_loss(self, source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
        """Compute L_disc for a critic with this weight, which may require gradients."""
        return score_difference(source.detach(), target.detach(), weight)

    def freeze(self) -> None:
        """Hide the critic from the main optimizer; its own gets gradients through ``critic_loss(weight=…)``."""
        self.critic.requires_grad_(False)

    @torch.no_grad()
    def clip_critic(self) -> None:
        """Clamp each weight of the critic to [-clip, clip]."""
        if self.settings.clip is not None:
            self.critic.weight.clamp_(-self.settings.clip, self.settings.clip)


def score_difference(source: Tensor, target: Tensor, weight: Tensor) -> Tensor:
    """Return the mean of d over the sources minus its mean over the targets, of all processes."""
    difference = F.linear(source, weight.to(source.dtype)).sum() - F.linear(target, weight.to(target.dtype)).sum()
    return mean_over_rows(difference, source)


class CycleConsistency(SentenceObjective):
    """Map embeddings to the other language and back, and rank each sentence with its round trip (L_cycle)."""

    Settings = CycleConsistencySettings
    needs = Needs(embeddings=SIDES, pairs=False, frozen_encoder=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        width = parts.encoder_config.hidden_size
        self.to_target = nn.Linear(width, width, bias=False)  # F
        self.to_source = nn.Linear(width, width, bias=False)  # G

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_cycle of the batch."""
        source, target, margin, negatives = pairs.source, pairs.target, self.settings.margin, self.settings.negatives
        source_cycled = self.to_source(self.to_target(source))
        target_cycled = self.to_target(self.to_source(target))
        of_source = triplet_ranking_loss(source, source_cycled, margin, negatives, pairs.source_identity)
        of_target = triplet_ranking_loss(target_cycled, target, margin, negatives, pairs.target_identity)
        return of_source + of_target
