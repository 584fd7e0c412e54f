"""Read and check word links of sentence pairs, written as in Pharaoh: ``i-j``.

A link is a source and a target position, counted from 0. Stored links are between the words of ``split_words``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from hf_xsent.data.words.splitting import split_words
from hf_xsent.errors import DataError, shortened

Link = tuple[int, int]

_LINKS = re.compile(r"(\d{1,9}-\d{1,9}(\s+\d{1,9}-\d{1,9})*)?", re.ASCII)


def parse_links(text: str) -> list[Link]:
    """Parse ``0-0 1-2`` to pairs of positions.

    >>> parse_links("0-0 1-2")
    [(0, 0), (1, 2)]
    """
    return [(int(source), int(target)) for source, _, target in (link.partition("-") for link in text.split())]


def format_links(links: Iterable[Link]) -> str:
    """Format pairs of positions as ``0-0 1-2``."""
    return " ".join(f"{source}-{target}" for source, target in links)


def best_first(scores: Mapping[Link, float]) -> list[Link]:
    """Sort links by descending score, then by position."""
    return sorted(scores, key=lambda link: (-scores[link], link))


def check_links(links: Any, place: str, source: str, target: str) -> str | DataError | None:
    """Return the links of a pair between the words of `split_words`, None if it has none, or a `DataError`.

    ``place`` is where the links were read.
    """
    if links is None:
        return None
    if not isinstance(links, str) or not _LINKS.fullmatch(links.strip()):
        return DataError(f"{place}: links must be written like '0-0 1-2', not {shortened(links)}")
    parsed = parse_links(links)
    sides = [split_words(text) for text in (source, target)]
    for link in parsed:
        for number, words, name in zip(link, sides, ("source", "target"), strict=True):
            if number >= len(words):
                return DataError(f"{place}: the link {link[0]}-{link[1]} is outside the {name}, which has "
                                 f"{len(words)} words; positions count from 0")  # fmt: skip
    return format_links(dict.fromkeys(parsed)) or None


def links_of_units(links: Sequence[Link], sides: tuple[list[int], list[int]]) -> list[Link]:
    """Turn links between words into links between units.

    ``sides`` has the unit of each source and each target word (see `word_units`); links of truncated words are dropped.
    """
    of_units = ((sides[0][i], sides[1][j]) for i, j in links)
    return list(dict.fromkeys(link for link in of_units if min(link) >= 0))
