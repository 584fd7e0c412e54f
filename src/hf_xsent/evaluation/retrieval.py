"""Retrieval of translations: accuracy@1 in both directions, on Tatoeba and on a dev set of one's own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from hf_xsent.data.benchmarks import TatoebaSet, tatoeba_groups
from hf_xsent.errors import DataError
from hf_xsent.evaluation.report import render_table, versions
from hf_xsent.models.encodes import Encodes

PROTOCOL = "accuracy@1 by cosine, no margin; a hit is the same line number; of equal scores the first line counts"
_ROWS_PER_BLOCK = 1024


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
    """Rank all targets for each source and all sources for each target, a block of rows at a time."""
    if len(source) != len(target) or len(source) == 0:
        raise DataError(f"retrieval needs pairs: got {len(source)} source and {len(target)} target vectors")
    source, target = _unit(source), _unit(target)
    lines = np.arange(len(source))
    nearest_target = np.empty(len(source), dtype=np.int64)
    nearest_source = np.zeros(len(target), dtype=np.int64)
    best = np.full(len(target), -np.inf, dtype=np.float32)
    for start in range(0, len(source), _ROWS_PER_BLOCK):
        scores = source[start : start + _ROWS_PER_BLOCK] @ target.T
        nearest_target[start : start + len(scores)] = scores.argmax(1)
        rows = scores.argmax(0)
        top = scores[rows, np.arange(len(target))]
        better = top > best
        best[better], nearest_source[better] = top[better], rows[better] + start
    return RetrievalAccuracy(
        forward=100 * float(np.mean(nearest_target == lines)),
        backward=100 * float(np.mean(nearest_source == lines)),
        pairs=len(source),
    )


def _unit(vectors: np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors, dtype=np.float32)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def retrieval_by_language(
    model: Encodes,
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
class TatoebaReport:
    """Accuracies by language (ISO 639-3) with what they were measured by."""

    settings: dict[str, Any]  # model, pooling, layer, …
    languages: dict[str, RetrievalAccuracy]
    data: str  # fingerprint of the sentences

    @property
    def groups(self) -> dict[str, RetrievalAccuracy]:
        """Means over those groups of which every language was measured, and over all that was."""
        groups = {
            name: codes for name, codes in tatoeba_groups().items() if codes and set(codes) <= set(self.languages)
        }
        groups["measured"] = list(self.languages)
        return {name: _mean(self.languages[code] for code in codes) for name, codes in groups.items()}

    def to_dict(self) -> dict[str, Any]:
        """For JSON; equal for equal runs."""
        return {
            "task": "tatoeba",
            "protocol": PROTOCOL,
            "settings": self.settings,
            "data_fingerprint": self.data,
            "versions": versions(),
            "groups": {name: _rounded(accuracy) for name, accuracy in self.groups.items()},
            "languages": {code: _rounded(accuracy) for code, accuracy in self.languages.items()},
        }

    def table(self) -> str:
        """For people: languages first, then groups."""
        rows = [[code, *_cells(accuracy)] for code, accuracy in self.languages.items()]
        rows += [[f"mean of {name}", *_cells(accuracy)] for name, accuracy in self.groups.items()]
        stated = ", ".join(f"{key} {value}" for key, value in self.settings.items())
        table = render_table(["Tatoeba", "pairs", "xx→en", "en→xx", "mean"], rows)
        return f"{table}\n{stated}\n{PROTOCOL}"


def evaluate_tatoeba(model: Encodes, sets: Sequence[TatoebaSet], settings: Mapping[str, Any]) -> TatoebaReport:
    """Measure each set; ``settings`` says what the model is and how it pools, and goes into the report as it is."""
    if not sets:
        raise DataError("no Tatoeba language was chosen: name at least one")
    pairs = {one.language: (one.sources, one.targets) for one in sets}
    return TatoebaReport(
        settings=dict(settings),
        languages=retrieval_by_language(model, pairs),
        data=_fingerprint(sets),
    )


def describe(
    model: str | Path, pooling: str, layer: int | None, max_length: int, dtype: str, dim: int | None = None
) -> dict[str, Any]:
    """The settings that every reported number states."""
    return {
        "model": str(model),
        "pooling": pooling,
        "layer": "last" if layer is None else layer,
        "max_length": max_length,
        "dtype": dtype,
    } | ({} if dim is None else {"dim": dim})


def _mean(accuracies: Iterable[RetrievalAccuracy]) -> RetrievalAccuracy:
    some = list(accuracies)
    return RetrievalAccuracy(
        forward=sum(one.forward for one in some) / len(some),
        backward=sum(one.backward for one in some) / len(some),
        pairs=sum(one.pairs for one in some),
    )


def _cells(accuracy: RetrievalAccuracy) -> list[object]:
    return [accuracy.pairs, accuracy.forward, accuracy.backward, accuracy.mean]


def _rounded(accuracy: RetrievalAccuracy) -> dict[str, float | int]:
    return {
        "pairs": accuracy.pairs,
        "forward": round(accuracy.forward, 4),
        "backward": round(accuracy.backward, 4),
        "mean": round(accuracy.mean, 4),
    }


def _fingerprint(sets: Sequence[TatoebaSet]) -> str:
    digest = hashlib.sha256()
    for one in sets:
        for sentence in (one.language, *one.sources, *one.targets):
            digest.update(sentence.encode() + b"\n")
    return digest.hexdigest()[:16]
