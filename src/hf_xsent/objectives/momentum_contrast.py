"""Momentum contrast (MoCo): each sentence picks its translation's key from a long queue of others (PPA, section 2.1).

The query encoder learns; the momentum encoder follows it slowly (eq. 1), so that keys of many steps can be compared.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hf_xsent.errors import ModelError
from hf_xsent.objectives.gathering import gather_rows, mean_over_processes, sum_over_processes
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs


def momentum_contrast_loss(
    queries: Tensor, keys: Tensor, queue: Tensor, temperature: float = 0.05, repeated: Tensor | None = None
) -> Tensor:
    """InfoNCE (eq. 3): mean over the rows of -log softmax(query · [own key, queue] / temperature) at the own key.

    All three hold vectors of length 1. ``repeated`` (N × K) says which keys of the queue are no negatives of a query.
    """
    positive = (queries * keys).sum(1, keepdim=True)  # N × 1
    negative = queries @ queue.T  # N × K
    if repeated is not None:
        negative = negative.masked_fill(repeated, -torch.inf)
    logits = torch.cat((positive, negative), 1) / temperature
    first = torch.zeros(len(logits), dtype=torch.long, device=logits.device)
    count = sum_over_processes(torch.tensor(len(logits), device=logits.device))
    return mean_over_processes(F.cross_entropy(logits, first, reduction="sum"), count)


class MomentumContrast(SentenceObjective):
    """The projection head, the momentum copies of encoder and head, and the queue of K keys.

    It reads the sources' vectors, as queries, and ``pairs.keys``, what ``key_encoder`` makes of the targets. The keys
    of a step enter the queue after it, those of all processes in the same order: call ``end_step`` once after each step
    of the optimizer. The queue starts random, and the same everywhere.
    """

    vectors = frozenset(("source",))
    queue: Tensor  # K × projection, each of length 1
    identities: Tensor  # K × 2: of both sentences of the key's pair
    pointer: Tensor  # where the next key goes

    def __init__(
        self,
        key_encoder: nn.Module,
        width: int,
        projection: int = 300,
        queue_size: int = 32_000,
        momentum: float = 0.999,
        temperature: float = 0.05,
        mask_repeated: bool = True,
    ) -> None:
        super().__init__()
        self.momentum = momentum
        self.temperature = temperature
        self.mask_repeated = mask_repeated
        self.projection = _projection(width, projection)
        self.key_projection = _projection(width, projection)
        self.key_encoder: Any = key_encoder
        self.register_buffer("queue", torch.empty(queue_size, projection))
        self.register_buffer("identities", torch.empty(queue_size, 2, dtype=torch.long))
        self.register_buffer("pointer", torch.zeros((), dtype=torch.long))
        self._waiting: list[tuple[Tensor, Tensor]] = []
        self.freeze_keys()

    def freeze_keys(self) -> None:
        """No optimizer touches the key side."""
        self.key_encoder.requires_grad_(False)
        self.key_projection.requires_grad_(False)

    def random_queue(self) -> Tensor:
        """K vectors of length 1 in random directions."""
        drawn = torch.randn(self.queue.shape, generator=torch.Generator().manual_seed(0))
        return F.normalize(drawn, dim=1)

    @torch.no_grad()
    def start_from(self, encoder: nn.Module) -> None:
        """Make the momentum encoder and its head copies of the query side."""
        self.key_encoder.load_state_dict(encoder.state_dict())
        self.key_projection.load_state_dict(self.projection.state_dict())

    def train(self, mode: bool = True) -> MomentumContrast:
        """As any module's, but keys are made without dropout."""
        super().train(mode)
        self.key_encoder.eval()
        return self

    def forward(self, pairs: SentencePairs) -> Tensor:
        """The loss of the batch; in training, its keys wait for the end of the step."""
        if pairs.keys is None:
            raise ModelError("momentum contrast needs the momentum encoder's vectors of the targets: pass them as keys")
        with torch.autocast(pairs.source.device.type, enabled=False):
            kind = torch.promote_types(pairs.source.dtype, torch.float32)
            queries = F.normalize(self.projection(pairs.source.to(kind)), dim=1)  # eq. 2
            with torch.no_grad():
                keys = F.normalize(self.key_projection(pairs.keys.to(kind)), dim=1)
            identities = torch.stack((pairs.source_identity, pairs.target_identity), 1)
            repeated = self._repeated(identities) if self.mask_repeated else None
            loss = momentum_contrast_loss(queries, keys, self.queue.to(kind), self.temperature, repeated)
        if self.training:
            self._waiting.append((keys, identities))
        return loss

    def _repeated(self, identities: Tensor) -> Tensor:
        """N × K: a sentence of the query's pair is one of the key's pair."""
        same = [own[:, None] == queued for own in identities.T for queued in self.identities.T]
        return torch.stack(same).any(0)

    @torch.no_grad()
    def end_step(self, encoder: nn.Module) -> None:
        """θ_k ← m θ_k + (1 - m) θ_q (eq. 1), then the keys of the step replace the oldest."""
        queries = chain(encoder.parameters(), self.projection.parameters())
        keys = chain(self.key_encoder.parameters(), self.key_projection.parameters())
        for query, key in zip(queries, keys, strict=True):
            if query.requires_grad:  # what is frozen is equal still
                key.lerp_(query.to(key), 1 - self.momentum)
        if self._waiting:
            own_keys, own_identities = (torch.cat(some) for some in zip(*self._waiting, strict=True))
            self._waiting.clear()
            self._enqueue(gather_rows(own_keys)[0], gather_rows(own_identities)[0])

    def _enqueue(self, keys: Tensor, identities: Tensor) -> None:
        """Write from the pointer on, around the end of the queue as often as need be."""
        size = len(self.queue)
        places = (self.pointer + torch.arange(len(keys), device=keys.device)) % size
        self.queue[places[-size:]] = keys[-size:].to(self.queue.dtype)
        self.identities[places[-size:]] = identities[-size:]
        self.pointer.copy_((self.pointer + len(keys)) % size)


def _projection(width: int, projection: int) -> nn.Sequential:
    """W2 ReLU(W1 x) (eq. 2)."""
    return nn.Sequential(nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, projection, bias=False))
