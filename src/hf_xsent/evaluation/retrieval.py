"""Retrieval of translations: accuracy@1 in both directions, on Tatoeba and on a dev set of one's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from tqdm import tqdm

from hf_xsent.data.benchmarks.tatoeba import TatoebaSet, load_tatoeba, tatoeba_groups
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, Figures, Scores, fingerprint, means
from hf_xsent.mining.neighbours import nearest_both_ways
from hf_xsent.models.encodes import SupportsEncode

if TYPE_CHECKING:
    from typing_extensions import Self

PROTOCOL = "accuracy@1 by cosine, no margin; a hit is the same line number; of equal scores the first line counts"


@dataclass(frozen=True)
class RetrievalAccuracy:
    """Percent of sentences whose nearest neighbour on the other side is their translation."""

    forward: float  # source → target, xx→en
    backward: float  # target → source, en→xx
    pairs: int

    @property
    def mean(self) -> float:
        """Of both directions."""
        return (self.forward + self.backward) / 2


def accuracy_at_1(source: np.ndarray, target: np.ndarray) -> RetrievalAccuracy:
    """Find the nearest target of each source and the nearest source of each target."""
    if len(source) != len(target) or len(source) == 0:
        raise DataError(f"retrieval needs pairs: got {len(source)} source and {len(target)} target vectors")
    source, target = (np.asarray(side, dtype=np.float32) for side in (source, target))
    lines = [np.flatnonzero(side.any(1)) for side in (source, target)]  # zeros point nowhere and find nothing
    if not all(map(len, lines)):
        return RetrievalAccuracy(0.0, 0.0, len(source))
    of_source, of_target = nearest_both_ways(source[lines[0]], target[lines[1]], k=1)
    nearest_target, nearest_source = lines[1][of_source.numbers[:, 0]], lines[0][of_target.numbers[:, 0]]
    return RetrievalAccuracy(
        forward=100 * float((_first_alike(target)[nearest_target] == lines[0]).sum() / len(source)),
        backward=100 * float((_first_alike(source)[nearest_source] == lines[1]).sum() / len(target)),
        pairs=len(source),
    )


def _first_alike(vectors: np.ndarray) -> np.ndarray:
    """Of each line the first that has the same vector: their cosines are equal, however they are rounded."""
    first: dict[bytes, int] = {}
    return np.array([first.setdefault(vector.tobytes(), line) for line, vector in enumerate(vectors)])


def unit(vectors: np.ndarray) -> np.ndarray:
    """In float32, each of length 1; zeros stay."""
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def retrieval_by_language(
    model: SupportsEncode,
    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    progress: bool = True,
    target_language: str | None = None,
) -> dict[str, RetrievalAccuracy]:
    """Accuracy@1 for each language's (sources, targets); ``target_language`` is for models with language embeddings."""
    bar = tqdm(pairs.items(), desc="retrieval", unit="language", disable=None if progress else True)
    results = {}
    for language, (sources, targets) in bar:
        if target_language is None:
            vectors = model.encode([*sources, *targets])
            results[language] = accuracy_at_1(vectors[: len(sources)], vectors[len(sources) :])
        else:
            encode: Any = model.encode
            results[language] = accuracy_at_1(
                encode(sources, language=language), encode(targets, language=target_language)
            )
    return results


@dataclass(frozen=True)
class TatoebaTask:
    """Tatoeba: is the nearest English sentence the translation, and the other way round?"""

    sets: Sequence[TatoebaSet]

    name: ClassVar[str] = "tatoeba"
    title: ClassVar[str] = "Tatoeba"
    protocol: ClassVar[str] = PROTOCOL
    headings: ClassVar[Mapping[str, str]] = {"pairs": "pairs", "forward": "xx→en", "backward": "en→xx", "mean": "mean"}
    main: ClassVar[str] = "mean"

    def __post_init__(self) -> None:
        if not self.sets:
            raise DataError("no Tatoeba language was chosen: name at least one")

    @classmethod
    def load(cls, source: str | PathLike[str], languages: Iterable[str] | None = None) -> Self:
        """As ``load_tatoeba``; a language goes by any of its codes."""
        return cls(load_tatoeba(source, languages))

    @cached_property
    def fingerprint(self) -> str:
        """Of languages and sentences."""
        return fingerprint(text for one in self.sets for text in (one.language, *one.sources, *one.targets))

    def sentences(self) -> Iterator[str]:
        """Both sides of each language."""
        for one in self.sets:
            yield from (*one.sources, *one.targets)

    def score(self, encode: Encode) -> Scores:
        """Accuracy@1 in both directions, and its mean over the groups of languages that papers report on."""
        languages: dict[str, Figures] = {}
        for one in self.sets:
            found = accuracy_at_1(encode(one.sources), encode(one.targets))
            languages[one.language] = {
                "pairs": found.pairs, "forward": found.forward, "backward": found.backward, "mean": found.mean
            }  # fmt: skip
        return Scores(languages, means(languages, tatoeba_groups() | {"measured": list(languages)}))
