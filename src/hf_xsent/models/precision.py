"""Choose the device and the precision of a computation; ``auto`` times float32 and bfloat16 on this machine."""

from __future__ import annotations

import logging
import math
import os
import time
from collections.abc import Callable
from copy import deepcopy
from functools import cache

import torch
from torch import Tensor, nn

from hf_xsent.errors import ModelError
from hf_xsent.tensors.attention import packed_attention

logger = logging.getLogger(__name__)
PRECISIONS = ("float32", "auto", "bfloat16", "float16")
USUAL_WIDTH = 384  # where a precision is chosen before the model is known
_WORTHWHILE_GAIN = 1.1  # a smaller one is within the error of the measurement
_LENGTH = 32  # tokens of a sentence
# Enough tokens that, on a GPU, launches do not dominate, and that, in training, the conversion of weights does not.
_TOKENS, _TOKENS_IN_TRAINING, _TOKENS_ON_GPU = 256, 1024, 16_384


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Return a usable device: by default the GPU of this process, which processes may share, or the CPU."""
    if device is None:
        cuda = torch.cuda.is_available()
        device = f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}" if cuda else "cpu"
    try:
        usable = torch.device(device)
        torch.empty(0, device=usable)
    except (RuntimeError, AssertionError) as error:  # unknown, or not in this machine
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {str(device)!r} is not available, use cpu or cuda: {reason}") from error
    return usable


def compute_dtype(precision: str | torch.dtype, device: str | torch.device, width: int = USUAL_WIDTH) -> torch.dtype:
    """Return the dtype of a precision; ``auto`` is the faster of bfloat16 and float32 for encoders of this width."""
    if isinstance(precision, torch.dtype):
        return precision
    if precision not in PRECISIONS:
        raise ModelError(f"unknown precision {precision!r}: use one of {', '.join(PRECISIONS)}")
    if precision != "auto":
        dtype: torch.dtype = getattr(torch, precision)
        return dtype
    return torch.bfloat16 if bfloat16_is_faster(torch.device(device).type, width) else torch.float32


@cache
def bfloat16_is_faster(device: str, width: int, training: bool = False) -> bool:
    """Time a layer of an encoder in both precisions, once per process; in training with its backward pass."""
    with torch.random.fork_rng(devices=[]):  # the program's own random numbers stay the same
        gain = bfloat16_gain(_layer(torch.device(device), width, training), device)
    faster = gain >= _WORTHWHILE_GAIN
    logger.info(
        "precision auto: %s in %s, because on %s a layer of width %d is %.2f times as fast in bfloat16 as in float32",
        "training" if training else "encoding",
        "bfloat16" if faster else "float32",
        device,
        width,
        gain,
    )
    return faster


def bfloat16_gain(compute: Callable[[torch.dtype], Tensor], device: str | torch.device = "cpu") -> float:
    """Return how many times as fast ``compute`` is in bfloat16 as in float32, by the shortest of several runs.

    On a CPU, times are those of the processor, so that other programs do not change the result.
    """
    clock = time.process_time if torch.device(device).type == "cpu" else time.perf_counter
    shortest = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for turn in range(3):
        for dtype in shortest:
            started = clock()
            compute(dtype).detach().flatten()[0].item()  # waits for the device
            if turn:  # the first is a warm-up
                shortest[dtype] = min(shortest[dtype], clock() - started)
    return shortest[torch.float32] / shortest[torch.bfloat16]


def _layer(device: torch.device, width: int, training: bool) -> Callable[[torch.dtype], Tensor]:
    """Return a function that computes attention and the feed-forward part of a transformer layer in a dtype."""
    tokens = _TOKENS_ON_GPU if device.type != "cpu" else _TOKENS_IN_TRAINING if training else _TOKENS
    count = tokens // _LENGTH
    heads = max(1, width // 64)
    plain = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.LayerNorm(width))
    inputs = torch.randn(count * _LENGTH, width)
    kinds = {dtype: torch.float32 if training else dtype for dtype in (torch.float32, torch.bfloat16)}
    layers = {dtype: deepcopy(plain).to(device, kind) for dtype, kind in kinds.items()}
    rows = {dtype: inputs.to(device, kind).requires_grad_(training) for dtype, kind in kinds.items()}

    def compute(dtype: torch.dtype) -> Tensor:
        half = training and dtype is torch.bfloat16  # weights stay float32 in training
        with torch.set_grad_enabled(training), torch.autocast(device.type, torch.bfloat16, enabled=half):
            states = layers[dtype](rows[dtype])
            parts = states[:, : width // heads * heads].unflatten(1, (heads, -1)).to(dtype)
            context = packed_attention(parts, parts, parts, ((count, _LENGTH),), scaling=0.125)
            if training:
                (context.float().sum() + states.float().sum()).backward()
        return context

    return compute
