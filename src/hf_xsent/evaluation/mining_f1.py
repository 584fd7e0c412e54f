"""BUCC 2018: find the translations among two sets of sentences, and F1 at the threshold that gold pairs choose."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Any

import numpy as np

from hf_xsent.data.bucc import BuccSet
from hf_xsent.errors import DataError
from hf_xsent.evaluation.retrieval import Encodes
from hf_xsent.mining.margin import MinedPairs, mine_bitext

Gold = Set[tuple[int, int]]


@dataclass(frozen=True)
class MiningF1:
    """What is found at a threshold, in percent."""

    threshold: float
    precision: float
    recall: float
    f1: float
    found: int


def best_threshold(mined: MinedPairs, gold: Gold) -> MiningF1:
    """The threshold of the best F1, in the middle between two consecutive scores; of equal ones the highest."""
    if not gold:
        raise DataError("there are no gold pairs to choose a threshold by")
    if not len(mined):
        raise DataError("nothing was mined, so there is no threshold to choose")
    right = np.cumsum([pair in gold for pair in zip(mined.source.tolist(), mined.target.tolist(), strict=True)])
    found = np.arange(1, len(mined) + 1)
    f1 = 2 * right / (found + len(gold))
    last_of_its_score = np.append(mined.score[:-1] != mined.score[1:], True)
    best = int(np.where(last_of_its_score, f1, -1.0).argmax())
    below = mined.score[best + 1] if best + 1 < len(mined) else mined.score[best]
    threshold = (float(mined.score[best]) + float(below)) / 2
    return at_threshold(mined, gold, threshold)


def at_threshold(mined: MinedPairs, gold: Gold, threshold: float) -> MiningF1:
    """What is found with a threshold that was chosen elsewhere."""
    kept = mined.above(threshold)
    right = sum(pair in gold for pair in zip(kept.source.tolist(), kept.target.tolist(), strict=True))
    precision, recall = right / max(1, len(kept)), right / max(1, len(gold))
    f1 = 2 * right / max(1, len(kept) + len(gold))
    return MiningF1(threshold, 100 * precision, 100 * recall, 100 * f1, len(kept))


def mine_bucc(model: Encodes, bucc: BuccSet, k: int = 4, margin: str = "ratio", **options: Any) -> MinedPairs:
    """Encode both sides and mine them, candidates of both directions without repetition."""
    return mine_bitext(model.encode(bucc.sources), model.encode(bucc.targets), k, margin, **options)
