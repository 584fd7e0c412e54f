"""Measure strict and lax precision, recall and F1 of sentence alignments (Sennrich and Volk, 2011)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import datasets
import evaluate

from hf_xsent.evaluation.document_alignment import Bead, document_alignment_scores
from hf_xsent.evaluation.metrics import metric_info


class DocumentAlignmentF1(evaluate.Metric):
    """Each prediction holds the beads of one document, each reference its gold beads.

    A bead is ``{"source": sentence numbers, "target": sentence numbers}``; one side may be empty.
    """

    def _info(self) -> evaluate.MetricInfo:
        numbers = datasets.Sequence(datasets.Value("int64"))
        beads = [{"source": numbers, "target": numbers}]
        return metric_info(type(self), beads, beads)

    def _compute(self, predictions: Any, references: Any) -> dict[str, float]:
        aligned, gold = ([_beads(document) for document in side] for side in (predictions, references))
        return asdict(document_alignment_scores(aligned, gold))


def _beads(document: Any) -> list[Bead]:
    return [(tuple(map(int, bead["source"])), tuple(map(int, bead["target"]))) for bead in document]
