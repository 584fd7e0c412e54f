"""What every evaluation task is: records that were checked, the sentences to encode, and scores from their vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np

from hf_xsent.files import digest

if TYPE_CHECKING:
    from typing_extensions import Self

Encode = Callable[[Sequence[str]], np.ndarray]  # one vector a sentence
Figures = dict[str, float]


@dataclass(frozen=True)
class Scores:
    """Figures by language or pair, and means over groups of them."""

    languages: dict[str, Figures]
    groups: dict[str, Figures]


class EvaluationTask(Protocol):
    """A benchmark with its records: ``Task.load(folder).score(model.encode)`` measures any model that encodes."""

    name: ClassVar[str]  # on the command line
    title: ClassVar[str]
    protocol: ClassVar[str]  # how it is measured, in a line
    headings: ClassVar[Mapping[str, str]]  # of the figures, in a table
    main: ClassVar[str]  # the figure by which models are compared

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """Read and check the records, all of them or of some languages or pairs, from a folder or the Hub."""

    @property
    def fingerprint(self) -> str:
        """Of the records: equal figures are comparable only where it is equal."""

    def sentences(self) -> Iterator[str]:
        """All that is encoded, in order; some may stand there twice."""

    def score(self, encode: Encode) -> Scores:
        """Measure; ``encode`` is asked for the vectors of ``sentences``, a part at a time."""


def fingerprint(texts: Iterable[str]) -> str:
    """A hash of records."""
    return digest(text + "\n" for text in texts)


def means(languages: Mapping[str, Figures], groups: Mapping[str, Sequence[str]]) -> dict[str, Figures]:
    """Mean figures over those groups of which all was measured; ``pairs`` are added up."""
    return {
        name: {key: _mean(key, [languages[one][key] for one in some]) for key in languages[some[0]]}
        for name, some in groups.items()
        if some and set(some) <= set(languages)
    }


def _mean(key: str, values: list[float]) -> float:
    return sum(values) if key == "pairs" else sum(values) / len(values)
