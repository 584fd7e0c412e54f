from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.tensors.packing import PackedSentences, hash_sentences, pack, pool, unpack

SETTINGS = settings(max_examples=60, deadline=None)


def _pad(rows: list[list[int]], width: int, left: bool = False, padding: int = 0) -> tuple[Tensor, Tensor]:
    ids = torch.full((len(rows), width), padding)
    mask = torch.zeros(len(rows), width, dtype=torch.long)
    for number, row in enumerate(rows):
        places = slice(width - len(row), width) if left else slice(len(row))
        ids[number, places] = torch.tensor(row)
        mask[number, places] = 1
    return ids, mask


@st.composite
def _batches(draw: Any) -> tuple[list[list[int]], list[Tensor], list[Tensor]]:
    """Sentences, and the same in one to three padded batches, each padded on its own side and to its own width."""
    sentences, ids, masks = [], [], []
    for _ in range(draw(st.integers(1, 3))):
        rows = draw(st.lists(st.lists(st.integers(0, 99), min_size=1, max_size=9), min_size=1, max_size=5))
        width = max(map(len, rows)) + draw(st.integers(0, 3))
        one_ids, one_mask = _pad(rows, width, left=draw(st.booleans()))
        sentences += rows
        ids.append(one_ids)
        masks.append(one_mask)
    return sentences, ids, masks


def _sentence_states(packed: PackedSentences, states: Tensor) -> list[Tensor]:
    """The states of each of the caller's sentences, cut out of the packed ones."""
    parts = states.split(packed.lengths.tolist())
    return [parts[int(number)] for number in packed.restore]


@SETTINGS
@given(_batches())
def test_packed_sentences_are_the_callers_in_ascending_length(batches: Any) -> None:
    sentences, ids, masks = batches
    packed = pack(ids, masks)
    assert [part.tolist() for part in _sentence_states(packed, packed.input_ids)] == sentences
    assert packed.lengths.tolist() == sorted(map(len, sentences))
    assert packed.positions.tolist() == [place for length in packed.lengths.tolist() for place in range(length)]
    assert packed.input_ids[packed.first_tokens][packed.restore].tolist() == [row[0] for row in sentences]
    assert [length for count, length in packed.runs for _ in range(count)] == packed.lengths.tolist()
    assert len({length for _, length in packed.runs}) == len(packed.runs)
    assert packed.boundaries.tolist() == [0, *packed.lengths.cumsum(0).tolist()]
    assert packed.boundaries.dtype == torch.int32


@SETTINGS
@given(_batches())
def test_unpacking_undoes_packing(batches: Any) -> None:
    _, ids, masks = batches
    for one_ids, one_mask in zip(ids, masks, strict=True):
        packed = pack([one_ids], [one_mask])
        states = torch.stack([packed.input_ids + 1, packed.positions + 1], -1).float()
        places = one_mask.cumsum(1) * one_mask
        expected = torch.stack([(one_ids + 1) * one_mask, places], -1).float()
        assert torch.equal(unpack(states, packed, one_mask), expected)


def test_several_batches_of_one_width_unpack_as_one() -> None:
    ids, mask = _pad([[1, 2, 3], [4], [5, 6]], 3)
    more_ids, more_mask = _pad([[7, 8], [9, 10, 11]], 3, left=True)
    packed = pack([ids, more_ids], [mask, more_mask])
    padded = unpack(packed.input_ids[:, None].float(), packed, torch.cat([mask, more_mask]))
    assert padded.squeeze(-1).tolist() == [[1, 2, 3], [4, 0, 0], [5, 6, 0], [0, 7, 8], [9, 10, 11]]


@SETTINGS
@given(_batches(), st.integers(0, 2**16))
def test_pooling_equals_pooling_each_sentence_alone(batches: Any, seed: int) -> None:
    _, ids, masks = batches
    packed = pack(ids, masks)
    states = torch.randn(len(packed.input_ids), 3, generator=torch.Generator().manual_seed(seed))
    alone = _sentence_states(packed, states)
    expected = {
        "cls": [one[0] for one in alone],
        "mean": [one.mean(0) for one in alone],
        "max": [one.max(0).values for one in alone],
    }
    for pooling, vectors in expected.items():
        torch.testing.assert_close(pool(states, packed, pooling)[packed.restore], torch.stack(vectors))


def test_the_mean_is_taken_in_float32() -> None:
    ids, mask = _pad([[1] * 400], 400)
    states = torch.full((400, 1), 1.0, dtype=torch.bfloat16)
    states[::2] = 1.0078125  # the next bfloat16 number: the mean lies between the two
    assert pool(states, pack([ids], [mask]), "mean").item() == pytest.approx(1.00390625, abs=1e-6)


def test_the_mean_of_float64_states_keeps_their_precision() -> None:
    ids, mask = _pad([[1, 2, 3]], 3)
    states = torch.tensor([[1.0], [1.0 + 1e-10], [1.0]], dtype=torch.float64)
    mean = pool(states, pack([ids], [mask]), "mean")
    assert mean.dtype == torch.float64
    torch.testing.assert_close(mean, states.mean(0, keepdim=True), rtol=1e-15, atol=0)


def test_a_sentence_without_tokens_is_refused_by_its_number() -> None:
    ids, mask = _pad([[1, 2], [], [3]], 2)
    with pytest.raises(ModelError, match="sentence 1 of the batch has no tokens"):
        pack([ids], [mask])
    other = _pad([[4], [5]], 1)
    with pytest.raises(ModelError, match="sentence 3 of the batch"):
        pack([other[0], ids], [other[1], mask])


# Fingerprints


@SETTINGS
@given(
    st.lists(st.lists(st.integers(0, 2), max_size=5), min_size=1, max_size=12),
    st.lists(st.tuples(st.integers(0, 4), st.booleans(), st.integers(0, 9)), min_size=12, max_size=12),
)
def test_fingerprints_are_equal_just_where_sentences_are(sentences: list[list[int]], paddings: list[Any]) -> None:
    found = []
    for sentence, (extra, left, padding) in zip(sentences, paddings, strict=False):
        found += hash_sentences(*_pad([sentence], len(sentence) + extra, left, padding)).tolist()
    for one, a in zip(sentences, found, strict=True):
        for other, b in zip(sentences, found, strict=True):
            assert (one == other) == (a == b)


def test_fingerprints_of_many_near_sentences_differ() -> None:
    """Neighbouring ids, swapped words, one word more: nothing that a weaker sum would confuse."""
    sentences = [[0, a, b, 2] for a in range(250_000, 250_100) for b in range(250_000, 250_100)]
    ids, mask = _pad(sentences, 4)
    longer_ids, longer_mask = _pad([row + [1] for row in sentences], 5)
    found = torch.cat([hash_sentences(ids, mask), hash_sentences(longer_ids, longer_mask)])
    assert len(found.unique()) == len(found) == 20_000
    assert found.dtype == torch.int64


# Attention
