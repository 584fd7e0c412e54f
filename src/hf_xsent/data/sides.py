"""Read both sides of bitext as two lists, row by row or each in an order of its own, and unpaired text files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from hf_xsent.data.bitext import Bitext, Pair
from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.sampling.permutation import Permutation
from hf_xsent.data.sentences import Sentences, load_sentences
from hf_xsent.errors import DataError

_ROWS_COMPARED = 1000


class BitextSide(Sequence[str]):
    """One language's sentences of one side, ``source`` or ``target``, read when asked for."""

    def __init__(self, bitext: Bitext, language: str, side: str) -> None:
        self.bitext, self.rows, self.side = bitext, bitext.ranges[language], side

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        """One sentence, or a list of them."""
        if isinstance(number, slice):
            return [pair[self.side] for pair in self.bitext.__getitems__(self.rows[number])]
        return self.bitext[self.rows[number]][self.side]


class FileSide(Sequence[str]):
    """The distinct sentences of a text file."""

    def __init__(self, sentences: Sentences) -> None:
        self.sentences = sentences

    def __len__(self) -> int:
        return len(self.sentences)

    @overload
    def __getitem__(self, number: int) -> str: ...
    @overload
    def __getitem__(self, number: slice) -> list[str]: ...
    def __getitem__(self, number: int | slice) -> str | list[str]:
        """One sentence, or a list of them."""
        if isinstance(number, slice):
            return [self.sentences[row][0] for row in range(*number.indices(len(self)))]
        return self.sentences[number][0]


@dataclass(frozen=True)
class FileReport:
    """What became of the lines of unpaired files."""

    files: Mapping[str, Sentences]

    def to_dict(self) -> dict[str, Any]:
        """As the report of bitext has it."""
        return {path: asdict(sentences.counts) for path, sentences in self.files.items()}


class TextSides:
    """Sentences of each language and of the target's, as rows of ``{"source", "target", "language"}``.

    With ``shuffle_independently`` each side of a language has an order of its own, so that a row holds no translations;
    there are as many rows as the longer side has sentences, and the shorter side repeats.
    """

    def __init__(
        self,
        texts: Mapping[str, tuple[Sequence[str], Sequence[str]]],
        shuffle_independently: bool = False,
        seed: int = 0,
        report: Any = None,
    ) -> None:
        self.texts = dict(texts)
        self.shuffle_independently = shuffle_independently
        self.report = report
        sizes = [max(map(len, sides)) for sides in self.texts.values()]
        self._starts = np.cumsum([0, *sizes])
        starts = self._starts.tolist()
        self.ranges = dict(zip(self.texts, map(range, starts[:-1], starts[1:]), strict=True))
        self._orders = [
            [
                Permutation(len(side), (seed, 2 * number + which)) if shuffle_independently else None
                for which, side in enumerate(sides)
            ]
            for number, sides in enumerate(self.texts.values())
        ]

    @classmethod
    def of_bitext(cls, bitext: Bitext, shuffle_independently: bool = False, seed: int = 0) -> TextSides:
        """Both sides of all languages; a language whose sides are the same is refused."""
        texts = {
            language: (BitextSide(bitext, language, "source"), BitextSide(bitext, language, "target"))
            for language in bitext.ranges
        }
        for language, (source, target) in texts.items():
            rows = np.linspace(0, len(source) - 1, min(_ROWS_COMPARED, len(source)), dtype=int).tolist()
            if all(source[row] == target[row] for row in rows):
                raise DataError(f"both sides of {language!r} hold the same sentences: they must be of two languages")
        return cls(texts, shuffle_independently, seed, bitext.report)

    @classmethod
    def first(cls, rows: Bitext | TextSides, count: int) -> TextSides:
        """The first so many sentences of each side; bitext stays row by row."""
        sides = rows if isinstance(rows, TextSides) else cls.of_bitext(rows)
        texts = {language: (source[:count], target[:count]) for language, (source, target) in sides.texts.items()}
        return cls(texts, sides.shuffle_independently)

    @classmethod
    def of_files(cls, source: str | Path, target: str | Path, folder: Path, seed: int = 0) -> TextSides:
        """Two files of one sentence a line, in no common order; ``folder`` keeps what was read."""
        files = {str(path): load_sentences(path, folder) for path in (source, target)}
        sides = [FileSide(one) for one in files.values()]
        if len(sides) < 2 or _same(*sides):
            raise DataError(f"{source} and {target} hold the same sentences: give one file of each language")
        return cls(
            {Path(source).name: (sides[0], sides[1])}, shuffle_independently=True, seed=seed, report=FileReport(files)
        )

    @property
    def languages(self) -> dict[str, int]:
        """Count the rows of each language."""
        return {language: len(rows) for language, rows in self.ranges.items()}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def side_rows(
        self, rows: npt.NDArray[np.int64]
    ) -> Iterator[tuple[str, npt.NDArray[np.int64], list[npt.NDArray[np.int64]]]]:
        """For each language among these rows: where it stands among them, and its rows on either side."""
        numbers = np.searchsorted(self._starts, rows, side="right") - 1
        for number, (language, sides) in enumerate(self.texts.items()):
            here = np.flatnonzero(numbers == number)
            if len(here):
                wanted = rows[here] - self._starts[number]
                within = [wanted % len(side) for side in sides]
                orders = self._orders[number]
                yield (
                    language,
                    here,
                    [one if order is None else order[one] for one, order in zip(within, orders, strict=True)],
                )

    def __getitem__(self, row: int) -> Pair:
        return self.__getitems__([row])[0]

    def __getitems__(self, rows: Sequence[int]) -> list[Pair]:
        """Many rows at once; torch's DataLoader calls this for a batch."""
        found: list[Pair] = [{} for _ in rows]
        for language, places, both in self.side_rows(np.asarray(rows, dtype=np.int64)):
            source, target = self.texts[language]
            for place, row, other in zip(places.tolist(), *(side.tolist() for side in both), strict=True):
                found[place] = {"source": source[row], "target": target[other], "language": language}
        return found

    def identities(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.uint64]:
        """Give two hashes a row, equal where sources or targets are, without regard to case and whitespace."""
        pairs = self.__getitems__(np.asarray(rows).tolist())
        return np.array([[hash_texts(pair[side]) for side in ("source", "target")] for pair in pairs], dtype=np.uint64)


def _same(source: Sequence[str], target: Sequence[str]) -> bool:
    """Whether a sample of the shorter side is wholly in the other."""
    short, long = sorted((source, target), key=len)
    sample = {short[row] for row in np.linspace(0, len(short) - 1, min(_ROWS_COMPARED, len(short)), dtype=int).tolist()}
    for start in range(0, len(long), _ROWS_COMPARED):
        sample -= set(long[start : start + _ROWS_COMPARED])
        if not sample:
            return True
    return False
