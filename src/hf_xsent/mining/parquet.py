"""Exchange sentences and their vectors as Parquet, which databases and pipelines read and write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from hf_xsent.data.readers.compression import lines_or_errors
from hf_xsent.data.readers.records import open_parquet
from hf_xsent.data.sentences import Sentences, load_sentences, store_sentences
from hf_xsent.errors import DataError
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encoder import MADE_BY, append_vectors
from hf_xsent.runs.engines import Fill
from hf_xsent.runs.identity import first_difference, identify_files
from hf_xsent.runs.store import Store

ID, TEXT, VECTOR = "id", "text", "embedding"
_TEXT_TYPES = ("string", "large_string", "string_view", "null")  # the last of a file without texts
_LENGTHS = "rows without a vector, or vectors of different lengths: encode its texts again"


def is_parquet(path: str | Path) -> bool:
    """Return whether a path is a Parquet file, or a folder that holds some."""
    path = Path(path)
    return path.suffix.lower() == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def write_vectors(folder: Path, vectors: VectorStore, fill: Fill = Store.fill) -> None:
    """Write the sentences of a store with their line numbers and vectors."""
    names = [f"{number:05d}.parquet" for number in range(vectors.sentences.batch_count)]
    fill(Store(folder, vectors.made_from), names, WritingJob(vectors), "writing vectors")


@dataclass(frozen=True)
class WritingJob:
    """Write a batch of sentences and their vectors."""

    vectors: VectorStore

    def __call__(self, name: str, path: Path) -> None:
        """Write a Parquet file."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        number, sentences = int(Path(name).stem), self.vectors.sentences
        table = pa.table({ID: sentences.line_numbers(number), TEXT: sentences.batch(number)})
        rows = self.vectors.read([self.vectors.names[number]])[:]
        pq.write_table(append_vectors(table, VECTOR, np.asarray(rows), self.vectors.identity), path)


class VectorFiles:
    """Parquet files with the columns ``text`` and ``embedding``, such as those of `Encoder` and `write_vectors`.

    The column ``id``, if all files have it, identifies a sentence; else its row does, counted from 1. Ids of several
    types, such as whole numbers and text, are read as text.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        self.made_by: list[Mapping[str, Any]] = []  # of each file
        self.groups: list[tuple[Path, int]] = []
        self.id_types = set[Any]()  # of each file; None without ids
        counts = [0]
        for file in self.files:
            with open_parquet(file) as opened:
                if missing := {TEXT, VECTOR} - {*opened.schema_arrow.names}:
                    raise DataError(f"{file} has no column {min(missing)!r}: mine needs {TEXT} and {VECTOR}")
                _check_types(file, opened.schema_arrow)
                self.id_types.add(opened.schema_arrow.field(ID).type if ID in opened.schema_arrow.names else None)
                made_by = (opened.schema_arrow.field(VECTOR).metadata or {}).get(MADE_BY, b"{}")
                self.made_by.append(json.loads(made_by))
                for group in range(opened.num_row_groups):
                    self.groups.append((file, group))
                    counts.append(opened.metadata.row_group(group).num_rows)
        self.starts = np.cumsum(counts)  # first row of each row group, and the number of rows

    @property
    def has_ids(self) -> bool:
        """Return whether all files have the column ``id``."""
        return None not in self.id_types

    def check_model(self, identity: Mapping[str, str]) -> None:
        """Raise an error if the vectors name another model, or other settings of it."""
        for file, made_by in zip(self.files, self.made_by, strict=True):
            if made_by and (difference := first_difference(made_by, identity)):
                cure = "give the model and the settings (such as --max_length) that made them"
                raise DataError(f"the vectors in {file} were made with {difference}: {cure}")

    def sentences(self, folder: Path) -> Sentences:
        """Store the distinct sentences; their line numbers are the rows, counted from 1."""
        identity = identify_files(self.files)
        return store_sentences(str(self.path), identity, lambda: enumerate((row[1] for row in self.lines()), 1), folder)

    def lines(self) -> Iterator[tuple[Any, str]]:
        """Yield id and text of each row."""
        row = 0
        for number in range(len(self.groups)):
            texts = self._read(number, TEXT).to_pylist()
            ids = self._read(number, ID).to_pylist() if self.has_ids else range(row + 1, row + 1 + len(texts))
            row += len(texts)
            yield from ((key, text or "") for key, text in zip(ids, texts, strict=True))

    def ids(self, lines: np.ndarray) -> Any:
        """Return the ids of rows, counted from 1, as an array."""
        if not self.has_ids:
            return lines
        import pyarrow as pa

        rows, places = np.unique(lines - 1, return_inverse=True)
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        parts = [
            self._read(int(number), ID).take(rows[groups == number] - self.starts[number])
            for number in np.unique(groups)
        ]
        return pa.concat_arrays(parts).take(places) if parts else lines

    def _read(self, number: int, column: str) -> Any:
        file, group = self.groups[number]
        with open_parquet(file) as opened:
            values = opened.read_row_group(group, columns=[column]).column(0)
        return (values.cast("string") if column == ID and len(self.id_types) > 1 else values).combine_chunks()

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of rows in ascending order."""
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        parts = [
            self._matrix(int(number))[rows[groups == number] - self.starts[number]] for number in np.unique(groups)
        ]
        if len({self.width, *(part.shape[1] for part in parts)}) > 1:
            raise DataError(f"{self.path} has {_LENGTHS}")
        return np.concatenate(parts)

    @cached_property
    def width(self) -> int:
        """Return the length of the first vector."""
        return int(self._matrix(int(np.flatnonzero(np.diff(self.starts))[0])).shape[1])

    def _matrix(self, number: int) -> np.ndarray:
        """Return the vectors of a row group."""
        import pyarrow.compute as pc

        lists = self._read(number, VECTOR)
        if len(pc.unique(pc.list_value_length(lists))) != 1 or lists.null_count:
            raise DataError(f"{self.groups[number][0]} has {_LENGTHS}")
        return np.asarray(lists.flatten()).reshape(len(lists), -1)


def _check_types(file: Path, schema: Any) -> None:
    """Raise an error unless texts are strings and vectors are lists of numbers."""
    from pyarrow import types

    text, vector = (schema.field(name).type for name in (TEXT, VECTOR))
    is_text = str(text.value_type if types.is_dictionary(text) else text) in _TEXT_TYPES
    number = getattr(vector, "value_type", vector)
    is_number = types.is_floating(number) or types.is_integer(number) or types.is_decimal(number)
    for name, column_type, expected, is_right in (
        (TEXT, text, "text", is_text),
        (VECTOR, vector, "lists of numbers", is_number and number != vector),
    ):
        if not is_right:
            raise DataError(
                f"{file}: the column {name!r} has values of the type {column_type}, not {expected}: convert it"
            )


@dataclass(frozen=True)
class TextFile:
    """A text file of one sentence per line, whose ids are the line numbers."""

    path: str
    on_error: str = "raise"
    has_ids: ClassVar[bool] = False

    def sentences(self, folder: Path) -> Sentences:
        """Store the distinct sentences."""
        return load_sentences(self.path, folder, on_error=self.on_error)

    def lines(self) -> Iterator[tuple[Any, str]]:
        """Yield number and text of each line."""
        return ((number, line) for number, line in lines_or_errors(Path(self.path)) if isinstance(line, str))

    def ids(self, lines: np.ndarray) -> Any:
        """Return the line numbers."""
        return lines


MiningInput = TextFile | VectorFiles
