from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.objectives.matryoshka import Matryoshka
from hf_xsent.objectives.pairs import SentencePairs
from hf_xsent.objectives.translation_ranking import TranslationRanking, translation_ranking_loss


def _pairs(count: int = 5, width: int = 8) -> SentencePairs:
    source, target = torch.randn(2, count, width, dtype=torch.float64)
    return SentencePairs(source, target, torch.arange(count), torch.arange(count))


def test_the_loss_is_the_mean_over_the_widths_of_cut_and_scaled_vectors() -> None:
    pairs = _pairs()

    def by_hand(width: int) -> Tensor:
        source, target = (F.normalize(one[:, :width], dim=1) for one in (pairs.source, pairs.target))
        return F.cross_entropy(source @ target.T / 0.1, torch.arange(5))

    expected = (by_hand(8) + by_hand(4) + by_hand(1)) / 3
    torch.testing.assert_close(Matryoshka(TranslationRanking(0.1), [8, 4, 1])(pairs), expected)


def test_one_whole_width_is_the_objective_itself() -> None:
    pairs = _pairs()
    expected = translation_ranking_loss(pairs.source, pairs.target)
    torch.testing.assert_close(Matryoshka(TranslationRanking(), [8])(pairs), expected)


def test_repeated_sentences_stay_masked_at_every_width() -> None:
    pairs = _pairs(2)
    same = SentencePairs(pairs.source, pairs.target, torch.zeros(2), torch.arange(2))
    assert Matryoshka(TranslationRanking(), [8, 2])(same).item() == 0


@pytest.mark.parametrize("width", [2, 4])
def test_numbers_beyond_the_widest_cut_do_not_count(width: int) -> None:
    pairs = _pairs()
    pairs.source.requires_grad_()
    Matryoshka(TranslationRanking(), [width, 1])(pairs).backward()
    assert pairs.source.grad is not None
    assert pairs.source.grad[:, :width].all() and not pairs.source.grad[:, width:].any()
