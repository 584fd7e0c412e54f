"""Read text that is parallel in several languages: a folder with a file per language, or a table with a column each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from os import PathLike
from pathlib import Path

from hf_xsent.data.benchmarks.sets import find_sets, select_languages
from hf_xsent.data.languages import CODE, find_language
from hf_xsent.data.readers.compression import lines
from hf_xsent.errors import DataError

# Of NTREX-128 (newstest2019-ref.deu.txt), of FLORES (deu_Latn.devtest), and de.txt.
_FILES = rf"(?:newstest2019-(?:ref|src)\.)?({CODE})\.(?:txt|dev|devtest)"


@dataclass(frozen=True)
class ParallelSet:
    """The sentences of one language; sentence i of every language is a translation of sentence i of the others."""

    language: str
    sentences: list[str]


def load_parallel(
    source: str | PathLike[str], languages: Iterable[str] | None = None, max_pairs: int | None = None
) -> list[ParallelSet]:
    """Load the first ``max_pairs`` sentences (default: all) of some languages, or of all.

    ``source`` is a folder of files ``de.txt`` (also of NTREX-128 or FLORES, compressed or not), or a TSV whose header
    names the languages. Lines that are empty in a language are dropped in all, and so are those that repeat an earlier
    line in all. By default, a language without a region (eng) replaces those with one (eng-GB).
    """
    texts = _read(Path(source))
    chosen = list(dict.fromkeys(select_languages(source, list(texts), languages)))
    if len(chosen) < 2:
        raise DataError(f"{source}: parallel text needs two or more languages, not {', '.join(chosen) or 'none'}")
    columns = [texts[name] for name in chosen]
    for name, column in zip(chosen, columns, strict=True):
        if len(column) != len(columns[0]):
            raise DataError(
                f"{source} has {len(columns[0])} lines in {chosen[0]} but {len(column)} in {name}: all languages need "
                "the same lines"
            )
    rows = list(dict.fromkeys(row for row in zip(*columns, strict=True) if all(row)))[:max_pairs]
    if len(rows) < 2:
        raise DataError(f"{source} has fewer than two lines with text in all of {', '.join(chosen)}")
    sets = [ParallelSet(name, list(column)) for name, column in zip(chosen, zip(*rows, strict=True), strict=True)]
    for each in sets:  # a column of numbers may be named id, the code of Indonesian
        if not any(map(str.isalpha, "".join(each.sentences))):
            raise DataError(f"{source}: {each.language} has no letters: name the other languages, or drop it")
    return sets


def parallel_languages(source: str | PathLike[str]) -> list[str]:
    """Return the names of all languages of parallel text."""
    return list(_read(Path(source)))


def _read(source: Path) -> dict[str, list[str]]:
    texts = _read_folder(source) if source.is_dir() else _read_table(source)
    for name in texts:
        try:
            find_language(name)
        except DataError as error:
            if source.is_dir():
                raise DataError(f"{source}: {error}") from error
            raise DataError(
                f"{source}:1: the first line must name a language per column, not {name[:30]!r}: add it, or measure "
                "pairs by --pairs"
            ) from error
    return texts


def _read_folder(folder: Path) -> dict[str, list[str]]:
    inner = folder / "devtest"  # FLORES has a folder for each split
    places = find_sets(inner if inner.is_dir() else folder, _FILES, "de.txt or deu_Latn.devtest", {})
    return {name: [line.strip() for _, line in lines(Path(place))] for name, place in places.items()}


def _read_table(path: Path) -> dict[str, list[str]]:
    if not path.is_file():
        raise DataError(f"no such file or folder: {path}; give a folder of files such as de.txt, or a TSV")
    rows = [(number, line.split("\t")) for number, line in lines(path) if line.strip()]
    names = [name.strip() for name in rows[0][1]] if rows else []
    if repeated := [name for name in names if names.count(name) > 1]:
        raise DataError(f"{path}:1: two columns are named {repeated[0]}: give each the code of its language")
    for number, cells in rows[1:]:
        if len(cells) != len(names):
            raise DataError(f"{path}:{number}: {len(cells)} columns instead of {len(names)}, one per language")
    return {name: [cells[place].strip() for _, cells in rows[1:]] for place, name in enumerate(names)}
