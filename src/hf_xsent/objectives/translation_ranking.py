"""Translation ranking (TR): rank each sentence's translation among all targets of the batch (DAP eq. 5).

    L_TR = -1/N Σ_i log( exp(cos(x_i, y_i)/τ - m) / (exp(cos(x_i, y_i)/τ - m) + Σ_{j≠i} exp(cos(x_i, y_j)/τ)) )

>>> source, target = torch.eye(3)[:2], torch.tensor([[1.0, 1, 0], [0, 1, 0]])
>>> logits = F.normalize(source, dim=1) @ F.normalize(target, dim=1).T / 0.05
>>> plain = (logits.logsumexp(1) - logits.diagonal()).mean()
>>> torch.allclose(translation_ranking_loss(source, target), plain)
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declaring import setting
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy
from hf_xsent.tensors.gathering import gather_rows, mean_over_rows

LOGITS_AT_ONCE = 1 << 21  # 8 MiB; the N × N logits of a large batch need more memory than a chunk of gradient caching


@dataclass(frozen=True)
class TranslationRankingSettings(ObjectiveSettings):
    """The settings of translation ranking."""

    temperature: float = setting(0.05, "Divide cosines by this; a lower value weights hard negatives more.", above=0)
    margin: float = setting(
        0.0,
        "Subtract this from the translation's logit, which is cosine / temperature. For a margin on the cosine, such "
        "as LaBSE's 0.3, give 0.3 / temperature.",
    )
    symmetric: bool = setting(False, "Average the losses of both directions, source to target and target to source.")
    mask_repeated: bool = setting(True, "Exclude copies of a pair's own sentences from its negatives.")


def translation_ranking_loss(
    source: Tensor,
    target: Tensor,
    temperature: float = 0.05,
    margin: float = 0.0,
    symmetric: bool = False,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
) -> Tensor:
    """Compute L_TR, the mean over the pairs.

    The margin is subtracted after the division by the temperature, as in the authors' code. ``symmetric`` averages both
    directions. With identities, a pair that repeats the source or the target of pair i is not a negative of i. Logits
    are float32, also under autocast. Each process ranks its own queries against the candidates of all processes.
    """
    identities = [one for one in (source_identity, target_identity) if one is not None]
    loss = _ranking(source, target, identities, temperature, margin)
    if symmetric:
        loss = (loss + _ranking(target, source, identities, temperature, margin)) / 2
    return mean_over_rows(loss, source)


def _ranking(
    queries: Tensor, candidates: Tensor, identities: Sequence[Tensor], temperature: float, margin: float
) -> Tensor:
    """Return the sum over this process's queries of -log softmax at their positives among all processes' candidates."""
    candidates, first = gather_rows(candidates)
    repeats = [(identity, gather_rows(identity)[0]) for identity in identities]
    positives = torch.arange(first, first + len(queries), device=queries.device)[:, None]

    def edit_logits(logits: Tensor, rows: slice) -> None:
        """Mask repeats of the query's pair and subtract the margin from the positive, in place."""
        repeated = torch.zeros_like(logits, dtype=torch.bool)
        for own, everywhere in repeats:
            repeated |= own[rows, None] == everywhere
        logits.masked_fill_(repeated.scatter_(1, positives[rows], False), -torch.inf)
        logits.scatter_add_(1, positives[rows], logits.new_full(positives[rows].shape, -margin))

    with torch.autocast(queries.device.type, enabled=False):
        queries, candidates = _normalized(queries) / temperature, _normalized(candidates)
        if len(queries) * len(candidates) > LOGITS_AT_ONCE:
            zero_bias = candidates.new_zeros(len(candidates))
            return chunked_cross_entropy(
                queries, candidates, zero_bias, positives.squeeze(1), LOGITS_AT_ONCE, edit_logits=edit_logits
            )
        logits = queries @ candidates.T
        edit_logits(logits, slice(None))
        return (logits.logsumexp(1, keepdim=True) - logits.gather(1, positives)).sum()


def _normalized(vectors: Tensor) -> Tensor:
    return F.normalize(vectors if vectors.dtype == torch.float64 else vectors.float(), dim=-1)


class TranslationRanking(SentenceObjective):
    """Rank each source's translation among all targets of the batch, by the cosine of sentence embeddings (TR)."""

    Settings = TranslationRankingSettings

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_TR of the batch."""
        one = self.settings
        identities = (pairs.source_identity, pairs.target_identity) if one.mask_repeated else (None, None)
        settings = (one.temperature, one.margin, one.symmetric)
        return translation_ranking_loss(pairs.source, pairs.target, *settings, *identities)
