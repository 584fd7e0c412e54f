"""Two processes train the extraction as one does: gradients, the critic's steps, and the encoder stays frozen."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from processes import answers_of
from torch.nn.parallel import DistributedDataParallel
from transformers import AutoModelForPreTraining

from hf_xsent import DualPivotForPreTraining

MIXES: dict[str, dict[str, Any]] = {
    "pairs": {"triplet_ranking": {"margin": 0.5}},
    "no pairs": {"adversarial": 1.0, "cycle": {"weight": 5.0, "margin": 0.5}},
}


def _batch(rows: slice) -> dict[str, torch.Tensor]:
    torch.manual_seed(7)
    sums, identities = torch.randn(2, 8, 4, 32), torch.arange(8)
    return {
        "layer_sums": sums[:, rows].flatten(0, 1),
        "source_identity": identities[rows],
        "target_identity": identities[rows] + 8,
    }


def _step(model: Any, inner: DualPivotForPreTraining, batch: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """What critic and extraction learn of a batch."""
    inner.train_critics(batch, 0.1)
    model(**batch).loss.backward()
    learnt = {name: one.grad.clone() for name, one in inner.named_parameters() if one.grad is not None}
    if "adversarial" in inner.objectives:
        learnt["critic"] = inner.objectives["adversarial"].critic.weight.clone()
    return learnt


def _learnt(rank: int, folder: str) -> dict[str, torch.Tensor]:
    model = AutoModelForPreTraining.from_pretrained(folder).train()
    for objective in model.objectives.values():
        if hasattr(objective, "critic"):
            objective.critic.requires_grad_(False)
    wrapped = DistributedDataParallel(model)
    learnt = _step(wrapped, model, _batch(slice(0, 3) if rank == 0 else slice(3, 8)))
    _step(wrapped, model, _batch(slice(rank, rank + 2)))  # a weight without a gradient would stop the second step
    return learnt


@pytest.mark.slow
@pytest.mark.parametrize("mix", MIXES)
def test_two_processes_learn_what_one_does(mix: str, encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    whole = DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"]), objectives=MIXES[mix])
    with torch.no_grad():
        for weight in whole.trained_weights():
            weight.add_(torch.randn_like(weight))
    whole.save_pretrained(tmp_path)
    learnt = answers_of(2, _learnt, str(tmp_path))[0]
    expected = _step(whole, whole, _batch(slice(0, 8)))
    assert learnt.keys() == expected.keys() and not any(name.startswith("encoder.") for name in learnt)
    for name, one in expected.items():
        torch.testing.assert_close(learnt[name], one, atol=1e-6, rtol=1e-4)
