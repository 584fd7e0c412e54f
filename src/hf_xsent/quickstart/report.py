"""Show the results of the quickstart as a page with charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.pages.charts import bar_chart, curve_chart
from hf_xsent.pages.document import Document, Html, Part, figures
from hf_xsent.pages.tables import Table

FIGURES = {"translation_first": "translation first (%)", "own_language": "own language among ten nearest (%)"}


def report(results: Mapping[str, Any]) -> Document:
    """Return the report of ``results.json``."""
    pool, losses, example = results["pool"], results["losses"], results["example"]
    before, after = (_mean(pool, when, "translation_first") for when in ("before", "after"))
    counts = [
        (f"{results['sentences']}", f"sentences of {len(pool) + 1} languages in one pool"),
        (f"{sum(results['pairs'].values()):,}", "training pairs"),
        (f"{results['steps']}", f"steps, {results['seconds']} s in total"),
    ]
    curve: Part = "Too few steps for a curve."
    if len(losses) > 1:
        curve = Html(curve_chart("Training loss by step", {"loss": (1, losses)}, "step"))
    return Document(
        f"In a pool of {len(pool) + 1} languages, the translation comes first for {before:.1f}% of queries before "
        f"training, for {after:.1f}% after",
        [
            "Each held-out sentence searches all other held-out sentences, also those in its language. Its "
            "nearest neighbour by cosine is right if it is a translation. No held-out sentence was in the training "
            "data, in any language.",
            *filter(None, [results["warning"]]),
            figures(counts),
        ],
        {
            "The translation comes first": [Html(pool_chart(pool))],
            "Sentences of the query's own language among its ten nearest": [Html(pool_chart(pool, "own_language"))],
            "One query": [
                f"Query: {example['query']} Its language had the most neighbours of the own language before training.",
                neighbour_table(example["before"], "before"),
                neighbour_table(example["after"], "after"),
            ],
            "Training loss (translation ranking)": [curve],
            "Use the model": [
                f"The training started from {results['model']}. Open the folder model next to this page with "
                'SentenceTransformer("model"). All figures are in results.json.'
            ],
        },
    )


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


def neighbour_table(neighbours: Sequence[Mapping[str, Any]], when: str) -> Table:
    """List the nearest sentences of a query, with their translations."""
    rows = [[row["cosine"], _name(row["language"]), row["translation"], row["sentence"]] for row in neighbours]
    return Table([f"cosine, {when}", "language", "translation", "sentence"], rows)


def _mean(pool: Mapping[str, Any], when: str, figure: str) -> float:
    return sum(scores[when][figure] for scores in pool.values()) / len(pool)


def pool_chart(pool: Mapping[str, Any], figure: str = "translation_first") -> str:
    """Draw a figure of each language before and after training."""
    bars = {_name(code): [scores[when][figure] for when in ("before", "after")] for code, scores in pool.items()}
    return bar_chart(FIGURES[figure], bars, ["before training", "after training"], key=True)


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name
