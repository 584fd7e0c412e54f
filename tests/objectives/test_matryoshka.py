from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from every_objective import sentence_pairs
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import RecipeError
from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.matryoshka import Matryoshka
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.translation_ranking import translation_ranking_loss


def _pairs(count: int = 5, width: int = 8) -> SentencePairs:
    source, target = torch.randn(2, count, width, dtype=torch.float64)
    return sentence_pairs(source, target)


def _loss(pairs: SentencePairs, dims: list[int], **settings: Any) -> Tensor:
    settings = {"dims": dims, **settings}
    return Matryoshka(Matryoshka.Settings(**settings), cast(Parts, None)).sentence_loss(pairs)  # it builds nothing


def test_the_loss_is_the_mean_over_the_widths_of_cut_and_scaled_vectors() -> None:
    pairs = _pairs()

    def by_hand(width: int) -> Tensor:
        source, target = (F.normalize(one[:, :width], dim=1) for one in (pairs.source, pairs.target))
        return F.cross_entropy(source @ target.T / 0.1, torch.arange(5))

    expected = (by_hand(8) + by_hand(4) + by_hand(1)) / 3
    torch.testing.assert_close(_loss(pairs, [8, 4, 1], temperature=0.1), expected)


def test_repeated_sentences_stay_masked_at_every_width() -> None:
    pairs = _pairs(2)
    same = replace(pairs, source_identity=torch.zeros(2))
    assert _loss(same, [8, 2]).item() == 0


def test_the_settings_of_translation_ranking_apply_at_every_width() -> None:
    pairs = _pairs()
    settings: dict[str, Any] = {"temperature": 0.2, "margin": 0.3, "symmetric": True}
    cut = [translation_ranking_loss(pairs.source[:, :n], pairs.target[:, :n], **settings) for n in (8, 3)]
    torch.testing.assert_close(_loss(pairs, [8, 3], **settings), torch.stack(cut).mean())


@pytest.mark.parametrize(
    ("dims", "error"),
    [
        (None, r"^objectives\.matryoshka\.dims is missing: list the widths, such as \[384, 256, 128\]$"),
        ([8, 9], r"^objectives\.matryoshka\.dims has 9, but this encoder's embeddings have 8 dimensions$"),
    ],
)
def test_widths_that_do_not_exist_are_an_error(dims: list[int] | None, error: str) -> None:
    config = SimpleNamespace(encoder_config=SimpleNamespace(hidden_size=8))
    with pytest.raises(RecipeError, match=error):
        Matryoshka.check(Matryoshka.Settings(dims=dims), config)
    Matryoshka.check(Matryoshka.Settings(dims=[8, 1]), config)
