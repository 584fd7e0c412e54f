"""How well links between words fit those that people drew: alignment error rate, precision, recall."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hf_xsent.data.gold_links import GoldPair
from hf_xsent.data.word_links import Link
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class AlignmentScores:
    """Percent, over the links of all pairs."""

    error_rate: float
    precision: float  # of the links found, those that are at least possible
    recall: float  # of the sure links, those that were found


def alignment_scores(found: Sequence[Iterable[Link]], gold: Sequence[GoldPair]) -> AlignmentScores:
    """AER of Och and Ney (2003): 1 - (|A ∩ S| + |A ∩ P|) / (|A| + |S|)."""
    if len(found) != len(gold):
        raise DataError(f"links of {len(found)} pairs cannot be measured on {len(gold)} gold pairs")
    links = [frozenset(some) for some in found]
    all_found, all_sure = sum(map(len, links)), sum(len(pair.sure) for pair in gold)
    sure = sum(len(some & pair.sure) for some, pair in zip(links, gold, strict=True))
    possible = sum(len(some & pair.possible) for some, pair in zip(links, gold, strict=True))
    return AlignmentScores(
        error_rate=100 * (1 - (sure + possible) / max(1, all_found + all_sure)),
        precision=100 * possible / max(1, all_found),
        recall=100 * sure / max(1, all_sure),
    )
