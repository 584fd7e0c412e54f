"""What a recipe comes to: everything that can be checked before data is read or a model loaded."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from hf_xsent.data.bitext import Bitext
from hf_xsent.data.mixing import mixing_probabilities
from hf_xsent.data.sides import TextSides as Sides
from hf_xsent.errors import RecipeError, nearest
from hf_xsent.models import METHODS
from hf_xsent.models.adapters import check_adapters
from hf_xsent.models.backbone import check_frozen_layers
from hf_xsent.models.loading import load_encoder_config, load_tokenizer
from hf_xsent.models.objectives import AlignmentConfig
from hf_xsent.models.vocabulary import RestrictedVocabulary
from hf_xsent.training.arguments import Recipe
from hf_xsent.training.checkpoints import prepare_output_folder
from hf_xsent.training.compatibility import check_momentum_contrast
from hf_xsent.training.reading import check_bitext
from hf_xsent.training.recipe import ModelArguments
from hf_xsent.training.teacher import check_teacher
from hf_xsent.training.trainer import NO_DEV_TO_STOP_BY

logger = logging.getLogger(__name__)


@dataclass
class Plan:
    """One run as it will be: the method's settings, and what it starts from."""

    recipe: Recipe
    start: str  # the encoder's name or folder
    settings: dict[str, Any]  # of the method's config
    config: AlignmentConfig
    tokenizer: PreTrainedTokenizerBase
    checkpoint: str | None  # to go on from
    vocabulary: RestrictedVocabulary | None  # of the RTL head

    @classmethod
    def of(cls, recipe: Recipe) -> Plan:
        """Check the recipe; every mistake in it is one sentence."""
        model, training = recipe.model, recipe.training
        if model.model is None:
            raise RecipeError("no encoder to start from: give --model, a Hub id such as xlm-roberta-base or a folder")
        check_bitext(recipe.data)
        if training.output_dir in (None, "trainer_output"):
            raise RecipeError("no place for the result: give --output_dir, a folder for this run")
        checkpoint = prepare_output_folder(training.output_dir, recipe.run.resume, recipe.run.overwrite)
        settings = model_settings(model)
        encoder_config = load_encoder_config(model.model)
        config = METHODS[model.method][0](encoder_config=encoder_config, **settings)
        config.check_objectives()
        check_teacher(model.teacher, config.objectives)
        check_momentum_contrast(training, config.contrasts)
        if recipe.data.unpaired and (model.method != "dual-pivot" or config.needs_pairs):
            raise RecipeError(
                "unpaired files hold no translations: train dual-pivot on them with adversarial=1 and cycle=5"
            )
        if model.lora_rank is not None:
            check_adapters(model.lora_targets, encoder_config)
            if training.fsdp:
                raise RecipeError("adapters are merged into whole weights, which FSDP splits: use DDP or ZeRO-2")
        check_frozen_layers(training.frozen_layers, encoder_config)
        if training.early_stopping_patience is not None and not (recipe.data.dev or recipe.data.dev_pairs):
            raise RecipeError(NO_DEV_TO_STOP_BY)
        tokenizer = load_tokenizer(model.model)
        _check_tokenizer(tokenizer, encoder_config, model.model)
        vocabulary = None
        if model.rtl_missing not in ("unknown", "extend"):
            raise RecipeError(f"unknown rtl_missing {model.rtl_missing!r}: use unknown or extend")
        if model.rtl_vocabulary not in (None, "all", "auto"):
            vocabulary = RestrictedVocabulary.read(model.rtl_vocabulary, tokenizer)
        return cls(recipe, model.model, settings, config, tokenizer, checkpoint, vocabulary)

    def fit(self, train: Bitext | Sides, dev: Bitext | None) -> None:
        """Settle what depends on the data: its languages, its links, its word pieces."""
        self.check_data(train, dev)
        if not isinstance(train, Sides):
            self.vocabulary = restricted_vocabulary(self.recipe.model, train, self.tokenizer, self.vocabulary)

    def check_data(self, train: Bitext | Sides, dev: Bitext | None) -> None:
        """Languages and links must suit the settings, which learn the languages."""
        data = self.recipe.data
        mixing_probabilities(list(train.languages.values()), data.alpha)  # a wrong alpha is told here
        if isinstance(train, Sides):
            return
        if self.config.needs_links:
            _check_links(train)
        languages = {*train.languages, *(dev.languages if dev else ()), data.target_language}
        one_way = self.settings.get("rtl_direction", "source_to_target") == "source_to_target"
        if not one_way and not self.settings.get("languages"):
            self.settings.setdefault("rtl_languages", sorted(languages))
        for key in ("languages", "rtl_languages"):
            if without := languages - set(self.settings.get(key) or languages):
                raise RecipeError(f"language {min(without)!r} has no embedding: list it under {key} in the recipe")


