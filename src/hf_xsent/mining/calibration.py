"""The threshold that finds gold pairs best, and how well a threshold does."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_xsent.data.compression import open_file
from hf_xsent.data.repeats import normalise
from hf_xsent.data.sentences import Sentences
from hf_xsent.errors import DataError
from hf_xsent.mining.margin import MinedPairs

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


def read_gold(path: str | Path, source: Sentences, target: Sentences) -> set[tuple[int, int]]:
    """Gold pairs as rows of both sides, from a TSV of texts or of line numbers (both whole numbers)."""
    rows = []
    with open_file(Path(path)) as file:
        for number, raw in enumerate(file, start=1):
            parts = raw.decode("utf-8", "replace").rstrip("\r\n").split("\t")
            if len(parts) < 2:
                raise DataError(f"{path}:{number}: no two columns: give texts or line numbers, separated by a tab")
            rows.append((parts[0].strip(), parts[1].strip()))
    if not rows:
        raise DataError(f"{path} holds no gold pairs")
    numbered = all(part.isdecimal() for row in rows for part in row)
    sides = []
    for place, side in enumerate((source, target)):
        wanted = {row[place] if numbered else normalise(row[place]) for row in rows}
        sides.append(_find(side, wanted, numbered))
    gold = set()
    for number, row in enumerate(rows, start=1):
        keys = row if numbered else tuple(map(normalise, row))
        for key, found, text in zip(keys, sides, row, strict=True):
            if key not in found:
                raise DataError(
                    f"{path}:{number}: {text!r} is not among the sentences; is this the gold of these files?"
                )
        gold.add((sides[0][keys[0]], sides[1][keys[1]]))
    return gold


def _find(side: Sentences, wanted: set[str], numbered: bool) -> dict[str, int]:
    """The rows of these texts or line numbers, in one pass over the sentences."""
    found = {}
    for row in range(len(side)):
        text, line = side[row]
        key = str(line) if numbered else normalise(text)
        if key in wanted:
            found[key] = row
    return found
