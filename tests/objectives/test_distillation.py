from __future__ import annotations

from typing import cast

import pytest
import torch
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.distillation import Distillation
from hf_xsent.objectives.pairs import SentencePairs


def _pairs(kind: torch.dtype = torch.float64) -> SentencePairs:
    source, target, teacher = torch.randn(3, 4, 5, dtype=torch.float64).to(kind)
    return SentencePairs(source, target, torch.arange(4), torch.arange(4), teacher)


def _loss(pairs: SentencePairs) -> Tensor:
    return Distillation(Distillation.Settings(), cast(Parts, None)).sentence_loss(pairs)  # it builds nothing


def test_mse_is_the_papers_equation() -> None:
    """Both sides against the teacher's target, as a mean over sentences and numbers."""
    pairs = _pairs()
    assert pairs.teacher is not None
    total = 0.0
    for source, target, teacher in zip(
        *(one.tolist() for one in (pairs.source, pairs.target, pairs.teacher)), strict=True
    ):
        for student in (source, target):
            total += sum((a - b) ** 2 for a, b in zip(student, teacher, strict=True))
    assert _loss(pairs).item() == pytest.approx(total / (2 * 4 * 5), rel=1e-12)


def test_a_student_that_equals_its_teacher_has_zero_loss() -> None:
    vectors = torch.randn(3, 4)
    pairs = SentencePairs(vectors, vectors, torch.arange(3), torch.arange(3), vectors)
    assert _loss(pairs).item() == 0


def test_half_precision_is_compared_in_float32() -> None:
    pairs = _pairs(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = _loss(pairs)
    assert loss.dtype == torch.float32
    assert pairs.teacher is not None
    expected = (pairs.both.float() - pairs.teacher.float().repeat(2, 1)).square().mean()
    assert torch.equal(loss, expected)


def test_without_teacher_vectors_the_loss_raises() -> None:
    pairs = SentencePairs(torch.randn(2, 3), torch.randn(2, 3), torch.arange(2), torch.arange(2))
    with pytest.raises(
        ModelError, match="^distillation needs the teacher's embeddings of the targets: pass teacher_vectors$"
    ):
        _loss(pairs)
