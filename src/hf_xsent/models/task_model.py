"""Run Hugging Face's task models (classification, answer spans, …) over any encoder without padding.

Saved models are ordinary transformers folders, which load without this package.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel
from transformers.modeling_outputs import BaseModelOutputWithPooling

from hf_xsent.errors import ModelError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import backbone_of
from hf_xsent.models.loading import quiet_loading
from hf_xsent.tensors.dropout import use_fast_dropout
from hf_xsent.tensors.packing import pack, unpack


def task_model(name_or_path: str, kind: Any, **config: Any) -> PreTrainedModel:
    """Build a ``kind``, such as ``AutoModelForSequenceClassification``, with a random head over a trained encoder.

    The encoder is a checkpoint of this package, an exported folder or a supported encoder. If the head includes a
    pooler (BERT's), the pooler is random too.
    """
    opened = SentenceEmbedder.from_pretrained(name_or_path, device="cpu").model
    if opened.config.languages:
        raise ModelError(
            f"{name_or_path!r} has language embeddings, which task models do not support: use another model"
        )
    encoder = opened.encoder
    for key, value in config.items():
        setattr(encoder.config, key, value)
    with quiet_loading():
        model: PreTrainedModel = kind.from_config(encoder.config)
    model.name_or_path = name_or_path  # for the card
    model.base_model.load_state_dict(encoder.state_dict(), strict=False)  # a pooler stays random
    return without_padding(model)


def without_padding(model: PreTrainedModel) -> PreTrainedModel:
    """Make the model's encoder compute without padding; the states that it returns are padded with zeros."""
    encoder: Any = model.base_model
    backbone = backbone_of(encoder)
    pooler = getattr(encoder, "pooler", None)

    def forward(
        input_ids: Tensor, attention_mask: Tensor | None = None, token_type_ids: Tensor | None = None, **_: Any
    ) -> BaseModelOutputWithPooling:
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        packed = pack([input_ids], [mask])
        if token_type_ids is not None:
            packed = packed.with_types(token_type_ids[mask.bool()])
        states = unpack(backbone.encode(packed), packed, mask)
        pooled = None if pooler is None else pooler(states)
        return BaseModelOutputWithPooling(last_hidden_state=states, pooler_output=pooled)

    encoder.forward = forward
    use_fast_dropout(model)
    return model
