"""Read the two sides of bitext, as pairs or shuffled independently, and unpaired text files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from hf_xsent.data.bitext import Bitext, Pair, checked_rows
from hf_xsent.data.cleaning.report import CleaningReport
from hf_xsent.data.readers.resolving import language_of_name
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError
from hf_xsent.files import digest

_SAMPLED_ROWS = 1000


class BitextSide(Sequence[str]):
    """One side's sentences of a language, read from bitext on access."""

    def __init__(self, bitext: Bitext, language: str, side: str) -> None:
        self.bitext, self.rows, self.side = bitext, bitext.ranges[language], side

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """Return one sentence, or a list of them."""
        rows = self.rows[index]
        pairs = self.bitext.__getitems__([rows] if isinstance(rows, int) else rows)
        return pairs[0][self.side] if isinstance(rows, int) else [pair[self.side] for pair in pairs]


class TextSides:
    """Source and target sentences of each language, as rows of ``{"source", "target", "language"}``.

    With ``shuffle_independently`` each side is shuffled separately, so that the sides of a row are not translations. A
    language has one row per sentence of its longer side; the sentences of the shorter side repeat. ``content`` is a
    hash of the sentences, if one is known.
    """

    def __init__(
        self,
        texts: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        shuffle_independently: bool = False,
        seed: int = 0,
        report: Any = None,
        content: str = "",
    ) -> None:
        self.texts = dict(texts)
        self.shuffle_independently = shuffle_independently
        self.report = report
        self._content, self._seed = content, seed
        sizes = [max(map(len, sides)) for sides in self.texts.values()]
        self._starts = np.cumsum([0, *sizes])
        starts = self._starts.tolist()
        self.ranges = dict(zip(self.texts, map(range, starts[:-1], starts[1:]), strict=True))
        self._orders = [
            [
                np.random.default_rng((seed, 2 * number + side)).permutation(len(sentences))
                if shuffle_independently
                else None
                for side, sentences in enumerate(sides)
            ]
            for number, sides in enumerate(self.texts.values())
        ]

    @classmethod
    def from_bitext(cls, bitext: Bitext, shuffle_independently: bool = False, seed: int = 0) -> TextSides:
        """Read both sides of every language lazily."""
        texts = {
            language: (BitextSide(bitext, language, "source"), BitextSide(bitext, language, "target"))
            for language in bitext.languages
        }
        return cls(texts, shuffle_independently, seed, bitext.report, bitext.identity)

    @classmethod
    def first(cls, rows: Bitext | TextSides, count: int) -> TextSides:
        """Return the first ``count`` sentences of each side; for a bitext, its first pairs of each language."""
        sides = rows if isinstance(rows, TextSides) else cls.from_bitext(rows)
        texts = {language: (source[:count], target[:count]) for language, (source, target) in sides.texts.items()}
        return cls(texts, sides.shuffle_independently)

    @classmethod
    def from_files(cls, source: str | Path, target: str | Path, folder: Path, on_error: str = "raise") -> TextSides:
        """Read two unpaired files with one sentence per line, cached in ``folder``."""
        files = {str(path): load_sentences(path, folder, on_error) for path in (source, target)}
        sides = list(files.values())
        if len(sides) < 2 or sides[0][:_SAMPLED_ROWS] == sides[1][:_SAMPLED_ROWS]:
            raise DataError(f"{source} and {target} hold the same sentences; give one file of each language")
        report = CleaningReport({path: side.counts for path, side in files.items()})
        content = digest([side.fingerprint for side in sides])
        language = language_of_name(str(source), "und") or "und"
        return cls({language: (sides[0], sides[1])}, True, report=report, content=content)

    @property
    def identity(self) -> str:
        """Return a hash of all rows, in their order."""
        content = self._content or [[list(side) for side in sides] for sides in self.texts.values()]
        return digest([[*self.texts], content, self.shuffle_independently and self._seed])

    @property
    def languages(self) -> dict[str, int]:
        """Return the number of rows of each language."""
        return {language: len(rows) for language, rows in self.ranges.items()}

    @property
    def ledger(self) -> dict[str, int]:
        """Return the number of pairs of the bitext by origin and licence; empty for files."""
        source, _ = next(iter(self.texts.values()))
        return source.bitext.ledger if isinstance(source, BitextSide) else {}

    @property
    def unpaired(self) -> dict[str, tuple[int, int]]:
        """Return the number of source and target sentences of each language; empty for sides of bitext."""
        return {
            language: (len(source), len(target))
            for language, (source, target) in self.texts.items()
            if self.shuffle_independently and not isinstance(source, BitextSide)
        }

    def __len__(self) -> int:
        return int(self._starts[-1])

    def side_rows(
        self, rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[str, npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]]:
        """Yield each language of ``rows``, its positions in ``rows``, and its row numbers on both sides."""
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number, (language, sides) in enumerate(self.texts.items()):
            positions = np.flatnonzero(numbers == number)
            if len(positions):
                local = rows[positions] - self._starts[number]
                wrapped = [(local % len(side), order) for side, order in zip(sides, self._orders[number], strict=True)]
                yield language, positions, [side if order is None else order[side] for side, order in wrapped]

    def __getitem__(self, row: int) -> Pair:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Pair]:
        """Return many rows; torch's DataLoader calls this for a batch."""
        pairs: list[Pair] = [{} for _ in rows]
        for language, positions, both in self.side_rows(checked_rows(rows, len(self))):
            source, target = self.texts[language]
            for position, row, other in zip(positions.tolist(), *(side.tolist() for side in both), strict=True):
                pairs[position] = {"source": source[row], "target": target[other], "language": language}
        return pairs
