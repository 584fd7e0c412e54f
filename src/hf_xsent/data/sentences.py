"""Read the distinct sentences of a text file once into a memory-mapped Arrow file."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast, overload

import numpy as np
import numpy.typing as npt

from hf_xsent.data.arrow import read_batches, read_counts, write_distinct
from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.cleaning.report import CleaningCounts
from hf_xsent.data.readers.compression import lines, lines_or_errors
from hf_xsent.data.readers.sources import refuse_missing, refuse_table
from hf_xsent.errors import DataError
from hf_xsent.files import digest, file_digest
from hf_xsent.logs import Progress
from hf_xsent.runs.store import Store

logger = logging.getLogger(__name__)

FORMAT_VERSION = 7  # increase it when stored sentences, counts or warnings change
MAX_CHARACTERS = 1000  # of a sentence
ROWS_PER_BATCH = 1 << 16  # at most
_FEWEST_ROWS, _BATCHES = 1 << 10, 16
_FILE = "sentences.arrow"


class Sentences(Sequence[str]):
    """Distinct sentences with the line numbers of their first occurrences, in batches of at most ``ROWS_PER_BATCH``."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.fingerprint = fingerprint
        self.counts = read_counts(path)
        self._path = path
        self._batches = read_batches(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the texts."""
        return type(self), (self._path, self.fingerprint)

    def __len__(self) -> int:
        return self.counts.retained

    @property
    def batch_count(self) -> int:
        """Return the number of batches."""
        return len(self._batches)

    @property
    def rows_per_batch(self) -> int:
        """Return the number of sentences per batch (the last may have fewer)."""
        return len(self._batches[0])

    def batch(self, number: int) -> list[str]:
        """Return the texts of one batch."""
        return cast("list[str]", self._batches[number].column(0).to_pylist())

    def line_numbers(self, number: int) -> npt.NDArray[np.int64]:
        """Return the line numbers of one batch, counted from 1."""
        return np.asarray(self._batches[number].column(1).to_numpy(), dtype=np.int64)

    def lines_of(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the line numbers of some rows."""
        return np.concatenate([self.line_numbers(number) for number in range(self.batch_count)])[rows]

    @overload
    def __getitem__(self, rows: int) -> str: ...
    @overload
    def __getitem__(self, rows: slice) -> list[str]: ...
    def __getitem__(self, rows: int | slice) -> str | list[str]:
        """Return one sentence, or a list of them."""
        if isinstance(rows, slice):
            return [self[row] for row in range(len(self))[rows]]
        number, row = divmod(range(len(self))[rows], self.rows_per_batch)
        return str(self._batches[number].column(0)[row])

    def rows(self, texts: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the row of each text, ignoring case and whitespace; -1 if it is not among the sentences."""
        hashes, order = self._sorted_hashes
        wanted = _hashes(texts)
        places = np.searchsorted(hashes, wanted).clip(max=len(hashes) - 1)
        return np.where(hashes[places] == wanted, order[places], -1)

    @cached_property
    def _sorted_hashes(self) -> tuple[npt.NDArray[np.uint64], npt.NDArray[np.int64]]:
        """Return the hashes of all sentences in ascending order, and their rows."""
        hashes = np.concatenate([_hashes(self.batch(number)) for number in range(self.batch_count)])
        order = np.argsort(hashes)
        return hashes[order], order


def _hashes(texts: Iterable[str]) -> npt.NDArray[np.uint64]:
    return np.fromiter(map(hash_texts, texts), np.uint64)


def load_sentences(path: str | Path, folder: Path, on_error: str = "raise") -> Sentences:
    """Read a file with one sentence per line, plain or compressed, and cache its sentences in ``folder``.

    Empty lines, lines over ``MAX_CHARACTERS`` and repeated lines (ignoring case and whitespace) are dropped; with
    ``on_error="skip"``, so are lines that are not text, each with a warning. All are counted.
    """
    path = Path(path)
    refuse_missing(path)

    def read() -> Iterator[tuple[int, str | DataError]]:
        refuse_table(path, (line for _, line in lines_or_errors(path) if isinstance(line, str)))
        return lines_or_errors(path) if on_error == "skip" else iter(lines(path))

    identity = digest([file_digest(path), on_error])
    return store_sentences(str(path), identity, read, folder)


def store_sentences(
    name: str,
    identity: str,
    read: Callable[[], Iterable[tuple[int, str | DataError]]],
    folder: Path,
) -> Sentences:
    """Cache the sentences among numbered lines, as `load_sentences` does; ``identity`` identifies the lines."""
    fingerprint = digest([identity, MAX_CHARACTERS, FORMAT_VERSION])
    return Store(folder).get_and_warn(
        fingerprint,
        lambda part: _write(name, read, part),
        lambda stored: Sentences(stored / _FILE, fingerprint),
    )


def _write(name: str, read: Callable[[], Iterable[tuple[int, str | DataError]]], folder: Path) -> None:
    numbered = read()
    folder.mkdir(parents=True)
    counts = CleaningCounts()
    sentences = _sentences(Progress(numbered, f"reading {name}", unit=" lines", delay=2), counts)
    columns = {"text": "string", "line": "int64"}
    write_distinct(
        folder / _FILE, columns, sentences, counts, lambda row: hash_texts(row[0]), rows_per_batch=_rows_per_batch
    )
    if not counts.retained:
        empty, long = (counts.removed.get(reason, 0) for reason in ("empty", "too_long"))
        raise DataError(
            f"{name} has no sentences: of {counts.read} lines, {empty} are empty and {long} longer than "
            f"{MAX_CHARACTERS} characters"
        )


def _rows_per_batch(count: int) -> int:
    """Return a size by which several processes share the work of a small file."""
    return min(ROWS_PER_BATCH, max(_FEWEST_ROWS, -(-count // _BATCHES)))


def _sentences(numbered: Iterable[tuple[int, str | DataError]], counts: CleaningCounts) -> Iterator[tuple[str, int]]:
    """Yield the lines that may be sentences with their numbers, and count all."""
    for number, line in numbered:
        counts.read += 1
        if isinstance(line, DataError):
            logger.warning("skipped %s", line)
            counts.bad += 1
        elif not (text := line.strip()):
            counts.remove("empty")
        elif len(text) > MAX_CHARACTERS:
            counts.remove("too_long")
        else:
            yield text, number
