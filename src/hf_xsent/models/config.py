"""Configure a model: an encoder with the pooling of its hidden states and, to train, objectives with their settings."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from copy import copy
from dataclasses import field, fields
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import AutoConfig, PreTrainedConfig

from hf_xsent.compat import attention_of, set_attention
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.models.families import family
from hf_xsent.models.loading import SETTINGS
from hf_xsent.objectives.base import Needs, Sentences
from hf_xsent.objectives.registry import objective_class, read_objectives, write_objectives
from hf_xsent.settings.declare import check_settings, derived, is_derived, settings_of
from hf_xsent.settings.model import EncoderSettings, PairSettings

if TYPE_CHECKING:
    from typing_extensions import Self

logger = logging.getLogger(__name__)


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
        self.check_encoder()

    def following(self, start: Mapping[str, Any], chosen: Collection[str] | None = None, trains: bool = True) -> Self:
        """Return the config with pooling, normalization, prompts and width of a starting model where it has none.

        Without either, the pooling is the mean. ``chosen`` are the settings that the user gave: log a warning for
        others that differ from the starting model's. A chosen ``default_prompt_name`` of None is no default prompt.
        """
        of_prompts = {"prompts", "default_prompt_name"} - ({*(chosen or ())} & {"default_prompt_name"})
        names = ["pooling", "normalize", "dim", *(of_prompts if self.prompts is None else ())]
        followed = {"pooling": "mean", "normalize": False} | {**start}
        config = self.copied(**{name: followed.get(name) for name in names if getattr(self, name) is None})
        if "map" in start and (trains or self.languages) and (reason := self.refuses_map):
            raise RecipeError(
                f"{reason}: it cannot start from a model with a module Dense. Start from a copy of the folder whose "
                "modules.json does not list Dense (of the Hub: hf download NAME --local-dir FOLDER)"
            )
        if "map" in start and config.pooling != start["pooling"]:
            raise ModelError(
                f"the model has a linear layer after {start['pooling']} pooling, not {config.pooling}: keep its pooling"
            )
        compared = [] if chosen is None else [name for name in ("pooling", "max_length") if name not in chosen]
        pairs = {name: (start[name], getattr(config, name)) for name in compared if name in start}
        if differ := [f"{name} {theirs!r}, here {ours!r}" for name, (theirs, ours) in pairs.items() if theirs != ours]:
            logger.warning("the starting model embeds with other settings: %s; state those to keep", "; ".join(differ))
        if config.default_prompt_name is not None and config.default_prompt_name not in (config.prompts or {}):
            known = ", ".join(config.prompts or {}) or "none"
            raise RecipeError(f"default_prompt_name {config.default_prompt_name!r} is not among the prompts: {known}")
        return config

    @property
    def refuses_map(self) -> str | None:
        """Why the model has no place for a linear layer of the start; None if it has."""
        return "a model with language embeddings is saved without a linear layer" if self.languages else None

    def check_encoder(self) -> None:
        """Raise an error if a setting does not fit the encoder, if its config is known."""
        if self.encoder_config is not None:
            longest = family(self.encoder_config).max_length(self.encoder_config)
            if self.max_length > longest:
                raise RecipeError(
                    f"max_length {self.max_length} does not fit: this encoder takes 3 to {longest} tokens per sentence"
                )

    @property
    def default_prompt(self) -> str:
        """The text that is prepended to each sentence."""
        return (self.prompts or {}).get(self.default_prompt_name or "", "")

    @property
    def languages_by_part(self) -> dict[str, list[str]]:
        """The languages with an embedding in the encoder (its name is empty) and in objectives with their own."""
        return {"": self.languages} if self.languages else {}

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
        names = ("dtype", "output_hidden_states", "return_dict")
        values = {name: getattr(encoder_config, name) for name in names}
        config = self.copied(encoder_config=encoder_config, **values)
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


@strict
class AlignmentConfig(PairSettings, SentenceEncoderConfig):
    """A sentence encoder and the objectives that align it: ``{name: {weight: 1.0, setting: value, …}, …}``.

    A number in place of the mapping is the weight. Each method is a subclass with other default objectives. Stated
    objectives replace them; a setting that is not stated comes from the method's defaults, else from the objective's.
    """

    model_type = "alignment"
    freezes_encoder = False  # True: only the weights of a mix of layers and a linear map train

    objectives: dict[str, Any] = field(default_factory=lambda: {"translation_ranking": 1.0})

    # the tokenizer's, if an objective masks
    mask_token_id: int | None = derived()
    unknown_token_id: int | None = derived()
    special_token_ids: list[int] | None = derived()

    def __post_init__(self, **kwargs: Any) -> None:
        """Read the objectives' settings and validate each value."""
        super().__post_init__(**kwargs)
        self.objectives = read_objectives(self.objectives, self.default_objectives() | self.objective_defaults)
        if self.encoder_layers is not None and "interpolation" in self.objectives:
            raise RecipeError("interpolation keeps the embeddings of the start, without its layers: use distillation")
        if self.languages and "interpolation" in self.objectives:
            raise RecipeError("interpolation embeds texts whatever their language: remove languages, or interpolation")

    @classmethod
    def default_objectives(cls) -> dict[str, Any]:
        """Return the objectives of the method, as a recipe would state them."""
        factory: Any = next(field.default_factory for field in fields(cls) if field.name == "objectives")
        return dict(factory())

    @property
    def objective_defaults(self) -> dict[str, Any]:
        """Defaults of objectives by name that depend on other settings."""
        return {}

    @property
    def keeps_pairs(self) -> bool:
        """Whether batches need the two sides of each pair together; without, each side is shuffled alone."""
        return self.needs.pairs

    @property
    def caches_features(self) -> bool:
        """Whether training reads features of a frozen encoder that are computed once."""
        return False

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, for config.json."""
        return super().to_dict() | {"objectives": write_objectives(self.objectives)}

    def _plain(self, name: str) -> Any:
        return write_objectives(self.objectives) if name == "objectives" else super()._plain(name)

    def recipe(self) -> dict[str, Any]:
        """Return the settings of this config in the form of a recipe."""
        settings = {name: getattr(self, name) for name in self.setting_names()}
        return settings | {"objectives": write_objectives(self.objectives, recipe=True)}

    def check_objectives(self) -> None:
        """Check that the objectives fit the encoder and each other; call it before training only."""
        for name, settings in self.objectives.items():
            kind = objective_class(name)
            if kind.needs.frozen_encoder and not self.freezes_encoder:
                raise RecipeError(f"{name} trains over a frozen encoder: use method dual-pivot")
            if self.encoder_config is not None:
                kind.check(settings, self)
        if self.training_mlp and self.needs.teacher:
            raise RecipeError(
                "training_mlp cannot be used with a teacher: the MLP is removed after training, so the final "
                "embeddings would not match the teacher's; remove one of the two"
            )
        if self.training_mlp and not self.needs.embeddings:
            raise RecipeError(
                "training_mlp adds a layer over sentence embeddings, which no objective of this run reads: remove it"
            )

    def fit(self, languages: Collection[str], sentences: Sentences, tokenizer: Any) -> Self:
        """Return the config, completed with values that depend on the languages and sentences of the training data."""
        config = copy(self)
        config.objectives = {
            name: objective_class(name).fit(settings, self, languages, sentences, tokenizer)
            for name, settings in self.objectives.items()
        }
        return config

    def check_languages(self, languages: Collection[str]) -> None:
        """Raise an error if only some languages of the data have an embedding."""
        for part, known in self.languages_by_part.items():
            if missing := sorted({*languages} - {*known}):
                setting = f"objectives.{part}.predicted_languages" if part else "languages"
                raise RecipeError(
                    f"language {missing[0]!r} of the data has no embedding, and a model with embeddings of "
                    f"{', '.join(known)} cannot learn it: train from the encoder that the model starts from, with "
                    f"{setting} {', '.join([*known, *missing])}, or without {setting}"
                )

    @property
    def refuses_map(self) -> str | None:
        """Why the model has no place for a linear layer of the start; None if it has."""
        reason = "momentum_contrast has no moving average of a linear layer after pooling"
        return reason if self.needs.momentum_encoder else super().refuses_map

    @property
    def needs(self) -> Needs:
        """The combined needs of the objectives."""
        kinds = [objective_class(name) for name in self.objectives]
        return reduce(or_, (kind.needs for kind in kinds), Needs(pairs=False))

    @property
    def embedded_languages(self) -> list[str] | None:
        """The languages with an embedding; if any, batches need language ids."""
        return next(iter(self.languages_by_part.values()), None)

    @property
    def languages_by_part(self) -> dict[str, list[str]]:
        """The languages with an embedding in the encoder (its name is empty) and in objectives with their own."""
        of_objectives = {name: settings.embedded_languages for name, settings in self.objectives.items()}
        return super().languages_by_part | {name: [*known] for name, known in of_objectives.items() if known}

    def teachers(self, excepted: Collection[str] = ()) -> dict[str, str | None]:
        """Return the teacher of each other objective that needs one; None: the model before training."""
        kinds = {name: objective_class(name) for name in self.objectives if name not in excepted}
        return {name: kind.teacher(self.objectives[name]) for name, kind in kinds.items() if kind.needs.teacher}

    @property
    def hard_negatives(self) -> dict[str, int]:
        """The number of mined negatives of each pair that objectives read, by side; empty if none reads any."""
        ranking = [settings for settings in self.objectives.values() if getattr(settings, "hard_negatives", 0)]
        both = [settings for settings in ranking if settings.symmetric]
        sides = {"source": both, "target": ranking}
        return {side: max(each.hard_negatives for each in readers) for side, readers in sides.items() if readers}

    @property
    def max_positions(self) -> int:
        """The maximum length of a sequence in tokens, from the encoder's number of positions."""
        return family(self.encoder_config).max_length(self.encoder_config)
