"""Read and check word links of sentence pairs, as Pharaoh ``i-j`` lines or in the JSONL of align-words.

A link is a source and a target position, counted from 0. Stored links are between the words of ``split_words``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import is_jsonl, lines, parse_json
from hf_xsent.data.words.splitting import split_words, words_of_pieces
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


@dataclass(frozen=True)
class LinkLine:
    """The unchecked links of one pair and where they were read."""

    place: str  # file:line
    links: Any
    source: str | None = None  # the pair, if the file has it too
    target: str | None = None


def check_links(line: LinkLine, source: str, target: str, splitter: str = "script") -> str | DataError | None:
    """Return the links of a pair between the words of `split_words`, None if it has none, or a `DataError`.

    With ``splitter="spaces"`` a link is between two tokens; it becomes links between all words in them.
    """
    if line.links is None:
        return None
    if not isinstance(line.links, str) or not _LINKS.fullmatch(line.links.strip()):
        return DataError(f"{line.place}: links must be written like '0-0 1-2', not {shortened(line.links)}")
    for linked, text in ((line.source, source), (line.target, target)):
        if linked is not None and linked.strip() != text:
            return DataError(f"{line.place}: these are the links of {shortened(linked.strip())}, but the pair has "
                             f"{shortened(text)}; give the links file of these pairs")  # fmt: skip
    links = parse_links(line.links)
    sides = [split_words(text, splitter) for text in (source, target)]
    for link in links:
        for number, words, name in zip(link, sides, ("source", "target"), strict=True):
            if number >= len(words):
                return DataError(f"{line.place}: the link {link[0]}-{link[1]} is outside the {name}, which has "
                                 f"{len(words)} words ({splitter}); positions count from 0")  # fmt: skip
    if splitter != "script":
        inner = [words_of_pieces(split_words(words.text), words.spans) for words in sides]
        links = [link for i, j in links for link in product(inner[0][i], inner[1][j])]
    return format_links(dict.fromkeys(links)) or None


def read_links(path: str | Path) -> Iterator[LinkLine]:
    """Read the lines of a links file: JSONL if its suffix says so, else Pharaoh."""
    path = Path(path)
    jsonl = is_jsonl(path.name)
    for number, text in lines(path):
        place = f"{path}:{number}"
        try:
            record = parse_json(text) if jsonl else {"links": text.strip()}
            sides = [None if (side := record.get(name)) is None else str(side) for name in ("source", "target")]
            yield LinkLine(place, record["links"], *sides)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{place}: not a JSON object with 'links', as hf-xsent align-words writes") from error


def with_links(rows: Iterable[Any], path: str, pairs: str) -> Iterator[Any]:
    """Yield each row of a bitext file (or its `DataError`) with the same line of the links file."""
    links = read_links(path)
    count = 0
    for count, row in enumerate(rows, start=1):
        line = next(links, None)
        if line is None:
            raise DataError(
                f"{path} has only {count - 1} lines, but {pairs} has more pairs; give one line of links per pair"
            )
        yield row if isinstance(row, DataError) else (*row[:3], line, *row[4:])
    if next(links, None) is not None:
        raise DataError(f"{path} has more lines than the {count} pairs of {pairs}; give one line of links per pair")


def links_of_units(links: Sequence[Link], sides: tuple[list[int], list[int]]) -> list[Link]:
    """Turn links between words into links between units.

    ``sides`` has the unit of each source and each target word (see `word_units`); links of truncated words are dropped.
    """
    of_units = ((sides[0][i], sides[1][j]) for i, j in links)
    return list(dict.fromkeys(link for link in of_units if min(link) >= 0))
