"""Words of a sentence, split as its script asks for, and which word pieces of a tokenizer are which word."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import regex

Span = tuple[int, int]

SPLITTERS = ("script", "spaces")

_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々〇"
_LETTERS = rf"[[\p{{L}}\p{{M}}\p{{Nl}}\p{{No}}_\u200c\u200d]--[{_UNSPACED}]]"  # with the joiners of Persian and Hindi
_WORD = regex.compile(
    rf"""
    [\p{{Katakana}}ー]+                                        # one Japanese word of foreign origin
    | [{_UNSPACED}]\p{{M}}*                                    # scripts without spaces: each character with its marks
    | \p{{Nd}}+ (?: [.,:]\p{{Nd}}+ )*                          # 3, 1,000.5, 10:30
    | {_LETTERS}+ (?: ['’ʼ]{_LETTERS}+ )*                      # don't, l'eau
    | \S                                                       # punctuation
    """,
    regex.VERBOSE | regex.VERSION1,
)


@dataclass(frozen=True)
class Words:
    """A sentence and where its words start and end."""

    text: str
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def strings(self) -> list[str]:
        """The words themselves."""
        return [self.text[start:end] for start, end in self.spans]


def split_words(text: str, splitter: str = "script") -> Words:
    """Split a sentence at spaces and around punctuation, and where a script has no spaces into characters.

    With ``splitter="spaces"`` the text is split already: words are what stands between spaces.

    >>> split_words("Sie zahlt 1,50 (heute).").strings
    ['Sie', 'zahlt', '1,50', '(', 'heute', ')', '.']
    >>> split_words("私はコーヒーを").strings
    ['私', 'は', 'コーヒー', 'を']
    """
    pattern = _WORD if splitter == "script" else regex.compile(r"\S+")
    return Words(text, tuple(found.span() for found in pattern.finditer(text)))


def words_of_pieces(words: Words, offsets: Sequence[Span]) -> list[range]:
    """The words that each word piece is a part of: none for special pieces, several where a piece spans them."""
    starts, ends = [start for start, _ in words.spans], [end for _, end in words.spans]
    return [
        range(bisect_right(ends, start), bisect_left(starts, end)) if start < end else range(0)
        for start, end in offsets
    ]


def units(words: Words, offsets: Sequence[Span]) -> tuple[list[int], list[int]]:
    """Words as a model sees them: those that share a piece become one. The unit of each piece, and of each word.

    A piece that belongs to no word, and a word that was cut off, has the unit -1.
    """
    of_pieces, of_words = [], [-1] * len(words)
    count = 0
    for some in words_of_pieces(words, offsets):
        if not some:
            of_pieces.append(-1)
            continue
        unit = next((of_words[word] for word in some if of_words[word] >= 0), count)
        count = max(count, unit + 1)
        of_pieces.append(unit)
        for word in some:
            if of_words[word] < 0:
                of_words[word] = unit
    return of_pieces, of_words
