"""Read BUCC 2018: two sets of sentences, some of which are translations of each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hf_xsent.data.benchmarks.sets import find_sets
from hf_xsent.data.readers.compression import compressed_or_not, lines
from hf_xsent.data.readers.hub import hub_columns, select_names
from hf_xsent.errors import DataError


@dataclass(frozen=True)
class BuccSet:
    """One language pair and split; ``gold`` has (source row, target row), counted from 0, and may be empty."""

    pair: str
    split: str
    sources: list[str]
    targets: list[str]
    gold: frozenset[tuple[int, int]]


SPLITS = ("sample", "dev", "training", "train", "test")  # in evaluation order
TRAINING_SPLITS = ("training", "train")  # for choosing thresholds


def find_bucc(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[BuccSet]:
    """Load the splits that have gold pairs, of the language pairs ``pairs`` (default: all).

    ``source`` is a folder of files as ``load_bucc`` reads them, or a data set on the Hub such as
    ``mteb/bucc-bitext-mining`` with configs such as ``de-en``. A config's split ``test``, the training set of
    the shared task, is one row of three lists: ``sentence1``, ``sentence2`` and ``gold`` (row numbers from 1).
    """
    example = "zh-en.training.gold with zh-en.training.zh and .en"
    places = find_sets(source, r"([^.-]+-[^.-]+)\.([^.]+)\.gold", example, "[^-]+-[^-]+")
    if not Path(source).is_dir():
        by_config = {str(place).partition(":")[2]: str(place) for place in places.values()}
        return [_read_hub(by_config[pair], pair) for pair in select_names(source, by_config, pairs)]
    names = select_names(source, dict.fromkeys(pair for pair, _ in places), pairs)
    splits = sorted(places, key=lambda name: split_order(name[1]))
    return [load_bucc(source, pair, split) for name in names for pair, split in splits if pair == name]


def split_order(split: str) -> tuple[int, str]:
    """Return the sort key of a split: its place in ``SPLITS``; other names come last."""
    return SPLITS.index(split) if split in SPLITS else len(SPLITS), split


def _read_hub(place: str, pair: str) -> BuccSet:
    (sources,), (targets,), (gold,) = hub_columns(place, ["sentence1", "sentence2", "gold"])
    numbers = frozenset((int(source) - 1, int(target) - 1) for source, target in gold)
    if not all(0 <= source < len(sources) and 0 <= target < len(targets) for source, target in numbers):
        raise DataError(f"{place}: gold of {pair} is out of range; it must be sentence numbers, counted from 1")
    sources, targets = ([text.strip() for text in side] for side in (sources, targets))
    return BuccSet(pair, "training", sources, targets, numbers)


def load_bucc(folder: str | PathLike[str], pair: str, split: str) -> BuccSet:
    """Load ``zh-en.dev.zh`` and ``zh-en.dev.en`` (``id<TAB>text``), and ``zh-en.dev.gold`` (``id<TAB>id``) if any."""
    ends = [*pair.split("-"), "gold"]
    *paths, gold_path = (compressed_or_not(Path(folder, f"{pair}.{split}.{end}")) for end in ends)
    (source_ids, sources), (target_ids, targets) = (zip(*_read_rows(path), strict=True) for path in paths)
    gold = _read_gold(gold_path, source_ids, target_ids) if gold_path.is_file() else frozenset[tuple[int, int]]()
    return BuccSet(pair, split, [*sources], [*targets], gold)


def _read_gold(path: Path, *ids: Iterable[str]) -> frozenset[tuple[int, int]]:
    known = [{name: number for number, name in enumerate(side)} for side in ids]
    gold = set()
    for line, row in enumerate(_read_rows(path, "id<TAB>id"), start=1):
        for name, numbers in zip(row, known, strict=True):
            if name not in numbers:
                raise DataError(f"{path}:{line}: no sentence has the id {name!r}; use the gold file of these sentences")
        gold.add((known[0][row[0]], known[1][row[1]]))
    return frozenset(gold)


def _read_rows(path: Path, layout: str = "id<TAB>text") -> list[tuple[str, str]]:
    rows = []
    for number, line in lines(path):
        left, tab, right = line.partition("\t")
        if not tab or not left:
            raise DataError(f"{path}:{number}: lines must be {layout}")
        rows.append((left, right.strip()))
    if not rows:
        raise DataError(f"{path} is empty")
    return rows
