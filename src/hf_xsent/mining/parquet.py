"""Exchange sentences and their vectors as Parquet, which databases and pipelines read and write."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.sentences import Sentences, store_sentences
from hf_xsent.errors import DataError
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.models.encoder import MADE_BY, append_vectors
from hf_xsent.runs.engines import Fill
from hf_xsent.runs.identity import first_difference, identify_files
from hf_xsent.runs.store import Store

TEXT, VECTOR = "text", "embedding"
_LENGTHS = "rows without a vector, or vectors of different lengths: encode its texts again"


def is_parquet(path: str | Path) -> bool:
    """Return whether a path is a Parquet file, or a folder that holds some."""
    path = Path(path)
    return path.suffix.lower() == ".parquet" or (path.is_dir() and any(path.glob("*.parquet")))


def write_vectors(folder: Path, vectors: VectorStore, fill: Fill = Store.fill) -> None:
    """Write the sentences of a store with their vectors; ``id`` is the line of a sentence."""
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
        table = pa.table({"id": sentences.line_numbers(number), TEXT: sentences.batch(number)})
        rows = self.vectors.read([self.vectors.names[number]])[:]
        pq.write_table(append_vectors(table, VECTOR, np.asarray(rows), self.vectors.identity), path)


class VectorFiles:
    """Parquet files with the columns ``text`` and ``embedding``, such as those of `Encoder` and `write_vectors`."""

    def __init__(self, path: str | Path) -> None:
        import pyarrow.parquet as pq

        self.path = Path(path)
        self.files = sorted(self.path.glob("*.parquet")) if self.path.is_dir() else [self.path]
        self.made_by: list[Mapping[str, Any]] = []  # of each file
        self.groups: list[tuple[Path, int]] = []
        counts = [0]
        for file in self.files:
            with pq.ParquetFile(file) as opened:
                if missing := {TEXT, VECTOR} - {*opened.schema_arrow.names}:
                    raise DataError(f"{file} has no column {min(missing)!r}: mine needs {TEXT} and {VECTOR}")
                self.made_by.append(_made_by(opened.schema_arrow.field(VECTOR)))
                for group in range(opened.num_row_groups):
                    self.groups.append((file, group))
                    counts.append(opened.metadata.row_group(group).num_rows)
        self.starts = np.cumsum(counts)  # first row of each row group, and the number of rows

    def check_model(self, identity: Mapping[str, str]) -> None:
        """Raise an error if the vectors name another model, or other settings of it."""
        for file, made_by in zip(self.files, self.made_by, strict=True):
            if made_by and (difference := first_difference(made_by, identity)):
                raise DataError(f"the vectors in {file} were made with {difference}: give the model that made them")

    def sentences(self, folder: Path) -> Sentences:
        """Store the distinct sentences; their line numbers are the rows, counted from 1."""
        return store_sentences(str(self.path), identify_files(self.files), self._texts, folder)

    def _texts(self) -> Iterator[tuple[int, str]]:
        return enumerate(
            (text or "" for number in range(len(self.groups)) for text in self._read(number, TEXT)), start=1
        )

    def _read(self, number: int, column: str) -> Any:
        import pyarrow.parquet as pq

        file, group = self.groups[number]
        with pq.ParquetFile(file) as opened:
            values = opened.read_row_group(group, columns=[column]).column(0)
        return values.to_pylist() if column == TEXT else _matrix(values.combine_chunks(), file)

    def vectors(self, rows: np.ndarray) -> np.ndarray:
        """Return the vectors of rows in ascending order."""
        groups = np.searchsorted(self.starts, rows, side="right") - 1
        parts = [
            self._read(int(number), VECTOR)[rows[groups == number] - self.starts[number]]
            for number in np.unique(groups)
        ]
        if len({self.width, *(part.shape[1] for part in parts)}) > 1:
            raise DataError(f"{self.path} has {_LENGTHS}")
        return np.concatenate(parts)

    @cached_property
    def width(self) -> int:
        """Return the length of the first vector."""
        return int(self._read(int(np.flatnonzero(np.diff(self.starts))[0]), VECTOR).shape[1])


def _made_by(field: Any) -> dict[str, Any]:
    return dict(json.loads((field.metadata or {}).get(MADE_BY, b"{}")))


def _matrix(lists: Any, file: Path) -> np.ndarray:
    import pyarrow.compute as pc

    if len(pc.unique(pc.list_value_length(lists))) != 1 or lists.null_count:
        raise DataError(f"{file} has {_LENGTHS}")
    return np.asarray(lists.flatten()).reshape(len(lists), -1)
