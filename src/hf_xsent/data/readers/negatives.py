"""Read the mined negatives of a pair: sentences in its two languages that are not its translations."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from hf_xsent.errors import DataError

NEGATIVES = ("source_negatives", "target_negatives")  # keys in JSONL, each with a list of sentences


def negatives_of(record: Mapping[str, Any]) -> tuple[Any, ...] | None:
    """Return the unchecked negatives of both sides, None if the record has neither."""
    return tuple(record.get(name) for name in NEGATIVES) if any(name in record for name in NEGATIVES) else None


def check_negatives(place: str, negatives: tuple[Any, ...] | None) -> str | DataError | None:
    """Return the negatives of a pair as JSON, None if it has none, or a `DataError`."""
    if negatives is None:
        return None
    sides = [[] if side is None else side for side in negatives]
    for name, side in zip(NEGATIVES, sides, strict=True):
        if not isinstance(side, list) or not all(isinstance(one, str) and one.strip() for one in side):
            return DataError(f'{place}: {name} is not a list of sentences; write {{..., "{name}": ["..."]}}')
    return json.dumps([[one.strip() for one in side] for side in sides], ensure_ascii=False) if any(sides) else None


def parse_negatives(text: str) -> dict[str, list[str]]:
    """Parse stored negatives.

    >>> parse_negatives('[["Katze"], []]')
    {'source_negatives': ['Katze'], 'target_negatives': []}
    """
    return dict(zip(NEGATIVES, json.loads(text), strict=True))
