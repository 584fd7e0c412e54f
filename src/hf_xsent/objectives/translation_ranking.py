"""Translation ranking (TR): rank each sentence's translation among all targets of the batch (DAP eq. 5).

    L_TR = -1/N Σ_i log( exp(cos(x_i, y_i)/τ - m) / (exp(cos(x_i, y_i)/τ - m) + Σ_{j≠i} exp(cos(x_i, y_j)/τ)) )

With ``own_side``, the sum also has exp(cos(x_i, x_j)/τ), j ≠ i: the other sentences of the query's own side, as in
InfoXLM and GTE. Its translation must then also be nearer than unrelated sentences of the same language.

>>> source, target = torch.eye(3)[:2], torch.tensor([[1.0, 1, 0], [0, 1, 0]])
>>> logits = F.normalize(source, dim=1) @ F.normalize(target, dim=1).T / 0.05
>>> plain = (logits.logsumexp(1) - logits.diagonal()).mean()
>>> torch.allclose(translation_ranking_loss(source, target), plain)
True
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.base import SentenceObjective
from hf_xsent.objectives.pairs import SentencePairs, share_sentence
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import setting
from hf_xsent.tensors.chunked_softmax import chunked_cross_entropy
from hf_xsent.tensors.gathering import gather_rows, mean_over_rows

Negatives = tuple[Tensor, Tensor]  # M × d embeddings, M identities
LOGITS_AT_ONCE = 1 << 21  # 8 MiB: the logits of a large batch are computed in blocks to save memory


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
    own_side: bool = setting(
        False,
        "Rank against the other sentences of the query's side, too, so that the nearest neighbours of a sentence are "
        "not all in the language of the query.",
    )
    mask_repeated: bool = setting(True, "Pairs that share a sentence are not negatives of each other.")
    hard_negatives: int = setting(
        0,
        "Number of mined negatives per pair (hf-xsent mine-negatives). They are candidates for all pairs of the batch, "
        "and are encoded in each step.",
        at_least=0,
    )


def translation_ranking_loss(
    source: Tensor,
    target: Tensor,
    temperature: float = 0.05,
    margin: float = 0.0,
    symmetric: bool = False,
    source_identity: Tensor | None = None,
    target_identity: Tensor | None = None,
    source_negatives: Negatives | None = None,
    target_negatives: Negatives | None = None,
    own_side: bool = False,
) -> Tensor:
    """Compute L_TR, the mean over the pairs.

    The margin is subtracted after the division by the temperature, as in the authors' code. ``symmetric`` averages both
    directions. With identities, a pair that shares a sentence with pair i is not a negative of i. With ``own_side``,
    the other sentences of the query's side are further candidates. Mined negatives of all pairs are further candidates
    of each query, except copies of the sentences of its pair. Logits are at least float32, also under autocast. Each
    process ranks its own queries against the candidates of all processes.
    """
    identities = [identity for identity in (source_identity, target_identity) if identity is not None]
    source, target = _scaled(source, temperature), _scaled(target, temperature)
    with torch.autocast(source.device.type, enabled=False):
        options = identities, temperature, margin, own_side
        loss = _ranking(source, target, *options, target_negatives)
        if symmetric:
            loss = (loss + _ranking(target, source, *options, source_negatives)) / 2
    return mean_over_rows(loss, source)


def _scaled(vectors: Tensor, temperature: float) -> Tensor:
    """Normalize vectors to the length τ^-½: the product of two of them is their cosine / τ."""
    return F.normalize(vectors if vectors.dtype == torch.float64 else vectors.float(), dim=-1) / temperature**0.5


def _ranking(
    queries: Tensor,
    candidates: Tensor,
    identities: list[Tensor],
    temperature: float,
    margin: float,
    own_side: bool,
    negatives: Negatives | None,
) -> Tensor:
    """Return the cross-entropy of this process's scaled queries, summed; the candidates are those of all processes."""
    candidates, first = gather_rows(candidates)
    positives = torch.arange(first, first + len(queries), device=queries.device)[:, None]
    pairs = torch.stack(identities, 1) if identities else positives  # or no pair shares a sentence
    of_candidates, _ = gather_rows(pairs)
    if own_side:
        candidates, of_candidates = torch.cat((candidates, gather_rows(queries)[0])), of_candidates.repeat(2, 1)
    if negatives is not None:
        identity = gather_rows(negatives[1] if identities else torch.full_like(negatives[1], -1))[0][:, None]
        of_candidates = torch.cat((of_candidates, identity.expand(-1, pairs.shape[1])))
        candidates = torch.cat((candidates, gather_rows(_scaled(negatives[0], temperature))[0].to(candidates.dtype)))

    def edit_logits(logits: Tensor, rows: slice) -> None:
        """Mask repeats of the query's pair and subtract the margin from the positive, in place."""
        repeated = share_sentence(pairs[rows], of_candidates)
        logits.masked_fill_(repeated.scatter_(1, positives[rows], False), -torch.inf)
        logits.scatter_add_(1, positives[rows], logits.new_full(positives[rows].shape, -margin))

    if len(queries) * len(candidates) > LOGITS_AT_ONCE:
        zero_bias = candidates.new_zeros(len(candidates))
        labels = positives.squeeze(1)
        return chunked_cross_entropy(queries, candidates, zero_bias, labels, LOGITS_AT_ONCE, edit_logits)
    logits = queries @ candidates.T
    edit_logits(logits, slice(None))
    return (logits.logsumexp(1, keepdim=True) - logits.gather(1, positives)).sum()


class TranslationRanking(SentenceObjective):
    """Rank each source's translation among all targets of the batch, by the cosine of sentence embeddings (TR)."""

    Settings = TranslationRankingSettings

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if hard_negatives do not fit the model's other settings."""
        if settings.hard_negatives and config.freezes_encoder:
            raise RecipeError("hard_negatives need an encoder that trains, and this method freezes it: remove them")
        if settings.hard_negatives and config.random_input_shuffling:
            raise RecipeError(
                "random_input_shuffling swaps the sides of pairs, but not of hard_negatives: use only one of the two"
            )

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute L_TR of the batch."""
        settings = self.settings
        return translation_ranking_loss(
            pairs.source,
            pairs.target,
            settings.temperature,
            settings.margin,
            settings.symmetric,
            pairs.source_identity if settings.mask_repeated else None,
            pairs.target_identity if settings.mask_repeated else None,
            pairs.first_negatives("source", settings.hard_negatives),
            pairs.first_negatives("target", settings.hard_negatives),
            settings.own_side,
        )
