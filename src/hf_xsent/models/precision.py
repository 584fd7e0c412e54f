"""Choose the precision in which an encoder computes embeddings."""

from __future__ import annotations

import logging

import torch

from hf_xsent.compat import cpu_has_bfloat16
from hf_xsent.errors import ModelError

logger = logging.getLogger(__name__)
PRECISIONS = ("float32", "auto", "bfloat16", "float16")


def compute_dtype(precision: str | torch.dtype, device: str | torch.device) -> torch.dtype:
    """Return the dtype of a precision; ``auto`` is bfloat16 on devices that compute it in hardware, else float32."""
    if isinstance(precision, torch.dtype):
        return precision
    if precision not in PRECISIONS:
        raise ModelError(f"unknown precision {precision!r}: use one of {', '.join(PRECISIONS)}")
    if precision != "auto":
        dtype: torch.dtype = getattr(torch, precision)
        return dtype
    dtype = torch.bfloat16 if has_bfloat16(device) else torch.float32
    logger.info("precision auto: encoding in %s on %s", str(dtype).removeprefix("torch."), torch.device(device).type)
    return dtype


def has_bfloat16(device: str | torch.device) -> bool:
    """Return whether a device multiplies bfloat16 in hardware."""
    kind = torch.device(device).type
    if kind == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    return kind == "cpu" and cpu_has_bfloat16()
