"""Fit the weights of document alignment: a coordinate search for the best strict F1 on two documents.

  python benchmarks/document_alignment_fit.py --data text_berg --models runs/tr encoder --weights skip skip_next

The search tries the listed values of each weight in turn, until none is better. To prefer flat optima, the figure of
a set of weights is the mean of itself and of sets in which each weight is changed by up to 15%, over all models, with
all spans encoded as one text.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bead_scores import Bead, document_alignment_scores
from document_alignment import read_alignment

from hf_xsent.documents import search as searching
from hf_xsent.documents.alignment import MAX_LENGTH
from hf_xsent.documents.anchors import Anchors, find_anchors
from hf_xsent.documents.beads import Weights, bead_features
from hf_xsent.documents.spans import LONGEST_SPAN, EncodedDocument
from hf_xsent.models.encoder import Encoder

FITTED_ON = ("001", "002")
GRID = {
    "extension": (-5.5, -4.0, -3.0, -2.0),
    "length_ratio": (-5.0, -4.0, -3.0, -2.0),
    "per_bead": (-1.0, 0.0, 1.0, 2.0),
    "size": (-3.5, -2.5, -1.5, -0.5),
    "both_several": (-1.0, 0.0, 1.0),
    "skip": (-4.0, -3.0, -2.0, -1.0, 0.0),
    "skip_next": (1.5, 2.0, 2.5, 3.0, 3.5),
    "skip_length": (-2.5, -1.5, -0.75, 0.0),
}
JITTERED = 3
JITTER = 0.15


@dataclass
class Example:
    """A document with gold beads; the features of beads are computed once."""

    source: EncodedDocument
    target: EncodedDocument
    anchors: Anchors
    gold: list[Bead]


def example(model: Any, sides: Sequence[Sequence[str]], gold: list[Bead]) -> Example:
    """Encode all spans of both sides."""
    built = []
    for sentences in sides:
        spans = [(size, end) for size in range(2, LONGEST_SPAN + 1) for end in range(size, len(sentences) + 1)]
        vectors = model.encode([" ".join(sentences[end - size : end]) for size, end in spans])
        built.append(
            EncodedDocument.from_sentences(sentences, model.encode(list(sentences))).with_spans(spans, vectors)
        )
    return Example(built[0], built[1], find_anchors(built[0], built[1]), gold)


def strict_f1(examples: Sequence[Example], weights: Weights) -> float:
    """Align all documents; count skipped sentences like vecalign's scorer."""
    found = []
    for example in examples:
        beads = searching.search(example.source, example.target, example.anchors, weights)
        found.append([(tuple(source), tuple(target)) for source, target in beads])
    return document_alignment_scores(found, [example.gold for example in examples]).strict_f1


def smooth_f1(examples: Sequence[Example], weights: Weights) -> float:
    """Return the mean of strict F1 near these weights."""
    random = np.random.default_rng(0)
    figures = [strict_f1(examples, weights)]
    for _ in range(JITTERED):
        changed = {name: getattr(weights, name) * random.uniform(1 - JITTER, 1 + JITTER) for name in GRID}
        figures.append(strict_f1(examples, replace(weights, **changed)))
    return float(np.mean(figures))


def fit(examples: Sequence[Example], weights: Weights, names: Sequence[str], rounds: int = 3) -> Weights:
    """Search one weight after the other."""
    remember: dict[Any, Any] = {}

    def features(source: EncodedDocument, *rest: Any) -> Any:
        key = (id(source), *rest[2:])
        if key not in remember:
            remember[key] = bead_features(source, *rest)
        return remember[key]

    searching.bead_features = features  # type: ignore[assignment]
    best = smooth_f1(examples, weights)
    print(f"start {best:.2f}", flush=True)
    for _ in range(rounds):
        before = best
        for name in names:
            values = GRID[name]
            figures = {value: smooth_f1(examples, replace(weights, **{name: value})) for value in values}
            value = max(figures, key=lambda one: figures[one])
            if figures[value] > best + 0.02:
                best, weights = figures[value], replace(weights, **{name: value})
            listed = ", ".join(f"{one}: {figure:.2f}" for one, figure in figures.items())
            print(f"{name} = {getattr(weights, name)} ({listed}), best {best:.2f}", flush=True)
        if best == before:
            break
    searching.bead_features = bead_features
    return weights


def main() -> None:
    """Fit and print the weights."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--languages", nargs=2, default=("de", "fr"))
    parser.add_argument("--models", nargs="+", required=True)
    parser.add_argument("--weights", nargs="+", choices=GRID, default=list(GRID))
    options = parser.parse_args()
    folder, examples = Path(options.data), []
    for path in options.models:
        model = Encoder(path, pooling="mean", least_max_length=MAX_LENGTH)
        for name in FITTED_ON:
            texts = [(folder / code / name).read_text("utf-8").removesuffix("\n") for code in options.languages]
            sides = [[line.strip() for line in text.split("\n")] for text in texts]
            examples.append(example(model, sides, read_alignment(folder / "gold" / name)))
    print(fit(examples, Weights(), options.weights))


if __name__ == "__main__":
    main()
