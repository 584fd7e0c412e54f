"""Layers that keep no activations compute and learn what Hugging Face's own do, dropout included."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PreTrainedModel

from hf_xsent import XlmrWithRTLHead
from hf_xsent.models.backbone import Backbone, family

TOKENS = (3, 7)


def _encoder(folder: Path, light: bool, dropout: float = 0.2) -> PreTrainedModel:
    rates = dict.fromkeys(family(AutoConfig.from_pretrained(folder)).dropouts, dropout)
    encoder = AutoModel.from_pretrained(folder, **rates).train()
    if light:
        Backbone.of(encoder).drop_activations()
    return encoder


def _forward(encoder: PreTrainedModel) -> tuple[Tensor, int]:
    """A weighted sum of all states, and how many tensors as wide as activations wait for the backward pass."""
    width, kept = encoder.config.intermediate_size, []
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, TOKENS, generator=generator)
    weights = torch.randn(*TOKENS, encoder.config.hidden_size, generator=generator)
    torch.manual_seed(1)
    with torch.autograd.graph.saved_tensors_hooks(lambda one: (kept.append(one), one)[1], lambda one: one):
        total = (encoder(input_ids=ids).last_hidden_state * weights).sum()
    return total, sum(one.shape[-1] == width and one.numel() == ids.numel() * width for one in kept)


def _gradients(encoder: PreTrainedModel) -> dict[str, Tensor]:
    encoder.zero_grad()
    _forward(encoder)[0].backward()
    return {name: weight.grad for name, weight in encoder.named_parameters() if weight.grad is not None}


def _narrowing(encoder: PreTrainedModel) -> nn.Module:
    layer = Backbone.of(encoder).layers[0]
    found: nn.Module = layer.mlp.Wo if hasattr(layer, "mlp") else layer.output.dense
    return found


def test_gradients_are_bit_by_bit_those_of_layers_that_keep_them(tiny_encoders: Path) -> None:
    plain, light = _encoder(tiny_encoders, light=False), _encoder(tiny_encoders, light=True)
    torch.testing.assert_close(_forward(light)[0], _forward(plain)[0], atol=0, rtol=0)
    expected, gradients = _gradients(plain), _gradients(light)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(gradients[name], gradient, atol=0, rtol=0, msg=name)


def test_no_layer_keeps_more_than_what_the_activation_function_takes(tiny_encoders: Path) -> None:
    plain, light = _encoder(tiny_encoders, light=False), _encoder(tiny_encoders, light=True)
    layers = light.config.num_hidden_layers
    assert _forward(plain)[1] >= 2 * layers
    assert _forward(light)[1] <= layers


def test_a_copy_learns_with_its_own_weights(tiny_encoders: Path) -> None:
    """As the momentum encoder of PPA is made."""
    encoder = _encoder(tiny_encoders, light=True, dropout=0.0)
    copy = deepcopy(encoder)
    with torch.no_grad():
        _narrowing(encoder).weight.zero_()
    assert not torch.equal(_forward(copy)[0], _forward(encoder)[0])
    _forward(copy)[0].backward()
    assert _narrowing(copy).weight.grad is not None and _narrowing(encoder).weight.grad is None


def test_what_hooks_into_a_product_is_called_once(tiny_encoders: Path) -> None:
    """A sharding library gathers weights before and frees them after such a call."""
    encoder, calls = _encoder(tiny_encoders, light=True), []
    _narrowing(encoder).register_forward_pre_hook(lambda *_: calls.append("before"))
    _forward(encoder)[0].backward()
    assert calls == ["before"]


@pytest.mark.parametrize("lora_rank", [None, 2])
def test_the_models_of_all_methods_are_light_but_for_adapters(tiny_encoders: Path, lora_rank: int | None) -> None:
    if lora_rank:
        pytest.importorskip("peft", reason="adapters need the lora extra")
    model = XlmrWithRTLHead.from_backbone(str(tiny_encoders), dropout=0.0, lora_rank=lora_rank)
    light = _forward(model.encoder.train())[1] <= model.encoder.config.num_hidden_layers
    assert light == (lora_rank is None)
