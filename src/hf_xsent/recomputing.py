"""Results that cost memory and next to no time: made again in the backward pass, from what is kept anyway."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint


def recomputed(function: Callable[..., Tensor], *inputs: Any, random: bool = False) -> Tensor:
    """``function(*inputs)``, of which only the inputs are kept; ``random`` if it draws numbers, as dropout does."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # a compiler finds by itself what to recompute
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=random)
    return result
