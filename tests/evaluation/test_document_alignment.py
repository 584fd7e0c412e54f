from __future__ import annotations

import pytest

from hf_xsent.errors import DataError
from hf_xsent.evaluation.document_alignment import Bead, document_alignment_scores


@pytest.mark.parametrize(
    ("found", "strict", "lax"),
    [
        ([((0, 1), (0,)), ((2,), (1,)), ((), (2,))], (100, 100), (100, 100)),
        ([((0,), (0,)), ((1,), ()), ((2,), (1,)), ((), (2,))], (50, 50), (75, 100)),  # skips count in precision only
        ([((0, 1, 2), (0, 1, 2))], (0, 0), (100, 100)),
        ([((0, 1), (1,)), ((2,), (0,))], (0, 0), (0, 0)),
        ([((0, 1), (0,)), ((0, 1), (0,)), ((), ())], (100, 50), (100, 50)),  # repeated and empty beads do not count
        ([], (0, 0), (0, 0)),
    ],
)
def test_precision_and_recall(found: list[Bead], strict: tuple[float, float], lax: tuple[float, float]) -> None:
    gold: list[Bead] = [((0, 1), (0,)), ((2,), (1,)), ((), (2,))]
    scores = document_alignment_scores([found], [gold])
    assert (scores.strict_precision, scores.strict_recall) == strict
    assert (scores.lax_precision, scores.lax_recall) == lax


def test_documents_must_be_as_many_on_both_sides() -> None:
    with pytest.raises(DataError, match="2 documents but 1 gold alignments"):
        document_alignment_scores([[], []], [[]])
