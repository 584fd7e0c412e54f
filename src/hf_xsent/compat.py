"""Wrap or list every private part of other libraries that we use, with version, reason and what breaks without it.

Functions here read or call private parts. ``PRIVATE_PARTS`` lists the methods and attributes that our subclasses
override. tests/test_compat.py checks each part, and that no other file uses one. Imports of large libraries are lazy.
"""

from __future__ import annotations

import ctypes
import inspect
import logging
import platform
from collections.abc import Callable
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn
    from transformers import PreTrainedConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class PrivatePart:
    """A private or undocumented method or attribute that our code overrides or calls."""

    name: str  # dotted, for pkgutil.resolve_name
    version: str
    why: str
    breaks: str  # what breaks without it
    parameters: tuple[str, ...] | None = None  # those that our code uses; None: not checked

    def change(self) -> str | None:
        """Describe how the installed part differs from this entry; None if it does not."""
        owner, _, attribute = self.name.rpartition(".")
        try:
            part = getattr(resolve_name(owner), attribute)
        except (ImportError, AttributeError) as error:
            return f"{self.name} ({self.version}) is gone: {error}. Without it, {self.breaks}"
        if self.parameters is None:
            return None
        found = [one for one in inspect.signature(part).parameters.values() if one.name != "self"]
        names, more = tuple(one.name for one in found[: len(self.parameters)]), found[len(self.parameters) :]
        if names == self.parameters and all(one.default is not one.empty for one in more):
            return None
        takes = ", ".join(map(str, found))
        return f"{self.name} ({self.version}) took ({', '.join(self.parameters)}), now ({takes}): {self.breaks}"


_VERSIONS = {"transformers": "5.19 to 5.23", "evaluate": "0.4.6"}
_TRAINER, _MODEL = "transformers.Trainer", "transformers.PreTrainedModel"

PRIVATE_PARTS = tuple(
    PrivatePart(f"{owner}.{name}", _VERSIONS[owner.partition(".")[0]], why, breaks, parameters)
    for owner, names, parameters, why, breaks in (
        (_TRAINER, "_save_checkpoint", ("model", "trial"),
         "rename a checkpoint when all processes have written it", "a killed run leaves half a checkpoint"),
        (_TRAINER, "_get_output_dir", ("trial",),
         "choose the temporary folder of a checkpoint", "the checkpoint is not in the folder that is renamed"),
        (_TRAINER, "_push_from_checkpoint", ("checkpoint_folder",),
         "upload the finished model only", "--push_to_hub uploads unfinished models, and copies them into the folder"),
        (_TRAINER, "save_model", ("output_dir", "_internal_call"),
         "save the final model into a temporary folder without a push", "an incomplete final model is pushed"),
        (_TRAINER, "set_initial_training_values", ("args", "dataloader"),
         "end a resumed run whose checkpoint has all steps", "--resume of such a run trains another step"),
        (_TRAINER, "_init_training_state", None,
         "apply the schedule of a resumed run, and find its best checkpoint in a moved folder",
         "changed save_steps are not applied, and the last model is taken for the best"),
        (_TRAINER, "_load_callback_state", (),
         "count on for early stopping, with the patience of the resumed run", "early stopping starts to count again"),
        (_TRAINER, "_determine_best_metric", ("metrics", "trial"),
         "compare only measurements of steps with a checkpoint", "the last model is taken for the best"),
        (_TRAINER, "_get_grad_norm", ("model", "grad_norm"),
         "check gradients before the optimizer's step; no public hook runs there", "NaN gradients reach the weights"),
        (_TRAINER, "_prepare_inputs", ("inputs",),
         "move the critic's batch to the device", "dual pivot's critic reads tensors on another device"),
        (_TRAINER, "_save_optimizer_and_scheduler", ("output_dir",), "save the critic", "--resume resets its state"),
        (_TRAINER, "_load_optimizer_and_scheduler", ("checkpoint",), "load the critic", "--resume resets its state"),
        (_MODEL, "_init_weights", ("module",),
         "initialize language embeddings, maps, biases and queues", "an untrained model differs from its encoder"),
        (_MODEL, "_from_config", None,
         "let AutoModel.from_config build plain encoders of families whose exports we load",
         "AutoModel.from_config of BERT and others fails after importing hf_xsent"),
        (_MODEL, "_keys_to_ignore_on_save", None,
         "save dual pivot without its frozen encoder", "each dual pivot checkpoint holds the encoder"),
        (_MODEL, "_keys_to_ignore_on_load_missing", None,
         "load dual pivot checkpoints, which have no encoder", "loading warns of each weight of the encoder"),
        (_MODEL, "_keys_to_ignore_on_load_unexpected", None,
         "load a training checkpoint without its heads", "loading warns of each weight of a head"),
        (_MODEL, "_supports_sdpa _supports_flash_attn _supports_attention_backend", None,
         "accept every attn_implementation of the encoder", "sdpa, flash_attention_2 or registered ones are rejected"),
        ("evaluate.Metric", "_info _compute", None,
         "implement a metric; evaluate documents no public names", "evaluate.load of our metrics fails"),
    )
    for name in names.split()
)  # fmt: skip


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


def has_hooks(module: nn.Module) -> bool:
    """Return whether a module has forward hooks, as FSDP and probes register (torch 2.6 to 2.13; no public getter).

    Without it, the part of a layer that we call directly bypasses these hooks.
    """
    return bool(module._forward_pre_hooks or module._forward_hooks)


def cpu_attention() -> Any:
    """Return the CPU attention operator, for which torch's FLOP counter has no formula (torch 2.6 to 2.13).

    Without it, ``hf-xsent cost`` on a CPU counts no FLOPs of attention.
    """
    import torch

    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


def linear_with_bias(inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute a linear layer by oneDNN, which adds the bias within the product (torch 2.6 to 2.13; no public call).

    ``F.linear`` in bfloat16 on CPUs copies the bias into each row of the result first, and takes 1.5 times as long.
    """
    import torch

    if not torch.backends.mkldnn.is_available() or not torch.ops.mkldnn._is_mkldnn_bf16_supported():
        return torch.nn.functional.linear(inputs, weight, bias)
    result: Tensor = torch.ops.mkldnn._linear_pointwise(inputs, weight, bias, "none", [], "")
    return result


def cpu_has_bfloat16() -> bool:
    """Return whether this processor multiplies bfloat16 in hardware (torch 2.6 to 2.13; no public getter before 2.13).

    Without it, ``--precision auto`` computes in float32 on CPUs.
    """
    import torch

    has_bfloat16 = getattr(torch.cpu, "_is_avx512_bf16_supported", None)
    return has_bfloat16 is not None and bool(has_bfloat16())


def default_store() -> Any:
    """Return the key-value store of the default process group (torch 2.6 to 2.13; no public getter).

    Without it, the error for a lost process does not name the process.
    """
    from torch.distributed.distributed_c10d import _get_default_store

    return _get_default_store()


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
    logger.info("malloc %s", "reuses freed memory" if done else "returns freed memory at each step: mallopt failed")
    return done


def return_freed_memory() -> None:
    """Return the memory that malloc has freed to the system, if it is glibc's (2.17 to 2.39; no public call).

    ``keep_freed_memory`` lets the heap grow by fragments; in a large batch they would add to the peak.
    """
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)
