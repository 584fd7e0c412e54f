"""Fused biases compute what linear layers compute, and apply only to inference in bfloat16 on CPUs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from hf_xsent import SentenceEmbedder
from hf_xsent.tensors import fused_linear
from hf_xsent.tensors.fused_linear import FusedBiases


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[torch.Size]:
    """Record the shapes of inputs of the fused operator."""
    seen: list[torch.Size] = []
    fused = fused_linear.linear_with_bias

    def recorded(inputs: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
        seen.append(inputs.shape)
        return fused(inputs, weight, bias)

    monkeypatch.setattr(fused_linear, "linear_with_bias", recorded)
    return seen


@pytest.mark.parametrize("shape", [(5, 24), (1, 7, 24), (2, 3, 24)])
def test_a_fused_bias_rounds_no_more_than_the_plain_layer(shape: tuple[int, ...], calls: list[torch.Size]) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(24, 40).bfloat16(), torch.randn(*shape).bfloat16()
    exact = nn.functional.linear(inputs.double(), layer.weight.double(), layer.bias.double())
    with torch.inference_mode():
        plain = layer(inputs)
        with FusedBiases():
            fused = layer(inputs)
    assert len(calls) == 1
    assert fused.dtype is torch.bfloat16
    assert (fused - exact).abs().max() <= max((plain - exact).abs().max(), 2**-8 * exact.abs().max())


@pytest.mark.parametrize("bias", [True, False])
def test_float32_gradients_and_layers_without_bias_are_untouched(bias: bool, calls: list[torch.Size]) -> None:
    torch.manual_seed(0)
    layer, inputs = nn.Linear(8, 8, bias=bias), torch.randn(3, 8)
    for dtype, grad in ((torch.float32, False), (torch.bfloat16, True), (torch.float32, True)):
        layer, inputs = layer.to(dtype), inputs.to(dtype)
        with torch.set_grad_enabled(grad):
            plain = layer(inputs)
            with FusedBiases():
                assert torch.equal(layer(inputs), plain)
    with torch.no_grad(), FusedBiases():
        nn.Linear(8, 8, bias=False).bfloat16()(inputs.bfloat16())
    assert not calls


def test_encoding_in_bfloat16_fuses_the_bias_of_every_layer(
    encoder_folders: dict[str, Path], calls: list[torch.Size]
) -> None:
    sentences = ["a b c", "d", "e f g h"]
    exact = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device="cpu")
    rounded = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), device="cpu", precision="bfloat16")
    wanted = exact.encode(sentences)
    assert not calls
    found = rounded.encode(sentences)
    linear = [one for one in rounded.model.backbone.layers.modules() if isinstance(one, nn.Linear)]
    assert len(calls) == len(linear)
    assert abs(found - wanted).max() < 0.05 * abs(wanted).max()
