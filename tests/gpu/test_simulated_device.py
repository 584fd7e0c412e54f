"""Without a GPU: no computation mixes tensors of a device with those of the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_objective import small, teacher_vectors, trained_by_default
from processes import caching_trainer
from simulated_device import OnDevice, on_device, simulated_device
from torch import Tensor
from transformers import AutoTokenizer

from hf_xsent import SentenceEmbedder
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.mining.neighbours import nearest_both_ways
from hf_xsent.models import METHODS
from hf_xsent.objectives.registry import objective_class
from hf_xsent.training.large_batch import cached_loss

Pairs = list[tuple[str, str]]


def test_tensors_of_two_devices_are_refused() -> None:
    here, there = torch.ones(3), on_device(torch.ones(3))
    with simulated_device():
        assert (there + 1).device.type == "meta" and (there * torch.tensor(2.0)).sum().item() == 6
        assert isinstance(torch.arange(3, device=there.device), OnDevice)
        assert torch.equal(there.to("cpu"), here) and type(there.cpu()) is Tensor
        with pytest.raises(RuntimeError, match="two devices"):
            here + there


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize("name", trained_by_default())
def test_objectives_keep_to_the_device(
    encoder_folders: dict[str, Path], pairs: Pairs, name: str, in_chunks: bool
) -> None:
    if in_chunks and objective_class(name).needs.momentum_encoder:
        pytest.skip("a momentum encoder has no chunks")
    folder = str(encoder_folders["modernbert"])
    build: Any = METHODS["alignment"][1].from_backbone
    model = build(folder, max_length=64, dropout=0.0, objectives={name: small(name)})
    examples = [{"source": a, "target": b, "language": "de", "links": "0-0 1-1"} for a, b in pairs]
    languages = ["de", "en"] if name == "representation_translation" else None
    batch = PairCollator(AutoTokenizer.from_pretrained(folder), 64, languages, links=True)(examples)
    batch |= teacher_vectors(torch.randn(len(pairs), 32))
    trainer = caching_trainer()
    trainer.accelerator.unwrap_model, trainer.accelerator.no_sync = (lambda model: model), (lambda model: nullcontext())
    torch.manual_seed(0)
    expected = model(**batch).loss
    torch.manual_seed(0)
    with simulated_device():
        model, batch = on_device(model), on_device(batch)
        loss = cached_loss(trainer, model, batch, 3).loss if in_chunks else model(**batch).loss
        loss.backward()
        assert loss.device.type == "meta"
        if not in_chunks:  # chunks draw other random numbers
            torch.testing.assert_close(loss.detach().cpu(), expected.detach())
        assert all(isinstance(weight.grad, OnDevice) for weight in model.parameters() if weight.grad is not None)


def test_the_search_of_neighbours_keeps_to_the_device() -> None:
    source, target = torch.randn(300, 16), torch.randn(200, 16)
    expected = nearest_both_ways(source, target, k=3)
    with simulated_device():
        nearest = nearest_both_ways(source, target, k=3, device="meta")
    for here, there in zip(expected, nearest, strict=True):
        assert torch.equal(here.indices, there.indices)


def test_encoding_keeps_to_the_device(encoder_folders: dict[str, Path], sentences: list[str]) -> None:
    embedder = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]), "mean", device="cpu")
    expected = embedder.encode(sentences)
    on_device(embedder.model)
    with simulated_device():
        np.testing.assert_allclose(embedder.encode(sentences), expected, atol=1e-6)
