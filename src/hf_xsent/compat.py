"""Every private part of other libraries that we use: since which version, why, and what breaks without it.

Code that reads or calls a private part is a function here. Methods that override a private one, and attributes that a
base class reads, must stay in our subclasses: ``PRIVATE_PARTS`` lists them. tests/test_compat.py checks each part, and
that no other file reaches into another library. Nothing heavy is imported before it is used.
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
    """A private or undocumented part that a class of ours overrides or sets, or that a public way needs."""

    name: str  # where it is, as pkgutil.resolve_name takes it
    version: str  # written against
    why: str
    breaks: str  # what breaks if it goes
    parameters: tuple[str, ...] | None = None  # that our code passes or takes; None: not a function

    def change(self) -> str | None:
        """Say how the part differs from what we use; None if it does not."""
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


_TRAINER, _MODEL, _TRANSFORMERS = "transformers.Trainer", "transformers.PreTrainedModel", "transformers 5.19 to 5.23"

PRIVATE_PARTS = (
    PrivatePart(
        f"{_TRAINER}._save_checkpoint",
        _TRANSFORMERS,
        "a checkpoint is written under another name and renamed when all processes have written their part",
        "a killed run leaves half a checkpoint, from which --resume fails",
        ("model", "trial"),
    ),
    PrivatePart(
        f"{_TRAINER}._get_output_dir",
        _TRANSFORMERS,
        "where the unfinished checkpoint is written",
        "the checkpoint is not where it is renamed from",
        ("trial",),
    ),
    PrivatePart(
        f"{_TRAINER}._push_from_checkpoint",
        _TRANSFORMERS,
        "the Trainer pushes inside _save_checkpoint, before the checkpoint has its name",
        "--push_to_hub pushes a folder that is renamed meanwhile",
        ("checkpoint_folder",),
    ),
    PrivatePart(
        f"{_TRAINER}.save_model",
        _TRANSFORMERS,
        "_internal_call=True saves the final model into a temporary folder without pushing it",
        "the final model is pushed before it is whole",
        ("output_dir", "_internal_call"),
    ),
    PrivatePart(
        "transformers.trainer_utils.rotate_checkpoints",
        _TRANSFORMERS,
        "old checkpoints are deleted after the new one has its name, not before",
        "save_total_limit deletes nothing, or the wrong checkpoints",
        ("output_dir", "save_total_limit", "best_model_checkpoint", "use_mtime"),
    ),
    PrivatePart(
        f"{_TRAINER}._get_grad_norm",
        _TRANSFORMERS,
        "the only place between the gradients and the optimizer's step; dual pivot reads its few weights alone",
        "NaN gradients reach the weights",
        ("model", "grad_norm"),
    ),
    PrivatePart(
        f"{_TRAINER}._get_train_sampler",
        _TRANSFORMERS,
        "temperature sampling; get_train_dataloader, the public way, prepares the sampler's processes too",
        "languages are drawn by their size, whatever alpha says",
        ("train_dataset",),
    ),
    PrivatePart(
        f"{_TRAINER}._prepare_inputs",
        _TRANSFORMERS,
        "moves a batch to the device for the critic, before the Trainer's own step does",
        "dual pivot's critic reads tensors of another device",
        ("inputs",),
    ),
    PrivatePart(
        f"{_TRAINER}._save_optimizer_and_scheduler",
        _TRANSFORMERS,
        "saves the critic's optimizer with the Trainer's",
        "a resumed dual pivot run starts its critic's optimizer from zero",
        ("output_dir",),
    ),
    PrivatePart(
        f"{_TRAINER}._load_optimizer_and_scheduler",
        _TRANSFORMERS,
        "loads the critic's optimizer with the Trainer's",
        "a resumed dual pivot run starts its critic's optimizer from zero",
        ("checkpoint",),
    ),
    PrivatePart(
        f"{_MODEL}._init_weights",
        _TRANSFORMERS,
        "transformers' hook for new weights: language embeddings, maps, biases and queues start in their own ways",
        "new weights start at random: an untrained model is no longer its encoder",
        ("module",),
    ),
    PrivatePart(
        f"{_MODEL}._keys_to_ignore_on_save",
        _TRANSFORMERS,
        "dual pivot saves its extraction without the frozen encoder",
        "each dual pivot checkpoint holds the whole encoder",
    ),
    PrivatePart(
        f"{_MODEL}._keys_to_ignore_on_load_missing",
        _TRANSFORMERS,
        "a dual pivot checkpoint has no encoder weights",
        "loading warns of each of them",
    ),
    PrivatePart(
        f"{_MODEL}._keys_to_ignore_on_load_unexpected",
        _TRANSFORMERS,
        "a sentence encoder opened from a training checkpoint leaves its heads",
        "loading warns of each of them",
    ),
    PrivatePart(
        f"{_MODEL}._supports_sdpa",
        _TRANSFORMERS,
        "a model of ours takes every attn_implementation that its encoder takes",
        "attn_implementation='sdpa' is refused",
    ),
    PrivatePart(
        f"{_MODEL}._supports_flash_attn",
        _TRANSFORMERS,
        "a model of ours takes every attn_implementation that its encoder takes",
        "attn_implementation='flash_attention_2' is refused",
    ),
    PrivatePart(
        f"{_MODEL}._supports_attention_backend",
        _TRANSFORMERS,
        "a model of ours takes every attn_implementation that its encoder takes",
        "a registered attention is refused",
    ),
    PrivatePart(
        "evaluate.Metric._info",
        "evaluate 0.4.6",
        "how evaluate's guide to new metrics states what a metric takes",
        "evaluate.load of our metrics fails",
    ),
    PrivatePart(
        "evaluate.Metric._compute",
        "evaluate 0.4.6",
        "how evaluate's guide to new metrics computes a score",
        "evaluate.load of our metrics fails",
    ),
)


# torch


def _gelu(node: Any) -> Tensor:
    from torch.nn.functional import gelu

    return gelu(node._saved_self, approximate=node._saved_approximate)


def _silu(node: Any) -> Tensor:
    from torch.nn.functional import silu

    return silu(node._saved_self)


def _product(node: Any) -> Tensor:
    result: Tensor = node._saved_self * node._saved_other
    return result


# The names of graph nodes of elementwise functions, and how to compute their results from the inputs that nodes save
# (torch 2.6 to 2.13). No public call tells which function made a tensor. If a name changes, its results are stored: the
# same gradients, more memory (tests/models/test_kept_activations.py). If a saved attribute goes, backward raises.
ELEMENTWISE_NODES: dict[str, Callable[[Any], Tensor]] = {
    "GeluBackward0": _gelu,
    "SiluBackward0": _silu,
    "MulBackward0": _product,
}
RESHAPING_NODES = frozenset(("ViewBackward0", "UnsafeViewBackward0", "ReshapeAliasBackward0"))


def has_hooks(module: nn.Module) -> bool:
    """Say whether forward hooks are registered on a module (torch 2.6 to 2.13, which has no public way to ask).

    FSDP and probes hook into the call of a layer: without the answer, a part of a layer runs unseen by them.
    """
    return bool(module._forward_pre_hooks or module._forward_hooks)


def cpu_attention() -> Any:
    """Return the attention operation of CPUs, for which torch's FLOP counter has no formula (torch 2.6 to 2.13).

    Without it, ``hf-xsent cost`` on a CPU counts no operations of attention.
    """
    import torch

    return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu


# transformers


def attention_of(config: PreTrainedConfig) -> str | None:
    """Return the attention of the config's model (transformers 5.19 to 5.23, which has no public getter)."""
    return config._attn_implementation


