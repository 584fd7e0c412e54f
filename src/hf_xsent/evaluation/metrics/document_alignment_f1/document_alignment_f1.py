"""Strict and lax precision, recall and F1 of sentence alignments between documents (Sennrich and Volk, 2011)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import datasets
import evaluate

from hf_xsent.evaluation.document_alignment import Bead, document_alignment_scores


class DocumentAlignmentF1(evaluate.Metric):
    """Predictions are the beads found in each document, references the gold beads.

    A bead is ``{"source": sentence numbers, "target": sentence numbers}``; one side may be empty.
    """

    def _info(self) -> evaluate.MetricInfo:
        numbers = datasets.Sequence(datasets.Value("int64"))
        beads = [{"source": numbers, "target": numbers}]
        return evaluate.MetricInfo(
            description=__doc__,
            citation="",
            inputs_description=self.__class__.__doc__,
            features=datasets.Features({"predictions": beads, "references": beads}),
        )

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        found, gold = ([_beads(one) for one in some] for some in (predictions, references))
        return asdict(document_alignment_scores(found, gold))


def _beads(document: Any) -> list[Bead]:
    return [(tuple(map(int, bead["source"])), tuple(map(int, bead["target"]))) for bead in document]
