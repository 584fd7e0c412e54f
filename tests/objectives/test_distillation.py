from __future__ import annotations

import math

import pytest
import torch

from hf_xsent.errors import ModelError
from hf_xsent.objectives.distillation import Distillation
from hf_xsent.objectives.pairs import SentencePairs


def _pairs(kind: torch.dtype = torch.float64) -> SentencePairs:
    source, target, teacher = torch.randn(3, 4, 5, dtype=torch.float64).to(kind)
    return SentencePairs(source, target, torch.arange(4), torch.arange(4), teacher)


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
    assert Distillation()(pairs).item() == pytest.approx(total / (2 * 4 * 5), rel=1e-12)


def test_cosine_leaves_lengths_alone() -> None:
    pairs = _pairs()
    assert pairs.teacher is not None
    total = 0.0
    for source, target, teacher in zip(
        *(one.tolist() for one in (pairs.source, pairs.target, pairs.teacher)), strict=True
    ):
        for student in (source, target):
            dot = sum(a * b for a, b in zip(student, teacher, strict=True))
            total += 1 - dot / math.hypot(*student) / math.hypot(*teacher)
    assert Distillation("cosine")(pairs).item() == pytest.approx(total / 8, rel=1e-9)


@pytest.mark.parametrize("measure", ["mse", "cosine"])
def test_a_student_that_is_its_teacher_has_nothing_to_learn(measure: str) -> None:
    vectors = torch.randn(3, 4)
    pairs = SentencePairs(vectors, vectors, torch.arange(3), torch.arange(3), vectors)
    assert Distillation(measure)(pairs).item() == pytest.approx(0, abs=1e-6)


def test_half_precision_is_compared_in_float32() -> None:
    pairs = _pairs(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = Distillation("mse")(pairs)
    assert loss.dtype == torch.float32
    assert pairs.teacher is not None
    expected = (pairs.both.float() - pairs.teacher.float().repeat(2, 1)).square().mean()
    assert torch.equal(loss, expected)


def test_without_teacher_the_loss_is_refused() -> None:
    pairs = SentencePairs(torch.randn(2, 3), torch.randn(2, 3), torch.arange(2), torch.arange(2))
    with pytest.raises(ModelError, match="^distillation needs the teacher's vectors"):
        Distillation()(pairs)
