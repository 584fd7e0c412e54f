"""Search a pool that mixes the sentences of all languages; show how often the translation comes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from hf_xsent.data.languages import find_language
from hf_xsent.evaluation.translation_retrieval import unit
from hf_xsent.models.text_encoder import SupportsEncode
from hf_xsent.pages.charts import bar_chart
from hf_xsent.pages.tables import Table

NEIGHBOURS, SHOWN = 10, 5
EXAMPLE_LENGTH = 40  # characters


class PoolSearch:
    """Search one pool of both sides of all pairs with each of its source sentences, by cosine.

    Each sentence is in the pool once, with its language and its meanings: the targets of its pairs.
    """

    def __init__(self, model: SupportsEncode, pairs: Mapping[str, tuple[Sequence[str], Sequence[str]]]) -> None:
        meanings: dict[tuple[str, str], list[str]] = {}
        for language, (sources, targets) in pairs.items():
            for source, target in zip(sources, targets, strict=True):
                meanings.setdefault((language, source), []).append(target)
                meanings.setdefault(("en", target), [target])
        self.queries, self.texts = [*pairs], [text for _, text in meanings]
        self.languages, self.meanings = np.array([language for language, _ in meanings]), [*meanings.values()]
        self._vectors = unit(model.encode(self.texts))

    def example(self, language: str) -> int:
        """Return the row of a sentence of about 40 characters, if possible without placeholders such as %s."""
        rows = np.flatnonzero(self.languages == language).tolist()
        return min(rows, key=lambda row: ("%" in self.texts[row], abs(len(self.texts[row]) - EXAMPLE_LENGTH)))

    def nearest(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows and cosines of the ten nearest sentences of each query."""
        cosines = self._vectors[rows] @ self._vectors.T
        cosines[np.arange(len(rows)), rows] = -np.inf  # a query does not find itself
        nearest = np.argsort(-cosines, axis=1, kind="stable")[:, : min(NEIGHBOURS, len(self._vectors) - 1)]
        return nearest, np.take_along_axis(cosines, nearest, axis=1)

    def figures(self) -> dict[str, dict[str, float]]:
        """Measure both figures for the queries of each language.

        ``translation_first`` is the percentage of queries whose nearest neighbour is a translation, in any language;
        ``own_language`` is the percentage of their ten nearest that are in the query's language.
        """
        figures = {}
        for language in self.queries:
            rows = np.flatnonzero(self.languages == language)
            nearest, _ = self.nearest(rows)
            pairs = zip(rows, nearest[:, 0], strict=True)
            first = [not {*self.meanings[row]}.isdisjoint(self.meanings[place]) for row, place in pairs]
            own = self.languages[nearest] == language
            figures[language] = {
                "translation_first": round(100 * float(np.mean(first)), 2),
                "own_language": round(100 * float(own.mean()), 2),
            }
        return figures

    def neighbours(self, row: int) -> list[dict[str, Any]]:
        """Return the nearest sentences of a query."""
        (nearest,), (cosines,) = self.nearest(np.array([row]))
        return [
            {
                "sentence": self.texts[place],
                "translation": self.meanings[place][0],
                "language": str(self.languages[place]),
                "cosine": round(float(cosine), 4),
            }
            for place, cosine in zip(nearest[:SHOWN], cosines[:SHOWN], strict=True)
        ]


def pool_table(pool: Mapping[str, Any]) -> Table:
    """List the figures of each language and their means, before and after training."""
    columns = {
        f"{name}, {when}": (when, figure)
        for figure, name in {"translation_first": "first", "own_language": "own language"}.items()
        for when in ("before", "after")
    }
    rows: list[list[object]] = [
        [language, *(scores[when][figure] for when, figure in columns.values())] for language, scores in pool.items()
    ]
    means = [_mean(pool, when, figure) for when, figure in columns.values()]
    return Table(["queries", *columns], [*rows, ["mean", *means]])


def neighbour_lines(neighbours: Sequence[Mapping[str, Any]]) -> list[str]:
    """Write the nearest sentences of a query, each with its cosine, language and translation."""
    lines = []
    for row in neighbours:
        translation = "" if row["translation"] == row["sentence"] else f" ({row['translation']})"
        lines.append(f"{row['cosine']:.2f}  {_name(row['language'])}: {row['sentence']}{translation}")
    return lines


def _mean(pool: Mapping[str, Any], when: str, figure: str) -> float:
    return sum(scores[when][figure] for scores in pool.values()) / len(pool)


def pool_chart(pool: Mapping[str, Any]) -> str:
    """Draw how often the translation comes first in each language, before and after training."""
    bars = {_name(code): [of[when]["translation_first"] for when in ("before", "after")] for code, of in pool.items()}
    return bar_chart("translation first (%)", bars, ["before training", "after training"], key=True)


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name
