"""LoRA (Hu et al., 2022): low-rank adapters beside the frozen linear layers of an encoder, by peft; merged at last."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.compat import mark_initialized
from hf_xsent.errors import MissingExtraError, RecipeError, nearest
from hf_xsent.models.loading import build_encoder


def add_adapters(encoder: PreTrainedModel, rank: int, alpha: float, targets: Sequence[str] | None = None) -> None:
    """Freeze the encoder and put an adapter that changes nothing yet beside each linear layer that a target names.

    A target is the end of a module's name, ``query`` for instance; None: all linear layers.
    """
    peft = _peft()
    config = peft.LoraConfig(r=rank, lora_alpha=alpha, target_modules=_checked(targets, encoder))
    peft.inject_adapter_in_model(config, encoder)
    for name, module in encoder.named_modules():
        if ".lora_" in name:
            mark_initialized(module)


def check_adapters(targets: Sequence[str] | None, config: PreTrainedConfig) -> None:
    """What can be told before an encoder of this config is loaded: peft is there, and so are the targets."""
    _peft()
    with torch.device("meta"):
        _checked(targets, build_encoder(config))


def plain_weights(module: nn.Module) -> dict[str, Tensor]:
    """The weights of an encoder or a part of it as they are once adapters are merged, by their plain names."""
    adapted = dict(_adapted(module))
    plain = {}
    for name, weight in module.state_dict().items():
        owner, _, rest = name.rpartition(".base_layer.")
        if owner in adapted and rest == "weight":
            weight = weight + adapted[owner].get_delta_weight("default")
        if ".lora_" not in name:
            plain[name.replace(".base_layer.", ".")] = weight
    return plain


def merge_adapters(encoder: PreTrainedModel) -> None:
    """Add what the adapters have learnt to the weights beside them, and take them away."""
    weights = plain_weights(encoder)
    for name, adapter in _adapted(encoder):
        encoder.set_submodule(name, adapter.get_base_layer())
    encoder.load_state_dict(weights)


def _adapted(module: nn.Module) -> list[tuple[str, Any]]:
    return [(name, one) for name, one in module.named_modules() if hasattr(one, "base_layer")]


def _checked(targets: Sequence[str] | None, encoder: PreTrainedModel) -> list[str]:
    """The names of the linear layers to adapt."""
    linear = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
    ends = sorted({name.rpartition(".")[2] for name in linear})
    for target in targets or ():
        if not any(f".{name}".endswith(f".{target}") for name in linear):
            raise RecipeError(
                f"lora_targets has {target!r}, which is no linear layer of this encoder: use some of {', '.join(ends)}"
                + nearest(target, ends)
            )
    return list(targets or ends)


def _peft() -> ModuleType:
    try:
        import peft
    except ImportError as error:
        raise MissingExtraError('lora_rank needs peft: run pip install "hf-xsent[lora]"') from error
    return peft