def model_settings(arguments: ModelArguments) -> dict[str, Any]:
    """Those settings of the method's config that the recipe states."""
    if arguments.method not in METHODS:
        raise RecipeError(
            f"unknown method {arguments.method!r}: use {', '.join(METHODS)}" + nearest(arguments.method, METHODS)
        )
    not_settings = ("model", "method", "teacher", "rtl_vocabulary", "rtl_missing")
    stated = {key: value for key, value in asdict(arguments).items() if value is not None and key not in not_settings}
    if "objectives" in stated:
        stated["objectives"] = parse_weights(stated["objectives"])
    known = METHODS[arguments.method][0].setting_names()
    for key in stated:
        if key not in known:
            raise RecipeError(f"the method {arguments.method} has no setting {key!r}" + nearest(key, known))
    return stated


def parse_weights(weights: Mapping[str, float] | Sequence[str]) -> dict[str, float]:
    """``{name: weight}`` from a recipe's mapping or from ``name=weight`` flags; a bare name weighs 1."""
    pairs = weights.items() if isinstance(weights, Mapping) else [one.partition("=")[::2] for one in weights]
    try:
        return {name: float(weight) if weight != "" else 1.0 for name, weight in pairs}
    except (TypeError, ValueError) as error:
        raise RecipeError(f"objectives take numbers as weights, such as translation_ranking=1.0 ({error})") from error


def restricted_vocabulary(
    arguments: ModelArguments, bitext: Bitext, tokenizer: PreTrainedTokenizerBase, known: RestrictedVocabulary | None
) -> RestrictedVocabulary | None:
    """The word pieces that the RTL head tells apart: those ``known``, and if asked for all those of the data."""
    if arguments.rtl_vocabulary in (None, "all") or not (known is None or arguments.rtl_missing == "extend"):
        return known
    both, wanted = ("source", "target"), (arguments.rtl_direction or "source_to_target").rsplit("_", 1)[-1]
    sentences = chain.from_iterable(bitext.sentences(side) for side in both if wanted in (side, "both"))
    vocabulary = RestrictedVocabulary.of(sentences, tokenizer, () if known is None else known.ids)
    logger.info("the RTL head projects onto %d of %d word pieces", len(vocabulary.ids), len(tokenizer))
    return vocabulary


def _check_links(train: Bitext) -> None:
    """Objectives over words would train nothing where no pair has links; pairs without train on the others alone."""
    if not train.linked:
        raise RecipeError(
            "the objectives learn from word links, but no pair has any: make them with hf-xsent align-words, "
            "and give its JSONL as --data or its lines as --links"
        )
    logger.info("%d of %d pairs have word links", train.linked, len(train))


def _check_tokenizer(tokenizer: PreTrainedTokenizerBase, config: PreTrainedConfig, name: str) -> None:
    """A tokenizer with more pieces than the encoder has embeddings would fail in the middle of a run."""
    if len(tokenizer) > config.vocab_size:
        raise RecipeError(
            f"the tokenizer of {name!r} has {len(tokenizer)} pieces but its encoder only {config.vocab_size} "
            "embeddings: they do not belong together"
        )
    if tokenizer.pad_token is None:
        raise RecipeError(f"the tokenizer of {name!r} has no padding token: set pad_token and save it again")
