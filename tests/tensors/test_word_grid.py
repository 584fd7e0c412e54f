"""Words and links of a packed batch against loops over one pair at a time."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_xsent.tensors.packing import PackedSentences, pack
from hf_xsent.tensors.word_grid import (
    WordLinks,
    linked_words,
    mean_directions,
    ranking_logits,
    standardize_pairs,
    translated_pieces,
)

Words = list[int]  # the number of each token's word, -1 of none


@dataclass(frozen=True)
class _Pair:
    source: Words
    target: Words
    links: list[tuple[int, int]]


@dataclass(frozen=True)
class _Word:
    sentence: int  # sources first
    number: int
    tokens: list[int]  # ids of its pieces, each unique in the batch


def _sentences() -> st.SearchStrategy[Words]:
    return st.lists(st.integers(-1, 3), max_size=6).map(lambda words: [-1, *words, -1])


PAIRS = st.lists(
    st.builds(_Pair, _sentences(), _sentences(), st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=5)),
    min_size=1,
    max_size=5,
)
several = settings(max_examples=40, deadline=None)


def _sides(pairs: list[_Pair]) -> list[Words]:
    return [one.source for one in pairs] + [one.target for one in pairs]


def _token(sentence: int, place: int) -> int:
    return 100 * sentence + place + 1


def _packed(pairs: list[_Pair]) -> tuple[PackedSentences, WordLinks]:
    sentences = _sides(pairs)
    width = max(map(len, sentences))
    ids = torch.zeros(len(sentences), width, dtype=torch.long)
    words = torch.full_like(ids, -1)
    for number, sentence in enumerate(sentences):
        ids[number, : len(sentence)] = torch.tensor([_token(number, place) for place in range(len(sentence))])
        words[number, : len(sentence)] = torch.tensor(sentence)
    mask = (ids > 0).long()
    packed = pack([*ids.chunk(2)], [*mask.chunk(2)])
    links = [list(row) for row in zip(*zip_longest(*(one.links for one in pairs), fillvalue=(-1, -1)), strict=True)]
    given = (
        torch.tensor(links).view(len(pairs), -1, 2)
        if any(one.links for one in pairs)
        else torch.empty(len(pairs), 0, 2, dtype=torch.long)
    )
    return packed, WordLinks(words[mask.bool()][packed.token_order], given)


def _slow_words(pairs: list[_Pair]) -> list[_Word]:
    """Sentence after sentence, all words by their numbers."""
    found = []
    for sentence, words in enumerate(_sides(pairs)):
        for number in sorted({one for one in words if one >= 0}):
            tokens = [_token(sentence, place) for place, one in enumerate(words) if one == number]
            found.append(_Word(sentence, number, tokens))
    return found


def _slow_links(pairs: list[_Pair]) -> dict[int, int]:
    """The translation of each linked word, both as numbers into ``_slow_words``; the first link of a word counts."""
    places = {(one.sentence, one.number): place for place, one in enumerate(_slow_words(pairs))}
    found: dict[int, int] = {}
    for number, pair in enumerate(pairs):
        for i, j in pair.links:
            source, target = places.get((number, i)), places.get((number + len(pairs), j))
            if source is not None and target is not None:
                found.setdefault(source, target)
                found.setdefault(target, source)
    return found


@several
@given(PAIRS)
def test_words_are_found_with_their_pieces(pairs: list[_Pair]) -> None:
    packed, given_links = _packed(pairs)
    words, _ = linked_words(packed, given_links)
    expected = _slow_words(pairs)
    assert words.sentence.tolist() == [one.sentence for one in expected]
    assert words.lengths.tolist() == [len(one.tokens) for one in expected]
    assert packed.input_ids[words.pieces].tolist() == [token for one in expected for token in one.tokens]
    assert words.word_of_piece.tolist() == [number for number, one in enumerate(expected) for _ in one.tokens]
    assert words.first_piece.tolist() == [
        sum(len(one.tokens) for one in expected[:number]) for number in range(len(expected))
    ]
    assert words.first_word.tolist() == [
        sum(one.sentence < sentence for one in expected) for sentence in range(2 * len(pairs))
    ]


@several
@given(PAIRS)
def test_the_first_link_of_a_word_counts_in_both_directions(pairs: list[_Pair]) -> None:
    _, links = linked_words(*_packed(pairs))
    expected = _slow_links(pairs)
    assert links.words.tolist() == sorted(expected)
    assert links.translations.tolist() == [expected[word] for word in sorted(expected)]


@several
@given(PAIRS)
def test_pieces_of_linked_words_are_paired_one_by_one(pairs: list[_Pair]) -> None:
    packed, given_links = _packed(pairs)
    words, links = linked_words(packed, given_links)
    found = translated_pieces(words, links.words, links.translations)
    slow, expected = _slow_words(pairs), []
    for word, translation in sorted(_slow_links(pairs).items()):
        expected += list(zip(slow[word].tokens, slow[translation].tokens, strict=False))
    assert list(zip(*(packed.input_ids[one].tolist() for one in found), strict=True)) == (expected)


def _vectors(packed: PackedSentences) -> Tensor:
    """Random states of all tokens, the same for the same token."""
    table = torch.randn(2000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return table[packed.input_ids]


@several
@given(PAIRS)
def test_products_of_mean_directions_are_mean_cosines(pairs: list[_Pair]) -> None:
    packed, given_links = _packed(pairs)
    words, _ = linked_words(packed, given_links)
    states, slow = _vectors(packed), _slow_words(pairs)
    directions = mean_directions(states[words.pieces], words)
    of_token = dict(zip(packed.input_ids.tolist(), states, strict=True))
    assert directions.shape == (len(slow), 3)
    for number, one in enumerate(slow):
        expected = torch.stack([of_token[token] / of_token[token].norm() for token in one.tokens]).mean(0)
        torch.testing.assert_close(directions[number], expected)
        for other_number, other in enumerate(slow[:3]):
            cosines = [torch.cosine_similarity(of_token[a], of_token[b], 0) for a in one.tokens for b in other.tokens]
            product = directions[number] @ directions[other_number]
            torch.testing.assert_close(product, torch.stack(cosines).mean())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_directions_are_at_least_float32(dtype: torch.dtype) -> None:
    packed, given_links = _packed([_Pair([-1, 0, 0, 1, -1], [-1, 0, -1], [(0, 0)])])
    words, _ = linked_words(packed, given_links)
    states = _vectors(packed)[words.pieces]
    directions = mean_directions(states.to(dtype), words)
    assert directions.dtype == torch.float32
    torch.testing.assert_close(directions, mean_directions(states.to(dtype).float(), words))


@several
@given(PAIRS)
def test_each_linked_word_is_ranked_among_the_words_of_the_other_sentence(pairs: list[_Pair]) -> None:
    packed, given_links = _packed(pairs)
    words, links = linked_words(packed, given_links)
    assume(len(links.words))  # a batch without links has no logits
    slow, translations = _slow_words(pairs), _slow_links(pairs)
    vectors = torch.randn(len(slow), 3, dtype=torch.float64)
    logits, positives = ranking_logits(vectors, words, links)
    assert len(logits) == len(positives) == len(translations)
    for row, positive, word in zip(logits, positives.tolist(), sorted(translations), strict=True):
        other = (slow[word].sentence + len(pairs)) % (2 * len(pairs))
        candidates = [number for number, one in enumerate(slow) if one.sentence == other]
        expected = torch.stack([vectors[word] @ vectors[one] for one in candidates])
        torch.testing.assert_close(row[: len(candidates)], expected)
        assert (row[len(candidates) :] == -torch.inf).all()
        assert candidates[positive] == translations[word]


@several
@given(PAIRS)
def test_states_are_standardized_over_each_pair(pairs: list[_Pair]) -> None:
    packed, _ = _packed(pairs)
    vectors = _vectors(packed)
    sentence = torch.repeat_interleave(packed.restore.argsort(), packed.lengths)
    found = standardize_pairs(vectors, packed)
    for number in range(len(pairs)):
        sides = [vectors[sentence == one] for one in (number, number + len(pairs))]
        centred = [side - side.mean(0) for side in sides]
        scale = torch.cat(centred).square().mean(0).sqrt()
        for one, plain in zip((number, number + len(pairs)), centred, strict=True):
            torch.testing.assert_close(found[sentence == one], plain / scale)


def test_a_sentence_of_one_token_has_finite_standardized_states_and_gradients() -> None:
    packed = pack([torch.ones(2, 1, dtype=torch.long)], [torch.ones(2, 1, dtype=torch.long)])
    states = torch.ones(2, 3, requires_grad=True)
    found = standardize_pairs(states, packed)
    found.sum().backward()
    assert torch.equal(found, torch.zeros(2, 3)) and states.grad is not None and states.grad.isfinite().all()
