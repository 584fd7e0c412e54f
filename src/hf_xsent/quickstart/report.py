"""Show the results of the quickstart as a page with charts and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from hf_xsent.data.languages import find_language
from hf_xsent.pages.charts import bar_chart, curve_chart
from hf_xsent.pages.document import Document, Html, Part, figures, legend
from hf_xsent.pages.tables import Table

BEFORE_AND_AFTER = "before training", "after training"


def report(results: Mapping[str, Any]) -> Document:
    """Return the report of ``results.json``."""
    accuracy, losses = results["accuracy"], results["losses"]
    before, after = (sum(scores[when] for scores in accuracy.values()) / len(accuracy) for when in ("before", "after"))
    bars = {_name(code): [scores["before"], scores["after"]] for code, scores in accuracy.items()}
    counts = [
        (f"{len(accuracy)}", "languages"),
        (f"{sum(results['pairs'].values()):,}", "training pairs"),
        (f"{sum(results['held_out'].values()):,}", "held-out pairs"),
        (f"{results['steps']}", f"steps, {results['seconds']} s in total"),
    ]
    curve: Part = "Too few steps for a curve."
    if len(losses) > 1:
        curve = Html(curve_chart("Training loss by step", {"loss": (1, losses)}, "step"))
    return Document(
        f"From {before:.1f}% to {after:.1f}% of translations found",
        [
            "Each held-out sentence retrieves its translation among those of its language, in both directions "
            "(accuracy@1 by cosine). No held-out sentence was in the training data, in any language.",
            figures(counts),
        ],
        {
            "Accuracy by language": [
                legend({name: number for number, name in enumerate(BEFORE_AND_AFTER)}),
                Html(bar_chart("Accuracy before and after training, by language", bars, BEFORE_AND_AFTER)),
            ],
            "Training loss (translation ranking)": [curve],
            "Search across languages": [
                "One held-out sentence per language, and its nearest neighbour among the held-out sentences of the "
                "other side, which is right if it is the translation; otherwise the translation follows. The "
                "embeddings are those of the exported model, opened with SentenceTransformer.",
                search_table(results["search"]),
            ],
            "Use the model": [
                f"The training started from {results['model']}. Open the exported folder model next to this page with "
                'SentenceTransformer("model"). All figures are in results.json.'
            ],
        },
    )


def search_table(search: Sequence[Sequence[Any]]) -> Table:
    """List the nearest neighbour of each query, and whether it is the translation."""
    rows = [
        [query, nearest, cosine, "✓ right" if nearest == translation else f"✗ wrong: {translation}"]
        for query, nearest, cosine, translation in search
    ]
    return Table(["Query", "Nearest", "Cosine", "Translation"], rows)


def _name(code: str) -> str:
    return "your pairs" if code == "und" else find_language(code).name
