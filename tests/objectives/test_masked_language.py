from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from hf_xsent.objectives.masked_language import MaskedLanguageModeling, Masking, TranslationLanguageModeling
from hf_xsent.objectives.pairs import PairTokens, TokenStates
from hf_xsent.tensors.packing import PackedSentences, pack

MASK, CLS, SEP = 4, 2, 3
SIZE = 50


def _masking(**changes: Any) -> Masking:
    return Masking(**{"mask_id": MASK, "vocabulary_size": SIZE, "special_ids": (0, 1, CLS, SEP, MASK)} | changes)


def test_masking_follows_berts_rule() -> None:
    ids = torch.randint(5, SIZE, (200_000,))
    changed, predicted = _masking()(ids)
    share = predicted.float().mean().item()
    assert abs(share - 0.15) < 0.005
    assert torch.equal(changed[~predicted], ids[~predicted])
    masked = (changed[predicted] == MASK).float().mean().item()
    kept = (changed[predicted] == ids[predicted]).float().mean().item()
    assert abs(masked - 0.8 - 0.1 / SIZE) < 0.01
    assert abs(kept - 0.1 - 0.1 / SIZE) < 0.01


def test_special_pieces_are_never_masked() -> None:
    ids = torch.tensor([CLS, 9, SEP, 0, MASK]).repeat(1000)
    _, predicted = _masking(probability=0.9)(ids)
    assert set(ids[predicted].tolist()) == {9}


def _objective(
    kind: type[MaskedLanguageModeling], masking: Any = None, head: torch.nn.Module | None = None, **settings: Any
) -> MaskedLanguageModeling:
    """Build an objective that masks by ``masking`` and predicts by ``head``; without them, nothing is replaced."""
    parts: Any = SimpleNamespace(
        encoder_config=SimpleNamespace(vocab_size=SIZE),
        mask_token_id=MASK,
        special_token_ids=(0, 1, CLS, SEP, MASK),
        mlm_head=lambda **_: head or _Spy(),
    )
    objective = kind(kind.Settings(**settings), parts)
    objective.masking = masking or (lambda ids: (ids, ids > 9))
    return objective


class _Spy(torch.nn.Module):
    """A head that records its inputs."""

    def forward(self, states: Tensor, labels: Tensor, word_embeddings: Tensor) -> Tensor:
        self.states, self.labels = states, labels
        return states.sum()


def _run(objective: MaskedLanguageModeling, seen: list[Any], languages: Tensor | None = None) -> Tensor:
    """Two pairs: 10-11 with 20, and 12 with 21-22-23, each between [CLS] and [SEP]."""
    rows = [[CLS, 10, 11, SEP, 0], [CLS, 12, SEP, 0, 0], [CLS, 20, SEP, 0, 0], [CLS, 21, 22, 23, SEP]]
    ids = torch.tensor(rows)
    packed = pack([ids[:2], ids[2:]], [(ids[:2] > 0).long(), (ids[2:] > 0).long()])

    def encode(packed: PackedSentences, tokens: Tensor, language_ids: Tensor | None) -> Tensor:
        seen.append((packed, tokens, language_ids))
        return packed.input_ids[tokens, None].float()

    pairs = PairTokens(packed, torch.zeros(2), languages, 5)
    (sampled,) = objective.sample(pairs)
    table = torch.zeros(2, 1)
    return objective.token_loss(pairs, TokenStates(packed, ids, None, encode, table, torch.zeros(4, 1)), sampled)


def _rows(packed: PackedSentences) -> list[tuple[list[int], list[int]]]:
    """Ids and positions of each row, in the order of the pairs."""
    cut = [one.split(packed.lengths.tolist()) for one in (packed.input_ids, packed.positions)]
    return [(cut[0][i].tolist(), cut[1][i].tolist()) for i in packed.restore.tolist()]


def test_tlm_joins_a_pair_and_counts_the_translations_positions_from_0() -> None:
    seen: list[Any] = []
    _run(_objective(TranslationLanguageModeling), seen)
    assert _rows(seen[0][0]) == [
        ([CLS, 10, 11, SEP, CLS, 20, SEP], [0, 1, 2, 3, 0, 1, 2]),
        ([CLS, 12, SEP, CLS, 21, 22, 23, SEP], [0, 1, 2, 0, 1, 2, 3, 4]),
    ]


def test_tlm_without_reset_is_one_sequence_with_one_cls() -> None:
    seen: list[Any] = []
    _run(_objective(TranslationLanguageModeling, reset_positions=False), seen)
    assert _rows(seen[0][0]) == [
        ([CLS, 10, 11, SEP, 20, SEP], [0, 1, 2, 3, 4, 5]),
        ([CLS, 12, SEP, 21, 22, 23, SEP], [0, 1, 2, 3, 4, 5, 6]),
    ]


def test_mlm_encodes_each_sentence_by_itself() -> None:
    seen: list[Any] = []
    _run(_objective(MaskedLanguageModeling), seen)
    assert [ids for ids, _ in _rows(seen[0][0])] == [
        [CLS, 10, 11, SEP],
        [CLS, 12, SEP],
        [CLS, 20, SEP],
        [CLS, 21, 22, 23, SEP],
    ]


def test_the_encoder_sees_the_mask_and_the_head_the_masked_pieces() -> None:
    seen: list[Any] = []
    head = _Spy()
    masking = lambda ids: (torch.where(ids > 9, MASK, ids), ids > 9)  # noqa: E731
    _run(_objective(TranslationLanguageModeling, masking, head), seen)
    packed, tokens, _ = seen[0]
    assert set(packed.input_ids.tolist()) == {CLS, SEP, MASK}
    assert head.states.flatten().tolist() == [MASK] * 7
    assert sorted(head.labels.tolist()) == [10, 11, 12, 20, 21, 22, 23]
    assert len(tokens) == 7


def test_each_token_carries_the_language_of_its_sentence() -> None:
    languages = torch.tensor([5, 6, 7, 8])
    of = {10: 5, 11: 5, 12: 6, 20: 7, 21: 8, 22: 8, 23: 8}
    for kind in (MaskedLanguageModeling, TranslationLanguageModeling):
        seen: list[Any] = []
        _run(_objective(kind), seen, languages)
        packed, _, given = seen[0]
        for piece, language in zip(packed.input_ids.tolist(), given.tolist(), strict=True):
            assert of.get(piece, language) == language


def test_a_batch_without_a_masked_piece_has_zero_loss() -> None:
    class Count(torch.nn.Module):
        def forward(self, states: Tensor, labels: Tensor, word_embeddings: Tensor) -> Tensor:
            assert len(states) == len(labels) == 0
            return states.sum()

    assert _run(_objective(MaskedLanguageModeling, lambda ids: (ids, ids < 0), Count()), []).item() == 0


def test_the_settings_reach_masking_and_head() -> None:
    built: list[dict[str, Any]] = []
    parts: Any = SimpleNamespace(
        encoder_config=SimpleNamespace(vocab_size=SIZE),
        mask_token_id=MASK,
        special_token_ids=[CLS, SEP],
        mlm_head=lambda **options: built.append(options) or _Spy(),
    )
    for untied in (True, False):
        settings = MaskedLanguageModeling.Settings(masked_share=0.3, untied_embeddings=untied, sampled_pieces=7)
        objective = MaskedLanguageModeling(settings, parts)
        assert objective.masking == Masking(MASK, SIZE, (CLS, SEP), 0.3)
    assert built == [{"size": SIZE, "sample": 7}, {"size": None, "sample": 7}]
