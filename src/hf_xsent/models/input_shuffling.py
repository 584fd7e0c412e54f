"""Random input shuffling (PPA, section 2.1): a coin for each pair decides which of its sentences is the query."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

SIDES = ("source", "target")


def toss_coins(batch: Mapping[str, Tensor]) -> Tensor:
    """N: whether a pair changes sides. Torch's random numbers, which checkpoints keep."""
    ids = batch["source_input_ids"]
    return torch.rand(len(ids), device=ids.device) < 0.5


def shuffle_sides(batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The batch of ``SentenceEncoderForPreTraining.forward`` with source and target exchanged in about half the pairs.

    What a teacher makes of the targets stays: both sides learn from it.
    """
    coins, shuffled = toss_coins(batch), dict(batch)
    width = max(batch[f"{side}_input_ids"].shape[1] for side in SIDES)
    for what, filling in (("input_ids", 0), ("attention_mask", 0), ("words", -1)):
        names = [f"{side}_{what}" for side in SIDES]
        if names[0] in batch:
            sides = [F.pad(batch[name], (0, width - batch[name].shape[1]), value=filling) for name in names]
            for name, own, other in zip(names, sides, reversed(sides), strict=True):
                shuffled[name] = torch.where(coins[:, None], other, own)
    if "language_ids" in batch:
        source, target = batch["language_ids"].chunk(2)
        exchanged = torch.where(coins, target, source), torch.where(coins, source, target)
        shuffled["language_ids"] = torch.cat(exchanged)
    if "links" in batch:
        shuffled["links"] = torch.where(coins[:, None, None], batch["links"].flip(-1), batch["links"])
    return shuffled