def set_attention(config: PreTrainedConfig, name: str | None) -> None:
    """Choose the attention of the config's model (transformers 5.19 to 5.23).

    We do so twice a layer and step. ``PreTrainedModel.set_attn_implementation``, the public way, walks all modules:
    1.4 ms a layer of a 12-layer BERT instead of 0.02 ms. Without it, sentences of a batch attend to each other.
    """
    config._attn_implementation = name


def mark_initialized(module: nn.Module) -> None:
    """Keep transformers from drawing the weights of a module that brings its own start (transformers 5.19 to 5.23).

    ``post_init`` and ``from_pretrained`` initialize each module without the mark. There is no public mark. Without it,
    LoRA adapters start at random instead of changing nothing.
    """
    module._is_hf_initialized = True  # type: ignore[assignment]


# glibc


_M_TRIM_THRESHOLD, _M_TOP_PAD, _M_MMAP_MAX = -1, -2, -4  # of malloc.h


def keep_freed_memory() -> bool:
    """Make glibc keep big blocks that are freed; True where it does (glibc 2.17 to 2.39).

    By default each gradient and activation over some megabytes is returned to the system when it is freed and comes
    back page by page, zeroed, at the next step: a tenth of a step's time for a model with a large vocabulary. mallopt
    is public in C, but not in Python; the environment variables MALLOC_… must be set before the process starts.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    done = all([mallopt(_M_MMAP_MAX, 0), mallopt(_M_TRIM_THRESHOLD, 2**31 - 1), mallopt(_M_TOP_PAD, 64 << 20)])
    logger.info("freed memory is %s", "kept between steps" if done else "returned at each step: mallopt refused")
    return done
