from __future__ import annotations

import logging
from functools import cache
from typing import Any

import numpy as np
import pytest

from hf_xsent import align_documents
from hf_xsent.documents.alignment import AlignedSpans, align_sides
from hf_xsent.documents.anchors import find_anchors
from hf_xsent.documents.beads import SIZES, Weights, bead_features, skip_scores
from hf_xsent.documents.search import search
from hf_xsent.documents.spans import LONGEST_SPAN, EncodedDocument
from hf_xsent.errors import DataError


def sentences(language: str, *meanings: Any) -> list[str]:
    return [f"{language}: " + " ".join(f"{1000 + number}" for number in numbers) for numbers in meanings]


def words(first: int, count: int = 4) -> list[int]:
    return [10 * first + number for number in range(count)]


def links(aligned: Any) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    return [(spans.source, spans.target) for spans in aligned]


def test_equal_documents_are_aligned_one_to_one(model: Any) -> None:
    meanings = [words(number) for number in range(30)]
    aligned = align_documents(sentences("de", *meanings), sentences("fr", *meanings), model)
    lines = (f"{sentence} \n" for sentence in sentences("de", *meanings))
    assert align_documents(lines, sentences("fr", *meanings), model) == aligned
    assert links(aligned) == [((number,), (number,)) for number in range(30)]
    assert all(spans.score is not None and 0.7 < spans.score <= 1 for spans in aligned)


def test_sentences_are_joined_and_skipped(model: Any) -> None:
    source = [words(0), words(1) + words(2), words(3), words(4), words(90), words(5), words(6)]
    target = [words(0), words(1), words(2), words(3) + words(4), words(5), words(91), words(92), words(6)]
    aligned = align_documents(sentences("de", *source), sentences("fr", *target), model)
    assert [pair for pair in links(aligned) if all(pair)] == [
        ((0,), (0,)), ((1,), (1, 2)), ((2, 3), (3,)), ((5,), (4,)), ((6,), (7,)),
    ]  # fmt: skip
    assert {pair for pair in links(aligned) if not all(pair)} == {((4,), ()), ((), (5,)), ((), (6,))}


def test_every_sentence_is_in_one_result_and_in_order(model: Any) -> None:
    random = np.random.default_rng(3)
    source = [words(int(number)) for number in np.sort(random.integers(0, 40, 25))]
    target = [words(int(number)) for number in np.sort(random.integers(0, 40, 31))]
    aligned = align_documents(sentences("de", *source), sentences("fr", *target), model)
    assert [number for spans in aligned for number in spans.source] == list(range(25))
    assert [number for spans in aligned for number in spans.target] == list(range(31))
    assert max(len(side) for spans in aligned for side in (spans.source, spans.target)) <= LONGEST_SPAN


@pytest.mark.parametrize(("place", "count"), [(20, 400), (20, 2500), (0, 2500), (40, 2500)])
def test_a_long_insertion_is_skipped(model: Any, place: int, count: int) -> None:
    source = [words(number) for number in range(40)]
    target = source[:place] + [words(number) for number in range(1000, 1000 + count)] + source[place:]
    aligned = align_documents(sentences("de", *source), sentences("fr", *target), model)
    assert [pair for pair in links(aligned) if all(pair)] == [
        ((number,), (number + (count if number >= place else 0),)) for number in range(40)
    ]


def test_a_moved_sentence_is_paired_with_its_translation(model: Any) -> None:
    meanings = [words(number) for number in range(30)]
    moved = [*meanings[:8], *meanings[9:20], meanings[8], *meanings[20:]]
    aligned = links(align_documents(sentences("de", *meanings), sentences("fr", *moved), model))
    assert ((8,), (19,)) in aligned
    assert all(meanings[row] == moved[column] for (row,), (column,) in aligned)


def test_one_sentence_a_side(model: Any) -> None:
    assert links(align_documents(["de: 1001"], ["fr: 1001"], model)) == [((0,), (0,))]


def align_paragraphs(texts: Any, model: Any, *paragraphs: list[int]) -> list[AlignedSpans]:
    sides = [
        EncodedDocument.from_sentences(side, model.encode(side), numbers)
        for side, numbers in zip(texts, paragraphs, strict=True)
    ]
    return align_sides(sides[0], sides[1], model.encode, texts)


def test_paragraphs_attract_the_ends_of_spans(model: Any) -> None:
    """The middle sentence belongs to both neighbours equally; the paragraphs decide."""
    source = [words(0) + words(7, 2), words(7, 2) + words(1)]
    target = [words(0), words(7, 2), words(1)]
    texts = sentences("de", *source), sentences("fr", *target)
    ends = [links(align_paragraphs(texts, model, [0, 1], paragraphs)) for paragraphs in ([0, 0, 1], [0, 1, 1])]
    assert ends == [[((0,), (0, 1)), ((1,), (2,))], [((0,), (0,)), ((1,), (1, 2))]]


