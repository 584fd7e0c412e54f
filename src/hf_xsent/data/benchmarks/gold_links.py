"""Sentence pairs whose words were linked by hand, in the format of the word alignment shared tasks."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from hf_xsent.data.words.links import Link
from hf_xsent.data.words.splitting import Words, split_words
from hf_xsent.errors import DataError

_GOLD_LINK = re.compile(r"(\d+)([-p])(\d+)", re.ASCII)


@dataclass(frozen=True)
class GoldPair:
    """A pair of sentences, its sure links, and those that are at least possible (all sure ones among them)."""

    source: Words
    target: Words
    sure: frozenset[Link]
    possible: frozenset[Link]


def load_gold_links(prefix: str | Path, first: int = 1) -> list[GoldPair]:
    """Load ``PREFIX.src-tgt`` (``source ||| target``, words between spaces) and ``PREFIX.gold`` (``i-j`` or ``ipj``).

    ``first`` is the number that the gold file gives to the first word.
    """
    texts, golds = (_read(Path(f"{prefix}{suffix}")) for suffix in (".src-tgt", ".gold"))
    if len(texts) != len(golds):
        raise DataError(f"{prefix}.gold has {len(golds)} lines but {prefix}.src-tgt {len(texts)}")
    pairs = []
    for number, (text, gold) in enumerate(zip(texts, golds, strict=True), start=1):
        source, bars, target = text.partition("|||")
        if not bars:
            raise DataError(f"{prefix}.src-tgt:{number}: no |||; a line is 'source ||| target'")
        found = [_GOLD_LINK.fullmatch(link) for link in gold.split()]
        links = {(int(one[1]) - first, int(one[3]) - first): one[2] for one in found if one}
        if not all(found) or any(min(link) < 0 for link in links):
            raise DataError(f"{prefix}.gold:{number}: links are i-j or ipj, counted from {first}, not {gold!r}")
        sure = frozenset(link for link, kind in links.items() if kind == "-")
        pairs.append(
            GoldPair(
                split_words(source.strip(), "spaces"), split_words(target.strip(), "spaces"), sure, frozenset(links)
            )
        )
    return pairs


def _read(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"cannot read {path}: {error}") from error
