"""Dual pivot's extraction as modules of sentence-transformers: weighted layers, mean over the tokens, dense.

The sum over the tokens becomes their mean: the cosine, and the vector scaled to length 1, are the same.
"""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from hf_xsent.files import write_json
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding

WEIGHTED_LAYERS = "sentence_transformers.models.WeightedLayerPooling"
DENSE = "sentence_transformers.models.Dense"


def write_weighted_layers(model: DualPivotForSentenceEmbedding, folder: Path) -> None:
    """The mix, with a weight of 0 for each layer that it leaves out; the encoder must give all its hidden states."""
    config = model.config.encoder_config
    stated = {
        "word_embedding_dimension": config.hidden_size,
        "layer_start": 0,
        "num_hidden_layers": config.num_hidden_layers,
    }
    _write(folder, stated, {"layer_weights": model.mixing_weights.detach()})
    path = folder.parent / "config.json"
    encoder = json.loads(path.read_text(encoding="utf-8")) | {"output_hidden_states": True}
    write_json(path, encoder)


def write_dense(linear_map: torch.nn.Linear, folder: Path) -> None:
    """The linear map."""
    stated = {
        "in_features": linear_map.in_features,
        "out_features": linear_map.out_features,
        "bias": False,
        "activation_function": "torch.nn.modules.linear.Identity",
    }
    _write(folder, stated, {"linear.weight": linear_map.weight.detach()})


def _write(folder: Path, config: dict[str, object], weights: dict[str, Tensor]) -> None:
    folder.mkdir()
    write_json(folder / "config.json", config)
    save_file(
        {name: one.float().cpu().contiguous() for name, one in weights.items()}, str(folder / "model.safetensors")
    )
