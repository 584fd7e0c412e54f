"""Read sentence pairs with gold word links in the format of the word alignment shared tasks."""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass
from pathlib import Path

from hf_xsent.data.readers.compression import lines
from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.errors import DataError, shortened

logger = logging.getLogger(__name__)
_GOLD_LINK = re.compile(r"(\d{1,9})([-p])(\d{1,9})", re.ASCII)


@dataclass(frozen=True)
class GoldPair:
    """A pair of sentences with its sure links and its possible links, which include the sure ones."""

    source: Words
    target: Words
    sure: frozenset[Link]
    possible: frozenset[Link]


def load_gold_links(prefix: str | Path) -> list[GoldPair]:
    """Load ``PREFIX.src-tgt`` (``source ||| target``, tokens separated by spaces) and ``PREFIX.gold``.

    A gold link is ``i-j`` (sure) or ``ipj`` (possible), counted from 1.
    """
    texts, golds = ([line for _, line in lines(Path(f"{prefix}{suffix}"))] for suffix in (".src-tgt", ".gold"))
    if len(texts) != len(golds):
        raise DataError(f"{prefix}.gold has {len(golds)} lines but {prefix}.src-tgt {len(texts)}")
    pairs = []
    for number, (text, gold) in enumerate(zip(texts, golds, strict=True), start=1):
        source, bars, target = text.partition("|||")
        if not bars:
            raise DataError(f"{prefix}.src-tgt:{number}: no |||; lines must be 'source ||| target'")
        matches = [_GOLD_LINK.fullmatch(link) for link in gold.split()]
        links = [((int(match[1]) - 1, int(match[3]) - 1), match[2]) for match in matches if match]
        if not all(matches) or any(min(link) < 0 for link, _ in links):
            raise DataError(f"{prefix}.gold:{number}: links must be i-j or ipj, counted from 1, not {shortened(gold)}")
        sure = frozenset(link for link, kind in links if kind == "-")
        sides = [split_words(side.strip(), "spaces") for side in (source, target)]
        pairs.append(GoldPair(sides[0], sides[1], sure, frozenset(link for link, _ in links)))
    beyond = [
        number
        for number, pair in enumerate(pairs, start=1)
        if any(i >= len(pair.source) or j >= len(pair.target) for i, j in pair.possible)
    ]
    if beyond:
        logger.warning(
            "%s.gold:%d: a link is beyond the words of %s.src-tgt, as in %d of %d lines, and counts as missed: "
            "check that both files are of the same tokenization",
            *(prefix, beyond[0], prefix, len(beyond), len(pairs)),
        )
    return pairs
