"""Read the distinct sentences of a text file once into a memory-mapped Arrow file."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import numpy.typing as npt

from hf_xsent.data.cache import digest_with_file, read_batches
from hf_xsent.data.cleaning.repeats import RepeatFinder, hash_texts
from hf_xsent.data.cleaning.rules import CleaningCounts
from hf_xsent.data.readers.columns import refuse_table
from hf_xsent.data.readers.compression import lines
from hf_xsent.errors import DataError
from hf_xsent.files import digest, file_stamp, write_json, writing
from hf_xsent.locks import lock
from hf_xsent.logs import Progress

logger = logging.getLogger(__name__)

FORMAT_VERSION = 3  # increase it when stored sentences or counts change
ROWS_PER_BATCH = 1 << 16
_HASHES_PER_CHUNK = 4096


@dataclass(frozen=True)
class SentenceCounts:
    """Counts of a file's lines: ``lines = retained + empty + too_long + repeated``."""

    lines: int
    empty: int
    too_long: int
    repeated: int
    retained: int

    def to_cleaning_counts(self) -> CleaningCounts:
        """Convert to the counts of a `CleaningReport`."""
        removed = {"empty": self.empty, "too_long": self.too_long, "repeated": self.repeated}
        return CleaningCounts(self.lines, self.retained, removed=removed)


class Sentences:
    """Distinct sentences, each with the line number of its first occurrence, in batches of ``ROWS_PER_BATCH``."""

    def __init__(self, path: Path, counts: SentenceCounts, fingerprint: str) -> None:
        self.counts = counts
        self.fingerprint = fingerprint
        self._path = path
        self._batches = read_batches(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the texts."""
        return type(self), (self._path, self.counts, self.fingerprint)

    def __len__(self) -> int:
        return self.counts.retained

    @property
    def batch_count(self) -> int:
        """Return the number of batches."""
        return len(self._batches)

    @property
    def rows_per_batch(self) -> int:
        """Return the number of sentences per batch (the last may have fewer)."""
        return self.batch_length(0)

    def batch_length(self, number: int) -> int:
        """Return the number of sentences in one batch."""
        return len(self._batches[number])

    def batch(self, number: int) -> list[str]:
        """Return the texts of one batch."""
        return cast("list[str]", self._batches[number].column(0).to_pylist())

    def line_numbers(self, number: int) -> npt.NDArray[np.int64]:
        """Return the line numbers of one batch, counted from 1."""
        return np.asarray(self._batches[number].column(1).to_numpy(), dtype=np.int64)

    def __getitem__(self, row: int) -> tuple[str, int]:
        """Return text and line number, counted from 1."""
        number, row = divmod(row, self.rows_per_batch)
        batch = self._batches[number]
        return batch.column(0)[row].as_py(), batch.column(1)[row].as_py()


def load_sentences(path: str | Path, folder: Path, max_characters: int = 1000) -> Sentences:
    """Read a file with one sentence per line, plain or compressed, and cache its sentences in ``folder``.

    Empty lines, lines over ``max_characters`` and repeated lines (ignoring case and whitespace) are dropped. The file
    is read twice, so that memory does not grow with its size.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"{path} is a folder: give a file" if path.is_dir() else f"no such file: {path}")
    fingerprint = digest([*file_stamp(path), max_characters, FORMAT_VERSION])
    info, table = folder / f"{fingerprint}.json", folder / f"{fingerprint}.arrow"
    with lock(folder / "lock"):  # one process reads, the others wait
        counts = _read_counts(info, table)
        if counts is None:
            if info.is_file():
                logger.warning("%s is damaged: %s is read again", table, path)
            counts = _write(path, table, max_characters)
            if not counts.retained:
                table.unlink()
                raise DataError(f"{path} has no sentences: {counts.lines} lines, {counts.empty} of them empty")
            write_json(info, {"counts": asdict(counts), "digest": digest_with_file(asdict(counts), table)})
    return Sentences(table, counts, fingerprint)


def _read_counts(info: Path, table: Path) -> SentenceCounts | None:
    """Read the counts of stored sentences; return None if there are none, or if a file is damaged."""
    try:
        content = json.loads(info.read_bytes())
        if content["digest"] != digest_with_file(content["counts"], table):
            return None
        counts = SentenceCounts(**content["counts"])
        return counts if sum(map(len, read_batches(table))) == counts.retained else None
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        return None


def _write(path: Path, table: Path, max_characters: int) -> SentenceCounts:
    import pyarrow as pa

    refuse_table(path, (line for _, line in lines(path)))
    with closing(RepeatFinder(table.parent)) as finder:
        numbered = _lines(path, "reading")
        while chunk := list(islice(numbered, _HASHES_PER_CHUNK)):
            # The hash of a line that is too long includes its number, so that no other line counts as its repetition.
            finder.add([hash_texts(*(() if len(text) <= max_characters else (str(n),)), text) for n, text in chunk])
        counts = dict.fromkeys(("empty", "too_long", "repeated", "retained"), 0)
        retained = _retained(path, finder.first_rows(), max_characters, counts)
        schema = pa.schema([("text", pa.string()), ("line", pa.int64())])
        with writing(table) as part, pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            while rows := list(islice(retained, ROWS_PER_BATCH)):
                columns = [pa.array(column) for column in zip(*rows, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=schema))
        return SentenceCounts(finder.rows, **counts)


def _retained(
    path: Path, first: npt.NDArray[np.bool_], max_characters: int, counts: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """Yield the retained sentences with their line numbers, and count every line."""
    for number, text in _lines(path, "writing"):
        if not text:
            counts["empty"] += 1
        elif len(text) > max_characters:
            counts["too_long"] += 1
        elif not first[number - 1]:
            counts["repeated"] += 1
        else:
            counts["retained"] += 1
            yield text, number


def _lines(path: Path, action: str) -> Iterator[tuple[int, str]]:
    """Yield numbered lines without outer whitespace, with a progress bar."""
    progress = Progress(lines(path), f"{action} {path.name}", unit=" lines", unit_scale=True, delay=2)
    yield from ((number, line.strip()) for number, line in progress)
