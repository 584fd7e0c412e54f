from __future__ import annotations

from typing import Any, cast

import pytest
import torch
from every_objective import sentence_pairs
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.objectives.base import Parts
from hf_xsent.objectives.distillation import Distillation
from hf_xsent.objectives.pairs import SentencePairs


def _with_teacher(source: Tensor, target: Tensor, teacher: Tensor) -> SentencePairs:
    return sentence_pairs(source, target).taught("distillation", {"target": teacher})


def _pairs(kind: torch.dtype = torch.float64) -> SentencePairs:
    source, target, teacher = torch.randn(3, 4, 5, dtype=torch.float64).to(kind)
    return _with_teacher(source, target, teacher)


def _loss(pairs: SentencePairs) -> Tensor:
    return Distillation(Distillation.Settings(), cast(Parts, None)).sentence_loss(pairs)  # it builds nothing


def test_mse_is_the_papers_equation() -> None:
    """Both sides against the teacher's target, as a mean over sentences and numbers."""
    pairs = _pairs()
    total = 0.0
    for source, target, teacher in zip(
        *(one.tolist() for one in (pairs.source, pairs.target, pairs.teacher["target"])), strict=True
    ):
        for student in (source, target):
            total += sum((a - b) ** 2 for a, b in zip(student, teacher, strict=True))
    assert _loss(pairs).item() == pytest.approx(total / (2 * 4 * 5), rel=1e-12)


def test_a_student_that_equals_its_teacher_has_zero_loss() -> None:
    vectors = torch.randn(3, 4)
    assert _loss(_with_teacher(vectors, vectors, vectors)).item() == 0


def test_half_precision_is_compared_in_float32() -> None:
    pairs = _pairs(torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = _loss(pairs)
    assert loss.dtype == torch.float32
    expected = (pairs.both.float() - pairs.teacher["target"].float().repeat(2, 1)).square().mean()
    assert torch.equal(loss, expected)


@pytest.mark.parametrize("width", [None, 1, 2])
def test_missing_embeddings_and_those_of_another_width_are_refused(width: int | None) -> None:
    """Embeddings of width 1 would broadcast over the student's."""
    vectors: Any = torch.randn(2, 3)
    teacher: Any = None if width is None else torch.randn(2, width)
    error = "pass distillation_teacher_target$" if width is None else "choose models of equal width$"
    with pytest.raises(ModelError, match=error):
        _with_teacher(vectors, vectors, teacher)
