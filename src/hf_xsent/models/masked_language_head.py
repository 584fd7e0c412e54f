"""The masked-language head of a checkpoint, the same three pieces for every family: dense, norm and a bias."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedConfig
from transformers.activations import ACT2FN

from hf_xsent.models.backbone import family
from hf_xsent.models.loading import load_config, quiet_loading


class MaskedLanguageHead(nn.Module):
    """Word-piece scores of hidden states: norm(act(dense(h))) times the word embeddings, which stay the encoder's."""

    def __init__(self, config: PreTrainedConfig) -> None:
        super().__init__()
        activation = getattr(config, "hidden_act", None) or config.classifier_activation
        eps = getattr(config, "layer_norm_eps", None) or config.norm_eps
        self.dense = nn.Linear(config.hidden_size, config.hidden_size, bias=getattr(config, "classifier_bias", True))
        self.activation = ACT2FN[activation]
        self.norm = nn.LayerNorm(config.hidden_size, eps=eps, bias=getattr(config, "norm_bias", True))
        self.bias = nn.Parameter(torch.zeros(config.vocab_size))

    def forward(self, states: Tensor, word_embeddings: Tensor) -> Tensor:
        """Scores over the vocabulary; ``word_embeddings`` is the V × d table of the encoder."""
        return nn.functional.linear(self.transform(states), word_embeddings, self.bias)

    def transform(self, states: Tensor) -> Tensor:
        """What is multiplied with the word embeddings."""
        return self.norm(self.activation(self.dense(states)))


def load_masked_language_head(name_or_path: str) -> MaskedLanguageHead:
    """The head that the checkpoint was trained with, or a new one where it has none (dense starts as the identity)."""
    config = load_config(name_or_path)
    head = MaskedLanguageHead(config)
    nn.init.eye_(head.dense.weight)
    if head.dense.bias is not None:
        nn.init.zeros_(head.dense.bias)
    with quiet_loading():
        model, report = AutoModelForMaskedLM.from_pretrained(
            name_or_path, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    trained = {name: weight for name, weight in model.state_dict().items() if name not in report["missing_keys"]}
    places = family(config).mlm_head
    for name, parameter in head.named_parameters():
        piece = name.split(".")[0]
        stored = name.replace(piece, places[piece], 1)
        if stored in trained:
            parameter.data.copy_(trained[stored])
    return head
