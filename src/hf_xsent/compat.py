"""Wrap every private part of other libraries that we call, with version, reason and what breaks without it.

tests/test_compat.py checks each part, lists those that our subclasses override, and checks that no other file uses one.
Imports of large libraries are lazy.
"""

from __future__ import annotations

import ctypes
import logging
import platform
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)


# torch


def _gelu(node: Any) -> Tensor:
    from torch.nn.functional import gelu

    return gelu(node._saved_self, approximate=node._saved_approximate)


def _silu(node: Any) -> Tensor:
    from torch.nn.functional import silu

    return silu(node._saved_self)


# Autograd nodes of elementwise functions, and how to recompute their outputs from their saved inputs (torch 2.6 to
# 2.13). No public API maps a tensor to the function that computed it. If a name changes, outputs are stored: the same
# gradients, more memory (tests/models/test_activation_recomputing.py). Without a saved attribute, backward raises.
ELEMENTWISE_NODES: dict[str, Callable[[Any], Tensor]] = {
    "GeluBackward0": _gelu,
    "SiluBackward0": _silu,
    "MulBackward0": lambda node: node._saved_self * node._saved_other,
}
RESHAPING_NODES = frozenset(("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"))


# transformers


def attention_of(config: PreTrainedConfig) -> str | None:
    """Return the attention implementation of a config (transformers 5.19 to 5.23; no public getter)."""
    return config._attn_implementation


def set_attention(config: PreTrainedConfig, name: str | None) -> None:
    """Set the attention implementation of a config (transformers 5.19 to 5.23).

    We call this twice per layer and step. The public ``PreTrainedModel.set_attn_implementation`` visits all modules:
    1.4 ms per layer of a 12-layer BERT instead of 0.02 ms. Without it, packed sentences attend to each other.
    """
    config._attn_implementation = name


def mark_initialized(module: nn.Module) -> None:
    """Exclude a module from transformers' weight initialization (transformers 5.19 to 5.23; no public flag).

    Without it, ``post_init`` and ``from_pretrained`` initialize LoRA adapters at random instead of at zero effect.
    """
    module._is_hf_initialized = True  # type: ignore[assignment]


def classes_by_config(auto: Any) -> Any:
    """Return the model class of each config class that an AutoModel class opens (transformers 5.19 to 5.23)."""
    return auto._model_mapping


# glibc

_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # malloc.h


def keep_freed_memory() -> bool:
    """Configure malloc to reuse freed memory instead of returning it to the system; True if glibc does (2.17 to 2.39).

    By default the system reclaims and zeroes the memory of large gradients and activations in each step, which takes a
    tenth of a step's time for a model with a large vocabulary. Python has no public mallopt, and MALLOC_… environment
    variables must be set before the process starts.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 64 << 20)])
    logger.debug("malloc %s", "reuses freed memory" if done else "returns freed memory at each step: mallopt failed")
    return done


def return_freed_memory() -> None:
    """Return the memory that malloc has freed to the system, if it is glibc's (2.17 to 2.39; no public call).

    ``keep_freed_memory`` lets the heap grow by fragments; in a large batch they would add to the peak.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
