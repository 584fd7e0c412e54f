"""Embed sentences with any supported encoder and a pooling: the base class of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.dataclasses import strict
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import AutoConfig, PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput

from hf_xsent.compat import attention_of
from hf_xsent.errors import ModelError, RecipeError, nearest
from hf_xsent.files import is_local
from hf_xsent.models.adapters import add_adapters, merge_adapters
from hf_xsent.models.backbone import Backbone
from hf_xsent.models.families import backbone_of, family
from hf_xsent.models.layer_selection import select_layers
from hf_xsent.models.loading import build_encoder, load_encoder, load_encoder_config
from hf_xsent.settings.declaring import check_settings, declared, is_derived, types_of
from hf_xsent.settings.model import EncoderSettings
from hf_xsent.settings.reading import typed
from hf_xsent.tensors.packing import PackedSentences, pack, pool, unpack

if TYPE_CHECKING:
    from typing_extensions import Self


@strict
class SentenceEncoderConfig(EncoderSettings, PreTrainedConfig):
    """The config of an encoder and of the pooling of its hidden states into sentence embeddings."""

    model_type = "sentence-encoder"
    sub_configs = {"encoder_config": AutoConfig}

    encoder_config: Any = None  # the encoder's own config, or its dict

    def __post_init__(self, **kwargs: Any) -> None:
        """Build the encoder's config from its dict and validate all values."""
        if isinstance(self.encoder_config, Mapping):
            self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)
        check_settings(self)
        if self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            raise RecipeError("lora_alpha and lora_targets need adapters: set lora_rank too")
        if self.encoder_config is not None:
            longest = family(self.encoder_config).max_length(self.encoder_config)
            if self.max_length > longest:
                raise RecipeError(
                    f"max_length {self.max_length} does not fit: this encoder takes 2 to {longest} tokens per sentence"
                )

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names that a recipe may set."""
        inherited = {field.name for field in fields(PreTrainedConfig)} | {"encoder_config"}
        return [name for name in declared(cls) if name not in inherited]

    @property
    def encoder_dropout(self) -> float | None:
        """Dropout of the encoder in training; None: the checkpoint's."""
        return self.dropout

    def replaced(self, **changes: Any) -> Self:
        """Return the config with other values, validated again."""
        names = [*self.setting_names(), *(one.name for one in fields(self) if is_derived(one))]
        return type(self)(**{name: getattr(self, name) for name in names} | changes)


