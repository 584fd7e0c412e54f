"""Stream sentence pairs from every supported format; memory does not grow with the file.

Each reader yields ``(row number, source, target)``, or the number and all fields of a pair (`records.PAIR_FIELDS`),
and a `DataError` in place of a bad row. The caller raises or counts these errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from hf_xsent.data.readers.catalogs import read_mo, read_po
from hf_xsent.data.readers.columns import require_letters
from hf_xsent.data.readers.records import NEGATIVES, check_negatives, read_datasets, read_jsonl, read_parquet
from hf_xsent.data.readers.sources import BitextSource, source_files, source_format
from hf_xsent.data.readers.tables import read_csv, read_moses, read_tsv
from hf_xsent.data.readers.tmx import read_tmx
from hf_xsent.data.words.links import check_links
from hf_xsent.errors import DataError, shortened

# source, target, links, negatives of both sides, origin, licence
LinkedPair = tuple[str, str, str | None, list[str] | None, list[str] | None, str | None, str | None]
OnError = Literal["raise", "skip"]

_READERS: dict[str, Callable[[BitextSource], Iterator[Any]]] = {
    "tsv": read_tsv,
    "csv": read_csv,
    "moses": read_moses,
    "tmx": read_tmx,
    "po": read_po,
    "mo": read_mo,
    "jsonl": read_jsonl,
    "parquet": read_parquet,
    "datasets": read_datasets,
}


def read_pairs(source: BitextSource) -> Iterator[tuple[str, str]]:
    """Stream the pairs of a source; raise the error of the first bad row."""
    for pair in read_linked_pairs(source):
        if isinstance(pair, DataError):
            raise pair
        yield pair[:2]


def read_linked_pairs(source: BitextSource) -> Iterator[LinkedPair | DataError]:
    """Stream pairs with their word links and negatives, and a `DataError` in place of each bad row."""
    source_files(source)
    rows = _READERS[source_format(source)](source)
    yield from require_letters((_checked_pair(source, row) for row in rows), source.name)


def _checked_pair(source: BitextSource, row: Any) -> LinkedPair | DataError:
    """Return the stripped texts of a row, its links and its negatives, or an error."""
    if isinstance(row, DataError):
        return row
    number, first, second, *others = row
    for side, text in (("source", first), ("target", second)):
        if not isinstance(text, str) or not text.strip():
            kind = (
                "missing" if text is None else "empty" if isinstance(text, str) else f"not text but {shortened(text)}"
            )
            cure = "fix it, or skip bad rows by on_error of load_bitext or pretrain"
            return DataError(f"{source.place(number)}: the {side} side is {kind}; {cure}")
    first, second = first.strip(), second.strip()
    if not any(others):
        return first, second, None, None, None, None, None
    place, (links, *negatives, origin, licence) = source.place(number), others
    checked: list[Any] = [check_links(links, place, first, second)]
    checked += [check_negatives(place, name, side) for name, side in zip(NEGATIVES, negatives, strict=True)]
    checked += [str(text).strip() or None if text == text and text is not None else None for text in (origin, licence)]
    error = next((value for value in checked if isinstance(value, DataError)), None)
    return error or (first, second, *checked)
