"""Define evaluation tasks: checked records, the sentences to encode, and the scores of their embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.errors import DataError
from hf_xsent.files import digest

if TYPE_CHECKING:
    from typing_extensions import Self

Encode = Callable[[Sequence[str]], np.ndarray]  # one embedding per sentence
Metrics = dict[str, float]


@dataclass(frozen=True)
class Scores:
    """Metrics by language or language pair, and means over groups of them."""

    languages: dict[str, Metrics]
    groups: dict[str, Metrics]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of test items by language: an array with a row per item, from which a task computes its main metric.

    Rows are in the order of the records, so that rows of two models can be compared. ``groups`` maps
    the name of each mean to the languages that it averages.
    """

    rows: dict[str, np.ndarray]
    groups: dict[str, list[str]]


@dataclass(frozen=True)
class EvaluationTask(ABC):
    """A benchmark with its records; ``Task.load(folder).score(model.encode)`` measures a model."""

    sets: Sequence[Any]  # one per language or language pair; BUCC: per language pair and split

    name: ClassVar[str]  # on the command line
    title: ClassVar[str]
    protocol: ClassVar[str]  # the procedure, in one line
    headings: ClassVar[Mapping[str, str]]  # of the metrics, in a table
    main_metric: ClassVar[str]  # used to compare models
    read: ClassVar[Callable[..., Sequence[Any]]]
    folders: ClassVar[tuple[str, ...]]  # names of its folder among those of other tasks
    several_sources: ClassVar[bool] = False  # whether its data may be several files, as those of bitext

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__ and "folders" not in cls.__dict__:
            cls.folders = (cls.name,)

    def __post_init__(self) -> None:
        if not self.sets:
            raise DataError(f"no language of {self.title} was chosen: name at least one")

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """Read and check all records, or those of some languages or pairs, from a folder or the Hub."""
        return cls(cls.read(source, languages))

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the records; scores are comparable only if it is equal."""
        return digest(text + "\n" for test_set in self.sets for text in self.texts(test_set))

    def sentences(self) -> Iterator[str]:
        """Iterate over all sentences to encode, repeated ones included."""
        for test_set in self.sets:
            for side in self.sides(test_set):
                yield from side

    def sides(self, test_set: Any) -> tuple[Sequence[str], Sequence[str]]:
        """Return the sentences of both sides of a set."""
        return test_set.sources, test_set.targets

    @abstractmethod
    def texts(self, test_set: Any) -> Iterable[str]:
        """Return all texts of a set that determine its scores, for the fingerprint."""

    def score(self, encode: Encode) -> Scores:
        """Measure a model by its ``encode``, which is called with lists of sentences from ``sentences()``."""
        return self.measure(encode)[0]

    @abstractmethod
    def measure(self, encode: Encode) -> tuple[Scores, Outcomes]:
        """Measure a model like ``score``; return the outcome of each item too."""

    @staticmethod
    @abstractmethod
    def main_score(rows: np.ndarray) -> np.ndarray:
        """Compute the main metric of a language from (bootstrap samples ×) items × columns of their results."""


def means(languages: Mapping[str, Metrics], groups: Mapping[str, Sequence[str]]) -> dict[str, Metrics]:
    """Average each metric over the members of each group; ``pairs`` is summed instead."""
    return {
        name: {key: _mean(key, [languages[member][key] for member in members]) for key in languages[members[0]]}
        for name, members in groups.items()
    }


def measured_groups(languages: Collection[str], groups: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Select the groups whose members were all measured."""
    return {name: list(members) for name, members in groups.items() if members and set(members) <= set(languages)}


def _mean(key: str, values: list[float]) -> float:
    return sum(values) if key == "pairs" else sum(values) / len(values)
