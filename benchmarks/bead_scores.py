"""Compute strict and lax precision, recall and F1 of sentence alignments, counted like vecalign's scorer."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

Bead = tuple[tuple[int, ...], tuple[int, ...]]  # sentence numbers of both sides, from 0; one side may be empty


@dataclass(frozen=True)
class DocumentAlignmentScores:
    """Percentages over the beads of all documents."""

    strict_precision: float
    strict_recall: float
    strict_f1: float
    lax_precision: float
    lax_recall: float
    lax_f1: float


def document_alignment_scores(
    aligned: Sequence[Iterable[Bead]], gold: Sequence[Iterable[Bead]]
) -> DocumentAlignmentScores:
    """Score the alignments of several documents together (Sennrich and Volk, 2011).

    A bead is strictly correct if it is in the gold alignment. It is laxly correct if it is strictly correct, or if at
    least one of its links between a source and a target sentence is also in a gold bead. Precision counts beads with an
    empty side (skipped sentences), recall does not. Beads that are empty on both sides are ignored.

    >>> gold = [[((0,), (0,)), ((1, 2), (1,)), ((3,), ())]]
    >>> aligned = [[((0,), (0,)), ((1,), (1,)), ((2,), ()), ((3,), ())]]
    >>> scores = document_alignment_scores(aligned, gold)
    >>> tuple(map(float, (scores.strict_precision, scores.strict_recall, scores.lax_precision, scores.lax_recall)))
    (50.0, 50.0, 75.0, 100.0)
    """
    precision, recall = np.zeros(3), np.zeros(3)
    for document, reference in zip(aligned, gold, strict=True):
        ours, theirs = _distinct(document), _distinct(reference)
        precision += _count(ours, theirs)
        recall += _count(_with_both_sides(theirs), _with_both_sides(ours))
    strict_precision, lax_precision = (100 * float(correct) / max(1, precision[2]) for correct in precision[:2])
    strict_recall, lax_recall = (100 * float(correct) / max(1, recall[2]) for correct in recall[:2])
    return DocumentAlignmentScores(
        strict_precision,
        strict_recall,
        _f1(strict_precision, strict_recall),
        lax_precision,
        lax_recall,
        _f1(lax_precision, lax_recall),
    )


def _distinct(beads: Iterable[Bead]) -> set[Bead]:
    return {(tuple(source), tuple(target)) for source, target in beads if source or target}


def _with_both_sides(beads: set[Bead]) -> set[Bead]:
    return {(source, target) for source, target in beads if source and target}


def _count(beads: set[Bead], reference: set[Bead]) -> tuple[int, int, int]:
    """Count strictly correct, laxly correct and all beads."""
    linked: dict[int, set[int]] = defaultdict(set)
    for source, target in reference:
        for number in source:
            linked[number].update(target)
    strict = len(beads & reference)
    wrong = beads - reference
    lax = sum(any(not linked[number].isdisjoint(target) for number in source) for source, target in wrong)
    return strict, strict + lax, len(beads)


def _f1(precision: float, recall: float) -> float:
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
