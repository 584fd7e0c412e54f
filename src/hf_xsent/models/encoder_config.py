"""Configure an encoder and the pooling of its hidden states into sentence embeddings."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_xsent.compat import attention_of, set_attention
from hf_xsent.errors import RecipeError
from hf_xsent.models.families import family
from hf_xsent.models.loading import SETTINGS
from hf_xsent.settings.declare import check_settings, derived, is_derived, settings_of
from hf_xsent.settings.model import EncoderSettings

if TYPE_CHECKING:
    from typing_extensions import Self


@strict
class SentenceEncoderConfig(EncoderSettings, PreTrainedConfig):
    """The config of an encoder and of the pooling of its hidden states into sentence embeddings."""

    model_type = "sentence-encoder"
    sub_configs = {"encoder_config": AutoConfig}
    decide_embeddings: ClassVar[tuple[str, ...]] = (  # settings that an export states
        *("pooling", "normalize", "max_length", "prompts", "default_prompt_name", "dim"),
    )

    encoder_config: Any = None  # the encoder's own config, or its dict
    dim: int | None = derived()  # encode truncates embeddings to it; None: it does not

    def __post_init__(self, **kwargs: Any) -> None:
        """Build the encoder's config from its dict and validate all values."""
        if isinstance(self.encoder_config, Mapping):
            self.encoder_config = AutoConfig.for_model(**self.encoder_config)
        super().__post_init__(**kwargs)
        check_settings(self)
        if self.default_prompt_name is not None and self.default_prompt_name not in (self.prompts or {}):
            known = ", ".join(self.prompts or {}) or "none"
            raise RecipeError(f"default_prompt_name {self.default_prompt_name!r} is not among the prompts: {known}")
        if self.lora_rank is None and (self.lora_alpha is not None or self.lora_targets):
            raise RecipeError("lora_alpha and lora_targets need adapters: set lora_rank too")
        self.check_encoder()

    def check_encoder(self) -> None:
        """Raise an error if a setting does not fit the encoder, if its config is known."""
        if self.encoder_config is not None:
            longest = family(self.encoder_config).max_length(self.encoder_config)
            if self.max_length > longest:
                raise RecipeError(
                    f"max_length {self.max_length} does not fit: this encoder takes 2 to {longest} tokens per sentence"
                )

    @property
    def default_prompt(self) -> str:
        """The text that is prepended to each sentence."""
        return (self.prompts or {}).get(self.default_prompt_name or "", "")

    @classmethod
    def setting_names(cls) -> list[str]:
        """Return the names that a recipe may set."""
        inherited = {field.name for field in fields(PreTrainedConfig)} | {"encoder_config"}
        return [name for name in settings_of(cls) if name not in inherited]

    @property
    def encoder_dropout(self) -> float | None:
        """Dropout of the encoder in training; None: the checkpoint's."""
        return self.dropout

    def over(self, encoder_config: PreTrainedConfig) -> Self:
        """Return the config of a model over this encoder, with the encoder's dtype, outputs and attention."""
        names = ("dtype", "output_attentions", "output_hidden_states", "return_dict")
        values = {name: getattr(encoder_config, name) for name in names}
        config = self.copied(encoder_config=encoder_config, encoder_layers=None, **values)
        set_attention(config, attention_of(encoder_config))
        return config

    @classmethod
    def saved_names(cls) -> list[str]:
        """Return the names of all settings besides the encoder's, also those that a recipe cannot set."""
        return [*cls.setting_names(), *(field.name for field in fields(cls) if is_derived(field))]

    def saved_settings(self, training: bool = True) -> dict[str, Any]:
        """Return the settings that a saved model states, without those of ``training`` for an export."""
        names = self.saved_names() if training else self.decide_embeddings
        return {"model_type": self.model_type} | {name: self._plain(name) for name in names}

    def _plain(self, name: str) -> Any:
        return getattr(self, name)

    @classmethod
    def get_config_dict(cls, *args: Any, **kwargs: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Read config.json, which is that of the encoder with our settings under one key."""
        encoder, unused = super().get_config_dict(*args, **kwargs)
        settings = encoder.pop(SETTINGS, None)
        return (encoder if settings is None else {**settings, "encoder_config": encoder}), unused

    def copied(self, **values: Any) -> Self:
        """Return a copy with values that come from the encoder, the tokenizer or the data."""
        config = copy(self)
        for name, value in values.items():
            setattr(config, name, value)
        config.check_encoder()
        return config

    def replaced(self, **changes: Any) -> Self:
        """Return the config with other settings, validated again."""
        return type(self)(**{name: getattr(self, name) for name in self.saved_names()} | changes)
