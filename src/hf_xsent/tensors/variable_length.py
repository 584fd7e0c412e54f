"""Compute attention over sentences of different lengths in one GPU kernel.

The plain computation: ``packed_attention`` of ``tensors/attention.py``, one call for each length.
"""

from __future__ import annotations

import inspect
from functools import cache
from typing import Any

import torch
from torch import Tensor

_LARGEST_HEAD = 256  # of flash attention


def fits_one_kernel(query: Tensor, key: Tensor, dropout: float, window: int | None) -> bool:
    """Return whether ``attend_within_boundaries`` can compute this attention on this device.

    Flash attention needs a GPU of compute capability 8.0 or higher and half precision; torch's kernel has no dropout.
    With a window, it aligns the last query with the last key, which is wrong if only first tokens are queries.
    """
    half = key.dtype in (torch.float16, torch.bfloat16)
    return (
        key.is_cuda
        and half
        and dropout == 0
        and key.shape[-1] <= _LARGEST_HEAD
        and key.shape[-1] % 8 == 0
        and (window is None or len(query) == len(key))
        and _has_kernel(key.device)
    )


def attend_within_boundaries(
    query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor, longest: int, scaling: float, window: int | None
) -> Tensor:
    """Attend within each sentence; ``boundaries`` holds the N + 1 cumulative lengths of the keys, as int32.

    ``query`` has the tokens of ``key``, or N rows if only first tokens are queries.
    """
    first_tokens_only = len(query) != len(key)
    of_queries = torch.arange(len(boundaries), device=key.device, dtype=torch.int32)
    output: Tensor = _kernel()(
        query.contiguous(),
        key.contiguous(),
        value.contiguous(),
        of_queries if first_tokens_only else boundaries,
        boundaries,
        1 if first_tokens_only else longest,
        longest,
        scale=scaling,
        window_size=(-1, -1) if window is None else (window - 1, window - 1),
    )
    return output


@cache
def _kernel() -> Any:
    """Return torch's variable-length attention, or None if torch is too old to scale and to limit the window."""
    try:
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn if {"scale", "window_size"} <= inspect.signature(varlen_attn).parameters.keys() else None


@cache
def _has_kernel(device: torch.device) -> bool:
    """Return whether this GPU runs the kernel."""
    built = torch.backends.cuda.is_flash_attention_available()
    return built and torch.cuda.get_device_capability(device) >= (8, 0) and _kernel() is not None
