"""Name, type and check the fields of a sentence pair."""

from __future__ import annotations

import re
from typing import Any

from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.data.words.links import check_links
from hf_xsent.errors import DataError, shortened

# source, target, links, negatives of both sides, origin, licence
LinkedPair = tuple[str, str, str | None, list[str] | None, list[str] | None, str | None, str | None]
NEGATIVES = ("source_negatives", "target_negatives")  # each a list of sentences that are not translations of the pair
LICENCE, LICENSE = "licence", "license"  # two spellings of one column
LEDGER = ("origin", LICENCE)  # where a pair is from, and the licence of its use
PAIR_FIELDS = ("source", "target", "links", *NEGATIVES, *LEDGER)


def arrow_columns() -> dict[str, Any]:
    """Return the Arrow type of each field of a pair."""
    import pyarrow as pa

    return {name: pa.list_(pa.string()) if name in NEGATIVES else pa.string() for name in PAIR_FIELDS}


def exchange_sides(links: Any, source_negatives: Any, target_negatives: Any) -> tuple[Any, Any, Any]:
    """Return links and negatives of a pair whose sides are exchanged.

    >>> exchange_sides("0-0 1-2", ["not a source"], None)
    ('0-0 2-1', None, ['not a source'])
    """
    links = re.sub(r"(\d+)-(\d+)", r"\2-\1", links) if isinstance(links, str) else links
    return links, target_negatives, source_negatives


def checked_pair(source: BitextSource, number: int, first: Any, second: Any, *others: Any) -> LinkedPair | DataError:
    """Return the stripped texts of a row, its links and its negatives, or an error."""
    for side, text in (("source", first), ("target", second)):
        if not isinstance(text, str) or not text.strip() or "\0" in text:
            kind = "is missing" if text is None else f"is not text but {shortened(text)}"
            if isinstance(text, str):
                kind = "has NUL characters" if text.strip() else "is empty"
            cure = "fix it, or skip bad rows by on_error of load_bitext or pretrain"
            return DataError(f"{source.place(number)}: the {side} side {kind}; {cure}")
    first, second = first.strip(), second.strip()
    if others.count(None) == len(others):
        return first, second, None, None, None, None, None
    place, (links, *negatives, origin, licence) = source.place(number), others
    checked: list[Any] = [check_links(None if _is_missing(links) else links, place, first, second)]
    checked += [_check_negatives(place, name, side) for name, side in zip(NEGATIVES, negatives, strict=True)]
    checked += [stated_text(origin), stated_text(licence)]
    error = next((value for value in checked if isinstance(value, DataError)), None)
    return error or (first, second, *checked)


def stated_text(value: Any) -> str | None:
    """Return a value, such as the number of an origin, as text; None if it is missing or empty.

    >>> [stated_text(value) for value in (0, " CC0 ", " ", float("nan"), None, [], False)]
    ['0', 'CC0', None, None, None, None, None]
    """
    return None if _is_missing(value) else str(value).strip() or None


def _is_missing(value: Any) -> bool:
    """Return whether a value is missing: None, NaN, False, or empty."""
    return value != value or (not value and (isinstance(value, bool) or value != 0))


def _check_negatives(place: str, name: str, negatives: Any) -> list[str] | DataError | None:
    """Return the negatives of one side of a pair, None if it has none, or a `DataError`."""
    if _is_missing(negatives):
        return None
    if not isinstance(negatives, list) or not all(isinstance(text, str) and text.strip() for text in negatives):
        return DataError(f'{place}: {name} is not a list of sentences; write {{..., "{name}": ["..."]}}')
    return [text.strip() for text in negatives]
