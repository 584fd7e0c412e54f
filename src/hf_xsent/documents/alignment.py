"""Align the sentences of two documents that translate each other, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath

import numpy as np

from hf_xsent.documents.anchors import Anchors, find_anchors
from hf_xsent.documents.beads import Weights
from hf_xsent.documents.search import doubtful_spans, search
from hf_xsent.documents.spans import Side
from hf_xsent.errors import DataError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.encodes import Encodes, check_finite

logger = logging.getLogger(__name__)

MAX_LENGTH = 256  # tokens of a sentence; models that were trained on shorter ones still profit
_LONGER_SIDE = 20
_LOW_SCORE = 0.3  # what the best pairs of unrelated documents reach
_FEW_ANCHORS = 20  # fewer may be in any order by chance
_IN_ORDER = 0.5  # of the anchors: documents in the same order have nearly all, shuffled ones 2 / sqrt(anchors)


@dataclass(frozen=True)
class AlignedSpans:
    """Sentences of both documents that translate each other, by their numbers from 0; one side may be empty.

    The score is the cosine of both spans, less what they have with random sentences, over what is left up to 1: 0 is
    chance, 1 the same vector. Skipped sentences have none.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    score: float | None


def align_documents(
    source_sentences: Sequence[str],
    target_sentences: Sequence[str],
    model: Encodes | str | PathLike[str],
    *,
    source_paragraphs: Sequence[int] | None = None,
    target_paragraphs: Sequence[int] | None = None,
    weights: Weights | None = None,
) -> list[AlignedSpans]:
    """Align two lists of sentences, up to four of one side with up to four of the other, in the order of both.

    Every sentence is in exactly one of the results. ``model`` is anything that encodes, a folder or a Hub id.
    Paragraphs are numbers that rise through a document; their ends attract the ends of aligned spans.
    """
    for name, sentences in (("source", source_sentences), ("target", target_sentences)):
        if not len(sentences):
            raise DataError(f"the {name} document is empty: a document to align needs at least one sentence")
    encoder = open_model(fspath(model)) if isinstance(model, (str, PathLike)) else model
    vectors = [np.asarray(encoder.encode(list(side))) for side in (source_sentences, target_sentences)]
    source = Side.of(source_sentences, vectors[0], source_paragraphs)
    target = Side.of(target_sentences, vectors[1], target_paragraphs)
    return align_sides(source, target, encoder.encode, (source_sentences, target_sentences), weights=weights)


def align_sides(
    source: Side,
    target: Side,
    encode: Callable[[Sequence[str]], np.ndarray],
    sentences: tuple[Sequence[str], Sequence[str]],
    names: tuple[str, str] = ("source", "target"),
    weights: Weights | None = None,
) -> list[AlignedSpans]:
    """Align documents whose sentences are encoded; ``names`` stand in errors and warnings.

    A first search composes the vectors of spans from those of sentences; where it finds anything but sure single pairs,
    spans are encoded as one text for a second search.
    """
    weights = weights or Weights()
    for side, name in ((source, names[0]), (target, names[1])):
        check_finite(side.vectors, "float32", partial("sentence {1} (from 0) of {0}".format, name))
    check_lengths(source, target, names)
    anchors = find_anchors(source, target)
    _check_order(anchors, names)
    beads = search(source, target, anchors, weights)
    chosen = doubtful_spans(source, target, anchors, beads)
    if any(chosen):
        source, target = (
            side.with_spans(spans, np.asarray(encode([" ".join(texts[end - size : end]) for size, end in spans])))
            if spans
            else side
            for side, spans, texts in zip((source, target), chosen, sentences, strict=True)
        )
        beads = search(source, target, anchors, weights)
    found = [
        AlignedSpans(tuple(one), tuple(other), _score(source, target, anchors, one, other) if one and other else None)
        for one, other in beads
    ]
    _check_scores(found, names)
    return found


def open_model(
    name_or_path: str, pooling: str | None = None, max_length: int | None = None, device: str | None = None
) -> SentenceEmbedder:
    """Open a model for documents: without a stated length it takes sentences of 256 tokens where its encoder can."""
    embedder = SentenceEmbedder.from_pretrained(name_or_path, pooling=pooling, max_length=max_length, device=device)
    if max_length is None:
        embedder.max_length = max(embedder.max_length, min(MAX_LENGTH, embedder.longest_input))
    return embedder


def check_lengths(source: Side, target: Side, names: tuple[str, str]) -> None:
    """Warn where one document is many times as long as the other."""
    shorter, longer = sorted((len(source), len(target)))
    if longer > _LONGER_SIDE * shorter:
        logger.warning(
            "%s has %d sentences and %s %d: is one of them not split into sentences, or only a part? "
            "If it is, align that part, or use hf-xsent mine",
            names[0],
            len(source),
            names[1],
            len(target),
        )


def _check_order(anchors: Anchors, names: tuple[str, str]) -> None:
    """Refuse documents whose sentences pair well but not in the same order."""
    count, rising = len(anchors.source), len(anchors.in_order)
    if count >= _FEW_ANCHORS and rising < _IN_ORDER * count and float(np.median(anchors.score)) > _LOW_SCORE:
        order = "the reverse order" if anchors.falling > max(rising, _IN_ORDER * count) else "another order"
        raise DataError(
            f"{names[1]} has the sentences of {names[0]} in {order}: of {count} sure pairs only {rising} are in the "
            "same order; use hf-xsent mine, which needs none"
        )


def _check_scores(found: Sequence[AlignedSpans], names: tuple[str, str]) -> None:
    """Warn where the scores look like those of unrelated texts."""
    scores = np.array([one.score for one in found if one.score is not None])
    low, middle, high = np.quantile(scores, (0.1, 0.5, 0.9)) if len(scores) else (0.0, 0.0, 0.0)
    if middle < _LOW_SCORE:
        logger.warning(
            "%s and %s hardly translate each other: half of the scores are below %.2f (a tenth below %.2f, a tenth "
            "above %.2f; translations have 0.5 and more): check their languages, and that the model knows them",
            *names,
            middle,
            low,
            high,
        )


def _score(source: Side, target: Side, anchors: Anchors, one: range, other: range) -> float:
    span, translation = (
        side.spans(numbers.stop, numbers.stop + 1)[len(numbers), 0]
        for side, numbers in ((source, one), (target, other))
    )
    chance = (span @ anchors.scale.target_mean + translation @ anchors.scale.source_mean) / 2
    return round(float((span @ translation - chance) / max(1 - chance, 1e-3)), 6)
