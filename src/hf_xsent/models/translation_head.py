"""The RTL head of DAP (eq. 4): K transformer layers and a vocabulary projection over an encoder's token states."""

from __future__ import annotations

from copy import deepcopy

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.families import backbone_of
from hf_xsent.models.loading import build_encoder
from hf_xsent.models.masked_language_head import MaskedLanguageHead
from hf_xsent.objectives.representation_translation import TranslationRows


class TranslationHead(nn.Module):
    """A copy of the encoder's embedding module and last K layers; of the word table it keeps the [MASK] row alone.

    No padding and no [CLS] passes through it, and its last layer computes the masked places only.
    """

    def __init__(
        self, encoder_config: PreTrainedConfig, layers: int, prediction: MaskedLanguageHead, languages: int = 0
    ) -> None:
        super().__init__()
        self.encoder = _last_layers(encoder_config, layers)
        self.prediction = prediction
        self.language_embeddings = nn.Embedding(languages, encoder_config.hidden_size) if languages else None

    def forward(self, rows: TranslationRows, shown: Tensor) -> Tensor:
        """The summed cross entropy of the masked tokens (eq. 6); ``shown`` are the states of all others."""
        backbone = backbone_of(self.encoder)
        mask = backbone.word_embeddings.weight.expand(len(rows.labels), -1)
        masks = backbone.embed(mask[None], rows.packed.at_positions(rows.own_positions))[0]
        if self.language_embeddings is not None:
            masks = masks + self.language_embeddings(rows.languages)
        order = torch.cat(((~rows.masked).nonzero(), rows.masked.nonzero())).squeeze(1).argsort()
        words = torch.cat((shown, masks))[order]
        wanted = rows.masked.nonzero().squeeze(1)
        states = backbone.encode_vectors(words[None], rows.packed, tokens=wanted)
        loss: Tensor = self.prediction(states, rows.labels)
        return loss

    @torch.no_grad()
    def start_from(
        self, encoder: PreTrainedModel, trained: MaskedLanguageHead, mask_id: int, vocabulary: Tensor | None
    ) -> None:
        """Start as the encoder ends: its embedding module, its last K layers, its masked-language head."""
        given = dict(encoder.named_parameters())
        for name, parameter in self.encoder.named_parameters():
            if name in given and parameter.shape == given[name].shape:
                parameter.copy_(given[name])
        layers = backbone_of(self.encoder).layers
        for own, theirs in zip(layers, backbone_of(encoder).layers[-len(layers) :], strict=True):
            own.load_state_dict(plain_weights(theirs))
        words = backbone_of(encoder).word_embeddings.weight
        backbone_of(self.encoder).word_embeddings.weight.copy_(words[mask_id : mask_id + 1])
        self.prediction.start_from(trained, words, vocabulary)


def _last_layers(config: PreTrainedConfig, count: int) -> PreTrainedModel:
    """An encoder with only its last layers and a word table of one row."""
    small = deepcopy(config)
    small.vocab_size = max(2, (config.pad_token_id or 0) + 1)
    small.num_hidden_layers = min(count + 1, config.num_hidden_layers)  # a first layer may differ from all others
    if getattr(config, "layer_types", None):
        small.layer_types = config.layer_types[-small.num_hidden_layers :]
    encoder = build_encoder(small)
    del backbone_of(encoder).layers[:-count]
    encoder.set_input_embeddings(nn.Embedding(1, config.hidden_size))
    return encoder
