"""Implement the backbone of BERT, RoBERTa, XLM-R and ModernBERT, the supported encoder families."""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.errors import ModelError
from hf_xsent.models.backbone import Backbone, Layer
from hf_xsent.tensors.packing import PackedSentences


class BertBackbone(Backbone):
    """BERT; positions start at 0."""

    arguments: ClassVar[dict[str, Any]] = {"add_pooling_layer": False}
    mlm_head_names: ClassVar[dict[str, str]] = {
        "dense": "cls.predictions.transform.dense",
        "norm": "cls.predictions.transform.LayerNorm",
        "bias": "cls.predictions.bias",
    }
    first_position = 0

    @property
    def layers(self) -> nn.ModuleList:
        """The transformer layers, lowest first."""
        return self.encoder.encoder.layer

    def embed(self, words: Tensor, packed: PackedSentences) -> Tensor:
        """Add token type and position embeddings, and normalize."""
        positions = packed.positions[None] + self.first_position
        types = torch.zeros_like(positions) if packed.types is None else packed.types[None]
        return self.encoder.embeddings(inputs_embeds=words, token_type_ids=types, position_ids=positions)

    def layer_at(self, layer: Layer, hidden: Tensor, packed: PackedSentences, tokens: Tensor) -> Tensor:
        """Compute queries, output and feed-forward of these tokens only, keys and values of all."""
        attention = layer.attention.self
        selected = hidden[:, tokens]
        context = self._attend(
            tokens,
            attention.query(selected),
            attention.key(hidden),
            attention.value(hidden),
            attention.num_attention_heads,
            packed,
            scaling=attention.scaling,
            dropout=attention.dropout.p if layer.training else 0.0,
        )
        return layer.feed_forward_chunk(layer.attention.output(context, selected))


class RobertaBackbone(BertBackbone):
    """RoBERTa and XLM-R; positions start after the padding index."""

    mlm_head_names: ClassVar[dict[str, str]] = {
        "dense": "lm_head.dense",
        "norm": "lm_head.layer_norm",
        "bias": "lm_head.bias",
    }

    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__(encoder)
        self.first_position = self.config.pad_token_id + 1

    @staticmethod
    def max_length(config: PreTrainedConfig) -> int:
        """Return the maximum length in tokens; positions up to the padding index are unused."""
        return config.max_position_embeddings - config.pad_token_id - 1


class ModernBertBackbone(Backbone):
    """ModernBERT and mmBERT: rotary positions, local and global attention, pre-norm."""

    dropouts: ClassVar[tuple[str, ...]] = ("embedding_dropout", "attention_dropout", "mlp_dropout")
    mlm_head_names: ClassVar[dict[str, str]] = {"dense": "head.dense", "norm": "head.norm", "bias": "decoder.bias"}

    @property
    def layers(self) -> nn.ModuleList:
        """The transformer layers, lowest first."""
        return self.encoder.layers

    def embed(self, words: Tensor, packed: PackedSentences) -> Tensor:
        """Normalize token embeddings; each layer adds positions."""
        return self.encoder.embeddings(inputs_embeds=words)

    def layer_arguments(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> dict[str, Any]:
        """Return the rotary embeddings, which differ between local and global layers."""
        return {"position_embeddings": self._rotations(layer, hidden, packed)}

    def layer_at(self, layer: Layer, hidden: Tensor, packed: PackedSentences, tokens: Tensor) -> Tensor:
        """Compute these tokens only; the joint projection of queries, keys and values runs over all."""
        attention = layer.attn
        query, key, value = attention.Wqkv(layer.attn_norm(hidden)).chunk(3, -1)
        cos, sin = self._rotations(layer, hidden, packed)
        context = self._attend(
            tokens,
            _rotate(query[:, tokens], cos[:, tokens], sin[:, tokens], attention.head_dim),
            _rotate(key, cos, sin, attention.head_dim),
            value,
            self.config.num_attention_heads,
            packed,
            scaling=attention.head_dim**-0.5,
            dropout=attention.attention_dropout if layer.training else 0.0,
            window=attention.sliding_window,
        )
        selected = hidden[:, tokens] + attention.out_drop(attention.Wo(context))
        return selected + layer.mlp(layer.mlp_norm(selected))

    def final_norm(self, hidden: Tensor) -> Tensor:
        """Apply the norm that follows the last layer of a pre-norm encoder."""
        return self.encoder.final_norm(hidden)

    def _rotations(self, layer: Layer, hidden: Tensor, packed: PackedSentences) -> tuple[Tensor, Tensor]:
        return self.encoder.rotary_emb(hidden, packed.positions[None], layer.attention_type)


def _rotate(states: Tensor, cos: Tensor, sin: Tensor, head_size: int) -> Tensor:
    heads = states.unflatten(-1, (-1, head_size)).float()
    left, right = heads.chunk(2, -1)
    rotated = heads * cos[..., None, :] + torch.cat((-right, left), -1) * sin[..., None, :]
    return rotated.flatten(-2).to(states.dtype)


FAMILIES: dict[str, type[Backbone]] = {
    "bert": BertBackbone,
    "roberta": RobertaBackbone,
    "xlm-roberta": RobertaBackbone,
    "camembert": RobertaBackbone,
    "modernbert": ModernBertBackbone,
}


def family(config: PreTrainedConfig) -> type[Backbone]:
    """Return the backbone class of an encoder config."""
    if config.model_type not in FAMILIES:
        raise ModelError(f"the encoder family {config.model_type!r} is not supported: use {', '.join(FAMILIES)}")
    if getattr(config, "is_decoder", False):
        raise ModelError("a decoder cannot encode sentences: set is_decoder=False in its config")
    return FAMILIES[config.model_type]


def backbone_of(encoder: PreTrainedModel) -> Backbone:
    """Return the backbone of an encoder."""
    return family(encoder.config)(encoder)
