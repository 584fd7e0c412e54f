"""Define evaluation tasks: checked records, the sentences to encode, and the scores of their embeddings."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from hf_xsent.errors import DataError
from hf_xsent.files import digest
from hf_xsent.models.text_encoder import TextEncoder, as_array, check_finite

if TYPE_CHECKING:
    from typing_extensions import Self

Encode = Callable[[Sequence[str]], np.ndarray]  # one embedding per sentence
Metrics = dict[str, float]


@dataclass(frozen=True)
class Outcomes:
    """The outcomes of test items by language: an array with a row per item, from which a task computes its main metric.

    Rows are in the order of the records, so that rows of two models can be compared. ``groups`` maps
    the name of each mean to the languages that it averages. ``parallel``: row i of each language is the same item.
    ``found``: what was found first for each item, in whole numbers that the task's ``items`` reads.
    """

    rows: dict[str, np.ndarray]
    groups: dict[str, list[str]]
    parallel: bool = False
    found: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True)
class Scores:
    """Metrics by language or language pair, means over groups of them, and the outcomes that they are computed from."""

    languages: dict[str, Metrics]
    groups: dict[str, Metrics]
    outcomes: Outcomes = field(default_factory=lambda: Outcomes({}, {}), compare=False, repr=False)


class ModelEncoder:
    """Encode with a model: calls get its default prompt, ``as_role`` its prompt of queries or documents."""

    def __init__(self, model: Any) -> None:
        self.embedder = model
        if isinstance(model, TextEncoder):
            self.embedder = copy(model)
            self.embedder.cut = set()

    def __call__(self, sentences: Sequence[str], **options: str) -> np.ndarray:
        """Encode with the default prompt."""
        return self.as_role("", sentences, **options)

    def as_role(self, role: str, sentences: Sequence[str], **options: str) -> np.ndarray:
        """Encode texts of one role: ``query``, ``document``, or none; options are those of the model's ``encode``."""
        encode = getattr(self.embedder, f"encode_{role}" if role else "encode", self.embedder.encode)
        vectors = as_array(encode(list(sentences), **options), len(sentences)).astype(np.float32, copy=False)
        check_finite(vectors, str(vectors.dtype), lambda row: f"the sentence {sentences[row][:40]!r}")
        return vectors


def encoder_of(encode: Encode, role: str) -> Encode:
    """Return how an encoder encodes texts of one role: like all texts, unless it has ``as_role``."""
    as_role: Callable[..., np.ndarray] | None = getattr(encode, "as_role", None)
    return encode if as_role is None else partial(as_role, role)


def count_cut(encode: Any, inputs: Iterable[tuple[str, str]]) -> dict[str, list[int]]:
    """Return how many different texts were longer than the model reads, and how many there are.

    They are counted by role, once they are encoded by a model of this package; other models, and tokenizers in Python,
    give {}.
    """
    embedder = getattr(encode, "embedder", None)
    if not isinstance(embedder, TextEncoder) or embedder.cut is None or not embedder.tokenizer.is_fast:
        return {}
    texts: dict[str, set[str]] = {}
    for role, text in inputs:
        texts.setdefault(role, set()).add(embedder.role_prompts[role] + text)
    names = {"": "texts", "query": "queries", "document": "documents"}
    return {names[role]: [len(of_role & embedder.cut), len(of_role)] for role, of_role in texts.items()}


class Start(NamedTuple):
    """The encoder before training, with which a task compares a model."""

    fingerprint: str
    encode: Encode


