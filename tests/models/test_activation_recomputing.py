"""Layers do not store activations, and their gradients equal bit by bit those with stored activations."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from transformers import AutoConfig, AutoModel, PreTrainedModel

from hf_xsent.models import backbone
from hf_xsent.models.families import backbone_of, family
from hf_xsent.tensors.packing import pack

NARROWING = ("output.dense", "Wo")  # the modules after the activations in BERT and ModernBERT


def _encoder(folder: Path, adapters: bool) -> PreTrainedModel:
    torch.manual_seed(0)
    dropouts = dict.fromkeys(family(AutoConfig.from_pretrained(folder)).dropouts, 0.0)
    encoder: PreTrainedModel = AutoModel.from_pretrained(folder, **dropouts).train()
    if adapters:
        peft = pytest.importorskip("peft", reason="adapters need the lora extra")
        targets = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
        peft.inject_adapter_in_model(peft.LoraConfig(r=2, target_modules=targets, init_lora_weights=False), encoder)
    return encoder


def _train(folder: Path, adapters: bool = False, autocast: bool = False) -> tuple[dict[str, Tensor], list[bool]]:
    """Return the gradients of a weighted sum of all hidden states, and whether each layer stores its activations."""
    encoder = _encoder(folder, adapters)
    activations: list[StorageWeakRef] = []
    for name, module in encoder.named_modules():
        if name.endswith(NARROWING) and "attention" not in name and "attn" not in name:
            module.register_forward_pre_hook(
                lambda _, wide: activations.append(StorageWeakRef(wide[0].untyped_storage()))
            )
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, (3, 9), generator=generator)
    mask = (torch.arange(9) < torch.tensor([[4], [6], [9]])).long()
    weights = torch.randn(int(mask.sum()), encoder.config.hidden_size, generator=generator)
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        total = (backbone_of(encoder).encode(pack([ids], [mask])) * weights).sum()
    stored = [not storage.expired() for storage in activations]
    total.backward()
    return {name: one.grad for name, one in encoder.named_parameters() if one.grad is not None}, stored


@pytest.mark.parametrize("how", [{}, {"adapters": True}, {"autocast": True}], ids=["plain", "adapters", "autocast"])
def test_activations_are_not_stored_and_gradients_are_equal(
    how: dict[str, bool], tiny_encoders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gradients, stored = _train(tiny_encoders, **how)
    monkeypatch.setattr(backbone, "recompute_activations", nullcontext)
    expected, stored_without = _train(tiny_encoders, **how)
    assert len(stored) > 1 and not any(stored)
    assert all(stored_without)
    assert gradients.keys() == expected.keys()
    for name, gradient in expected.items():
        assert torch.equal(gradients[name], gradient), name
