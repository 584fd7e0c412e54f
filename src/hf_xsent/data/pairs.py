"""Open the sentence pairs of a command, in one file or in memory, and read them in parts that processes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from hf_xsent.data.arrow import read_batches
from hf_xsent.data.cache import CachedPairs
from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.formats import LinkedPair
from hf_xsent.data.readers.records import PAIR_FIELDS
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.errors import RecipeError
from hf_xsent.files import digest, file_digest
from hf_xsent.runs.identity import identify_files


def open_pairs(settings: PairSettings) -> BitextSource:
    """Return the source of these pairs."""
    columns = parse_columns(settings.columns)
    data = {settings.language: settings.pairs}
    resolved = resolve_sources(data, target_language=settings.target_language, columns=columns)
    sources = [source for of_language in resolved.values() for source in of_language]
    if len(sources) > 1:
        raise RecipeError(f"{settings.pairs} matches {len(sources)} files: give one file per run")
    return sources[0]


def store_pairs(language: str, sources: Sequence[BitextSource], folder: Path, pairs_per_part: int) -> PairParts:
    """Read all pairs once, without cleaning, and store them; raise an error at a bad row."""
    content = identify_files(path for source in sources for path in source_files(source))
    cached = CachedPairs(language, tuple(sources), cleaning=None, on_error="raise", max_pairs=None)
    path, _ = cached.load(folder / content)
    return PairParts(path, pairs_per_part)


class PairParts(Sequence[list[LinkedPair]]):
    """The pairs of an Arrow file in parts of equal size (the last may be smaller)."""

    def __init__(self, path: Path, size: int) -> None:
        import pyarrow as pa

        self._path, self._size = path, size
        table = pa.Table.from_batches(read_batches(path))
        self.columns = table.column_names  # the fields that any pair has
        self._parts = [table.slice(start, size) for start in range(0, len(table), size)]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the pairs."""
        return type(self), (self._path, self._size)

    @property
    def fingerprint(self) -> str:
        """Return a hash of all pairs, in their order and parts."""
        return digest([file_digest(self._path), self._size])

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, number: Any) -> Any:
        part = self._parts[number]
        stored = {name: part.column(name).to_pylist() for name in self.columns}
        return list(zip(*(stored.get(name, [None] * len(part)) for name in PAIR_FIELDS), strict=True))

    def pairs(self) -> Iterator[LinkedPair]:
        """Iterate over the pairs of all parts."""
        return (pair for part in self for pair in part)
