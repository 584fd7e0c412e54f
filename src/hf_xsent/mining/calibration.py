"""Choose the threshold with the best F1 on gold pairs, and measure F1 at a threshold."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hf_xsent.data.readers.columns import guess_columns, is_header
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.sources import format_of_name, refuse_missing
from hf_xsent.data.sentences import Sentences
from hf_xsent.errors import DataError
from hf_xsent.mining.margin import MinedPairs
from hf_xsent.mining.parquet import TextFile, VectorFiles

Gold = Set[tuple[int, int]]


@dataclass(frozen=True)
class MiningF1:
    """Precision, recall and F1 at a threshold, in percent."""

    threshold: float
    precision: float
    recall: float
    f1: float


def best_threshold(mined: MinedPairs, gold: Gold, complete: bool = True) -> MiningF1:
    """Return the threshold with the best F1, midway between two consecutive scores, and the metrics there.

    Of several thresholds with equal F1 the highest is returned. ``complete``: see `f1_at_threshold`.
    """
    if not gold:
        raise DataError("there are no gold pairs, so no threshold can be chosen: give gold pairs or a threshold")
    if not len(mined):
        raise DataError("no pairs were mined, so no threshold can be chosen")
    correct, wrong = map(np.cumsum, _judge(mined, gold, complete))
    f1 = 2 * correct / (correct + wrong + len(gold))
    last_of_equal_scores = np.append(mined.score[:-1] != mined.score[1:], True)
    best = int(np.where(last_of_equal_scores, f1, -1.0).argmax())
    below = mined.score[best + 1] if best + 1 < len(mined) else mined.score[best]
    return f1_at_threshold(mined, gold, (float(mined.score[best]) + float(below)) / 2, complete)


def f1_at_threshold(mined: MinedPairs, gold: Gold, threshold: float, complete: bool = True) -> MiningF1:
    """Measure the F1 of the pairs whose score is at least ``threshold``.

    If ``gold`` is ``complete``, each pair that is not in it is an error. Otherwise a pair is judged only if
    at least one of its sentences is in a gold pair: it is correct if it is a gold pair itself; if not, each of its
    sentences that is in a gold pair adds half an error.
    """
    right, wrong = _judge(mined.above(threshold), gold, complete)
    correct, errors = float(right.sum()), float(wrong.sum())
    precision, recall = correct / max(1.0, correct + errors), correct / max(1, len(gold))
    f1 = 2 * correct / max(1.0, correct + errors + len(gold))
    return MiningF1(threshold, 100 * precision, 100 * recall, 100 * f1)


def _judge(mined: MinedPairs, gold: Gold, complete: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return for each pair whether it is correct, and its weight as an error.

    If ``gold`` is a sample of the true pairs, only pairs with a sentence in it are judged. A correct pair has one
    chance to be judged: that it was sampled. A wrong pair has two: its source or its target may be in a sampled pair.
    So each sentence of a wrong pair that is in ``gold`` counts as half an error.
    """
    correct = np.array([pair in gold for pair in mined.rows("source", "target")], dtype=bool)
    if complete:
        return correct, ~correct * 1.0
    sides = [np.unique([pair[place] for pair in gold]) for place in range(2)]
    mentioned = np.isin(mined.source, sides[0]) * 0.5 + np.isin(mined.target, sides[1]) * 0.5
    return correct, mentioned * ~correct


def read_gold(
    path: str | Path, sides: Sequence[Sentences], inputs: Sequence[TextFile | VectorFiles]
) -> set[tuple[int, int]]:
    """Read a TSV of gold pairs and return them as pairs of rows (source, target).

    The columns, ``source`` and ``target`` of a header, else the first two, are texts or ids of Parquet, or line numbers
    if all cells are whole numbers. A repeated line stands for the row of its first occurrence. A line or text that is
    not among the sentences is an error.
    """
    pairs = _read_cells(Path(path))
    numbered = all(cell.isdecimal() for pair in pairs.values() for cell in pair)
    rows = []
    for column, (side, read) in enumerate(zip(sides, inputs, strict=True)):
        cells = {pair[column] for pair in pairs.values()}
        texts = {} if numbered else {cell: cell for cell in cells}
        texts |= _lines_of(read, cells) if numbered or read.has_ids else {}
        of_cells = dict(zip(texts, side.rows(texts.values()).tolist(), strict=True))
        for number, pair in pairs.items():
            if of_cells.get(pair[column], -1) < 0:
                what = f"sentence in line {pair[column]}" if numbered else f"sentence {pair[column]!r}"
                raise DataError(
                    f"{path}:{number}: {read.path} has no {what} (lines that are empty or too long do not count): give "
                    "gold pairs of the two mined files"
                )
        rows.append(of_cells)
    return {(rows[0][first], rows[1][second]) for first, second in pairs.values()}


def _read_cells(path: Path) -> dict[int, tuple[str, str]]:
    """Read the two columns of all lines that are not empty, by line number."""
    refuse_missing(path)
    if format_of_name(path.name) not in (None, "tsv"):
        raise DataError(f"{path} is not a TSV: give gold pairs as two texts or two line numbers, separated by a tab")
    pairs: dict[int, tuple[str, str]] = {}
    sides: tuple[int, int] | None = None
    for number, line in lines(path):
        if not line.strip():
            continue
        cells = [cell.strip() for cell in line.split("\t")]
        if sides is None:
            has_names = is_header(cells, "und", "und")
            first, second = guess_columns(cells, "und", "und") if has_names else (0, 1)
            sides = (0, 1) if first is None or second is None else (first, second)
            if has_names:
                continue
        if len(cells) <= max(sides):
            raise DataError(f"{path}:{number}: fewer than {max(sides) + 1} columns: separate them by tabs")
        pairs[number] = cells[sides[0]], cells[sides[1]]
    if not pairs:
        raise DataError(f"{path} holds no gold pairs: give one pair per line")
    return pairs


def _lines_of(read: TextFile | VectorFiles, numbers: set[str]) -> dict[str, str]:
    """Return the texts of the lines with these numbers or ids that are not empty."""
    wanted = {str(int(number)): number for number in numbers if number.isdecimal()} | {each: each for each in numbers}
    return {wanted[str(key)]: line for key, line in read.lines() if str(key) in wanted and line.strip()}
