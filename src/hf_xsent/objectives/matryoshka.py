"""Matryoshka representations (Kusupati et al., 2022): train embeddings that can be truncated.

L = 1/|D| Σ_{n in D} L_TR(x[:n], y[:n]), translation ranking of embeddings truncated to each width n.

>>> x, y = torch.randn(3, 4), torch.randn(3, 4)
>>> plain = (translation_ranking_loss(x, y) + translation_ranking_loss(x[:, :2], y[:, :2])) / 2
>>> torch.allclose(matryoshka_loss(translation_ranking_loss, x, y, [4, 2]), plain)
True
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.translation_ranking import (
    TranslationRanking,
    TranslationRankingSettings,
    translation_ranking_loss,  # noqa: F401 - for the docstring's computation
)
from hf_xsent.settings.declare import setting


def matryoshka_loss(
    loss: Callable[[Tensor, Tensor], Tensor], source: Tensor, target: Tensor, dims: Sequence[int]
) -> Tensor:
    """Compute the mean of a loss over embeddings truncated to each width."""
    return torch.stack([loss(source[:, :n], target[:, :n]) for n in dims]).mean()


@dataclass(frozen=True)
class MatryoshkaSettings(TranslationRankingSettings):
    """The settings of translation ranking over several widths."""

    dims: list[int] | None = setting(
        None,
        "Widths to which embeddings are truncated, such as 384 256 128 64; the loss is the mean over widths. "
        "Include the full width.",
        at_least=1,
    )


class Matryoshka(TranslationRanking):
    """Average translation ranking over truncated embeddings; use it instead of translation_ranking."""

    Settings = MatryoshkaSettings

    @classmethod
    def check(cls, settings: Any, config: Any) -> None:
        """Raise an error if dims is missing or contains a width above that of the embeddings."""
        super().check(settings, config)
        width = config.encoder_config.hidden_size
        if not settings.dims:
            raise RecipeError("objectives.matryoshka.dims is missing: list the widths, such as [384, 256, 128]")
        for dim in settings.dims:
            if dim > width:
                raise RecipeError(
                    f"objectives.matryoshka.dims has {dim}, but this encoder's embeddings have {width} dimensions"
                )

    def sentence_loss(self, pairs: SentencePairs) -> Tensor:
        """Compute the mean of L_TR over the widths."""

        def ranking(source: Tensor, target: Tensor) -> Tensor:
            return super(Matryoshka, self).sentence_loss(pairs.truncated(source.shape[1]))

        return matryoshka_loss(ranking, pairs.source, pairs.target, self.settings.dims)
