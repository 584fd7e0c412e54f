"""BUCC 2018: find the translations among two sets of sentences, and F1 at a threshold that gold pairs choose."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, ClassVar

from hf_xsent.data.benchmarks.bucc import TRAINING_SPLITS, BuccSet, find_bucc, split_order
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, Figures, Scores, fingerprint, means
from hf_xsent.mining.calibration import MiningF1, at_threshold, best_threshold
from hf_xsent.mining.margin import MinedPairs, mine_bitext

if TYPE_CHECKING:
    from typing_extensions import Self

_K = 4
_PAIRS = {"de-en", "fr-en", "ru-en", "zh-en"}


@dataclass(frozen=True)
class BuccTask:
    """BUCC 2018: a pair's threshold is chosen on its training split and applied to the others, and to other pairs."""

    sets: Sequence[BuccSet]

    name: ClassVar[str] = "bucc"
    title: ClassVar[str] = "BUCC 2018"
    protocol: ClassVar[str] = (
        "F1 of pairs mined by ratio margin, k = 4, best of both directions, no sentence twice; "
        "the threshold is the best on the split or pair named in brackets, else on the very set"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "f1": "F1",
        "precision": "precision",
        "recall": "recall",
        "found": "found",
        "gold": "gold",
        "threshold": "threshold",
    }
    main: ClassVar[str] = "f1"

    def __post_init__(self) -> None:
        for one in self.sets:
            if not one.gold:
                raise DataError(f"BUCC {one.pair}, {one.split}: there are no gold pairs to measure by")
            if min(len(one.sources), len(one.targets)) < _K:
                raise DataError(f"BUCC {one.pair}, {one.split}: mining needs at least {_K} sentences a side")
        if not self.sets:
            raise DataError("no BUCC pair was chosen: name at least one")

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """As ``find_bucc``: every split with gold pairs."""
        return cls(find_bucc(source, languages))

    @cached_property
    def fingerprint(self) -> str:
        """Of sentences and gold pairs."""
        return fingerprint(
            text
            for one in self.sets
            for text in (one.pair, one.split, *one.sources, *one.targets, *map(str, sorted(one.gold)))
        )

    def sentences(self) -> Iterator[str]:
        """Both sides of each set."""
        for one in self.sets:
            yield from (*one.sources, *one.targets)

    def score(self, encode: Encode) -> Scores:
        """F1 of each set by its pair's own threshold, and where there are several pairs by those of the others."""
        mined = [mine_bitext(encode(one.sources), encode(one.targets), _K) for one in self.sets]
        chosen = self._thresholds(mined)
        last = max((one.split for one in self.sets), key=split_order)
        own: dict[str, Figures] = {}
        transferred: dict[str, Figures] = {}
        groups: dict[str, list[str]] = {}
        for one, pairs in zip(self.sets, mined, strict=True):
            for pair, (split, threshold) in chosen.items():
                name, figures = f"{one.pair} {one.split}", _figures(at_threshold(pairs, one.gold, threshold), one)
                if pair != one.pair:
                    transferred[f"{name} ({pair})"] = figures
                    groups.setdefault(f"others, {one.split} ({pair})", []).append(f"{name} ({pair})")
                else:
                    name += "" if split == one.split else f" ({split})"
                    own[name] = figures
                    if {other.pair for other in self.sets if other.split == one.split} == _PAIRS:
                        groups.setdefault(f"4 pairs, {one.split}", []).append(name)
                    if one.split == last:
                        groups.setdefault("measured", []).append(name)
        return Scores(own | transferred, means(own | transferred, groups))

    def _thresholds(self, mined: Sequence[MinedPairs]) -> dict[str, tuple[str, float]]:
        """Of each pair the split that chooses, its training set or else the earliest, and the best threshold there."""
        chosen: dict[str, tuple[str, float]] = {}
        both = zip(self.sets, mined, strict=True)
        for one, pairs in sorted(
            both, key=lambda each: (each[0].split not in TRAINING_SPLITS, *split_order(each[0].split))
        ):
            if one.pair not in chosen:
                chosen[one.pair] = one.split, best_threshold(pairs, one.gold).threshold
        return {one.pair: chosen[one.pair] for one in self.sets}


def _figures(measured: MiningF1, one: BuccSet) -> Figures:
    return {
        "f1": measured.f1,
        "precision": measured.precision,
        "recall": measured.recall,
        "found": measured.found,
        "gold": len(one.gold),
        "threshold": measured.threshold,
    }
