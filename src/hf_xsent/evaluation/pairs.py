"""Measure retrieval of translations on any sentence pairs: among the other language, and beside the query's own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from hf_xsent.data.benchmarks.sets import PairSet
from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.readers.hub import select_names
from hf_xsent.evaluation.retrieval import nearest_of_own_side
from hf_xsent.evaluation.task import Encode, EvaluationTask, Scores
from hf_xsent.mining.margin import best_by_margin
from hf_xsent.mining.neighbours import nearest_both_ways

if TYPE_CHECKING:
    from typing_extensions import Self

NEAREST = 5


@dataclass(frozen=True)
class PairsTask(EvaluationTask):
    """Pairs: retrieve the translations of your pairs, alone and beside the other sentences of the query's language."""

    sets: Sequence[PairSet]

    name: ClassVar[str] = "pairs"
    title: ClassVar[str] = "Pairs"
    protocol: ClassVar[str] = (
        "beside own language: percent of sentences whose translation is the nearest by cosine in one pool of both "
        "sides; P@1 and P@5: it is the nearest, or among the 5 nearest, of the other side alone; by margin: it has the "
        "best ratio margin among the 4 nearest. Each different sentence is one candidate; all but → and ← are means of "
        "both directions"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "pairs",
        "beside": "beside own language",
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
    several_sources: ClassVar[bool] = True

    @classmethod
    def load(
        cls,
        source: Any,
        languages: Iterable[str] | None = None,
        max_pairs: int | None = None,
        target_language: str | None = None,
        cache_dir: str | PathLike[str] | None = None,
    ) -> Self:
        """Read pairs in the format of ``pretrain --data``, of data sets the split test; each pair once."""
        options: Any = {"cleaning": None, "max_pairs": max_pairs, "cache_dir": cache_dir, "split": "test"}
        bitext = load_bitext(source, target_language=target_language or "en", **options)
        codes = select_names("the bitext", bitext.languages, languages)
        different = {code: dict.fromkeys(zip(*bitext.pairs(code), strict=True)) for code in codes}
        return cls([PairSet(code, *map(list, zip(*pairs, strict=True))) for code, pairs in different.items()])

    def score(self, encode: Encode) -> Scores:
        """Measure both directions of each language."""
        return self.scored({test_set.language: _hits(test_set, encode) for test_set in self.sets})

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Compute the accuracies, in each direction and in both."""
        shares = np.moveaxis(100 * rows.mean(-2), -1, 0)
        metrics: dict[str, Any] = {}
        for number, (kind, both) in enumerate(
            {"": "mean", "_5": "mean_5", "_margin": "margin", "_beside": "beside"}.items()
        ):
            forward, backward = shares[2 * number : 2 * number + 2]
            metrics |= {f"forward{kind}": forward, f"backward{kind}": backward, both: (forward + backward) / 2}
        return metrics


def _hits(test_set: PairSet, encode: Encode) -> np.ndarray:
    """Return for each pair whether P@1, P@5, P@1 by margin and P@1 beside its side count it, in both directions."""
    sides = [
        np.unique(np.array(side, dtype=object), return_inverse=True) for side in (test_set.sources, test_set.targets)
    ]
    vectors = encode(sides[0][0].tolist()), encode(sides[1][0].tolist())
    nearest = nearest_both_ways(*vectors, k=NEAREST, allow_fewer=True)
    by_margin = best_by_margin(*vectors), best_by_margin(*vectors[::-1])
    hits = np.empty((len(test_set.sources), 8), dtype=bool)
    for direction, ((_, rows), (_, texts)) in enumerate(zip(sides, reversed(sides), strict=True)):
        neighbours = nearest[direction]
        found = neighbours.indices.numpy()[rows] == texts[:, None]
        own = nearest_of_own_side(vectors[direction][rows], rows, texts)
        hits[:, direction] = found[:, 0]
        hits[:, 2 + direction] = found.any(1)
        hits[:, 4 + direction] = by_margin[direction][rows] == texts
        hits[:, 6 + direction] = found[:, 0] & (neighbours.cosines.numpy()[rows, 0] > own)
    return hits
