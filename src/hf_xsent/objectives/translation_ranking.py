"""Translation ranking (TR): each sentence picks its translation among all targets of the batch (DAP eq. 5)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.gathering import gather_rows, mean_over_processes, sum_over_processes
from hf_xsent.objectives.pairs import SentenceObjective, SentencePairs
from hf_xsent.objectives.vocabulary import vocabulary_cross_entropy

LOGITS_AT_A_TIME = 1 << 21  # 8 MiB: those of batches of thousands would take more memory than a chunk of the encoder


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
    target of pair i is no negative of i. Logits are float32, also under autocast. With several processes, the targets
    (and sources, if ``symmetric``) of all of them are ranked, each process its own rows.
    """
    count = sum_over_processes(torch.tensor(len(source), device=source.device))
    loss = _ranking(source, target, (source_identity, target_identity), temperature, margin, margin_before_temperature)
    if symmetric:
        identities = (target_identity, source_identity)
        loss = (loss + _ranking(target, source, identities, temperature, margin, margin_before_temperature)) / 2
    return mean_over_processes(loss, count)


def _ranking(
    asking: Tensor,
    answering: Tensor,
    identities: tuple[Tensor | None, Tensor | None],
    temperature: float,
    margin: float,
    margin_before_temperature: bool,
) -> Tensor:
    """The sum over this process's rows, each of which ranks the answers of all processes."""
    answering, start = gather_rows(answering)
    known = [(identity, gather_rows(identity)[0]) for identity in identities if identity is not None]
    off = margin / temperature if margin_before_temperature else margin
    right = torch.arange(start, start + len(asking), device=asking.device)

    def mask(logits: Tensor, rows: slice) -> None:
        repeated = torch.zeros_like(logits, dtype=torch.bool)
        for here, everywhere in known:
            repeated |= here[rows, None] == everywhere
        places = right[rows, None]
        logits.masked_fill_(repeated.scatter_(1, places, False), -torch.inf)
        logits.scatter_add_(1, places, logits.new_full(places.shape, -off))

    with torch.autocast(asking.device.type, enabled=False):
        asking, answering = (
            F.normalize(x if x.dtype == torch.float64 else x.float(), dim=-1) for x in (asking, answering)
        )
        none = answering.new_zeros(len(answering))
        return vocabulary_cross_entropy(
            asking / temperature, answering, none, right, LOGITS_AT_A_TIME, change=mask, once=False
        )


class TranslationRanking(SentenceObjective):
    """TR as an objective of a model: its settings, and which part of the encoded pairs it reads."""

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

    def forward(self, pairs: SentencePairs) -> Tensor:
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