@dataclass(frozen=True)
class EvaluationTask(ABC):
    """A benchmark with its records; ``Task.load(folder).score(model.encode)`` measures a model."""

    sets: Sequence[Any]  # one per language or language pair; BUCC: per language pair and split
    data: str = field(default="", kw_only=True)  # where they come from: an id on the Hub, or names of files or folders

    name: ClassVar[str]  # on the command line
    title: ClassVar[str]
    protocol: ClassVar[str]  # the procedure, in one line
    headings: ClassVar[Mapping[str, str]]  # of the metrics, in a table
    main_metric: ClassVar[str]  # used to compare models
    read: ClassVar[Callable[..., Sequence[Any]]]
    folders: ClassVar[tuple[str, ...]]  # names of its folder among those of other tasks
    needs_start: ClassVar[bool] = False  # whether it compares a model with the start, or the first of several
    figures: ClassVar[
        Mapping[str, str | tuple[str, str]]
    ]  # rows of a table of all tasks: a metric, or group and metric
    charts: ClassVar[Sequence[str]]  # metrics to draw by language
    groups: ClassVar[Mapping[str, Sequence[str]]] = {}  # languages of which papers report the mean
    parallel: ClassVar[bool] = False  # whether item i of each language is the same item
    unit: ClassVar[str] = "language"  # what the names of rows begin or end with
    measures_any_data: ClassVar[bool] = False  # whether results are published under the name of the data
    has_views: ClassVar[bool] = True  # whether it measures embeddings, of the layer, pooling and dimension asked for

    def __init_subclass__(cls) -> None:
        if "name" in cls.__dict__:
            defaults: dict[str, Any] = {
                "folders": (cls.name,),
                "figures": {f"{cls.title}: {cls.headings[cls.main_metric]}": cls.main_metric},
                "charts": (cls.main_metric,),
            }
            for name, value in defaults.items():
                if name not in cls.__dict__:
                    setattr(cls, name, value)

    def __post_init__(self) -> None:
        if not self.sets:
            raise DataError(f"no language of {self.title} was chosen: name at least one")

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """Read and check all records, or those of some languages or pairs, from a folder or the Hub."""
        return cls(cls.read(source, languages))

    @classmethod
    def find(cls, folder: str | PathLike[str]) -> str | None:
        """Return the place of its records in a folder of several tasks, if they are there."""
        places = (Path(folder, name) for name in cls.folders)
        return next((str(place) for place in places if place.is_dir()), None)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash of the records; scores are comparable only if it is equal."""
        return digest(text + "\n" for test_set in self.sets for text in self.texts(test_set))

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over all texts to encode with their roles: ``query``, ``document``, or none."""
        for test_set in self.sets:
            yield from (("", text) for side in (test_set.sources, test_set.targets) for text in side)

    @property
    def settings(self) -> dict[str, str]:
        """What determines the scores beside model and records, by name."""
        return {}

    def beside(self, start: Start) -> Self:
        """Return this task, which compares a model with ``start`` if it ``needs_start``."""
        return self

    def texts(self, test_set: Any) -> Iterable[str]:
        """Return everything in a set that determines its scores, for the fingerprint."""
        for value in vars(test_set).values():
            yield from (
                [value] if isinstance(value, str) else map(str, sorted(value) if isinstance(value, Set) else value)
            )

    @abstractmethod
    def score(self, encode: Encode) -> Scores:
        """Measure a model by its ``encode``, which is called with lists of the texts of ``inputs()``."""

    @staticmethod
    @abstractmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute metrics of a language, the main one included, from (bootstrap samples ×) items × columns."""

    @property
    def notes(self) -> list[str]:
        """Sentences on what the records do not allow to measure."""
        return []

    def items(self, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
        """Yield a record of each item: its text, the right one, whether that was found first, and what was; or none."""
        yield from ()

    def scored(
        self,
        rows: dict[str, np.ndarray],
        others: Mapping[str, Metrics] | None = None,
        groups: Mapping[str, Sequence[str]] | None = None,
        found: Mapping[str, np.ndarray] | None = None,
    ) -> Scores:
        """Return the scores of these outcomes by language, with their means over groups.

        ``others`` are further metrics of the languages, ``groups`` replace those of the task and of all languages.
        """
        languages = {}
        for name, of_language in rows.items():
            count = {"pairs": len(of_language)} if "pairs" in self.headings else {}
            measured = {key: float(value) for key, value in self.metrics(of_language).items()}
            languages[name] = {**count, **measured, **(others or {}).get(name, {})}
        groups = {**self.groups, "all": list(rows)} if groups is None else groups
        measured_groups = {name: [*members] for name, members in groups.items() if members and {*members} <= {*rows}}
        means = {name: _means([languages[member] for member in members]) for name, members in measured_groups.items()}
        return Scores(languages, means, Outcomes(rows, measured_groups, self.parallel, {**(found or {})}))


def _means(members: Sequence[Metrics]) -> Metrics:
    """Average each metric that all members of a group have; ``pairs`` is summed instead."""
    totals = {key: sum(member[key] for member in members) for key in members[0] if all(key in each for each in members)}
    return {key: total if key == "pairs" else total / len(members) for key, total in totals.items()}
