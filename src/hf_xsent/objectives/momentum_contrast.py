"""Momentum contrast (MoCo): match a source with its translation's key, against a queue of keys (PPA, section 2.1).

    θ_k ← m θ_k + (1 - m) θ_q                                                                 (eq. 1)
    f(x) = W2 ReLU(W1 x), scaled to length 1                                                  (eq. 2)
    L_MoCo = -1/N Σ log( exp(q·k⁺/τ) / (exp(q·k⁺/τ) + Σ_{k in queue} exp(q·k/τ)) )            (eq. 3)

>>> query, key = torch.tensor([[1.0, 0]]), torch.tensor([[0.6, 0.8]])
>>> queue = torch.tensor([[0.0, 1], [1, 0]])
>>> logits = torch.cat((query @ key.T, query @ queue.T), 1) / 0.05
>>> plain = logits.logsumexp(1) - logits[:, 0]
>>> torch.allclose(momentum_contrast_loss(query, key, queue, temperature=0.05), plain.mean())
True
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.objectives.base import Needs, Parts, PretrainedWeights, SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs, share_sentence
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.gathering import gather_rows, mean_over_rows


@dataclass(frozen=True)
class MomentumContrastSettings(ObjectiveSettings):
    """The settings of momentum contrast."""

    temperature: float = setting(0.05, "Divide cosines by this; a lower value weights hard negatives more.", above=0)
    queue_size: int = setting(
        32_000, "Size of the queue: how many keys of earlier batches serve as negatives (K in the paper).", at_least=1
    )
    momentum: float = setting(
        0.999,
        "After each step, momentum encoder = m × momentum encoder + (1 - m) × encoder; this is m.",
        at_least=0,
        below=1,
    )
    projection: int = setting(300, "Width of queries and keys, the output of the projection head.", at_least=1)
    mask_repeated: bool = setting(True, "Pairs that share a sentence are not negatives of each other.")


def momentum_contrast_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, temperature: float = 0.05, repeated: Tensor | None = None
) -> Tensor:
    """Compute InfoNCE (eq. 3), averaged over the queries; queries, keys and queue are vectors of length 1.

    ``repeated`` (N × K) marks keys of the queue that are not negatives of a query.
    """
    positive = (queries * keys).sum(1, keepdim=True)  # N × 1
    negative = queries @ queue.T  # N × K
    if repeated is not None:
        negative = negative.masked_fill(repeated, -torch.inf)
    logits = torch.cat((positive, negative), 1) / temperature
    return mean_over_rows((logits.logsumexp(1) - logits[:, 0]).sum(), logits)


class MomentumContrast(SentenceObjective):
    """Contrast each translation pair with a queue of K keys from a momentum encoder (MoCo, PPA).

    Queries are projected embeddings of the sources. The momentum encoder embeds the targets, and its
    projection maps these embeddings to the keys. After each step, the keys of all processes enter the queue, so all
    processes have the same queue. It is initialized at random.
    """

    Settings = MomentumContrastSettings
    needs = Needs(embeddings=frozenset(("source",)), momentum_encoder=True)

    queue: Tensor  # K × projection, each of length 1
    identities: Tensor  # K × 2: hashes of both sentences of the key's pair
    pointer: Tensor  # where the next key goes

    def __init__(self, settings: Any, parts: Parts) -> None:
        super().__init__(settings, parts)
        width = parts.encoder_config.hidden_size
        self.projection = _projection(width, settings.projection)
        self.key_projection = _projection(width, settings.projection).requires_grad_(False)
        self.key_encoder: Any = parts.encoder().requires_grad_(False)
        self.register_buffer("queue", torch.empty(settings.queue_size, settings.projection))
        self.register_buffer("identities", torch.empty(settings.queue_size, 2, dtype=torch.long))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self._waiting: list[tuple[Tensor, Tensor]] = []

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error for settings that the momentum encoder does not support."""
        for key in ("languages", "lora_rank", "training_mlp"):
            if getattr(config, key):
                raise RecipeError(
                    f"momentum_contrast does not support the setting {key} in its momentum encoder: remove {key}"
                )

    @classmethod
    def continues(cls, settings: Any, earlier: Any) -> bool:
        """Return False: the queue is not valid for another stage."""
        return False

    @torch.no_grad()
    def start(self, pretrained: PretrainedWeights) -> None:
        """Copy the query encoder and head to the momentum side."""
        self.key_encoder.load_state_dict(pretrained.encoder.state_dict())
        self.key_projection.load_state_dict(self.projection.state_dict())

    def initial_tensors(self) -> dict[str, Tensor]:
        """Return a queue of random directions, the same in every process."""
        random = torch.randn(self.queue.shape, generator=torch.Generator().manual_seed(0))
        empty = {"identities": torch.zeros_like(self.identities), "pointer": torch.zeros_like(self.pointer)}
        return {"queue": F.normalize(random, dim=1), **empty}

    def train(self, mode: bool = True) -> MomentumContrast:
        """Set the training mode; the momentum encoder stays in evaluation mode, without dropout."""
        super().train(mode)
        self.key_encoder.eval()
        return self

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the loss of the batch; in training, collect its keys for the end of the step."""
        if pairs.momentum_target is None:
            raise ModelError(
                "momentum contrast needs the momentum encoder's embeddings of the targets, before projection: pass "
                "momentum_target"
            )
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind, own = torch.promote_types(pairs.source.dtype, torch.float32), next(self.projection.parameters()).dtype
            queries = F.normalize(self.projection(pairs.source.to(own)).to(kind), dim=1)  # eq. 2
            with torch.no_grad():
                keys = F.normalize(self.key_projection(pairs.momentum_target.to(own)).to(kind), dim=1)
            identities = torch.stack((pairs.source_identity, pairs.target_identity), 1)
            repeated = share_sentence(identities, self.identities) if self.settings.mask_repeated else None
            loss = momentum_contrast_loss(queries, keys, self.queue.to(kind), self.settings.temperature, repeated)
        if self.training:
            self._waiting.append((keys, identities))
        return loss

    def begin_training(self) -> None:
        """Discard the keys of an interrupted step."""
        self._waiting.clear()

    @torch.no_grad()
    def end_step(self, encoder: nn.Module) -> None:
        """Update the momentum encoder (eq. 1), then replace the oldest keys by those of the step."""
        queries = chain(encoder.parameters(), self.projection.parameters())
        keys = chain(self.key_encoder.parameters(), self.key_projection.parameters())
        for query, key in zip(queries, keys, strict=True):
            key.lerp_(query.to(key), 1 - self.settings.momentum)
        if self._waiting:
            # Gather each accumulated batch alone: the order is then that of one process with the batches of all.
            gathered = [[gather_rows(tensor)[0] for tensor in of_batch] for of_batch in self._waiting]
            self._waiting.clear()
            self._enqueue(*(torch.cat(batches) for batches in zip(*gathered, strict=True)))

    def _enqueue(self, keys: Tensor, identities: Tensor) -> None:
        """Write keys from the pointer on, wrapping around the end of the queue."""
        size = len(self.queue)
        places = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.queue[places[-size:]] = keys[-size:].to(self.queue.dtype)
        self.identities[places[-size:]] = identities[-size:]
        self.pointer.copy_((self.pointer + len(keys)) % size)


def _projection(width: int, projection: int) -> nn.Sequential:
    """W2 ReLU(W1 x) (eq. 2)."""
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, projection, bias=False))
