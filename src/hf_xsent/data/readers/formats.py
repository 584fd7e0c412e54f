"""Stream sentence pairs from every supported format; memory does not grow with the file.

Each reader yields ``(row number, source text, target text)``, optionally with word links and negatives, and a
`DataError` in place of a bad row. The caller raises or counts these errors.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from hf_xsent.data.readers.catalogs import read_mo, read_po
from hf_xsent.data.readers.columns import require_letters
from hf_xsent.data.readers.records import check_negatives, read_datasets, read_jsonl, read_parquet
from hf_xsent.data.readers.sources import BitextSource, source_files, source_format
from hf_xsent.data.readers.tables import read_moses, read_tsv
from hf_xsent.data.readers.tmx import read_tmx
from hf_xsent.data.words.links import check_links, with_links
from hf_xsent.errors import DataError

LinkedPair = tuple[str, str, str | None, str | None]  # source, target, links, negatives
OnError = Literal["raise", "skip"]

_READERS: dict[str, Callable[[BitextSource], Iterator[Any]]] = {
    "tsv": read_tsv,
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
    yield from (pair[:2] for pair in read_valid_pairs(source))


def read_valid_pairs(source: BitextSource) -> Iterator[LinkedPair]:
    """Stream pairs with their word links and negatives; raise the error of the first bad row."""
    for pair in read_linked_pairs(source):
        if isinstance(pair, DataError):
            raise pair
        yield pair


def read_linked_pairs(source: BitextSource) -> Iterator[LinkedPair | DataError]:
    """Stream pairs with their word links and negatives, and a `DataError` in place of each bad row."""
    source_files(source)
    rows = _READERS[source_format(source)](source)
    if source.links is not None:
        rows = with_links(rows, source.links, source.path)
    yield from require_letters((_checked_pair(source, row) for row in rows), source.path)


def _checked_pair(source: BitextSource, row: Any) -> LinkedPair | DataError:
    """Return the stripped texts of a row, its links and its negatives, or an error."""
    if isinstance(row, DataError):
        return row
    number, *texts, links, negatives = (*row, None, None)[:5]
    place = f"{source.path}:{number}"
    for side, text in zip(("source", "target"), texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            kind = "empty" if isinstance(text, str) else f"not text but {type(text).__name__}"
            kind = "missing" if text is None else kind
            return DataError(f"{place}: the {side} side is {kind}; fix it or skip bad rows")
    pair = texts[0].strip(), texts[1].strip()
    if source.links is not None:
        number, links = links
    place_of_links = place if source.links is None else f"{source.links}:{number}"
    checked = [check_links(links, place_of_links, *pair, source.link_words), check_negatives(place, negatives)]
    return next((error for error in checked if isinstance(error, DataError)), (*pair, *checked))
