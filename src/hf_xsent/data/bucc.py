"""The shared task BUCC 2018: two sets of sentences, some of which translate each other."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hf_xsent.data.lines import lines
from hf_xsent.errors import DataError


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
