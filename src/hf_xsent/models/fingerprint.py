"""Fingerprint models by their files, so that cached results and extractions are not used for another model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import nn

from hf_xsent.files import digest
from hf_xsent.runs.identity import identify_model


def fingerprint_model(name_or_path: str, hub: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return a Hub model's name and revision, or a hash of a model folder, which changes with further training."""
    return identify_model(name_or_path, **hub)


def fingerprint_weights(module: nn.Module) -> str:
    """Return a hash of the weights of a loaded model, the same in every precision that represents them."""
    return digest([(name, weight.float().cpu().numpy().tobytes()) for name, weight in module.state_dict().items()])
