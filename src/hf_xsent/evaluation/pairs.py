"""Measure retrieval of translations on any sentence pairs: among the other language, and beside the query's own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.data.readers.hub import select_names
from hf_xsent.errors import DataError
from hf_xsent.evaluation.task import Encode, EvaluationTask, Metrics, ModelEncoder, Outcomes, Scores
from hf_xsent.evaluation.translation_retrieval import ROUNDING, pair_hits, unit
from hf_xsent.mining.neighbours import nearest_one_way
from hf_xsent.models.text_encoder import SupportsEncode

if TYPE_CHECKING:
    from typing_extensions import Self

_BESIDE = slice(6, 8)  # among the columns of pair_hits
_MOST_NEIGHBOURS = 100
_LARGEST_POOL = 50_000  # sentences, among which the search takes less than a minute of a core


@dataclass(frozen=True)
class PairsTask(EvaluationTask):
    """Pairs: retrieve the translations of your pairs, alone and beside the other sentences of the query's language."""

    sets: Sequence[PairSet]

    name: ClassVar[str] = "pairs"
    measures_any_data: ClassVar[bool] = True
    title: ClassVar[str] = "Pairs"
    protocol: ClassVar[str] = (
        "beside own language: percent of sentences whose translation is the nearest by cosine in one pool of both "
        "sides; in one pool: of the sentences of all languages, except those that are paired with one of the two; P@1 "
        "and P@5: it is the nearest, or among the 5 nearest, of the other side alone; by margin: it has the best ratio "
        "margin among the 4 nearest. Each different sentence is one candidate; all but → and ← are means of both "
        "directions"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "pairs",
        "beside": "beside own language",
        "pool": "in one pool",
        "forward": "P@1 →",
        "backward": "P@1 ←",
        "mean": "P@1",
        "mean_5": "P@5",
        "margin": "P@1 by margin",
    }
    main_metric: ClassVar[str] = "beside"
    folders: ClassVar[tuple[str, ...]] = ()
    figures: ClassVar[Mapping[str, str]] = {
        "own pairs: beside the query's own language": "beside",
        "… P@1 among the other language alone": "mean",
        "… P@1 by margin": "margin",
    }

    @classmethod
    def load(
        cls,
        source: Any,
        languages: Iterable[str] | None = None,
        max_pairs: int | None = None,
        target_language: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
        columns: Sequence[str] | None = None,
    ) -> Self:
        """Read pairs in the format of ``pretrain --data``, of data sets the split test; each pair once."""
        options: Any = {"cleaning": None, "max_pairs": max_pairs, "cache_dir": cache_dir, "split": "test"}
        options |= {"target_language": target_language or "en", "columns": parse_columns(columns)}
        bitext = load_bitext(source, **options)
        codes = select_names("the bitext", bitext.languages, languages)
        return cls([_different(code, *bitext.pairs(code)) for code in codes])

    def score(self, encode: Encode) -> Scores:
        """Measure both directions of each language, and of several languages in one pool of all their sentences."""
        places = {text: place for place, text in enumerate(dict.fromkeys(text for _, text in self.inputs()))}
        vectors = encode(list(places))

        def vectors_of(texts: Sequence[str]) -> np.ndarray:
            return vectors[[places[text] for text in texts]]

        measured = {test_set.language: _hits(test_set, vectors_of, vectors_of) for test_set in self.sets}
        rows = {language: hits for language, (hits, _) in measured.items()}
        if len(self.sets) > 1 and len(places) <= _LARGEST_POOL:
            sources = [places[text] for test_set in self.sets for text in test_set.sources]
            targets = [places[text] for test_set in self.sets for text in test_set.targets]
            pooled = hits_in_pool(unit(vectors), np.stack([sources, targets], axis=1))
            ends = np.cumsum([*map(len, rows.values())])
            parts = zip(rows, rows.values(), np.split(pooled, ends[:-1]), strict=True)
            rows = {language: np.concatenate([alone, of_pool], axis=1) for language, alone, of_pool in parts}
        return self.scored(rows, found={language: found for language, (_, found) in measured.items()})

    def items(self, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
        """Yield both directions of each pair, beside the sentences of the query's own language."""
        for test_set in self.sets:
            sides, count = (test_set.sources, test_set.targets), len(test_set.sources)
            beside = outcomes.rows[test_set.language][:, _BESIDE]
            for pair, (places, hits) in enumerate(zip(outcomes.found[test_set.language].tolist(), beside, strict=True)):
                for direction, (place, hit) in enumerate(zip(places, hits, strict=True)):
                    own, other = sides[direction], sides[1 - direction]
                    found = None if place < 0 else other[place] if place < count else own[place - count]
                    item = {"language": test_set.language, "item": f"{pair + 1} {'→←'[direction]}", "text": own[pair]}
                    yield {
                        **item,
                        "right": other[pair],
                        "found": found,
                        "correct": bool(hit),
                        "own_language": place >= count,
                    }

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute the accuracies, in each direction and in both."""
        shares = np.moveaxis(100 * rows.mean(-2), -1, 0)
        metrics: dict[str, Any] = {}
        kinds = {"": "mean", "_5": "mean_5", "_margin": "margin", "_beside": "beside", "_pool": "pool"}
        for number, (kind, both) in zip(range(len(shares) // 2), kinds.items(), strict=False):
            forward, backward = shares[2 * number : 2 * number + 2]
            metrics |= {f"forward{kind}": forward, f"backward{kind}": backward, both: (forward + backward) / 2}
        return metrics


def hits_in_pool(vectors: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Return whether each side of each pair finds the other first among all these unit vectors (N × 2).

    ``pairs`` are places of vectors. Vectors that are paired with one of the two are no candidates; equal cosines count
    as wrong, as does a pair with a zero vector.
    """
    known = np.flatnonzero(vectors.any(1))
    hits, measured = np.zeros(pairs.shape, dtype=bool), vectors[pairs].any(2).all(1)
    if not measured.all():
        places = np.full(len(vectors), -1)
        places[known] = np.arange(len(known))
        hits[measured] = hits_in_pool(vectors[known], places[pairs[measured]]) if measured.any() else False
        return hits
    translations: dict[int, set[int]] = {}
    for source, target in pairs.tolist():
        translations.setdefault(source, set()).add(target)
        translations.setdefault(target, set()).add(source)
    paired = [translations[source] | translations[target] for source, target in pairs.tolist()]
    k = min(max(map(len, paired)) + 1, _MOST_NEIGHBOURS, len(vectors))
    nearest = nearest_one_way(vectors, vectors, k)
    indices, cosines = nearest.indices.numpy(), nearest.cosines.numpy()
    of_pairs = np.einsum("nd,nd->n", vectors[pairs[:, 0]], vectors[pairs[:, 1]])
    for row, (pair, excluded) in enumerate(zip(pairs.tolist(), paired, strict=True)):
        for side, query in enumerate(pair):
            others = cosines[query][~np.isin(indices[query], [*excluded])]
            if not len(others):  # all of the nearest are paired with one of the two
                others = np.delete(vectors, [*excluded], axis=0) @ vectors[query]
            hits[row, side] = of_pairs[row] > others.max(initial=-np.inf) + ROUNDING
    return hits


def _different(language: str, sources: Sequence[str], targets: Sequence[str]) -> PairSet:
    """Return each pair once, also if it is repeated in the other direction: else a query would find itself."""
    if not 0 < len(sources) == len(targets):
        raise DataError(f"{language} has {len(sources)} sources and {len(targets)} targets: give pairs")
    pairs: dict[frozenset[str], tuple[str, str]] = {}
    for pair in zip(sources, targets, strict=True):
        pairs.setdefault(frozenset(pair), pair)
    return PairSet(language, *map(list, zip(*pairs.values(), strict=True)))


def _hits(test_set: PairSet, *encoders: Encode) -> tuple[np.ndarray, np.ndarray]:
    """Return the hits of each pair, and what was found first; encode each different text of a side once."""
    sides, vectors = (test_set.sources, test_set.targets), list[np.ndarray]()
    for side, encode in zip(sides, encoders, strict=True):
        places = {text: place for place, text in enumerate(dict.fromkeys(side))}
        vectors.append(encode(list(places))[[places[text] for text in side]])
    numbers = {text: number for number, text in enumerate(dict.fromkeys(chain(*sides)))}
    return pair_hits(vectors[0], vectors[1], [np.array([numbers[text] for text in side]) for side in sides])


def retrieval_by_language(
    model: SupportsEncode,
    pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]],
    target_language: str | None = None,
) -> dict[str, Metrics]:
    """Measure the sources and targets of each language as the task ``pairs`` does.

    A model with language embeddings needs ``target_language``; the keys of ``pairs`` are the languages of the sources.
    """
    task = PairsTask([_different(language, *sides) for language, sides in pairs.items()])
    encode: Any = ModelEncoder(model)
    rows = {}
    for test_set in task.sets:
        languages = () if target_language is None else (test_set.language, target_language)
        encoders = [partial(encode, language=language) for language in languages] or [encode, encode]
        rows[test_set.language], _ = _hits(test_set, *encoders)
    return task.scored(rows).languages
