"""Swap source and target of each pair at random (random input shuffling; PPA, section 2.1)."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

SIDES = ("source", "target")


def sample_swaps(batch: Mapping[str, Tensor]) -> Tensor:
    """Sample which of the N pairs to swap, by torch's generator, since checkpoints save its state."""
    ids = batch["source_input_ids"]
    return torch.rand(len(ids), device=ids.device) < 0.5


def shuffle_sides(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Swap source and target in about half the pairs of a batch of ``SentenceEncoderForPreTraining.forward``.

    A teacher's embeddings are not swapped: they stay those of the data's sides.
    """
    swapped, shuffled = sample_swaps(batch), dict(batch)
    width = max(batch[f"{side}_input_ids"].shape[1] for side in SIDES)
    for key, padding in (("input_ids", 0), ("attention_mask", 0), ("words", -1)):
        names = [f"{side}_{key}" for side in SIDES]
        if names[0] in batch:
            sides = [F.pad(batch[name], (0, width - batch[name].shape[1]), value=padding) for name in names]
            for name, own, other in zip(names, sides, reversed(sides), strict=True):
                shuffled[name] = torch.where(swapped[:, None], other, own)
    if "language_ids" in batch:
        source, target = batch["language_ids"].chunk(2)
        shuffled["language_ids"] = torch.where(swapped.repeat(2), torch.cat((target, source)), batch["language_ids"])
    if "links" in batch:
        shuffled["links"] = torch.where(swapped[:, None, None], batch["links"].flip(-1), batch["links"])
    return shuffled
