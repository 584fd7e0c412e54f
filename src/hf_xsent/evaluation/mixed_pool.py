"""Measure retrieval in a collection in which all languages lie side by side: mixed pools of parallel text.

An encoder is weakly aligned if a sentence is nearer to its translations than to other sentences of the same other
language, and strongly aligned if it is also nearer to them than to unrelated sentences of the same language (LAReQA,
arXiv:2004.05484). Only a mixed pool shows the difference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from hf_xsent.evaluation.parallel import FOLDERS, ParallelTask
from hf_xsent.evaluation.task import Encode, Scores
from hf_xsent.evaluation.translation_retrieval import ROUNDING, unit

_NUMBERS_AT_ONCE = 1 << 24


@dataclass(frozen=True)
class MixedPoolTask(ParallelTask):
    """Mixed pool: each sentence retrieves its translations, alone and beside the other sentences of its language."""

    name: ClassVar[str] = "mixed_pool"
    measures_any_data: ClassVar[bool] = True
    title: ClassVar[str] = "Mixed pool"
    protocol: ClassVar[str] = (
        "by cosine. Alone: the translation is nearer than all other sentences of its language, mean over the other "
        "languages; beside: also nearer than the other sentences of the query's language. In the pool of all languages "
        "without the query, R translations: the share of translations and of the query's own language among the R "
        "nearest, and the mean rank of the last translation (Max@R, at best R)"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "sentences",
        "alone": "alone",
        "beside": "beside own language",
        "r_precision": "R-precision",
        "own": "own language",
        "max_rank": "Max@R",
    }
    main_metric: ClassVar[str] = "beside"
    folders: ClassVar[tuple[str, ...]] = ("mixed_pool", *FOLDERS)
    figures: ClassVar[Mapping[str, str | tuple[str, str]]] = {
        "translation among one other language": "alone",
        "… beside the query's own language": "beside",
        "… R-precision in the pool of all": "r_precision",
        "… own language among the nearest (low)": "own",
    }
    charts: ClassVar[Sequence[str]] = ("beside", "own")

    def score(self, encode: Encode) -> Scores:
        """Measure each language as the language of queries."""
        vectors = np.stack([unit(encode(test_set.sentences)) for test_set in self.sets])
        return self.scored({test_set.language: mixed_pool(vectors, place) for place, test_set in enumerate(self.sets)})

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Average the columns; all are percentages except the last."""
        *shares, rank = np.moveaxis(rows.mean(-2), -1, 0)
        names = ("alone", "beside", "r_precision", "own")
        return {name: 100 * share for name, share in zip(names, shares, strict=True)} | {"max_rank": rank}


def mixed_pool(vectors: np.ndarray, language: int) -> np.ndarray:
    """Return for each sentence of a language: alone, beside, R-precision, own-language share, and Max@R.

    ``vectors`` (languages × lines × width) have length 1, and line i of all languages is the same sentence.

    >>> german, english = [[1, 0], [0.8, 0.6]], [[0.6, 0.8], [0, 1]]  # nearer to each other than to their translations
    >>> mixed_pool(np.array([german, english]), 0).tolist()
    [[1.0, 0.0, 0.0, 1.0, 2.0], [0.0, 0.0, 0.0, 0.0, 3.0]]
    """
    count, lines, width = vectors.shape
    pool, relevant = vectors.reshape(-1, width), count - 1
    others = [place for place in range(count) if place != language]
    results = np.empty((lines, 5))
    at_once = max(1, _NUMBERS_AT_ONCE // len(pool))
    for start in range(0, lines, at_once):
        numbers = np.arange(start, min(lines, start + at_once))
        rows = np.arange(len(numbers))
        scores = (vectors[language, numbers] @ pool.T).reshape(len(numbers), count, lines)
        scores[rows, language, numbers] = -np.inf  # the query
        nearest = np.argpartition(-scores.reshape(len(numbers), -1), relevant - 1, axis=1)[:, :relevant]
        translations = scores[rows, :, numbers][:, others]
        own = scores[:, language].max(1)
        masked = scores[:, others]
        masked[rows, :, numbers] = -np.inf
        alone = translations > masked.max(2) + ROUNDING
        last = translations.min(1) - ROUNDING  # others as near are wrong, here as above
        wrong = (masked > last[:, None, None]).sum((1, 2)) + (scores[:, language] > last[:, None]).sum(1)
        in_own = nearest // lines == language
        results[numbers] = np.stack(
            [
                alone.mean(1),
                (alone & (translations > own[:, None] + ROUNDING)).mean(1),
                ((nearest % lines == numbers[:, None]) & ~in_own).mean(1),
                in_own.mean(1),
                relevant + wrong,
            ],
            axis=1,
        )
    return results
