"""BUCC 2018: find the translations among two sets of sentences, and F1 at the threshold that gold pairs choose."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hf_xsent.data.bucc import BuccSet
from hf_xsent.mining.calibration import MiningF1, at_threshold, best_threshold
from hf_xsent.mining.margin import MinedPairs, mine_bitext
from hf_xsent.models.encodes import Encodes


def mine_bucc(model: Encodes, bucc: BuccSet, k: int = 4, margin: str = "ratio", **options: Any) -> MinedPairs:
    """Encode both sides and mine them, candidates of both directions without repetition."""
    return mine_bitext(model.encode(bucc.sources), model.encode(bucc.targets), k, margin, **options)


@dataclass(frozen=True)
class BuccResult:
    """F1 at the threshold that was best on the set it was chosen by."""

    pair: str
    split: str
    threshold_from: str
    measured: MiningF1


def evaluate_bucc(
    model: Encodes, chosen_by: BuccSet, measured: BuccSet | None = None, **options: Any
) -> list[BuccResult]:
    """The best F1 on one set, and with its threshold the F1 on another: its test split, or another language pair."""
    mined = mine_bucc(model, chosen_by, **options)
    best = best_threshold(mined, chosen_by.gold)
    name = f"{chosen_by.pair} {chosen_by.split}"
    results = [BuccResult(chosen_by.pair, chosen_by.split, name, best)]
    if measured is not None:
        other = at_threshold(mine_bucc(model, measured, **options), measured.gold, best.threshold)
        results.append(BuccResult(measured.pair, measured.split, name, other))
    return results
