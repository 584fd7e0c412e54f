"""Embed sentences with any supported encoder and a pooling: the base class of all models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput
from transformers.utils import can_return_tuple

from hf_xsent.errors import ModelError
from hf_xsent.models.adapters import add_adapters, merge_adapters
from hf_xsent.models.backbone import Backbone
from hf_xsent.models.config import SentenceEncoderConfig
from hf_xsent.models.families import backbone_of
from hf_xsent.models.loading import build_encoder
from hf_xsent.models.saved_model import SavedModel
from hf_xsent.models.text_encoder import SentenceTransformerMethods, TextEncoder, View
from hf_xsent.tensors.dropout import use_fast_dropout
from hf_xsent.tensors.packing import PackedSentences, pack, pool, unpack


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Hidden states, padded like the input, and sentence embeddings, also under the usual name ``pooler_output``."""

    last_hidden_state: Tensor | None = None
    sentence_embedding: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None  # of the embeddings and each layer


class SentenceEncoder(SentenceTransformerMethods, SavedModel):
    """A supported encoder with a pooling; subclasses add the weights that a method trains.

    ``encode`` returns the embeddings of sentences. It uses ``tokenizer``, by default the one in the folder or Hub
    repository that the model was loaded from.
    """

    config_class: Any = SentenceEncoderConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True

    def __init__(self, config: SentenceEncoderConfig, encoder: PreTrainedModel | None = None) -> None:
        if config.encoder_config is None:
            raise ModelError("the config has no encoder_config: use from_backbone(name_or_path)")
        config = config if config.pooling else config.following({})
        super().__init__(config)
        self.encoder: Any = build_encoder(config.encoder_config) if encoder is None else encoder
        self.linear_map = None
        self.add_adapters()
        if config.languages:
            self.language_embeddings = nn.Embedding(len(config.languages), self.encoder.config.hidden_size)
        use_fast_dropout(self)
        self.post_init()

    def _vectors(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return TextEncoder(self, self.tokenizer)._vectors(*args, **kwargs)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Sample language embeddings with standard deviation ``language_std``, the rest as transformers does."""
        if module is getattr(self, "language_embeddings", None):
            init.normal_(module.weight, std=self.config.language_std)
        else:
            super()._init_weights(module)

    def add_adapters(self) -> None:
        """Add the LoRA adapters that the config states, and freeze the encoder."""
        if self.config.lora_rank is not None:
            add_adapters(self.encoder, self.config.lora_rank)
            self.encoder.frozen = []  # by ``freeze``, which must not train them again

    def merge_adapters(self) -> None:
        """Merge LoRA adapters into the encoder's weights and remove them."""
        if self.config.lora_rank is not None:
            merge_adapters(self.encoder)
            self.encoder.requires_grad_(True)  # adapters froze it
            self.config.lora_rank = None

    def freeze(self, layers: int, word_embeddings: bool = False) -> None:
        """Freeze the lowest layers with the embeddings, and nothing that only an earlier call froze."""
        modules = self.backbone.lowest(layers)
        modules += [self.backbone.word_embeddings] if word_embeddings else []
        for weight in getattr(self.encoder, "frozen", ()):  # by any model over this encoder
            weight.requires_grad_(True)
        frozen = [weight for module in modules for weight in module.parameters() if weight.requires_grad]
        for weight in frozen:
            weight.requires_grad_(False)
        self.encoder.frozen = frozen

    @property
    def backbone(self) -> Backbone:
        """The encoder's backbone, which has one interface for all families."""
        return backbone_of(self.encoder)

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embeddings."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the token embeddings, for example after adding tokens to the tokenizer."""
        self.encoder.set_input_embeddings(value)
        for config in (self.encoder.config, self.config.encoder_config):
            config.vocab_size = value.num_embeddings

    @can_return_tuple
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        *,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        **_: object,
    ) -> Any:
        """Return hidden states and sentence embeddings of a padded batch."""
        if output_attentions:
            raise ModelError(
                "packed sentences have no attention weights: open the model with attn_implementation='eager', and call "
                "model.encoder with output_attentions=True"
            )
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        packed, states = pack([input_ids], [mask]), None
        if self.config.output_hidden_states if output_hidden_states is None else output_hidden_states:
            layers, vectors = self._encode_layers(packed, language_ids)
            states = tuple(unpack(layer, packed, mask) for layer in layers)
            hidden = states[-1]
        else:
            last, vectors = self._encode_last(packed, language_ids)
            hidden = unpack(last, packed, mask)
        return SentenceEncoderOutput(hidden, vectors, vectors, states)

    def _encode_layers(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[list[Tensor], Tensor]:
        """Return the T × d hidden states of the embeddings and each layer, and N × d sentence embeddings."""
        states = list(self.backbone.hidden_states(packed, self._language_vectors(packed, language_ids)))
        return states, self._finish(pool(states[-1], packed, self.config.pooling)[packed.restore])

    def _encode_last(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return packed T × d last hidden states, and N × d sentence embeddings in the caller's order."""
        hidden = self.backbone.encode(packed, extra_embeddings=self._language_vectors(packed, language_ids))
        return hidden, self._finish(pool(hidden, packed, self.config.pooling)[packed.restore])

    @property
    def default_layer(self) -> int | None:
        """The layer whose hidden states are pooled by default."""
        return len(self.backbone.layers)

    def embed(
        self, input_ids: Sequence[Tensor], attention_masks: Sequence[Tensor], language_ids: Tensor | None = None
    ) -> Tensor:
        """Return the sentence embeddings of several padded batches, in order."""
        view = View(self.default_layer, self.config.pooling)
        return self.embed_views(input_ids, attention_masks, [view], language_ids)[0]

    def embed_views(
        self,
        input_ids: Sequence[Tensor],
        attention_masks: Sequence[Tensor],
        views: Sequence[View],
        language_ids: Tensor | None = None,
    ) -> list[Tensor]:
        """Return one tensor of sentence embeddings per view, from one pass through the encoder."""
        packed = pack(input_ids, attention_masks)
        extra = self._language_vectors(packed, language_ids)
        if len(views) == 1 and views[0].layer is not None:
            return [self._embed_with(self.backbone, packed, views[0], extra)]
        vectors = {view: self._encode_last(packed, language_ids)[1] for view in views if view.layer is None}
        deepest = max((view.layer for view in views if view.layer is not None), default=-1)
        states = self.backbone.hidden_states(packed, extra)
        for layer, hidden in zip(range(deepest + 1), states, strict=False):
            for view in views:
                if view.layer == layer:
                    vectors[view] = self._finish_view(pool(hidden, packed, view.pooling)[packed.restore], view)
        return [vectors[view] for view in views]

    def _embed_with(
        self, backbone: Backbone, packed: PackedSentences, view: View, extra: Tensor | None = None
    ) -> Tensor:
        if view.pooling == "cls":
            vectors = backbone.encode(packed, view.layer, packed.first_tokens, extra)
        else:
            vectors = pool(backbone.encode(packed, view.layer, extra_embeddings=extra), packed, view.pooling)
        return self._finish_view(vectors[packed.restore], view)

    def _language_vectors(self, packed: PackedSentences, language_ids: Tensor | None) -> Tensor | None:
        """Return T × d language embeddings of the tokens; ``language_ids`` holds one per sentence."""
        if not self.config.languages:
            return None
        if language_ids is None:
            raise ModelError(
                f"this model has language embeddings: pass language_ids, indices of {self.config.languages}"
            )
        packed_ids = torch.empty_like(language_ids)
        packed_ids[packed.restore] = language_ids
        return self.language_embeddings(torch.repeat_interleave(packed_ids, packed.lengths))

    def new_map(self, width: int) -> nn.Module:
        """Build a linear map from sentence embeddings to vectors of this width."""
        return nn.Linear(self.config.encoder_config.hidden_size, width, bias=False)

    def _finish_view(self, vectors: Tensor, view: View) -> Tensor:
        """Map and normalize pooled hidden states; the map is of the model's own layer and pooling."""
        own = view == View(self.default_layer, self.config.pooling)
        return self._finish(vectors) if own else self._normalized(vectors)

    def _finish(self, vectors: Tensor) -> Tensor:
        if self.linear_map is not None:
            vectors = self.linear_map(vectors.to(self.linear_map.weight.dtype))
        return self._normalized(vectors)

    def _normalized(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.config.normalize else vectors
