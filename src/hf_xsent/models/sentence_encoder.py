"""Embed sentences with any supported encoder and a pooling: the base class of all models."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel
from transformers import initialization as init
from transformers.modeling_outputs import ModelOutput

from hf_xsent.compat import attention_of, set_attention
from hf_xsent.errors import ModelError, RecipeError, did_you_mean
from hf_xsent.files import create_folder, is_local
from hf_xsent.models.adapters import add_adapters, merge_adapters
from hf_xsent.models.backbone import Backbone
from hf_xsent.models.encode_interface import SentenceTransformerMethods
from hf_xsent.models.encoder_config import SentenceEncoderConfig
from hf_xsent.models.families import backbone_of
from hf_xsent.models.layer_selection import select_layers
from hf_xsent.models.loading import (
    UNUSED_ARGUMENTS,
    build_encoder,
    hub_arguments,
    load_config,
    load_encoder,
    load_tokenizer,
    loading_arguments,
    split_config,
)
from hf_xsent.models.saved_form import read_heads, save_model
from hf_xsent.models.sentence_transformer_files import with_changed_modules
from hf_xsent.models.text_encoder import TextEncoder, View
from hf_xsent.settings.convert import convert
from hf_xsent.settings.declare import types_of
from hf_xsent.tensors.dropout import use_fast_dropout
from hf_xsent.tensors.packing import PackedSentences, pack, pool, unpack

if TYPE_CHECKING:
    from typing_extensions import Self


@dataclass
class SentenceEncoderOutput(ModelOutput):
    """Hidden states, padded like the input, and sentence embeddings, also under the usual name ``pooler_output``."""

    last_hidden_state: Tensor | None = None
    sentence_embedding: Tensor | None = None
    pooler_output: Tensor | None = None
    hidden_states: tuple[Tensor, ...] | None = None  # of the embeddings and each layer
    attentions: tuple[Tensor, ...] | None = None  # of each layer


class SentenceEncoder(SentenceTransformerMethods, PreTrainedModel):
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
    _supports_attention_backend = True
    trains = False  # whether the class has the weights that only training needs
    trained_in: str | None = None  # the folder of the run that trained it in this process
    _tokenizer: Any = None
    _saves_heads = True
    _source: str | None = None  # the folder or Hub id of the starting encoder
    _hub: Mapping[str, Any] = MappingProxyType({})  # the revision and other Hub arguments of the source

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
        use_fast_dropout(self)
        self.post_init()

    @classmethod
    def from_backbone(cls, name_or_path: str, *, config: Any = None, **settings: Any) -> Self:
        """Start from a pretrained encoder or a model of this package, with a config or keyword arguments.

        ``config_class.setting_names()`` lists the keywords. ``revision``, ``dtype`` (default: float32), ``device_map``
        and transformers' other loading arguments are accepted, too. From a model that this package trained, matching
        heads and language embeddings are loaded.
        """
        loading = loading_arguments(settings)
        encoder_config, earlier = split_config(load_config(str(name_or_path), **hub_arguments(loading)))
        model = cls._over_encoder(str(name_or_path), cls.config_of(config, settings), encoder_config, loading)
        model.start_weights([name for name in model.state_dict() if not name.startswith("encoder.")])
        if earlier:
            model.load_matching(earlier, read_heads(str(name_or_path), **hub_arguments(loading)))
        return model

    @classmethod
    def from_pretrained(cls, name_or_path: Any, *_: Any, config: Any = None, **settings: Any) -> Any:  # type: ignore[override]
        """Open a model of this package with all its weights, or start from a plain encoder.

        Keyword arguments replace settings of the saved model, and otherwise are those of ``from_backbone``.
        """
        name, with_info = str(name_or_path), settings.pop("output_loading_info", False)
        settings = {key: value for key, value in settings.items() if key not in UNUSED_ARGUMENTS and value is not None}
        loading = loading_arguments(settings)
        hub = hub_arguments(loading)
        if not isinstance(config, PreTrainedConfig):
            config = load_config(name, **hub)
        encoder_config, saved = split_config(config)
        encoder_config = deepcopy(encoder_config)
        if saved and not hasattr(config, "encoder_config"):
            saved = with_changed_modules(saved, name, encoder_config, **hub)
        names = cls.config_class.saved_names()
        for key in [key for key in settings if key not in names and hasattr(encoder_config, key)]:
            setattr(encoder_config, key, settings.pop(key))
        start = cls.config_class(**{key: value for key, value in saved.items() if key in names})
        if not cls.trains:
            start.lora_rank = start.lora_alpha = start.lora_targets = None  # saved merged, too
        model = cls._over_encoder(name, cls.config_of(start, settings), encoder_config, loading)
        missing = model._load_saved(name, hub)
        model.start_weights(missing)
        info: dict[str, Any] = {"missing_keys": {*missing} if saved else set(), "unexpected_keys": set()}
        info |= {"mismatched_keys": set(), "error_msgs": []}
        return (model.eval(), info) if with_info else model.eval()

    @classmethod
    def _over_encoder(cls, name: str, config: Any, encoder_config: PreTrainedConfig, loading: dict[str, Any]) -> Self:
        """Build the model over a loaded encoder, in the encoder's dtype and on its device."""
        encoder = load_encoder(name, encoder_config, config.encoder_dropout, **loading)
        if config.encoder_layers is not None:
            select_layers(encoder, config.encoder_layers)
        if is_local(name):
            encoder.config.name_or_path = ""  # do not publish local paths
        model = cls(config.over(encoder.config), encoder=encoder)
        model._source, model._hub = name, hub_arguments(loading)
        for weight_name, weight in chain(model.named_parameters(), model.named_buffers()):
            if not weight_name.startswith("encoder."):
                weight.data = weight.to(encoder.device, encoder.dtype if weight.is_floating_point() else None)
        return model

    def _load_saved(self, name: str, hub: Mapping[str, Any]) -> list[str]:
        """Load the weights that are saved besides the encoder's; return the names of those that are missing."""
        saved, own = read_heads(name, **hub), self.state_dict()
        for key in own.keys() & saved.keys():
            if own[key].shape != saved[key].shape:
                shapes = f"{tuple(saved[key].shape)}, but the settings need {tuple(own[key].shape)}"
                raise ModelError(f"{name!r} has {key} of shape {shapes}: use from_backbone to start new heads")
        self.load_state_dict({key: saved[key] for key in own.keys() & saved.keys()}, strict=False)
        return [key for key in own if key not in saved and not key.startswith("encoder.")]

    def start_weights(self, names: Sequence[str]) -> None:
        """Initialize new weights that depend on the encoder."""

    @torch.no_grad()
    def load_matching(self, earlier: Mapping[str, Any], heads: Mapping[str, Tensor]) -> None:
        """Load weights that this model shares with that of an earlier training stage, of these settings and heads."""
        languages = earlier.get("languages")
        if languages and self.config.languages != languages:
            known, name = ", ".join(languages), self._source
            raise RecipeError(f"{name!r} has embeddings of the languages {known}: set languages to the same list")
        for name, weight in self.named_parameters():
            of_objective = name.startswith(("encoder.", "objectives."))
            if not of_objective and name in heads and weight.shape == heads[name].shape:
                weight.copy_(heads[name])

    @property
    def not_plain(self) -> str | None:
        """Why no plain encoder can express this model, and what to train instead; None if one can."""
        if self.config.languages:
            return "a plain encoder has no language embeddings: train without languages"
        return None

    def save_pretrained(  # type: ignore[override]
        self,
        save_directory: Any,
        *_: Any,
        state_dict: Mapping[str, Tensor] | None = None,
        is_main_process: bool = True,
        max_shard_size: int | str = "50GB",
        **__: Any,
    ) -> None:
        """Save encoder, tokenizer, modules of sentence-transformers and, for training, the heads."""
        if is_main_process:
            folder = create_folder(save_directory)
            save_model(self, folder, state_dict, heads=self._saves_heads, max_shard_size=max_shard_size)

    def push_to_hub(self, *args: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        """Upload the model as ``save_pretrained`` writes it, without the weights that only training needs."""
        self._saves_heads = False
        try:
            return super().push_to_hub(*args, **kwargs)
        finally:
            self._saves_heads = True

    @property
    def tokenizer(self) -> Any:
        """The tokenizer of ``encode``; it is loaded at its first use, from the folder or Hub id of the model."""
        if self._tokenizer is None:
            if not self._source:
                raise ModelError("encode needs the model's tokenizer: set model.tokenizer = tokenizer")
            self._tokenizer = load_tokenizer(self._source, **self._hub)
        return self._tokenizer

    @tokenizer.setter
    def tokenizer(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer

    def find_tokenizer(self) -> Any:
        """Return the tokenizer; None if the model's folder has none."""
        try:
            return self.tokenizer
        except ModelError:
            return None

    def _prompts(self) -> Mapping[str, str]:
        return self.config.prompts or {}

    def _vectors(self, *args: Any, **kwargs: Any) -> np.ndarray:
        return TextEncoder(self, self.tokenizer)._vectors(*args, **kwargs)

    @classmethod
    def config_of(cls, config: Any, settings: Mapping[str, Any]) -> Any:
        """Build a config without an encoder from settings, or apply the settings to the given config."""
        keys = cls.config_class.setting_names()
        for key in settings:
            if key not in keys:
                raise RecipeError(f"{cls.config_class.__name__} has no setting {key!r}" + did_you_mean(key, keys))
        hints = types_of(cls.config_class, settings)
        settings = {
            key: value if key == "objectives" else convert(key, value, hints[key]) for key, value in settings.items()
        }
        try:
            return cls.config_class(**settings) if config is None else config.replaced(**settings)
        except (TypeError, AttributeError, StrictDataclassError) as error:
            wrong = ", ".join(f"{key}={value!r}" for key, value in settings.items())
            raise RecipeError(f"a value has the wrong type among {wrong}: {' '.join(str(error).split())}") from error

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        """Sample language embeddings with standard deviation ``language_std``, the rest as transformers does."""
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
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        language_ids: Tensor | None = None,
        *,
        output_hidden_states: bool | None = None,
        output_attentions: bool | None = None,
        return_dict: bool | None = None,
        **_: object,
    ) -> SentenceEncoderOutput | tuple[Any, ...]:
        """Return hidden states and sentence embeddings of a padded batch.

        Attentions need a second pass, by the encoder's own forward over the padded batch.
        """
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        packed, states = pack([input_ids], [mask]), None
        if self.config.output_hidden_states if output_hidden_states is None else output_hidden_states:
            layers, vectors = self._encode_layers(packed, language_ids)
            states = tuple(unpack(one, packed, mask) for one in layers)
            hidden = states[-1]
        else:
            last, vectors = self._encode_last(packed, language_ids)
            hidden = unpack(last, packed, mask)
        attentions = None
        if self.config.output_attentions if output_attentions is None else output_attentions:
            attentions = self._attentions(input_ids, mask, language_ids)
        output = SentenceEncoderOutput(hidden, vectors, vectors, states, attentions)
        return output if (self.config.return_dict if return_dict is None else return_dict) else output.to_tuple()

    def _attentions(self, input_ids: Tensor, mask: Tensor, language_ids: Tensor | None) -> tuple[Tensor, ...]:
        """Return each layer's attention weights, N × heads × L × L."""
        inputs: dict[str, Tensor] = {"input_ids": input_ids}
        if language_ids is not None and self.config.languages:
            added = self.language_embeddings(language_ids)[:, None]
            inputs = {"inputs_embeds": self.get_input_embeddings()(input_ids) + added}
        previous = attention_of(self.encoder.config)
        set_attention(self.encoder.config, "eager")  # other implementations return no weights
        try:
            found: tuple[Tensor, ...] = self.encoder(**inputs, attention_mask=mask, output_attentions=True).attentions
        finally:
            set_attention(self.encoder.config, previous)
        return found

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

    def _finish(self, vectors: Tensor) -> Tensor:
        return nn.functional.normalize(vectors, dim=-1) if self.config.normalize else vectors
