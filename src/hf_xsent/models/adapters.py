"""Add LoRA adapters (Hu et al., 2022) to the linear layers of a frozen encoder, and merge them after training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor, nn
from transformers import PreTrainedModel

from hf_xsent.compat import mark_initialized
from hf_xsent.errors import RecipeError, import_extra


def add_adapters(encoder: PreTrainedModel, rank: int) -> None:
    """Freeze the encoder and add an adapter with zero effect to each linear layer."""
    peft = import_extra("lora", "lora_rank", "peft")
    linear = [name for name, module in encoder.named_modules() if isinstance(module, nn.Linear)]
    config = peft.LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=linear)
    peft.inject_adapter_in_model(config, encoder)
    for name, module in encoder.named_modules():
        if ".lora_" in name:
            mark_initialized(module)


def refuse_other_adapters(model: nn.Module, rank: int | None = None) -> None:
    """Raise an error if a model has adapters besides those that ``add_adapters`` adds for ``rank``."""
    by_transformers = any(getattr(module, "_hf_peft_config_loaded", False) for module in model.modules())
    if by_transformers or (rank is None and any(hasattr(module, "peft_config") for module in model.modules())):
        raise RecipeError(
            "the model has an adapter, which no checkpoint would hold: merge it, or train one by "
            "from_backbone(name, lora_rank=16)"
        )


def plain_weights(module: nn.Module, state: Mapping[str, Tensor] | None = None) -> dict[str, Tensor]:
    """Return the weights that an encoder or a part of it has after merging its adapters; ``state``: before merging."""
    state = module.state_dict() if state is None else state
    adapted, plain = _adapted(module), {}
    for name, weight in state.items():
        owner, _, rest = name.rpartition(".base_layer.")
        if owner in adapted and rest == "weight":
            down, up = (state[f"{owner}.lora_{matrix}.default.weight"] for matrix in "AB")
            weight = weight + (up @ down) * adapted[owner].scaling["default"]
        if ".lora_" not in name:
            plain[name.replace(".base_layer.", ".")] = weight
    return plain


def merge_adapters(encoder: PreTrainedModel) -> None:
    """Merge the adapters into the weights and remove them."""
    weights = plain_weights(encoder)
    for name, adapter in _adapted(encoder).items():
        encoder.set_submodule(name, adapter.get_base_layer())
    del encoder.peft_config
    encoder.load_state_dict(weights)


def _adapted(module: nn.Module) -> dict[str, Any]:
    return {name: layer for name, layer in module.named_modules() if "default" in getattr(layer, "lora_A", ())}
