"""Build a head of transformer layers from an encoder's last K layers, with or without its embedding module."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.families import backbone_of, family
from hf_xsent.models.loading import build_encoder
from hf_xsent.tensors.dropout import use_fast_dropout
from hf_xsent.tensors.packing import PackedSentences


class LastLayers(nn.Module):
    """K transformer layers over packed vectors, with the embedding of [MASK] as the only token embedding."""

    def __init__(
        self, encoder_config: PreTrainedConfig, count: int, embeddings: bool = True, attention_dropout: bool = True
    ) -> None:
        super().__init__()
        self.encoder = _last_layers(encoder_config, count, attention_dropout)
        self.embeddings = embeddings
        if not embeddings:
            self.encoder.embeddings.requires_grad_(False)  # unused: trained weights need a gradient in every step

    def forward(self, vectors: Tensor, packed: PackedSentences, tokens: Tensor) -> Tensor:
        """Return the M × d outputs of ``tokens`` from T × d vectors."""
        embedded = not self.embeddings
        return backbone_of(self.encoder).encode_vectors(vectors[None], packed, tokens=tokens, embedded=embedded)

    def mask_embeddings(self, packed: PackedSentences) -> Tensor:
        """Return the M × d embeddings of [MASK] at the packed positions."""
        backbone = backbone_of(self.encoder)
        mask = backbone.word_embeddings.weight.expand(len(packed.positions), -1)
        return backbone.embed(mask[None], packed)[0]

    @torch.no_grad()
    def start_from(self, encoder: PreTrainedModel, mask_id: int) -> None:
        """Copy the encoder's embedding module and its last K layers."""
        trained = dict(encoder.named_parameters())
        for name, parameter in self.encoder.named_parameters():
            if name in trained and parameter.shape == trained[name].shape:
                parameter.copy_(trained[name])
        layers = backbone_of(self.encoder).layers
        for own, theirs in zip(layers, backbone_of(encoder).layers[-len(layers) :], strict=True):
            own.load_state_dict(plain_weights(theirs))
        words = backbone_of(encoder).word_embeddings.weight
        backbone_of(self.encoder).word_embeddings.weight.copy_(words[mask_id : mask_id + 1])


def _last_layers(config: PreTrainedConfig, count: int, attention_dropout: bool) -> PreTrainedModel:
    """Build an encoder with only its last layers and one token embedding."""
    small = deepcopy(config)
    small.vocab_size = max(2, (config.pad_token_id or 0) + 1)
    small.num_hidden_layers = min(count + 1, config.num_hidden_layers)  # the first layer may differ from the others
    if getattr(config, "layer_types", None):
        small.layer_types = config.layer_types[-small.num_hidden_layers :]
    if not attention_dropout:
        small.update({name: 0.0 for name in family(config).dropouts if "attention" in name})
    encoder = build_encoder(small)
    del backbone_of(encoder).layers[:-count]
    encoder.set_input_embeddings(nn.Embedding(1, config.hidden_size))
    use_fast_dropout(encoder)
    return encoder
