"""Results that cost memory and next to no time: made again in the backward pass, from what is kept anyway."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

from hf_xsent.compat import ELEMENTWISE_NODES, RESHAPING_NODES


def recomputed(function: Callable[..., Tensor], *inputs: Any, random: bool = False) -> Tensor:
    """``function(*inputs)``, of which only the inputs are kept; ``random`` if it draws numbers, as dropout does."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():  # a compiler finds by itself what to recompute
        return function(*inputs)
    result: Tensor = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=random)
    return result


def activations_recomputed() -> AbstractContextManager[Any]:
    """Within, results of activation functions and gates are not kept: their inputs are, and are as wide."""
    return saved_tensors_hooks(_pack, _unpack)


def _pack(tensor: Tensor) -> Any:
    node: Any = tensor.grad_fn
    while node is not None and node.name() in RESHAPING_NODES:
        node = node.next_functions[0][0]
    if node is None or node.name() not in ELEMENTWISE_NODES or not all(before for before, _ in node.next_functions):
        return tensor  # the graph keeps an input only where all others are learnt, too
    return node, tensor.shape


def _unpack(kept: Any) -> Tensor:
    if isinstance(kept, Tensor):
        return kept
    node, shape = kept
    with torch.no_grad():
        return ELEMENTWISE_NODES[node.name()](node).reshape(shape)
