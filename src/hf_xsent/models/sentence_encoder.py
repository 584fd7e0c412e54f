"""The base of every model here: an encoder, a pooling, one vector a sentence."""

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
from hf_xsent.models.loading import build_encoder, load_encoder, load_encoder_config
from hf_xsent.settings.declaring import check_settings, declared, is_derived, types_of
from hf_xsent.settings.model import EncoderSettings
from hf_xsent.settings.reading import typed
from hf_xsent.tensors.packing import PackedSentences, pack, pool, unpack

if TYPE_CHECKING:
    from typing_extensions import Self


@strict
class SentenceEncoderConfig(EncoderSettings, PreTrainedConfig):
    """How an encoder's states become one vector a sentence."""

    model_type = "sentence-encoder"
    sub_configs = {"encoder_config": AutoConfig}

    encoder_config: Any = None  # the encoder's own config, or its dict

    def __post_init__(self, **kwargs: Any) -> None:
        """Rebuild the encoder's config from its dict and check the values against each other."""
        if isinstance(self.encoder_config, Mapping):
            self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)
        check_settings(self)
        if self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            raise RecipeError("lora_alpha and lora_targets describe adapters, but there are none: give lora_rank, too")
        if self.encoder_config is not None:
            longest = family(self.encoder_config).max_length(self.encoder_config)
            if self.max_length > longest:
                raise RecipeError(
                    f"max_length {self.max_length} does not fit: this encoder takes 2 to {longest} tokens a sentence"
                )

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names that a recipe may set."""
        inherited = {field.name for field in fields(PreTrainedConfig)} | {"encoder_config"}
        return [name for name in declared(cls) if name not in inherited]

    def replaced(self, **changes: Any) -> Self:
        """Return the config with other values, all checked again."""
        kept = [*self.setting_names(), *(one.name for one in fields(self) if is_derived(one))]
        return type(self)(**{name: getattr(self, name) for name in kept} | changes)


@dataclass(frozen=True)
class View:
    """Which states become a sentence's vector: those after this layer (0 are the embeddings), pooled in this way."""

    layer: int | None  # None: what the model makes of several
    pooling: str


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Token states, padded as the input was, and one vector a sentence (also under the name others look for)."""

    last_hidden_state: Tensor | None = None
    sentence_embedding: Tensor | None = None
    pooler_output: Tensor | None = None


class SentenceEncoder(PreTrainedModel):
    """Any supported encoder with a pooling; subclasses add what a method trains."""

    config_class: Any = SentenceEncoderConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _supports_attention_backend = True
    _keys_to_ignore_on_load_unexpected = [r"^objectives\.", r"^training_mlp\."]  # what only training needs

    def __init__(self, config: SentenceEncoderConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config)
        if config.encoder_config is None:
            raise ModelError("the config names no encoder: start from one with from_backbone(name_or_path)")
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
        """Start from any encoder or model of ours, with a config or with settings that its ``setting_names()`` list."""
        stated = cls.config_of(config, settings)
        options: dict[str, Any] = {} if attn_implementation is None else {"attn_implementation": attn_implementation}
        if stated.dropout is not None:
            options |= dict.fromkeys(family(load_encoder_config(name_or_path)).dropouts, stated.dropout)
        encoder = load_encoder(name_or_path, dtype=dtype, **options)
        if is_local(name_or_path):
            encoder.config.name_or_path = ""  # a path of this machine is nobody else's business
        chosen = {"attn_implementation": attention_of(encoder.config)}  # else the config would reset it
        return cls(stated.replaced(encoder_config=encoder.config, **chosen), encoder=encoder)

    @classmethod
    def config_of(cls, config: Any, settings: Mapping[str, Any]) -> Any:
        """Build a config without an encoder from settings, or return the one that is given, changed by them."""
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
        """Language embeddings start at zero, where they change nothing; the encoder knows its own start."""
        if module is getattr(self, "language_embeddings", None):
            init.zeros_(module.weight)
        else:
            super()._init_weights(module)

    def merge_adapters(self) -> None:
        """Make the encoder a plain one again, with what its adapters have learnt."""
        if self.config.lora_rank is not None:
            merge_adapters(self.encoder)
            self.config.lora_rank = self.config.lora_alpha = self.config.lora_targets = None

    @property
    def backbone(self) -> Backbone:
        """The encoder behind the face that all families share."""
        return backbone_of(self.encoder)

    def get_input_embeddings(self) -> nn.Module:
        """The table of word-piece vectors."""
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        """Replace the table of word-piece vectors, after adding pieces to the tokenizer for instance."""
        self.encoder.set_input_embeddings(value)
        for config in (self.encoder.config, self.config.encoder_config):
            config.vocab_size = value.num_embeddings

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, language_ids: Tensor | None = None, **_: object
    ) -> SentenceEncoderOutput:
        """Token states and sentence vectors of a padded batch."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        packed = pack([input_ids], [attention_mask])
        states = self.backbone.encode(packed, extra_embeddings=self._language_vectors(packed, language_ids))
        vectors = self._finish(pool(states, packed, self.config.pooling)[packed.restore])
        return SentenceEncoderOutput(
            last_hidden_state=unpack(states, packed, attention_mask),
            sentence_embedding=vectors,
            pooler_output=vectors,
        )

    @property
    def default_layer(self) -> int | None:
        """The layer that sentence vectors are made of unless another is asked for."""
        return len(self.backbone.layers)

    def embed(
        self,
        input_ids: Sequence[Tensor],
        attention_masks: Sequence[Tensor],
        language_ids: Tensor | None = None,
        layer: int | None = None,
        pooling: str | None = None,
    ) -> Tensor:
        """The sentence vectors of several padded batches, in order: the lean path of training and evaluation."""
        packed = pack(input_ids, attention_masks)
        return self._embed_with(self.backbone, packed, layer, pooling, self._language_vectors(packed, language_ids))

    def _embed_with(
        self,
        backbone: Backbone,
        packed: PackedSentences,
        layer: int | None = None,
        pooling: str | None = None,
        extra: Tensor | None = None,
    ) -> Tensor:
        pooling = pooling or self.config.pooling
        if pooling == "cls":
            vectors = backbone.encode(packed, layer, tokens=packed.first_tokens, extra_embeddings=extra)
        else:
            vectors = pool(backbone.encode(packed, layer, extra_embeddings=extra), packed, pooling)
        return self._finish(vectors[packed.restore])

    def embed_views(
        self,
        input_ids: Sequence[Tensor],
        attention_masks: Sequence[Tensor],
        views: Sequence[View],
        language_ids: Tensor | None = None,
    ) -> list[Tensor]:
        """As ``embed``, in several views of one pass through the encoder."""
        if len(views) == 1:
            return [self.embed(input_ids, attention_masks, language_ids, views[0].layer, views[0].pooling)]
        packed = pack(input_ids, attention_masks)
        states = self.backbone.hidden_states(packed, self._language_vectors(packed, language_ids))
        vectors = {}
        for layer, hidden in zip(range(max(view.layer or 0 for view in views) + 1), states, strict=False):
            for view in views:
                if view.layer == layer:
                    vectors[view] = self._finish(pool(hidden, packed, view.pooling)[packed.restore])
        return [vectors[view] for view in views]

    def _language_vectors(self, packed: PackedSentences, language_ids: Tensor | None) -> Tensor | None:
        """T × d embeddings of each token's language; ``language_ids`` are the caller's N."""
        if not self.config.languages:
            return None
        if language_ids is None:
            raise ModelError(
                f"this model has language embeddings: pass language_ids, numbers into {self.config.languages}"
            )
        packed_ids = torch.empty_like(language_ids)
        packed_ids[packed.restore] = language_ids
        return self.language_embeddings(torch.repeat_interleave(packed_ids, packed.lengths))

    def _finish(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.config.normalize else vectors