@pytest.mark.parametrize("numbers", [[0, 5, 5], [9, 2, 2], [2**31, 7, 7]])
def test_only_changes_of_paragraph_numbers_matter(model: Any, numbers: list[int]) -> None:
    meanings = [words(0) + words(7, 2), words(7, 2) + words(1)], [words(0), words(7, 2), words(1)]
    texts = sentences("de", *meanings[0]), sentences("fr", *meanings[1])
    aligned = align_paragraphs(texts, model, [3, 1], numbers)
    assert aligned == align_paragraphs(texts, model, [0, 1], [0, 1, 1])


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("Bonjour.", "the target document is 'Bonjour.': pass the list of its sentences"),
        ([], "the target document is empty"),
    ],
)
def test_a_document_that_is_no_list_of_sentences_is_refused(model: Any, target: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        align_documents(["Guten Tag."], target, model)


@pytest.mark.parametrize("order", [range(59, -1, -1), np.random.default_rng(0).permutation(60)])
def test_reversed_and_shuffled_documents_are_refused(model: Any, order: Any) -> None:
    source = [words(number) for number in range(60)]
    with pytest.raises(DataError, match="in another order: .* use hf-xsent mine"):
        align_documents(sentences("de", *source), sentences("fr", *(source[number] for number in order)), model)


def test_unrelated_documents_are_warned_of(model: Any, caplog: pytest.LogCaptureFixture) -> None:
    source, target = ([words(first + number) for number in range(30)] for first in (0, 500))
    with caplog.at_level(logging.WARNING):
        align_documents(sentences("de", *source), sentences("fr", *target), model)
    assert "do not seem to be translations: half of the scores are below" in caplog.text


def test_span_vectors_are_weighted_means_of_sentence_vectors() -> None:
    vectors = np.random.default_rng(0).standard_normal((6, 5)).astype(np.float32)
    lengths = np.array([3, 10, 7, 2, 5, 9], np.float32)
    spans = EncodedDocument(vectors, lengths, np.zeros(6)).spans(0, 7)
    for size in range(1, LONGEST_SPAN + 1):
        for end in range(7):
            rows = slice(end - size, end)
            expected = (vectors[rows] * (lengths[rows, None] + 4)).sum(0) if end >= size else np.zeros(5)
            expected = expected / max(np.linalg.norm(expected), 1e-12)
            np.testing.assert_allclose(spans[size, end], expected, atol=1e-6)


def test_blocks_of_rows_change_nothing(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    meanings = [words(number // 2 if number % 5 else number) for number in range(80)]
    sides = [
        EncodedDocument.from_sentences(texts, model.encode(texts))
        for texts in (sentences("de", *meanings), sentences("fr", *meanings))
    ]
    anchors = find_anchors(*sides)
    whole = search(*sides, anchors, Weights())
    monkeypatch.setattr("hf_xsent.documents.search._ROWS_AT_ONCE", 3)
    assert search(*sides, anchors, Weights()) == whole


def assert_best(sides: tuple[EncodedDocument, EncodedDocument], weights: Weights) -> None:
    """Compare the search with a direct recursion over the last step: a bead, or a skipped sentence of one side."""
    anchors = find_anchors(*sides)
    ends = len(sides[0]), len(sides[1])
    features = bead_features(*sides, anchors.scale, (0, ends[0] + 1), (0, ends[1] + 1))
    scores = {size: np.tensordot(weights.of_beads(), features[size], 1) for size in SIZES}
    skips = skip_scores(sides[0], weights, anchors.scale.length_ratio), skip_scores(sides[1], weights)

    @cache
    def best(row: int, column: int, last: str) -> float:
        """Return the best score of the sentences before these, where the next step is ``last``."""
        if row == column == 0:
            return 0.0
        reached = [
            scores[a, b][row, column] + best(row - a, column - b, "bead") for a, b in SIZES if a <= row and b <= column
        ]
        if row:
            reached.append(skips[0][last == "source"][row - 1] + best(row - 1, column, "source"))
        if column:
            reached.append(skips[1][last == "target"][column - 1] + best(row, column - 1, "target"))
        return max(reached)

    total, before = 0.0, ""
    for rows, columns in search(*sides, anchors, weights):
        step = "bead" if rows and columns else "source" if rows else "target"
        if step == "bead":
            total += scores[len(rows), len(columns)][rows.stop, columns.stop]
        else:
            numbers, side = (rows, 0) if rows else (columns, 1)
            total += skips[side][step == before][numbers.start]
        before = step
    assert total == pytest.approx(best(*ends, ""), abs=1e-4)


@pytest.mark.parametrize("skip", [-2.0, 0.5, 1.5])
def test_the_search_finds_the_alignment_with_the_best_score(model: Any, skip: float) -> None:
    source = [words(number) for number in (0, 1, 2, 40, 41, 3, 4, 5)]
    target = [words(number) for number in (50, 51, 52, 0, 1, 2, 3, 4, 60, 61, 5)]
    texts = sentences("de", *source), sentences("fr", *target)
    source_side, target_side = (EncodedDocument.from_sentences(side, model.encode(side)) for side in texts)
    assert_best((source_side, target_side), Weights(skip=skip, skip_next=1.0))


@pytest.mark.parametrize("untranslated", [0, 1])
def test_the_search_finds_the_best_score_where_one_side_starts_and_ends_with_other_text(untranslated: int) -> None:
    """Random documents, for which skipping the first sentences is often nearly as good as aligning them."""
    random = np.random.default_rng(untranslated)
    for _ in range(40):
        meanings = random.standard_normal((12, 16))
        first, last = sorted(random.choice(13, 2, replace=False))
        sides = [meanings, meanings[first:last]] if untranslated == 0 else [meanings[first:last], meanings]
        source, target = (
            EncodedDocument(
                (side + 0.6 * random.standard_normal(side.shape) + 0.3).astype(np.float32),
                random.integers(5, 90, len(side)).astype(np.float32),
                np.cumsum(random.random(len(side)) < 0.3),
            )
            for side in sides
        )
        assert_best((source, target), Weights(skip=random.uniform(-4, 1), skip_next=random.uniform(0, 3)))
