"""The threshold that finds gold pairs best, and how well a threshold does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hf_xsent.data.cleaning.repeats import normalise
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.sentences import Sentences
from hf_xsent.errors import DataError
from hf_xsent.mining.margin import MinedPairs

logger = logging.getLogger(__name__)

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
    right = np.cumsum(
        np.fromiter((pair in gold for pair in mined.rows("source", "target")), dtype=np.int64, count=len(mined))
    )
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
    right = sum(pair in gold for pair in kept.rows("source", "target"))
    precision, recall = right / max(1, len(kept)), right / max(1, len(gold))
    f1 = 2 * right / max(1, len(kept) + len(gold))
    return MiningF1(threshold, 100 * precision, 100 * recall, 100 * f1, len(kept))


def read_gold(
    path: str | Path, source: Sentences, target: Sentences, files: tuple[str | Path, str | Path]
) -> set[tuple[int, int]]:
    """Gold pairs as rows of both sides, from a TSV of texts or of line numbers (both whole numbers).

    A line that repeats an earlier one of its side (of ``files``) is that one's row. One that was left out as too long
    has a number below 0, which nothing mined has: such a pair counts as missed.
    """
    if not Path(path).is_file():
        raise DataError(f"no such file of gold pairs: {path}")
    pairs = []
    for number, line in lines(Path(path)):
        cells = line.split("\t")
        if len(cells) < 2:
            raise DataError(f"{path}:{number}: no two columns: give texts or line numbers, separated by a tab")
        pairs.append((cells[0].strip(), cells[1].strip()))
    if not pairs:
        raise DataError(f"{path} holds no gold pairs")
    numbered = all(cell.isdecimal() for pair in pairs for cell in pair)
    key: Callable[[str], Any] = int if numbered else normalise
    sides: list[dict[Any, int]] = []
    for place, (side, file) in enumerate(zip((source, target), files, strict=True)):
        wanted, doing = {key(pair[place]) for pair in pairs}, f"finding gold pairs in side {place + 1}"
        found = _rows_of_lines(side, wanted, Path(file), doing) if numbered else _rows_of_texts(side, wanted, doing)
        sides.append(found)
    gold = set()
    for number, pair in enumerate(pairs, start=1):
        for cell, found in zip(pair, sides, strict=True):
            if key(cell) not in found:
                raise DataError(
                    f"{path}:{number}: {cell!r} is not among the sentences; is this the gold of these files?"
                )
        gold.add((sides[0][key(pair[0])], sides[1][key(pair[1])]))
    if lost := sum(min(pair) < 0 for pair in gold):
        logger.warning("%d of %d gold pairs have a line over the length limit: they count as missed", lost, len(gold))
    return gold


def _rows_of_lines(side: Sentences, wanted: set[int], file: Path, doing: str) -> dict[int, int]:
    """The rows of these line numbers, a batch at a time; those of lines that were left out are found by their texts."""
    ordered = np.array(sorted(wanted))
    found: dict[int, int] = {}
    for number in _progress(side, doing):
        numbers = side.lines(number)
        for place in np.flatnonzero(np.isin(numbers, ordered)).tolist():
            found[int(numbers[place])] = number * side.rows_per_batch + place
    if left_out := wanted - found.keys():
        read = tqdm(lines(file), doing, unit=" lines", unit_scale=True, delay=2, disable=None)
        texts = {number: normalise(line) for number, line in read if number in left_out and line.strip()}
        rows = _rows_of_texts(side, set(texts.values()), doing)
        found |= {number: rows.get(text, -number) for number, text in texts.items()}
    return found


def _rows_of_texts(side: Sentences, wanted: set[str], doing: str) -> dict[str, int]:
    """The rows of these normalised texts, a batch at a time."""
    found = {}
    for number in _progress(side, doing):
        for place, text in enumerate(side.batch(number)):
            if (key := normalise(text)) in wanted:
                found[key] = number * side.rows_per_batch + place
    return found


def _progress(side: Sentences, doing: str) -> Iterable[int]:
    return tqdm(range(side.batch_count), desc=doing, unit=" batches", delay=2, disable=None)
