"""The shared task BUCC 2018: two sets of sentences, some of which translate each other."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path

from hf_xsent.data.readers.hub import hub_columns, hub_configs
from hf_xsent.data.readers.lines import lines
from hf_xsent.errors import DataError, nearest
from hf_xsent.files import is_hub_id


@dataclass(frozen=True)
class BuccSet:
    """One language pair and split; ``gold`` holds numbers of sentences, source first, empty where it is kept back."""

    pair: str
    split: str
    source_ids: list[str]
    sources: list[str]
    target_ids: list[str]
    targets: list[str]
    gold: frozenset[tuple[int, int]]


SPLITS = ("sample", "dev", "training", "train", "test")  # in the order in which they are measured
TRAINING_SPLITS = ("training", "train")  # thresholds are chosen there


def find_bucc(source: str | PathLike[str], pairs: Iterable[str] | None = None) -> list[BuccSet]:
    """Load every split that has gold pairs, of all language pairs that are there or of these.

    ``source`` is a folder of files as ``load_bucc`` reads them, or a data set on the Hub such as
    ``mteb/bucc-bitext-mining`` with configs ``de-en``, split test (the training set of the shared task) and one row of
    three lists: ``sentence1``, ``sentence2`` and ``gold``, which counts from 1.
    """
    folder = Path(source)
    if folder.is_dir():
        names = [path.name.split(".") for path in sorted(folder.glob("*-*.*.gold"))]
        splits: dict[str, list[str]] = {}
        for pair, split, _ in sorted((name for name in names if len(name) == 3), key=_place):
            splits.setdefault(pair, []).append(split)
        if not splits:
            raise DataError(f"{folder} has no files such as zh-en.training.gold beside zh-en.training.zh and .en")
        return [load_bucc(folder, pair, split) for pair in _select(splits, pairs) for split in splits[pair]]
    repo = fspath(source)
    if not is_hub_id(repo, owner=True):
        raise DataError(f"no such folder: {repo}; give the folder of the BUCC files, or a data set as owner/name")
    there = [config for config in hub_configs(repo) if config.count("-") == 1]
    return [_read_hub(repo, pair) for pair in _select(there, pairs)]


def _place(name: list[str]) -> tuple[str, int, str]:
    return name[0], *split_place(name[1])


def split_place(split: str) -> tuple[int, str]:
    """By which splits are ordered: those of unknown names last."""
    return SPLITS.index(split) if split in SPLITS else len(SPLITS), split


def _select(there: Iterable[str], pairs: Iterable[str] | None) -> list[str]:
    known = list(there)
    chosen = known if pairs is None else list(pairs)
    for pair in chosen:
        if pair not in known:
            raise DataError(f"BUCC: no gold pairs of {pair!r} there, only of {', '.join(known)}{nearest(pair, known)}")
    return chosen


def _read_hub(repo: str, pair: str) -> BuccSet:
    (sources,), (targets,), (gold,) = hub_columns(repo, pair, ["sentence1", "sentence2", "gold"])
    numbers = frozenset((int(source) - 1, int(target) - 1) for source, target in gold)
    if not all(0 <= one < len(sources) and 0 <= other < len(targets) for one, other in numbers):
        raise DataError(f"{repo}: the gold of {pair} names sentences that are not there; it must count from 1")
    ids = [[f"{language}-{number}" for number in range(1, len(side) + 1)]
           for language, side in zip(pair.split("-"), (sources, targets), strict=True)]  # fmt: skip
    sides = [[text.strip() for text in side] for side in (sources, targets)]
    return BuccSet(pair, "training", ids[0], sides[0], ids[1], sides[1], numbers)


def load_bucc(folder: str | PathLike[str], pair: str, split: str) -> BuccSet:
    """Load ``zh-en.dev.zh`` and ``zh-en.dev.en`` (``id<TAB>text``), and ``zh-en.dev.gold`` (``id<TAB>id``) if there.

    ``pair`` is such as ``zh-en`` and ``split`` is what the files call it: sample, training, dev, test.
    """
    parts = pair.split("-")
    if len(parts) != 2 or not all(parts):
        raise DataError(f"BUCC pairs are named like de-en, not {pair!r}")
    paths = [Path(folder) / f"{pair}.{split}.{language}" for language in parts]
    (source_ids, sources), (target_ids, targets) = (_read_sentences(path) for path in paths)
    gold_path = Path(folder) / f"{pair}.{split}.gold"
    gold = _read_gold(gold_path, source_ids, target_ids) if gold_path.is_file() else frozenset[tuple[int, int]]()
    return BuccSet(pair, split, source_ids, sources, target_ids, targets, gold)


def _read_sentences(path: Path) -> tuple[list[str], list[str]]:
    rows = _read_rows(path)
    return [row[0] for row in rows], [row[1].strip() for row in rows]


def _read_gold(path: Path, source_ids: list[str], target_ids: list[str]) -> frozenset[tuple[int, int]]:
    known = [{name: number for number, name in enumerate(ids)} for ids in (source_ids, target_ids)]
    gold = set()
    for line, row in enumerate(_read_rows(path), start=1):
        for name, numbers in zip(row, known, strict=True):
            if name not in numbers:
                raise DataError(f"{path}:{line}: no sentence has the id {name!r}; is this the gold of these files?")
        gold.add((known[0][row[0]], known[1][row[1]]))
    return frozenset(gold)


def _read_rows(path: Path) -> list[tuple[str, str]]:
    if not path.is_file():
        raise DataError(f"no such file: {path}; BUCC needs one file of each language, named like zh-en.dev.zh")
    rows = []
    for number, line in lines(path):
        left, tab, right = line.partition("\t")
        if not tab or not left:
            raise DataError(f"{path}:{number}: no id, tab and text; each line needs them")
        rows.append((left, right))
    if not rows:
        raise DataError(f"{path} is empty")
    return rows
