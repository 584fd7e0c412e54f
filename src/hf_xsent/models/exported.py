"""Open folders that sentence-transformers or ``hf-xsent export`` wrote, also with dual pivot's extraction."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForSentenceEmbedding
from hf_xsent.models.loading import load_encoder, loading_errors, model_file
from hf_xsent.models.modules_json import read_json
from hf_xsent.models.sentence_encoder import SentenceEncoder

_MIX, _MAP = "WeightedLayerPooling", "Dense"


def open_exported(name_or_path: str, dtype: torch.dtype, stated: dict[str, Any]) -> SentenceEncoder:
    """Open a model by the settings of its modules, as ``sentence_transformer_settings`` returns them."""
    if "extraction" in stated:
        return _open_extraction(name_or_path, stated.pop("extraction"), dtype, **stated)
    return SentenceEncoder.from_backbone(name_or_path, dtype=dtype, **stated)


def _open_extraction(
    name_or_path: str, modules: Mapping[str, str], dtype: torch.dtype, **settings: Any
) -> DualPivotForSentenceEmbedding:
    """Open a model whose ``modules`` (paths by kind) mix layers and may map the result."""
    encoder = load_encoder(name_or_path, dtype=dtype)
    weights = _tensor(name_or_path, modules[_MIX], "layer_weights").float()
    if len(weights) != encoder.config.num_hidden_layers + 1 or (weights < 0).any() or weights.sum() <= 0:
        raise ModelError(
            f"{name_or_path!r} does not have a weight of 0 or more for each layer, or all are 0: "
            "open it with sentence_transformers.SentenceTransformer"
        )
    biased = _MAP in modules and read_json(name_or_path, f"{modules[_MAP]}/config.json").get("bias", True)
    settings |= {
        "map_bias": biased,
        "pooling": "mean" if biased else "sum",
    }  # without biases, the embeddings of both poolings differ only in length
    config = DualPivotConfig(
        encoder_config=encoder.config,
        layers=weights.nonzero().flatten().tolist(),
        layer_mix=True,
        linear_map=_MAP in modules,
        **settings,
    )
    model = DualPivotForSentenceEmbedding(config, encoder=encoder)
    with torch.no_grad():
        assert model.layer_scores is not None
        model.layer_scores.copy_(weights[model.layers].log())
        if model.linear_map is not None:
            for name, weight in model.linear_map.named_parameters():
                weight.copy_(_tensor(name_or_path, modules[_MAP], f"linear.{name}"))
    return model.eval()


def _tensor(name_or_path: str, module: str, name: str) -> Tensor:
    found = model_file(name_or_path, f"{module}/model.safetensors")
    with loading_errors(name_or_path, f"readable {module}/model.safetensors"):
        tensors = {} if found is None else load_file(found)
    if name not in tensors:
        raise ModelError(f"{name_or_path!r} has no {name} in {module}/model.safetensors: export the model again")
    return tensors[name]
