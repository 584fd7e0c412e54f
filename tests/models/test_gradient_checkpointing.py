from __future__ import annotations

from pathlib import Path

import torch

from hf_xsent import XlmrWithRTLHead


def _gradients(folder: Path, checkpointing: bool) -> dict[str, torch.Tensor]:
    model = XlmrWithRTLHead.from_backbone(str(folder), pooling="mean", max_length=32)
    model.train()
    if checkpointing:
        model.gradient_checkpointing_enable()
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(5, 20, (4, 9), generator=generator)
    mask = (torch.arange(9) < torch.tensor([[3], [9], [5], [7]])).long()
    torch.manual_seed(1)  # dropout must be the same when a layer is run again
    model(ids, mask, ids.flip(0), mask.flip(0)).loss.backward()
    return {name: weight.grad for name, weight in model.named_parameters() if weight.grad is not None}


def test_checkpointed_layers_give_the_same_gradients(tiny_encoders: Path):
    plain, checkpointed = (_gradients(tiny_encoders, checkpointing) for checkpointing in (False, True))
    assert plain.keys() == checkpointed.keys()
    for name, gradient in plain.items():
        torch.testing.assert_close(checkpointed[name], gradient, msg=name)
