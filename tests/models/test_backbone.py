"""Packed encoding equals Hugging Face's forward up to rounding: hidden states, gradients and dropout."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoTokenizer,
    BertConfig,
    DistilBertConfig,
    ModernBertConfig,
    ModernBertModel,
    PreTrainedModel,
)

from hf_xsent.errors import ModelError
from hf_xsent.models.families import FAMILIES, backbone_of, family
from hf_xsent.tensors.packing import PackedSentences, pack, pool, unpack

Batch = dict[str, Tensor]


def _open(folder: Path, attention: str = "sdpa", **changes: float) -> PreTrainedModel:
    return AutoModel.from_pretrained(folder, attn_implementation=attention, **changes).eval()


def _batch(folder: Path, sentences: list[str]) -> Batch:
    encoded = AutoTokenizer.from_pretrained(folder)(sentences, padding=True, return_tensors="pt")
    return {"input_ids": encoded["input_ids"], "attention_mask": encoded["attention_mask"]}


def _pack(batch: Batch) -> PackedSentences:
    return pack([batch["input_ids"]], [batch["attention_mask"]])


def _dropping(folder: Path, **rates: float) -> PreTrainedModel:
    """The encoder in training mode with only these dropouts."""
    config = AutoModel.from_pretrained(folder).config
    for name in vars(config):
        if name.endswith(("dropout", "dropout_prob")) and isinstance(getattr(config, name), float):
            setattr(config, name, rates.get(name, 0.0))
    return AutoModel.from_pretrained(folder, config=config).train()


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_every_layer_is_the_encoders_own(tiny_encoders: Path, sentences: list[str], attention: str) -> None:
    encoder = _open(tiny_encoders, attention)
    batch = _batch(tiny_encoders, sentences)
    packed, mask = _pack(batch), batch["attention_mask"]
    assert mask.sum(1).max() > 24, "no sentence is longer than the local window"
    with torch.no_grad():
        theirs = encoder(**batch, output_hidden_states=True)
        backbone = backbone_of(encoder)
        ours = list(backbone.hidden_states(packed))
        assert len(ours) == len(theirs.hidden_states) == len(backbone.layers) + 1
        expected = [*theirs.hidden_states[:-1], theirs.last_hidden_state]
        for layer, (mine, states) in enumerate(zip(ours, expected, strict=True)):
            real = states * mask[..., None]
            torch.testing.assert_close(unpack(mine, packed, mask), real, atol=1e-5, rtol=0, msg=f"layer {layer}")
            torch.testing.assert_close(backbone.encode(packed, layer), mine, atol=1e-6, rtol=0)
            first = backbone.encode(packed, layer, tokens=packed.first_tokens)[packed.restore]
            torch.testing.assert_close(first, states[:, 0], atol=1e-5, rtol=0, msg=f"first tokens of layer {layer}")
        torch.testing.assert_close(unpack(backbone.encode(packed), packed, mask), expected[-1] * mask[..., None])


def test_the_local_window_of_the_test_model_matters(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    """Else the comparison above would say nothing about it."""
    narrow = _open(encoder_folders["modernbert"])
    config = ModernBertConfig(**narrow.config.to_dict() | {"local_attention": 120})
    wide = ModernBertModel(config).eval()
    wide.load_state_dict(narrow.state_dict())
    packed = _pack(_batch(encoder_folders["modernbert"], sentences))
    with torch.no_grad():
        difference = backbone_of(narrow).encode(packed) - backbone_of(wide).encode(packed)
    assert difference.abs().max() > 0.01


def _first(states: Tensor, mask: Tensor) -> Tensor:
    return states[:, 0]


def _mean(states: Tensor, mask: Tensor) -> Tensor:
    return (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)


@pytest.mark.parametrize("pooled", [_first, _mean])
def test_gradients_are_the_encoders_own(
    tiny_encoders: Path, sentences: list[str], pooled: Callable[[Tensor, Tensor], Tensor]
) -> None:
    batch = _batch(tiny_encoders, sentences)
    encoder, reference = _open(tiny_encoders), _open(tiny_encoders)
    weights = torch.randn(len(sentences), encoder.config.hidden_size)

    (pooled(reference(**batch).last_hidden_state, batch["attention_mask"]).tanh() * weights).sum().backward()
    packed = _pack(batch)
    if pooled is _first:
        vectors = backbone_of(encoder).encode(packed, tokens=packed.first_tokens)
    else:
        vectors = pool(backbone_of(encoder).encode(packed), packed, "mean")
    (vectors[packed.restore].tanh() * weights).sum().backward()

    _assert_equal_gradients(encoder, reference)


def _assert_equal_gradients(encoder: PreTrainedModel, reference: PreTrainedModel) -> None:
    skipped = set()
    for (name, ours), theirs in zip(encoder.named_parameters(), reference.parameters(), strict=True):
        if theirs.grad is None:
            assert ours.grad is None or not ours.grad.any(), name
            skipped.add(name.split(".")[0])
            continue
        assert ours.grad is not None, name
        tolerance = 1e-6 + 2e-5 * theirs.grad.abs().max().item()
        torch.testing.assert_close(ours.grad, theirs.grad, atol=tolerance, rtol=0, msg=lambda m, n=name: f"{n}: {m}")
    assert skipped <= {"pooler"}


@pytest.mark.parametrize("first_tokens_only", [False, True])
def test_gradient_checkpointing_leaves_gradients_as_they_are(
    tiny_encoders: Path, sentences: list[str], first_tokens_only: bool
) -> None:
    """The layers run a second time during backward, and must find packed attention then, too."""
    packed = _pack(_batch(tiny_encoders, sentences))
    encoders = [_dropping(tiny_encoders), _dropping(tiny_encoders)]
    encoders[0].gradient_checkpointing_enable()
    for encoder in encoders:
        backbone_of(encoder).encode(
            packed, tokens=packed.first_tokens if first_tokens_only else None
        ).tanh().sum().backward()
    _assert_equal_gradients(*encoders)


# Dropout: each kind there is must act in training, wherever it stands, and nowhere else.

_DROPOUTS = [
    ("bert", "hidden_dropout_prob"),
    ("bert", "attention_probs_dropout_prob"),
    ("xlm-roberta", "hidden_dropout_prob"),
    ("xlm-roberta", "attention_probs_dropout_prob"),
    ("modernbert", "embedding_dropout"),
    ("modernbert", "attention_dropout"),
    ("modernbert", "mlp_dropout"),
]


@pytest.mark.parametrize("first_tokens_only", [False, True])
@pytest.mark.parametrize(("name", "rate"), _DROPOUTS)
def test_dropout_acts_in_training_only(
    encoder_folders: dict[str, Path], sentences: list[str], name: str, rate: str, first_tokens_only: bool
) -> None:
    packed = _pack(_batch(encoder_folders[name], sentences))
    encoder = _dropping(encoder_folders[name], **{rate: 0.2})
    backbone = backbone_of(encoder)

    def twice() -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            return tuple(
                backbone.encode(packed, tokens=packed.first_tokens if first_tokens_only else None) for _ in range(2)
            )

    one, other = twice()
    assert not torch.equal(one, other)
    encoder.eval()
    one, other = twice()
    assert torch.equal(one, other)


@pytest.mark.parametrize("name", ["bert", "modernbert"])
def test_the_last_layer_drops_for_first_tokens_too(
    encoder_folders: dict[str, Path], sentences: list[str], name: str
) -> None:
    """In the last layer first tokens take a way of their own, which must not forget attention dropout."""
    packed = _pack(_batch(encoder_folders[name], sentences))
    encoder = _dropping(encoder_folders[name], attention_probs_dropout_prob=0.2, attention_dropout=0.2)
    backbone = backbone_of(encoder)
    for layer in backbone.layers[:-1]:
        layer.eval()
    with torch.no_grad():
        one, other = (backbone.encode(packed, tokens=packed.first_tokens) for _ in range(2))
    assert not torch.equal(one, other)


# What is added to the word vectors


def test_extra_embeddings_enter_as_word_vectors_do(tiny_encoders: Path, sentences: list[str]) -> None:
    encoder = _open(tiny_encoders)
    ids = _batch(tiny_encoders, sentences)["input_ids"][2:3]  # the longest: no padding, so no positions to guess
    ids = ids[:, : int((ids != encoder.config.pad_token_id).sum())]
    mask = torch.ones_like(ids)
    extra = torch.randn(ids.shape[1], encoder.config.hidden_size)
    with torch.no_grad():
        words = encoder.get_input_embeddings()(ids) + extra
        theirs = encoder(inputs_embeds=words, attention_mask=mask).last_hidden_state[0]
        ours = backbone_of(encoder).encode(pack([ids], [mask]), extra_embeddings=extra)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)


# Which encoders, and what is left behind


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_the_users_attention_is_restored(tiny_encoders: Path, sentences: list[str], attention: str) -> None:
    encoder = _open(tiny_encoders, attention)
    packed = _pack(_batch(tiny_encoders, sentences))
    backbone_of(encoder).encode(packed)
    assert encoder.config._attn_implementation == attention

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("out of memory")

    backbone_of(encoder).layers[-1].register_forward_pre_hook(fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        backbone_of(encoder).encode(packed)
    assert encoder.config._attn_implementation == attention


def test_threads_may_share_an_encoder(tiny_encoders: Path, sentences: list[str]) -> None:
    backbone = backbone_of(_open(tiny_encoders))
    packed = _pack(_batch(tiny_encoders, sentences))
    expected = backbone.encode(packed, 1)
    in_layer, both_in_layer, left = (threading.Event() for _ in range(3))

    def meet(*_: Any) -> None:
        if threading.current_thread() is other:
            in_layer.set()
            both_in_layer.wait(0.2)
        else:
            both_in_layer.set()
            left.wait(5)

    def encode() -> None:
        backbone.encode(packed, 1)
        left.set()

    backbone.layers[0].register_forward_pre_hook(meet)
    other = threading.Thread(target=encode)
    other.start()
    assert in_layer.wait(5)
    torch.testing.assert_close(backbone.encode(packed, 1), expected)
    other.join()


def test_a_family_we_do_not_know_is_refused() -> None:
    with pytest.raises(ModelError) as told:
        family(DistilBertConfig())
    assert "'distilbert' is not supported" in str(told.value)
    assert all(name in str(told.value) for name in FAMILIES)
    assert "\n" not in str(told.value)


def test_a_decoder_is_refused() -> None:
    with pytest.raises(ModelError, match="^a decoder cannot encode sentences: set is_decoder=False in its config$"):
        family(BertConfig(is_decoder=True))


def test_the_longest_sentence_omits_positions_that_are_never_used(encoder_folders: dict[str, Path]) -> None:
    """XLM-R counts positions from behind the padding index: 258 of them are 256 tokens."""
    for folder in encoder_folders.values():
        encoder = _open(folder)
        longest = family(encoder.config).max_length(encoder.config)
        assert longest == 256
        ids = torch.full((1, longest), 7)
        with torch.no_grad():
            states = backbone_of(encoder).encode(pack([ids], [torch.ones_like(ids)]))
            theirs = encoder(input_ids=ids).last_hidden_state[0]
        torch.testing.assert_close(states, theirs, atol=1e-5, rtol=0)
