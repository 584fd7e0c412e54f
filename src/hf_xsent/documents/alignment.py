"""Align the sentences of two documents that are translations of each other, in order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np

from hf_xsent.documents.anchors import Anchors, find_anchors
from hf_xsent.documents.beads import Scale, Weights
from hf_xsent.documents.search import doubtful_spans, pair_moved, search
from hf_xsent.documents.spans import EncodedDocument
from hf_xsent.errors import DataError, shortened
from hf_xsent.models.encoder import Encoder
from hf_xsent.models.text_encoder import SupportsEncode, check_finite

logger = logging.getLogger(__name__)

MAX_LENGTH = 256  # tokens; longer inputs help also models that were trained with a lower limit
_LOW_SCORE = 0.3  # the best pairs of unrelated documents have about this score
_MIN_ANCHORS = 20  # the order of fewer anchors may be chance
_MIN_SHARE_IN_ORDER = 0.5  # nearly 1 for documents in the same order, 2 / sqrt(anchors) for shuffled ones


@dataclass(frozen=True)
class AlignedSpans:
    """Indices (from 0) of source sentences, and of the target sentences that translate them.

    If one side is empty, the sentences of the other are skipped, and the score is None. The score is
    (cosine - c) / (1 - c): 0 for random spans, 1 for equal embeddings. c is the mean cosine of a span with the N
    sentences of the other document times 1 - 1/N, averaged over both spans.
    """

    source: tuple[int, ...]
    target: tuple[int, ...]
    score: float | None


def align_documents(
    source_sentences: Iterable[str],
    target_sentences: Iterable[str],
    model: SupportsEncode | str | PathLike[str],
) -> list[AlignedSpans]:
    """Align two lists of sentences, up to four of one side with up to four of the other, in order.

    A sentence without a translation at its place is paired with one elsewhere if both are confident mutual nearest
    neighbours, else skipped. Every sentence is in exactly one result. ``model`` is an embedder, a folder or a Hub id.

    ```python
    from hf_xsent import align_documents

    for spans in align_documents(["Ein Hund.", "Er rennt."], ["A dog runs."], "runs/mine"):
        print(spans.source, spans.target, spans.score)
    ```
    """
    texts = _sentences("source", source_sentences), _sentences("target", target_sentences)
    encoder = Encoder(model, least_max_length=MAX_LENGTH)
    source, target = (EncodedDocument.from_sentences(side, encoder.encode(side)) for side in texts)
    return align_sides(source, target, encoder.encode, texts)


def _sentences(name: str, document: Any) -> list[str]:
    if isinstance(document, str) or not isinstance(document, Iterable):
        raise DataError(f"the {name} document is {shortened(document)}: pass the list of its sentences")
    if not (sentences := list(document)):
        raise DataError(f"the {name} document is empty: a document to align needs at least one sentence")
    return [" ".join(text.split()) if isinstance(text, str) else text for text in sentences]  # as those of files


def align_sides(
    source: EncodedDocument,
    target: EncodedDocument,
    encode: Callable[[Sequence[str]], np.ndarray],
    sentences: tuple[Sequence[str], Sequence[str]],
    names: tuple[str, str] = ("source", "target"),
) -> list[AlignedSpans]:
    """Align documents from their sentence embeddings; errors and warnings name the documents by ``names``.

    A first search composes the embeddings of spans from those of their sentences. Near every result that is not a
    confident pair of single sentences, spans are encoded as one text for a second search. Last, skipped sentences are
    paired if they are confident translations of each other.
    """
    for side, name in ((source, names[0]), (target, names[1])):
        check_finite(side.vectors, "float32", partial("sentence {1} (from 0) of {0}".format, name))
    anchors = find_anchors(source, target)
    _check_order(anchors, names)
    beads = search(source, target, anchors, Weights())
    doubtful = doubtful_spans(source, target, anchors, beads)
    if any(doubtful):
        source, target = (
            side.with_spans(spans, encode([" ".join(texts[end - size : end]) for size, end in spans]))
            if spans
            else side
            for side, spans, texts in zip((source, target), doubtful, sentences, strict=True)
        )
        beads = search(source, target, anchors, Weights())
    beads = pair_moved(source, target, anchors.scale, beads)
    scores = [_score(source, target, anchors.scale, *bead) if all(bead) else None for bead in beads]
    _check_scores(scores, names)
    return [AlignedSpans(tuple(rows), tuple(columns), s) for (rows, columns), s in zip(beads, scores, strict=True)]


def _check_order(anchors: Anchors, names: tuple[str, str]) -> None:
    """Raise an error if the sentences are translations, but not in the same order."""
    count, rising = len(anchors.source), len(anchors.in_order)
    is_enough = count >= _MIN_ANCHORS and float(np.median(anchors.score)) > _LOW_SCORE
    if is_enough and rising < _MIN_SHARE_IN_ORDER * count:
        raise DataError(
            f"{names[1]} has the sentences of {names[0]} in another order: of {count} confident pairs only "
            f"{rising} are in the same order; use hf-xsent mine, which ignores order, or an encoder that knows both "
            "languages, if they are in order"
        )


def _check_scores(scores: Sequence[float | None], names: tuple[str, str]) -> None:
    """Warn if there are no scores, or if they are as low as those of unrelated texts."""
    of_pairs = [score for score in scores if score is not None]
    if not of_pairs or np.median(of_pairs) < _LOW_SCORE:
        logger.warning(
            "%s and %s do not seem to be translations: half of the scores are below %.1f (translations score 0.5 and "
            "more): check both languages, and whether the model supports them",
            *names,
            _LOW_SCORE,
        )


def _score(source: EncodedDocument, target: EncodedDocument, scale: Scale, rows: range, columns: range) -> float:
    span = source.spans(rows.stop, rows.stop + 1)[len(rows), 0]
    translation = target.spans(columns.stop, columns.stop + 1)[len(columns), 0]
    chance = (span @ scale.target_mean + translation @ scale.source_mean) / 2
    return round(float((span @ translation - chance) / max(1 - chance, 1e-3)), 6)
