"""One language's sentences, read once from a text file, without repetitions, and memory-mapped ever after."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from hf_xsent.data.cache import read_batches
from hf_xsent.data.cleaning.repeats import RepeatFinder, hash_texts
from hf_xsent.data.readers.lines import lines
from hf_xsent.errors import DataError
from hf_xsent.files import digest, file_stamp, lock, write_json, writing

ROWS_PER_BATCH = 1 << 16
_HASHES_AT_ONCE = 4096


@dataclass(frozen=True)
class SentenceCounts:
    """What became of a file's lines."""

    lines: int
    empty: int
    too_long: int
    repeated: int
    kept: int


class Sentences:
    """Distinct sentences with the numbers of the lines on which they first stood, in batches of ``ROWS_PER_BATCH``."""

    def __init__(self, path: Path, counts: SentenceCounts, fingerprint: str) -> None:
        self.counts = counts
        self.fingerprint = fingerprint
        self._path = path
        self._batches = read_batches(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Travel to another process as a path, not as texts."""
        return type(self), (self._path, self.counts, self.fingerprint)

    def __len__(self) -> int:
        return self.counts.kept

    @property
    def batch_count(self) -> int:
        """How many batches there are."""
        return len(self._batches)

    @property
    def rows_per_batch(self) -> int:
        """How many sentences each batch but the last holds."""
        return self.batch_length(0)

    def batch_length(self, number: int) -> int:
        """How many sentences one batch holds."""
        return len(self._batches[number])

    def batch(self, number: int) -> list[str]:
        """The texts of one batch."""
        texts: list[str] = self._batches[number].column(0).to_pylist()
        return texts

    def lines(self, number: int) -> npt.NDArray[np.int64]:
        """The line numbers of one batch, from 1."""
        numbers: npt.NDArray[np.int64] = self._batches[number].column(1).to_numpy()
        return numbers

    def __getitem__(self, row: int) -> tuple[str, int]:
        """Text and line number, from 1."""
        number, place = divmod(row, self.rows_per_batch)
        batch = self._batches[number]
        return batch.column(0)[place].as_py(), batch.column(1)[place].as_py()


def load_sentences(path: str | Path, folder: Path, max_characters: int = 1000) -> Sentences:
    """Read a file of one sentence a line, plain or compressed, into ``folder``; what is there already is used again.

    Empty lines, lines over ``max_characters`` and all but the first of equal lines (but for case and whitespace) are
    left out. The file is read twice, so that memory does not grow with it.
    """
    path = Path(path)
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    fingerprint = digest([*file_stamp(path), max_characters])
    info, table = folder / f"{fingerprint}.json", folder / f"{fingerprint}.arrow"
    with lock(folder / "lock"):  # of several processes one reads, the others wait
        if not info.is_file():
            counts = _write(path, table, max_characters)
            if not counts.kept:
                table.unlink()
                raise DataError(f"{path} holds no sentence: {counts.lines} lines, {counts.empty} of them empty")
            write_json(info, asdict(counts))
    return Sentences(table, SentenceCounts(**json.loads(info.read_text(encoding="utf-8"))), fingerprint)


def _write(path: Path, table: Path, max_characters: int) -> SentenceCounts:
    import pyarrow as pa

    finder = RepeatFinder(table.parent)
    try:
        texts = (text for _, text in _lines(path, "reading"))
        while some := list(islice(texts, _HASHES_AT_ONCE)):
            finder.add([hash_texts(text) for text in some])
        counts = dict.fromkeys(("empty", "too_long", "repeated", "kept"), 0)
        kept = _kept(path, finder.first_rows(), max_characters, counts)
        schema = pa.schema([("text", pa.string()), ("line", pa.int64())])
        with writing(table) as part, pa.OSFile(str(part), "wb") as file, pa.ipc.new_file(file, schema) as writer:
            while rows := list(islice(kept, ROWS_PER_BATCH)):
                columns = [pa.array(column) for column in zip(*rows, strict=True)]
                writer.write_batch(pa.record_batch(columns, schema=schema))
        return SentenceCounts(finder.rows, **counts)
    finally:
        finder.close()


def _kept(
    path: Path, first: npt.NDArray[np.bool_], max_characters: int, counts: dict[str, int]
) -> Iterator[tuple[str, int]]:
    """The sentences that stay, each with its line number; every line is counted."""
    for number, text in _lines(path, "writing"):
        if not text:
            counts["empty"] += 1
        elif len(text) > max_characters:
            counts["too_long"] += 1
        elif not first[number - 1]:
            counts["repeated"] += 1
        else:
            counts["kept"] += 1
            yield text, number


def _lines(path: Path, doing: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without outer whitespace, with a progress bar."""
    for number, line in tqdm(
        lines(path), f"{doing} {path.name}", unit=" lines", unit_scale=True, delay=2, disable=None
    ):
        yield number, line.strip()
