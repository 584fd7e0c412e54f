"""Unsupervised dual pivot: a critic that distinguishes two languages, and cycle-consistent maps between them.

    L_disc = d(y_s) - d(y_t), d linear (Wasserstein);    L_adv = -L_disc                          (section 3.2)
    L_cycle = h(y_s, G(F(y_s))) + h(F(G(y_t)), y_t), h the triplet ranking;    L = L_adv + λ L_cycle

y_s and y_t are embeddings of source and target sentences, which may be unpaired: the loss does not use the order of
rows. h is the loss that ``triplet.py`` computes, a mean of costs instead of the paper's sum; L_cycle is the sum of two
such means, and λ is its weight. d, F and G are linear maps; in the variant ``authors``, they have biases, and dropout
on their outputs.

>>> source, target, d = torch.eye(2), torch.ones(2, 2), torch.tensor([0.5, 1.0])
>>> score_difference(source, target, lambda vectors: vectors @ d).item()  # mean of 0.5 and 1.0, minus mean of 1.5, 1.5
-0.75
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector

from hf_xsent.objectives.base import SIDES, Needs, Parts, SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.objectives.triplet import TripletRankingSettings, ranking_loss
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.gathering import mean_over_rows, process_count, sum_over_processes

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # of the critic's Adam


@dataclass(frozen=True)
class AdversarialSettings(ObjectiveSettings):
    """The settings of the critic."""

    critic_steps: int = setting(
        2, "Steps of the critic before each step of the other weights (κ in the paper).", at_least=1
    )


@dataclass(frozen=True)
class CycleConsistencySettings(TripletRankingSettings):
    """The settings of the triplet ranking in the cycle; the weight is λ."""

    weight: float = setting(
        1.0, "Weight of this loss (λ in the paper). The loss is the sum of the mean costs of both sides.", above=0
    )
    margin: float = setting(
        0.0,
        "Margin (α in the paper). The positive of a sentence is its round trip: the sentence mapped to the other "
        "language and back. With hinge: the cosine to the positive must exceed the cosine to a negative by this much. "
        "Without: drop random negatives whose cosine is lower than the positive's by more than this.",
    )


class Adversarial(SentenceObjective):
    """Train dual pivot's embeddings so that a critic cannot distinguish two languages (L_adv).

    The encoder is frozen; the weights of the sum over its layers, and the linear map after it, are trained. The critic
    d has its own steps on each batch, by Adam, before the step of the other weights; Adam's state is in buffers, so
    that checkpoints have it.
    """

    Settings = AdversarialSettings
    needs = Needs(embeddings=SIDES, pairs=False, frozen_encoder=True, critic=True)

    moments: Tensor  # 2 × P: Adam's moving averages of the gradient and its square, of all P weights of the critic
    steps_taken: Tensor

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        self.critic = parts.linear_map(1).requires_grad_(False)  # which the main optimizer must not change
        count = sum(weight.numel() for weight in self.critic.parameters())
        self.register_buffer("moments", torch.zeros(2, count))
        self.register_buffer("steps_taken", torch.zeros((), dtype=torch.long))

    def initial_tensors(self) -> Mapping[str, Tensor]:
        """Return the state of an optimizer that took no step."""
        return {name: torch.zeros_like(buffer) for name, buffer in self.named_buffers(recurse=False)}

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_adv of the batch."""
        frozen = {name: weight.detach() for name, weight in self.critic.named_parameters()}
        return -self._difference(pairs.source, pairs.target, frozen)

    def critic_loss(self, source: Tensor, target: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        """Compute L_disc for a critic with these weights, which may require gradients."""
        return self._difference(source.detach(), target.detach(), weights)

    def _difference(self, source: Tensor, target: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
        return score_difference(source, target, lambda vectors: functional_call(self.critic, dict(weights), (vectors,)))

    def train_critic(self, embed: Callable[[], SentencePairs], learning_rate: float) -> None:
        """Take the critic's steps on a batch; each embeds the batch again, with other dropout."""
        for _ in range(self.settings.critic_steps):
            with torch.no_grad():
                pairs = embed()
            self._step(self.critic_gradient(pairs), learning_rate)

    @torch.enable_grad()
    def critic_gradient(self, pairs: SentencePairs) -> Tensor:
        """Return the gradient of L_disc for all weights of the critic (P), averaged over processes."""
        weights = {name: weight.detach().requires_grad_() for name, weight in self.critic.named_parameters()}
        dtype = next(iter(weights.values())).dtype
        with torch.autocast(pairs.source.device.type, enabled=False):
            loss = self.critic_loss(pairs.source.to(dtype), pairs.target.to(dtype), weights)
        gradient = parameters_to_vector(torch.autograd.grad(loss, [*weights.values()]))
        return sum_over_processes(gradient) / process_count()

    @torch.no_grad()
    def _step(self, gradient: Tensor, learning_rate: float) -> None:
        """Take a step of Adam with torch's defaults."""
        self.steps_taken += 1
        count, (first, second) = int(self.steps_taken), self.moments.unbind()
        first.lerp_(gradient, 1 - _BETAS[0])
        second.mul_(_BETAS[1]).addcmul_(gradient, gradient, value=1 - _BETAS[1])
        corrections = [1 - beta**count for beta in _BETAS]
        denominator = (second.sqrt() / corrections[1] ** 0.5).add_(_EPSILON)
        weights = parameters_to_vector(self.critic.parameters())
        weights.addcdiv_(first, denominator, value=-learning_rate / corrections[0])
        sizes = [weight.numel() for weight in self.critic.parameters()]
        for weight, values in zip(self.critic.parameters(), weights.split(sizes), strict=True):
            weight.copy_(values.view_as(weight))


def score_difference(source: Tensor, target: Tensor, critic: Callable[[Tensor], Tensor]) -> Tensor:
    """Return mean d(source) - mean d(target); both are means over all processes."""
    return mean_over_rows(critic(source).sum() - critic(target).sum(), source)


class CycleConsistency(SentenceObjective):
    """Triplet ranking: an embedding's positive is itself, mapped to the other language and back (L_cycle)."""

    Settings = CycleConsistencySettings
    needs = Needs(embeddings=SIDES, pairs=False, frozen_encoder=True)

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        width = parts.encoder_config.hidden_size
        self.to_target = parts.linear_map(width)  # F
        self.to_source = parts.linear_map(width)  # G

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_cycle of the batch."""
        source_cycled = self.to_source(self.to_target(pairs.source))
        target_cycled = self.to_target(self.to_source(pairs.target))
        of_source = ranking_loss(self.settings, pairs.source, source_cycled, pairs.source_identity)
        of_target = ranking_loss(self.settings, pairs.target, target_cycled, pairs.target_identity)
        return of_source + of_target
