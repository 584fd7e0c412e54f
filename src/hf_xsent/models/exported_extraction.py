"""Dual pivot's model out of an exported folder: sentence-transformers' modules for weighted layers and a dense map."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForSentenceEmbedding
from hf_xsent.models.loading import load_encoder, model_file

MIX, MAP = "WeightedLayerPooling", "Dense"


def open_extraction(
    name_or_path: str, modules: Mapping[str, str], dtype: torch.dtype, **settings: Any
) -> DualPivotForSentenceEmbedding:
    """The model of a folder or Hub id whose ``modules`` (paths by kind) mix layers and may map the result."""
    encoder = load_encoder(name_or_path, dtype=dtype)
    weights = _tensor(name_or_path, modules[MIX], "layer_weights").float()
    if len(weights) != encoder.config.num_hidden_layers + 1 or (weights < 0).any() or weights.sum() <= 0:
        raise ModelError(
            f"{name_or_path!r} does not mix all its layers by positive weights: "
            "open it with sentence_transformers.SentenceTransformer"
        )
    layers = weights.nonzero().flatten().tolist()
    config = DualPivotConfig(
        encoder_config=encoder.config, layers=layers, layer_mix=True, linear_map=MAP in modules, **settings
    )
    model = DualPivotForSentenceEmbedding(config, encoder=encoder)
    with torch.no_grad():
        assert model.layer_scores is not None
        model.layer_scores.copy_(weights[layers].log())
        if model.linear_map is not None:
            model.linear_map.weight.copy_(_tensor(name_or_path, modules[MAP], "linear.weight"))
    return model.eval()


def _tensor(name_or_path: str, module: str, name: str) -> Tensor:
    found = model_file(name_or_path, f"{module}/model.safetensors")
    tensors = {} if found is None else load_file(found)
    if name not in tensors:
        raise ModelError(f"{name_or_path!r} has no {name} in {module}/model.safetensors: is it whole?")
    return tensors[name]
