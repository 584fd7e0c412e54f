"""Average the weights of models that were trained from the same encoder (Wortsman et al., 2022)."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence

import torch
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import ModelError
from hf_xsent.models.embedder import SentenceEmbedder


@torch.no_grad()
def average_weights(embedder: SentenceEmbedder, name: str, others: Sequence[str]) -> None:
    """Set the weights of an opened model to the mean over it and the others; errors call it ``name``."""
    if len({*map(os.path.realpath, (name, *others))}) <= len(others):
        raise ModelError(f"average names a model twice, or {name} itself: name each of the other models once")
    embedder.model.merge_adapters()  # the mean of products is not the product of means
    weights = dict(embedder.model.named_parameters())
    for count, other_name in enumerate(others, start=2):
        other = SentenceEmbedder.from_pretrained(other_name, device="cpu")
        other.model.merge_adapters()
        theirs = dict(other.model.named_parameters())
        if {key: weight.shape for key, weight in theirs.items()} != {key: w.shape for key, w in weights.items()}:
            raise ModelError(f"{other_name} and {name} have different weights: average models of the same encoder")
        if _reading(other) != _reading(embedder):
            different = "different pooling, normalization, layers, prompts or tokenizers"
            raise ModelError(f"{other_name} and {name} have {different}: train both by one recipe")
        for key, weight in weights.items():
            weight.lerp_(theirs[key], 1 / count)


def _reading(embedder: SentenceEmbedder) -> tuple[object, ...]:
    """Return what equal weights must share besides names: how states are pooled, the layers, prompts and pieces."""
    config = embedder.model.config
    layers, linear_map = getattr(embedder.model, "layers", None), embedder.model.linear_map
    activation = None if linear_map is None else type(linear_map.activation)
    prompts = embedder.role_prompts
    return config.pooling, config.normalize, layers, activation, prompts, _segmentation(embedder.tokenizer)


def _segmentation(tokenizer: PreTrainedTokenizerBase) -> object:
    """Return what splits texts into pieces; of a tokenizer in Python, only its pieces are known."""
    if not tokenizer.is_fast:
        return tokenizer.get_vocab()
    return json.loads(tokenizer.backend_tokenizer.to_str()) | {"padding": None, "truncation": None}
