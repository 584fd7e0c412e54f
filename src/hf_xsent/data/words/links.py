"""Word links: which words of a pair translate each other, as Pharaoh ``i-j`` lines or in the JSONL of align-words.

Wherever links are kept, the numbers count the words of ``words.split_words``, from 0.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.data.readers.compression import is_jsonl
from hf_xsent.data.readers.lines import lines
from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.errors import DataError

Link = tuple[int, int]

_LINKS = re.compile(r"\s*(\d+-\d+(\s+\d+-\d+)*)?\s*", re.ASCII)


def parse_links(text: str) -> list[Link]:
    """``0-0 1-2`` as pairs of numbers.

    >>> parse_links("0-0 1-2")
    [(0, 0), (1, 2)]
    """
    return [(int(one), int(other)) for one, _, other in (link.partition("-") for link in text.split())]


def format_links(links: Iterable[Link]) -> str:
    """Pairs of numbers as ``0-0 1-2``."""
    return " ".join(f"{one}-{other}" for one, other in links)


def best_first(scores: Mapping[Link, float]) -> list[Link]:
    """Links by falling score, equal ones as they stand in the sentence."""
    return sorted(scores, key=lambda link: (-scores[link], link))


@dataclass(frozen=True)
class LinkLine:
    """The links of one pair as they stand in a file."""

    place: str  # file:line
    links: Any
    source: str | None = None  # the pair, where the file holds it too
    target: str | None = None


def checked_links(line: LinkLine, source: str, target: str, splitter: str = "script") -> str | DataError | None:
    """The links of a pair, counted in words of ``split_words``; None where there is none, an error where one is wrong.

    Those of text that was split at spaces hold for all words within.
    """
    if line.links is None:
        return None
    if not isinstance(line.links, str) or not _LINKS.fullmatch(line.links):
        return DataError(f"{line.place}: links are written like '0-0 1-2', not {line.links!r}")
    for theirs, ours in ((line.source, source), (line.target, target)):
        if theirs is not None and theirs.strip() != ours:
            return DataError(f"{line.place}: these are the links of {theirs.strip()!r}, but the pair has {ours!r}; "
                             "give the links file of these pairs")  # fmt: skip
    links = parse_links(line.links)
    sides = [split_words(text, splitter) for text in (source, target)]
    for link in links:
        for number, words, name in zip(link, sides, ("source", "target"), strict=True):
            if number >= len(words):
                return DataError(f"{line.place}: the link {link[0]}-{link[1]} points outside the {name}, which has "
                                 f"{len(words)} words ({splitter}); words count from 0")  # fmt: skip
    if splitter != "script":
        inner = [_inner_words(words) for words in sides]
        links = [(one, other) for i, j in links for one in inner[0][i] for other in inner[1][j]]
    return format_links(dict.fromkeys(links)) or None


def _inner_words(words: Words) -> list[range]:
    """The numbers of the words of ``split_words`` within each of these."""
    starts = [start for start, _ in split_words(words.text).spans]
    return [range(sum(one < start for one in starts), sum(one < end for one in starts)) for start, end in words.spans]


def read_links(path: str | Path) -> Iterator[LinkLine]:
    """The lines of a links file: JSONL by its name, else Pharaoh."""
    path = Path(path)
    jsonl = is_jsonl(path.name)
    for number, text in lines(path):
        place = f"{path}:{number}"
        try:
            record = json.loads(text) if jsonl else {"links": text.strip()}
            yield LinkLine(place, record["links"], record.get("source"), record.get("target"))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DataError(f"{place}: no JSON object with 'links'; hf-xsent align-words writes such") from error


def with_links(rows: Iterable[Any], path: str, pairs: str) -> Iterator[Any]:
    """Each row of a bitext file (or the error in its place) with its line of the links file."""
    given = read_links(path)
    count = 0
    rule = "line by line they belong together"
    for row in rows:
        line = next(given, None)
        if line is None:
            raise DataError(f"{path} has {count} lines but {pairs} more pairs: {rule}")
        count += 1
        yield row if isinstance(row, DataError) else (*row[:3], line)
    if next(given, None) is not None:
        raise DataError(f"{path} has more lines than {pairs} has pairs, which are {count}: {rule}")


def links_of_units(links: Sequence[Link], sides: tuple[list[int], list[int]]) -> list[Link]:
    """Links between words as links between units (see ``words.units``), without those of words that were cut off."""
    found = ((sides[0][i], sides[1][j]) for i, j in links)
    return list(dict.fromkeys((one, other) for one, other in found if one >= 0 and other >= 0))
