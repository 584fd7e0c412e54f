"""Fingerprint models by their files, so that cached results and extractions are not used for another model."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_xsent.compat import attention_of
from hf_xsent.errors import ModelError
from hf_xsent.files import is_hub_id, is_local
from hf_xsent.models.loading import load_encoder
from hf_xsent.runs.identity import identify_model


def fingerprint_model(name_or_path: str, hub: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return a Hub model's name and revision, or a hash of a model folder, which changes with further training."""
    return identify_model(name_or_path, **hub)


def load_fingerprinted(name: str, fingerprint: str, encoder_config: Any, dtype: Any) -> PreTrainedModel:
    """Load the encoder that a model was trained on; raise an error if it is missing or has changed."""
    options: dict[str, Any] = {}
    if is_hub_id(name):
        revision = fingerprint.rpartition("@")[2]
        options = {} if revision == "None" else {"revision": revision}
    elif not is_local(name):
        raise ModelError(
            f"the frozen encoder of this model is not at {name}: copy it there, or set encoder_name in the model's "
            "config.json to its folder"
        )
    elif fingerprint_model(name) != fingerprint:
        raise ModelError(f"{name} is not the encoder that this model was trained on: restore that encoder")
    if (attention := attention_of(encoder_config)) is not None:
        options["attn_implementation"] = attention
    return load_encoder(name, dtype=torch.float32 if dtype == "auto" else dtype, **options)