@dataclass(frozen=True)
class View:
    """The layer whose hidden states are pooled into a sentence embedding, and the pooling."""

    layer: int | None  # 0: the embeddings; None: the model's mix of layers
    pooling: str


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Hidden states, padded like the input, and sentence embeddings, also under the usual name ``pooler_output``."""

    last_hidden_state: Tensor | None = None
    sentence_embedding: Tensor | None = None
    pooler_output: Tensor | None = None


class SentenceEncoder(PreTrainedModel):
    """A supported encoder with a pooling; subclasses add the weights that a method trains."""

    config_class: Any = SentenceEncoderConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _keys_to_ignore_on_load_unexpected = [r"^objectives\.", r"^training_mlp\."]  # only for training

    def __init__(self, config: SentenceEncoderConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if config.encoder_config is None:
            raise ModelError("the config has no encoder_config: use from_backbone(name_or_path)")
        self.encoder: Any = build_encoder(config.encoder_config) if encoder is None else encoder
        if config.lora_rank is not None:
            alpha = 2.0 * config.lora_rank if config.lora_alpha is None else config.lora_alpha
            add_adapters(self.encoder, config.lora_rank, alpha, config.lora_targets)
        if config.languages:
            self.language_embeddings = nn.Embedding(len(config.languages), self.encoder.config.hidden_size)
        self.post_init()

    @classmethod
    def from_backbone(
        cls,
        name_or_path: str,
        *,
        config: Any = None,
        dtype: torch.dtype = torch.float32,
        attn_implementation: str | None = None,
        **settings: Any,
    ) -> Self:
        """Start from a pretrained encoder or a model of this package, with a config or with ``setting_names()``."""
        stated = cls.config_of(config, settings)
        options: dict[str, Any] = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
        if stated.encoder_dropout is not None:
            options |= dict.fromkeys(family(load_encoder_config(name_or_path)).dropouts, stated.encoder_dropout)
        encoder = load_encoder(name_or_path, dtype=dtype, **options)
        if stated.encoder_layers is not None:
            select_layers(encoder, stated.encoder_layers)
        if is_local(name_or_path):
            encoder.config.name_or_path = ""  # do not publish local paths
        chosen = {"attn_implementation": attention_of(encoder.config)}  # the new config would reset it
        return cls(stated.replaced(encoder_config=encoder.config, encoder_layers=None, **chosen), encoder=encoder)

    @classmethod
    def config_of(cls, config: Any, settings: Mapping[str, Any]) -> Any:
        """Build a config without an encoder from settings, or apply the settings to the given config."""
        keys = cls.config_class.setting_names()
        for key in settings:
            if key not in keys:
                raise RecipeError(f"{cls.config_class.__name__} has no setting {key!r}" + nearest(key, keys))
        hints = types_of(cls.config_class, settings)
        settings = {
            key: value if key == "objectives" else typed(key, value, hints[key]) for key, value in settings.items()
        }
        try:
            return cls.config_class(**settings) if config is None else config.replaced(**settings)
        except (TypeError, AttributeError, StrictDataclassError) as error:
            wrong = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            raise RecipeError(f"a value has the wrong type among {wrong}: {' '.join(str(error).split())}") from error

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Sample language embeddings with their standard deviation; initialize the rest as transformers does."""
        if module is getattr(self, "language_embeddings", None):
            init.normal_(module.weight, std=self.config.language_std)
        else:
            super()._init_weights(module)

    def merge_adapters(self) -> None:
        """Merge LoRA adapters into the encoder's weights and remove them."""
        if self.config.lora_rank is not None:
            merge_adapters(self.encoder)
            self.config.lora_rank = self.config.lora_alpha = self.config.lora_targets = None

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

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, language_ids: Tensor | None = None, **_: object
    ) -> SentenceEncoderOutput:
        """Return hidden states and sentence embeddings of a padded batch."""
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        packed = pack([input_ids], [mask])
        hidden, vectors = self._encode_last(packed, language_ids)
        return SentenceEncoderOutput(unpack(hidden, packed, mask), sentence_embedding=vectors, pooler_output=vectors)

    def _encode_last(self, packed: PackedSentences, language_ids: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return T × d last hidden states and N × d sentence embeddings, in the caller's order."""
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
        if len(views) == 1:
            return [self._embed_with(self.backbone, packed, views[0], extra)]
        states = self.backbone.hidden_states(packed, extra)
        vectors = {}
        for layer, hidden in zip(range(max(view.layer or 0 for view in views) + 1), states, strict=False):
            for view in views:
                if view.layer == layer:
                    vectors[view] = self._finish(pool(hidden, packed, view.pooling)[packed.restore])
        return [vectors[view] for view in views]

    def _embed_with(
        self, backbone: Backbone, packed: PackedSentences, view: View, extra: Tensor | None = None
    ) -> Tensor:
        if view.pooling == "cls":
            vectors = backbone.encode(packed, view.layer, packed.first_tokens, extra)
        else:
            vectors = pool(backbone.encode(packed, view.layer, extra_embeddings=extra), packed, view.pooling)
        return self._finish(vectors[packed.restore])

    def _language_vectors(self, packed: PackedSentences, language_ids: Tensor | None) -> Tensor | None:
        """Return T × d language embeddings of the tokens; ``language_ids`` holds the caller's N."""
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

    def _finish(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.config.normalize else vectors
