"""Open the sentence pairs of a command, in one file or in memory, and store them in parts that processes share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import Any

from hf_xsent.data.arrow import RowWriter, read_batches
from hf_xsent.data.cleaning.report import CleaningCounts
from hf_xsent.data.pair_settings import PairSettings
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.formats import LinkedPair, read_valid_pairs
from hf_xsent.data.readers.records import PAIR_FIELDS, arrow_columns
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.data.readers.sources import BitextSource, source_files
from hf_xsent.errors import RecipeError
from hf_xsent.files import digest
from hf_xsent.logs import Progress
from hf_xsent.runs.identity import identify_files
from hf_xsent.runs.store import Store

_FILE = "pairs.arrow"


def open_pairs(settings: PairSettings) -> BitextSource:
    """Return the source of these pairs."""
    columns = parse_columns(settings.columns)
    data = {settings.language: settings.pairs}
    resolved = resolve_sources(data, target_language=settings.target_language, columns=columns)
    sources = [source for of_language in resolved.values() for source in of_language]
    if len(sources) > 1:
        raise RecipeError(f"{settings.pairs} matches {len(sources)} files: give one file per run")
    return sources[0]


class PairParts(Sequence[list[LinkedPair]]):
    """All pairs of some sources, uncleaned, in parts of equal size (the last may be smaller)."""

    def __init__(self, path: Path, fingerprint: str) -> None:
        self.fingerprint, self._path, self._batches = fingerprint, path, read_batches(path)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the path, not the pairs."""
        return type(self), (self._path, self.fingerprint)

    def __len__(self) -> int:
        return len(self._batches)

    def __getitem__(self, number: Any) -> Any:
        batch = self._batches[number]
        stored = {name: batch.column(name).to_pylist() for name in batch.schema.names}
        return list(zip(*(stored.get(name, [None] * len(batch)) for name in PAIR_FIELDS), strict=True))

    @property
    def columns(self) -> list[str]:
        """Return the fields that any pair has."""
        return list(self._batches[0].schema.names)

    def pairs(self) -> Iterator[LinkedPair]:
        """Iterate over the pairs of all parts."""
        return (pair for part in self for pair in part)


def store_pairs(sources: Sequence[BitextSource], folder: Path, pairs_per_part: int) -> PairParts:
    """Read all pairs once, and store them; raise an error at a bad row."""

    def write(part: Path) -> None:
        part.mkdir()
        pairs = (pair for source in sources for pair in read_valid_pairs(source))
        with closing(RowWriter(part, arrow_columns())) as writer:
            writer.add(iter(Progress(pairs, desc="reading", unit=" pairs", unit_scale=True, delay=2)))
            CleaningCounts(writer.count, writer.count).require_pairs(" and ".join(source.name for source in sources))
            writer.write(part / _FILE, writer.distinct(), None, pairs_per_part)

    contents = identify_files(path for source in sources for path in source_files(source))
    fingerprint = digest([[asdict(source) for source in sources], contents, pairs_per_part])
    return Store(folder).get(fingerprint, write, lambda stored: PairParts(stored / _FILE, fingerprint))
