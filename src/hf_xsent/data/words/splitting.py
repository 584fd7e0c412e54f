"""Split sentences into words by script, and map a tokenizer's word pieces to words."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import regex

Span = tuple[int, int]


_UNSPACED = r"\p{Han}\p{Hiragana}\p{Katakana}\p{Thai}\p{Lao}\p{Khmer}\p{Myanmar}ー々〇"
_LETTERS = rf"[[\p{{L}}\p{{M}}\p{{Nl}}\p{{No}}_\u200c\u200d]--[{_UNSPACED}]]"  # with the joiners of Persian and Hindi
_WORD = regex.compile(
    rf"""
    [\p{{Katakana}}ー]+                                        # a Japanese word of foreign origin
    | [{_UNSPACED}]\p{{M}}*                                    # scripts without spaces: each character with its marks
    | \p{{Nd}}+ (?: [.,:]\p{{Nd}}+ )*                          # 3, 1,000.5, 10:30
    | {_LETTERS}+ (?: ['’ʼ]{_LETTERS}+ )*                      # don't, l'eau
    | [^\s\x1c-\x1f]                                           # punctuation
    """,
    regex.VERBOSE | regex.VERSION1,
)

_SPACE = regex.compile(rf"\s+(?=[{_UNSPACED}\u3000-\u303f\uff00-\uff65])", regex.VERSION1)  # and East Asian punctuation


@dataclass(frozen=True)
class Words:
    """A sentence and the spans of its words."""

    text: str
    spans: tuple[Span, ...]

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def strings(self) -> list[str]:
        """Return the words."""
        return [self.text[start:end] for start, end in self.spans]


def split_words(text: str, splitter: str = "script") -> Words:
    """Split a sentence at spaces and around punctuation, and scripts without spaces, except Katakana, into characters.

    ``splitter="spaces"`` splits at spaces only, for text that is tokenized already.

    >>> split_words("Sie zahlt 1,50 (heute).").strings
    ['Sie', 'zahlt', '1,50', '(', 'heute', ')', '.']
    >>> split_words("私はコーヒーを").strings
    ['私', 'は', 'コーヒー', 'を']
    """
    pattern = _WORD if splitter == "script" else regex.compile(r"\S+")
    return Words(text, tuple(match.span() for match in pattern.finditer(text)))


def offsets_after_prompt(offsets: Sequence[Span], prompt: str) -> list[Span]:
    """Turn offsets of pieces in prompt + sentence into offsets in the sentence; those of the prompt become empty.

    >>> offsets_after_prompt([(0, 0), (0, 6), (7, 12), (0, 0)], "query: ")
    [(0, 0), (0, 0), (0, 5), (0, 0)]
    """
    return [(max(start - len(prompt), 0), max(end - len(prompt), 0)) for start, end in offsets]


def pieces_of_natural_text(text: str, offsets: Sequence[Span]) -> list[int]:
    """Return the indices of all pieces but those of a space before a script that is written without spaces.

    Tokenized Chinese or Japanese has a space between words, which such an encoder has rarely seen.

    >>> pieces_of_natural_text("我 爱 you", [(0, 0), (0, 1), (1, 2), (2, 3), (3, 7), (0, 0)])
    [0, 1, 3, 4, 5]
    """
    spaces = {match.span() for match in _SPACE.finditer(text)}
    return [piece for piece, offset in enumerate(offsets) if offset not in spaces]


def words_of_pieces(words: Words, offsets: Sequence[Span]) -> list[range]:
    """Return the range of words that each word piece overlaps, which is empty for special tokens."""
    starts, ends = [start for start, _ in words.spans], [end for _, end in words.spans]
    return [
        range(bisect_right(ends, start), bisect_left(starts, end)) if start < end else range(0)
        for start, end in offsets
    ]


def word_units(words: Words, offsets: Sequence[Span]) -> tuple[list[int], list[int]]:
    """Merge words that share a word piece into one unit; return the unit of each piece and of each word.

    Pieces without a word and truncated words have the unit -1.
    """
    of_pieces, of_words = [], [-1] * len(words)
    count = 0
    for overlapping in words_of_pieces(words, offsets):
        if not overlapping:
            of_pieces.append(-1)
            continue
        unit = next((of_words[word] for word in overlapping if of_words[word] >= 0), count)
        count = max(count, unit + 1)
        of_pieces.append(unit)
        for word in overlapping:
            if of_words[word] < 0:
                of_words[word] = unit
    return of_pieces, of_words
