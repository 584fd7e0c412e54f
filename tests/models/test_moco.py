"""PPA's model against Hugging Face's own encoder, one pair at a time; saving, loading and export."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoTokenizer, set_seed

from hf_xsent import (
    MoCoAlignedBert,
    MoCoConfig,
    MoCoForSentenceEmbedding,
    XlmrWithRTLHead,
)
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models import input_shuffling
from hf_xsent.models.backbone import Backbone
from hf_xsent.models.input_shuffling import shuffle_sides
from hf_xsent.objectives.registry import read_objectives

Pairs = list[tuple[str, str]]
MOCO, TLM = "momentum_contrast", "translation_language_modeling"
SMALL = {"queue_size": 6, "projection": 5}
COUNTED_THROUGH = {"reset_positions": False}
COINS = torch.tensor([True, False, False, True])


@pytest.fixture
def _known_coins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_shuffling, "sample_swaps", lambda batch: COINS)


def _batch(folder: Path, pairs: Pairs) -> dict[str, Tensor]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return PairCollator(AutoTokenizer.from_pretrained(folder), max_length=64)(examples)


def _model(folder: Path, **settings: Any) -> MoCoAlignedBert:
    """The key side a little away from the query side, as after some steps."""
    settings = {"objectives": {MOCO: SMALL, TLM: COUNTED_THROUGH}, "max_length": 64, "dropout": 0.0} | settings
    model = MoCoAlignedBert.from_backbone(str(folder), **settings).train()
    if MOCO in model.objectives:
        with torch.no_grad():
            for weight in model.objectives[MOCO].key_encoder.parameters():
                weight.add_(torch.randn_like(weight) * 0.02)
    return model


def _cls(encoder: Any, ids: Tensor, mask: Tensor) -> Tensor:
    return torch.stack(
        [encoder(row[on.bool()][None]).last_hidden_state[0, 0] for row, on in zip(ids, mask, strict=True)]
    )


@pytest.mark.usefixtures("_known_coins")
def test_momentum_contrast_is_equations_2_and_3(tiny_encoders: Path, pairs: Pairs) -> None:
    model = _model(tiny_encoders, objectives={MOCO: SMALL | {"temperature": 0.1}})
    turned = [(b, a) if coin else (a, b) for (a, b), coin in zip(pairs[:4], COINS, strict=True)]
    sides = _batch(tiny_encoders, turned)
    objective = model.objectives[MOCO]
    source = _cls(model.encoder, sides["source_input_ids"], sides["source_attention_mask"])
    target = _cls(objective.key_encoder, sides["target_input_ids"], sides["target_attention_mask"]).detach()
    queries = F.normalize(objective.projection[2](objective.projection[0](source).relu()), dim=1)
    keys = F.normalize(objective.key_projection(target), dim=1)
    logits = torch.cat(((queries * keys).sum(1, keepdim=True), queries @ objective.queue.T), 1) / 0.1
    expected = -logits.log_softmax(1)[:, 0].mean()
    expected.backward()
    wanted = {name: one.grad.clone() for name, one in model.named_parameters() if one.grad is not None}
    model.zero_grad()
    output = model(**_batch(tiny_encoders, pairs[:4]))
    output.loss.backward()
    torch.testing.assert_close(output.losses[MOCO], expected.detach(), atol=1e-4, rtol=1e-5)
    for name, one in model.named_parameters():
        if one.grad is None:
            assert name not in wanted
        elif name in wanted:
            atol = 1e-6 + 1e-3 * wanted[name].abs().max().item()
            torch.testing.assert_close(one.grad, wanted[name], atol=atol, rtol=0)
    assert all(one.grad is None for one in objective.key_encoder.parameters())


@pytest.mark.usefixtures("_known_coins")
def test_tlm_reads_the_shuffled_order_without_a_reset_of_positions(
    encoder_folders: dict[str, Path], pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, rows = encoder_folders["bert-mlm"], []
    model = _model(folder, objectives={TLM: COUNTED_THROUGH})
    encode = Backbone.encode

    def watched(backbone: Backbone, packed: Any, *args: Any, **kwargs: Any) -> Tensor:
        rows.append(packed)
        return encode(backbone, packed, *args, **kwargs)

    monkeypatch.setattr(Backbone, "encode", watched)
    model.objectives[TLM].masking = lambda ids: (ids, ids == 3)  # [SEP]
    model(**_batch(folder, pairs[:4]))
    (packed,) = rows  # nothing else is encoded for TLM alone
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = [sentence.tolist() for sentence in packed.input_ids.split(packed.lengths.tolist())]
    for number, ((a, b), coin) in enumerate(zip(pairs[:4], COINS, strict=True)):
        expected = tokenizer(*((b, a) if coin else (a, b)))["input_ids"]
        assert found[packed.restore[number]] == expected
    assert packed.positions.max() + 1 == packed.lengths.max()


@pytest.fixture
def _counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, bool]]]:
    """How many sentences each pass through an encoder has, and whether it keeps what a backward pass needs."""
    passes: list[tuple[int, bool]] = []
    encode = Backbone.encode

    def counted(backbone: Backbone, packed: Any, *args: Any, **kwargs: Any) -> Tensor:
        states = encode(backbone, packed, *args, **kwargs)
        passes.append((len(packed.lengths), states.requires_grad))
        return states

    monkeypatch.setattr(Backbone, "encode", counted)
    yield passes


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_each_sentence_is_encoded_by_one_encoder_only(
    encoder_folders: dict[str, Path], pairs: Pairs, pooling: str, _counted: list[tuple[int, bool]]
) -> None:
    model = _model(encoder_folders["bert-mlm"], pooling=pooling)
    model(**_batch(encoder_folders["bert-mlm"], pairs[:4]))
    assert _counted == [(4, True), (4, False), (4, True)]  # queries, keys, TLM


def test_the_parts_alone_are_the_single_objectives(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    """Same random numbers: PPA without MoCo is TLM alone, without TLM MoCo alone, and PPA the sum of both."""
    folder = encoder_folders["bert-mlm"]
    batch, losses = _batch(folder, pairs), {}
    shuffled = {"random_input_shuffling": True, "max_length": 64, "dropout": 0.0}
    both_objectives = {MOCO: {"queue_size": 8}, TLM: COUNTED_THROUGH}
    mixes = {"both": both_objectives, **{name: {name: both_objectives[name]} for name in (MOCO, TLM)}}
    for name, objectives in mixes.items():
        for kind in (MoCoAlignedBert, XlmrWithRTLHead):
            set_seed(1)
            model = kind.from_backbone(str(folder), objectives=objectives, **shuffled).train()
            set_seed(2)
            losses[name, kind] = model(**batch)
    for name in mixes:
        ours, plain = (losses[name, kind] for kind in (MoCoAlignedBert, XlmrWithRTLHead))
        assert ours.loss == plain.loss
    both = losses["both", MoCoAlignedBert]
    torch.testing.assert_close(both.loss, sum(both.losses.values()))
    for name in (MOCO, TLM):
        torch.testing.assert_close(both.losses[name], losses[name, MoCoAlignedBert].loss.detach(), atol=1e-4, rtol=1e-5)


def test_shuffling_exchanges_all_that_belongs_to_a_side(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_shuffling, "sample_swaps", lambda batch: torch.tensor([False, True]))
    batch = {
        "source_input_ids": torch.tensor([[5, 6], [7, 8]]),
        "source_attention_mask": torch.tensor([[1, 1], [1, 1]]),
        "source_words": torch.tensor([[-1, 0], [-1, 0]]),
        "target_input_ids": torch.tensor([[1, 2, 3], [4, 0, 0]]),
        "target_attention_mask": torch.tensor([[1, 1, 1], [1, 0, 0]]),
        "target_words": torch.tensor([[0, 1, 2], [0, -1, -1]]),
        "links": torch.tensor([[[0, 2]], [[0, 1]]]),
        "language_ids": torch.tensor([10, 11, 20, 21]),
    }
    shuffled = shuffle_sides(batch)
    assert shuffled["source_input_ids"].tolist() == [[5, 6, 0], [4, 0, 0]]
    assert shuffled["target_input_ids"].tolist() == [[1, 2, 3], [7, 8, 0]]
    assert shuffled["target_attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    assert shuffled["source_words"].tolist() == [[-1, 0, -1], [0, -1, -1]]
    assert shuffled["links"].tolist() == [[[0, 2]], [[1, 0]]]
    assert shuffled["language_ids"].tolist() == [10, 21, 20, 11]


# What is saved and loaded


def test_what_a_checkpoint_lacks_starts_from_its_encoder(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """A sentence encoder has neither queue nor momentum encoder: nothing of them may be left over memory."""
    folder = encoder_folders["bert-mlm"]
    MoCoForSentenceEmbedding.from_backbone(str(folder)).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path)
    model = MoCoAlignedBert.from_pretrained(tmp_path)
    objective = model.objectives[MOCO]
    torch.testing.assert_close(objective.queue.norm(dim=1), torch.ones(len(objective.queue)))
    assert int(objective.pointer) == 0
    assert not objective.identities.any()
    for name, weight in model.encoder.state_dict().items():
        assert torch.equal(weight, objective.key_encoder.state_dict()[name]), name
    for name, weight in objective.projection.state_dict().items():
        assert torch.equal(weight, objective.key_projection.state_dict()[name]), name


def test_the_key_side_starts_as_a_copy_with_a_random_queue_that_is_the_same_everywhere(
    encoder_folders: dict[str, Path],
) -> None:
    first, second = (
        MoCoAlignedBert.from_backbone(str(encoder_folders["bert"]), objectives={MOCO: 1.0}) for _ in range(2)
    )
    objective = first.objectives[MOCO]
    assert objective.queue.shape == (32_000, 300)
    assert torch.equal(objective.queue, second.objectives[MOCO].queue)
    for query, key in zip(first.encoder.parameters(), objective.key_encoder.parameters(), strict=True):
        assert torch.equal(query, key) and query is not key


def test_dropout_leaves_the_keys_alone(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    model = _model(encoder_folders["bert"], dropout=0.5, objectives={MOCO: SMALL}, random_input_shuffling=False)
    batch = _batch(encoder_folders["bert"], pairs)
    first, second = (model.encode_pairs(batch).sentences for _ in range(2))
    assert not torch.equal(first.source, second.source)
    assert first.momentum_target is not None and second.momentum_target is not None
    assert torch.equal(first.momentum_target, second.momentum_target)


def test_a_frozen_embedding_table_stays_equal_on_both_sides(encoder_folders: dict[str, Path], pairs: Pairs) -> None:
    model = MoCoAlignedBert.from_backbone(str(encoder_folders["bert"]), objectives={MOCO: {"queue_size": 4}})
    key_encoder = model.objectives[MOCO].key_encoder
    model.backbone.word_embeddings.requires_grad_(False)
    with torch.no_grad():
        nn.init.normal_(model.encoder.encoder.layer[0].output.dense.weight)
    before = key_encoder.encoder.layer[0].output.dense.weight.clone()
    model.end_step()
    assert torch.equal(model.backbone.word_embeddings.weight, key_encoder.get_input_embeddings().weight)
    assert not torch.equal(key_encoder.encoder.layer[0].output.dense.weight, before)


def test_the_momentum_encoder_follows_weights_that_a_later_stage_freezes(encoder_folders: dict[str, Path]) -> None:
    model = MoCoAlignedBert.from_backbone(str(encoder_folders["bert"]), objectives={MOCO: {"momentum": 0.5}})
    trained, key = model.backbone.word_embeddings, model.objectives[MOCO].key_encoder.get_input_embeddings().weight
    nn.init.normal_(trained.weight)
    middle = (key + trained.weight).detach() / 2
    model.freeze(1)
    model.end_step()
    assert torch.allclose(key, middle, atol=1e-6)


def test_the_preset_is_the_papers() -> None:
    assert MoCoConfig().objectives == read_objectives({MOCO: 1.0, TLM: COUNTED_THROUGH})
    assert MoCoConfig().random_input_shuffling and MoCoConfig().pooling == "cls"


# Errors


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"training_mlp": True}, "momentum_contrast does not support the setting training_mlp"),
        ({"lora_rank": 4}, "momentum_contrast does not support the setting lora_rank"),
        ({"languages": ["de", "en"]}, "momentum_contrast does not support the setting languages"),
        ({"max_length": 200}, "max_length 200 leaves too few positions for both sentences .* at most 128"),
        (
            {"objectives": {"representation_translation": 1.0}},
            "representation_translation predicts only one side, and random_input_shuffling swaps the sides",
        ),
    ],
)
def test_settings_that_make_no_sense_are_an_error(
    encoder_folders: dict[str, Path], settings: dict[str, Any], error: str
) -> None:
    with pytest.raises(RecipeError, match=f"^{error}"):
        MoCoAlignedBert.from_backbone(str(encoder_folders["bert-mlm"]), **{"max_length": 64} | settings)
