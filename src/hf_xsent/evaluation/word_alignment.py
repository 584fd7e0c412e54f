"""Measure word alignment against gold links: alignment error rate, precision, recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hf_xsent.data.words.links import Link


@dataclass(frozen=True)
class AlignmentScores:
    """Metrics over the links of all pairs, in percent."""

    error_rate: float
    precision: float  # share of the links found that are sure or possible
    recall: float  # share of the sure links that were found


def alignment_scores(
    aligned: Sequence[Iterable[Link]], sure: Sequence[Iterable[Link]], possible: Sequence[Iterable[Link]]
) -> AlignmentScores:
    """Measure links by AER = 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|) (Och and Ney, 2003); S counts as part of P."""
    all_found = all_sure = found_sure = found_possible = 0
    for links, of_sure, of_possible in zip(map(set, aligned), map(set, sure), possible, strict=True):
        all_found += len(links)
        all_sure += len(of_sure)
        found_sure += len(links & of_sure)
        found_possible += len(links & of_sure.union(of_possible))
    return AlignmentScores(
        error_rate=100 * (1 - (found_sure + found_possible) / max(1, all_found + all_sure)),
        precision=100 * found_possible / max(1, all_found),
        recall=100 * found_sure / max(1, all_sure),
    )
