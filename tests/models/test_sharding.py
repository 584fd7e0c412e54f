"""FSDP 2 gathers a layer's weights when the layer is called: our forward must call it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from processes import answers_of
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import AutoTokenizer

from hf_xsent import XlmrWithRTLHead
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.models.families import backbone_of

Pairs = list[tuple[str, str]]


def _worst_difference(_rank: int, folder: str, pairs: Pairs) -> float:
    torch.manual_seed(0)
    model = XlmrWithRTLHead.from_backbone(folder, pooling="cls", dropout=0.0, max_length=64)
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    batch = PairCollator(AutoTokenizer.from_pretrained(folder), 64)(examples)
    model(**batch).loss.backward()
    plain = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()

    mesh = init_device_mesh("cpu", (2,))
    for encoder in (model.encoder, model.objectives["representation_translation"].layers.encoder):
        for layer in backbone_of(encoder).layers:
            fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    model(**batch).loss.backward()
    sharded: dict[str, Any] = {name: weight.grad for name, weight in model.named_parameters()}
    return max((sharded[name].full_tensor() - plain[name]).abs().max().item() for name in plain)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["bert", "modernbert"])
def test_sharded_models_have_the_gradients_of_whole_ones(
    family: str, encoder_folders: dict[str, Path], pairs: Pairs
) -> None:
    differences = answers_of(2, _worst_difference, str(encoder_folders[family]), pairs[:6])
    assert max(differences) < 1e-5
