"""What a config may say about objectives, and the objectives that it then asks for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from typing import Any

from huggingface_hub.dataclasses import strict
from torch import nn

from hf_xsent.errors import RecipeError, nearest
from hf_xsent.models.families import family
from hf_xsent.models.loading import build_encoder
from hf_xsent.models.masked_language_head import MaskedLanguageHead
from hf_xsent.models.sentence_encoder import SentenceEncoderConfig
from hf_xsent.models.translation_head import TranslationHead
from hf_xsent.objectives.adversarial import Adversarial, CycleConsistency
from hf_xsent.objectives.distillation import MEASURES, Distillation
from hf_xsent.objectives.masked_language import MaskedLanguageModeling, Masking, TranslationLanguageModeling
from hf_xsent.objectives.matryoshka import Matryoshka
from hf_xsent.objectives.momentum_contrast import MomentumContrast
from hf_xsent.objectives.representation_translation import DIRECTIONS, NUMBERINGS, RepresentationTranslation
from hf_xsent.objectives.translation_ranking import TranslationRanking
from hf_xsent.objectives.triplet import TripletRanking
from hf_xsent.objectives.word_alignment import AlignedWordPrediction, WordTranslationRanking

FROM_THE_CHECKPOINT = frozenset(  # settings that nobody chooses
    (
        "rtl_vocabulary_size",
        "mask_token_id",
        "unknown_token_id",
        "special_token_ids",
        "encoder_name",
        "encoder_fingerprint",
    )
)
WITHOUT_HEAD = frozenset(
    (
        "translation_ranking",
        "momentum_contrast",
        "distillation",
        "word_translation_ranking",
        "triplet_ranking",
        "adversarial",
        "cycle",
    )
)
WITHOUT_PAIRS = frozenset(("adversarial", "cycle"))  # they learn from sentences of two languages, no translations
OVER_WORDS = frozenset(("aligned_word_prediction", "word_translation_ranking"))


@strict
class AlignmentConfig(SentenceEncoderConfig):
    """A sentence encoder and the objectives, by weight, that align it; the rest are the objectives' own settings."""

    model_type = "alignment"

    objectives: dict[str, float] = field(default_factory=lambda: {"translation_ranking": 1.0})

    random_input_shuffling: bool = False  # a coin for each pair exchanges source and target

    # translation ranking, and in part momentum contrast
    temperature: float = 0.05
    margin: float = 0.0
    margin_before_temperature: bool = False
    symmetric: bool = False
    mask_repeated: bool = True
    matryoshka_dims: list[int] | None = None  # rank vectors cut to each of these widths; None: whole ones alone
    training_mlp: bool = False  # a tanh layer over sentence vectors, in training only, as in DAP's code

    # momentum contrast
    moco_queue_size: int = 32_000
    moco_momentum: float = 0.999
    moco_projection: int = 300  # numbers of a query or key

    # distillation
    distillation_measure: str = "mse"

    # representation translation
    rtl_layers: int = 2
    rtl_direction: str = "source_to_target"
    rtl_ratio: float = 1.0
    rtl_positions: str = "fixed"  # wanted tokens count from max_length, or from the batch's padded length
    rtl_languages: list[str] | None = None  # those that the head is told apart by an embedding
    rtl_vocabulary_size: int | None = None  # of a restricted vocabulary; None: all word pieces

    # masked language modelling
    masked_share: float = 0.15
    tlm_reset_positions: bool = True
    tlm_own_words: bool = False  # a word table of its own for the head, as in DAP's code

    # word alignment
    awp_share: float = 1.0  # of the sentences, masked in each step
    wtr_temperature: float = 1.0

    # triplet ranking, of pairs and in the cycle
    triplet_margin: float = 0.0
    triplet_negatives: int = 1  # of each direction; one of them is the hardest

    # adversarial
    critic_steps: int = 2  # of the critic, for each step of the encoder
    critic_clip: float | None = None  # keep its weights within this of zero
    critic_penalty: float | None = None  # weight of the gradient penalty

    # every vocabulary projection
    vocabulary_sample: int | None = None
    vocabulary_bf16: bool = False

    # from the tokenizer, where an objective masks
    mask_token_id: int | None = None
    unknown_token_id: int | None = None
    special_token_ids: list[int] | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        """Check names, weights and settings against each other."""
        super().__post_init__(**kwargs)
        for name, weight in self.objectives.items():
            if name not in OBJECTIVES:
                raise RecipeError(
                    f"unknown objective {name!r}: use {', '.join(OBJECTIVES)}" + nearest(name, OBJECTIVES)
                )
            if not (math.isfinite(weight) and weight > 0):
                raise RecipeError(
                    f"the weight of objective {name!r} is {weight}: give a positive number or leave it out"
                )
        if not self.objectives:
            raise RecipeError(f"no objective is chosen: name at least one of {', '.join(OBJECTIVES)}")
        if not self.temperature > 0:
            raise RecipeError(f"temperature {self.temperature} is not positive")
        if not self.wtr_temperature > 0:
            raise RecipeError(f"wtr_temperature {self.wtr_temperature} is not positive")
        if not 0 < self.awp_share <= 1:
            raise RecipeError(f"awp_share {self.awp_share} is not above 0 and at most 1: 1 masks every sentence")
        if not 0 < self.masked_share < 1:
            raise RecipeError(f"masked_share {self.masked_share} is not between 0 and 1")
        if self.triplet_negatives < 1 or self.critic_steps < 1:
            raise RecipeError(
                f"triplet_negatives {self.triplet_negatives} and critic_steps {self.critic_steps} must be positive"
            )
        self._check_matryoshka_dims()
        self._check_momentum_contrast()
        if self.vocabulary_sample is not None and self.vocabulary_sample < 1:
            raise RecipeError(
                f"vocabulary_sample {self.vocabulary_sample} is not positive: leave it out for all pieces"
            )

    def _check_matryoshka_dims(self) -> None:
        width = math.inf if self.encoder_config is None else self.encoder_config.hidden_size
        for dim in self.matryoshka_dims or ():
            if not 1 <= dim <= width:
                raise RecipeError(
                    f"matryoshka_dims has {dim}, but the vectors of this encoder have 1 to {width} dimensions to keep"
                )
        if self.matryoshka_dims and "translation_ranking" not in self.objectives:
            raise RecipeError("matryoshka_dims cuts the vectors of translation_ranking, which is no objective here")

    def _check_momentum_contrast(self) -> None:
        if self.moco_queue_size < 1:
            raise RecipeError(f"moco_queue_size {self.moco_queue_size} is not positive: the paper's is 32000")
        if not 0 <= self.moco_momentum < 1:
            raise RecipeError(f"moco_momentum {self.moco_momentum} is not from 0 to below 1: at 1 keys never follow")
        if self.moco_projection < 1:
            raise RecipeError(f"moco_projection {self.moco_projection} is not positive: the paper's is 300")
        if not self.contrasts:
            return
        for key in ("languages", "lora_rank", "training_mlp"):
            if getattr(self, key):
                raise RecipeError(f"the momentum encoder of momentum_contrast has no {key}: leave one of them out")

    def check_objectives(self) -> None:
        """What only a model that trains must fulfil: known choices, and an RTL head that fits the encoder."""
        if self.distillation_measure not in MEASURES:
            raise RecipeError(
                f"unknown distillation_measure {self.distillation_measure!r}: use one of {', '.join(MEASURES)}"
                + nearest(self.distillation_measure, MEASURES)
            )
        if "distillation" in self.objectives and self.training_mlp:
            raise RecipeError("distillation trains the vectors that stay, and training_mlp others: leave one out")
        self._check_critic()
        self._check_positions_counted_through()
        if "representation_translation" not in self.objectives:
            return
        if self.random_input_shuffling and self.rtl_direction != "both":
            raise RecipeError(
                "random_input_shuffling mixes the sides that representation_translation tells apart: "
                "leave one out, or use rtl_direction both"
            )
        for key, choices in (("rtl_direction", DIRECTIONS), ("rtl_positions", NUMBERINGS)):
            value = getattr(self, key)
            if value not in choices:
                raise RecipeError(f"unknown {key} {value!r}: use one of {', '.join(choices)}" + nearest(value, choices))
        if not 0 < self.rtl_ratio <= 1:
            raise RecipeError(f"rtl_ratio {self.rtl_ratio} is not above 0 and at most 1: 1 masks every wanted token")
        if self.languages and self.rtl_languages and self.languages != self.rtl_languages:
            raise RecipeError("rtl_languages must be the same list as languages, where both are given")
        if self.encoder_config is None:
            return
        depth = self.encoder_config.num_hidden_layers
        if not 1 <= self.rtl_layers <= depth:
            raise RecipeError(
                f"rtl_layers {self.rtl_layers} does not fit: this encoder has {depth} layers to start from"
            )
        longest = family(self.encoder_config).max_length(self.encoder_config) // 2
        if self.max_length > longest:
            raise RecipeError(
                f"max_length {self.max_length} leaves the RTL head no positions for both sentences: "
                f"use at most {longest}"
            )

    def _check_critic(self) -> None:
        played = {"adversarial", "cycle"} & {*self.objectives}
        if played and self.model_type != "dual-pivot":
            raise RecipeError(f"{' and '.join(sorted(played))} need a critic: use method dual-pivot, which trains one")

    def _check_positions_counted_through(self) -> None:
        """TLM without a reset lays both sentences of a pair over one count of positions."""
        through = "translation_language_modeling" in self.objectives and not self.tlm_reset_positions
        if self.encoder_config is not None and through:
            longest = (family(self.encoder_config).max_length(self.encoder_config) + 1) // 2
            if self.max_length > longest:
                raise RecipeError(
                    f"max_length {self.max_length} leaves no positions for both sentences of a pair in one row: use at "
                    f"most {longest}, or tlm_reset_positions"
                )

    @property
    def told_apart(self) -> list[str] | None:
        """The languages of which a batch must say which sentence is in which."""
        return self.languages or self.rtl_languages

    @property
    def needs_token_ids(self) -> bool:
        """Whether an objective masks, and so must know the tokenizer's special ids."""
        return bool({*self.objectives} - WITHOUT_HEAD)

    @property
    def contrasts(self) -> bool:
        """Whether there is a momentum encoder with a queue."""
        return "momentum_contrast" in self.objectives

    @property
    def needs_pairs(self) -> bool:
        """Whether an objective learns from translations."""
        return bool({*self.objectives} - WITHOUT_PAIRS)

    @property
    def needs_links(self) -> bool:
        """Whether an objective learns from word links."""
        return bool({*self.objectives} & OVER_WORDS)


def _translation_ranking(config: AlignmentConfig) -> nn.Module:
    ranking = TranslationRanking(
        temperature=config.temperature,
        margin=config.margin,
        margin_before_temperature=config.margin_before_temperature,
        symmetric=config.symmetric,
        mask_repeated=config.mask_repeated,
    )
    return Matryoshka(ranking, config.matryoshka_dims) if config.matryoshka_dims else ranking


def _momentum_contrast(config: AlignmentConfig) -> nn.Module:
    return MomentumContrast(
        build_encoder(config.encoder_config),
        config.encoder_config.hidden_size,
        projection=config.moco_projection,
        queue_size=config.moco_queue_size,
        momentum=config.moco_momentum,
        temperature=config.temperature,
        mask_repeated=config.mask_repeated,
    )


def _representation_translation(config: AlignmentConfig) -> nn.Module:
    restricted = config.rtl_vocabulary_size is not None
    prediction = MaskedLanguageHead(
        config.encoder_config,
        size=config.rtl_vocabulary_size or config.encoder_config.vocab_size,
        restricted=restricted,
        unknown_id=config.unknown_token_id,
        sample=config.vocabulary_sample,
        bf16=config.vocabulary_bf16,
    )
    told_apart = [] if config.rtl_direction == "source_to_target" else config.rtl_languages or config.languages
    if told_apart is None:
        raise RecipeError(
            f"rtl_direction {config.rtl_direction} rebuilds several languages: list them under rtl_languages"
        )
    head = TranslationHead(config.encoder_config, config.rtl_layers, prediction, languages=len(told_apart))
    return RepresentationTranslation(
        head, config.rtl_direction, config.rtl_ratio, config.rtl_positions, config.max_length
    )


def _masked_language_head(config: AlignmentConfig, own_words: bool) -> tuple[MaskedLanguageHead, int]:
    size = config.encoder_config.vocab_size if own_words else None
    head = MaskedLanguageHead(
        config.encoder_config, size=size, sample=config.vocabulary_sample, bf16=config.vocabulary_bf16
    )
    if config.mask_token_id is None:
        raise RecipeError("masked language modelling needs mask_token_id, the tokenizer's id of its mask piece")
    return head, config.mask_token_id


def _masked_language(config: AlignmentConfig) -> tuple[MaskedLanguageHead, Masking]:
    head, mask_id = _masked_language_head(config, config.tlm_own_words)
    return head, Masking(
        mask_id,
        config.encoder_config.vocab_size,
        tuple(config.special_token_ids or ()),
        config.masked_share,
    )


OBJECTIVES: dict[str, Callable[[AlignmentConfig], nn.Module]] = {
    "translation_ranking": _translation_ranking,
    "representation_translation": _representation_translation,
    "momentum_contrast": _momentum_contrast,
    "translation_language_modeling": lambda config: TranslationLanguageModeling(
        *_masked_language(config), reset_positions=config.tlm_reset_positions
    ),
    "masked_language_modeling": lambda config: MaskedLanguageModeling(*_masked_language(config)),
    "distillation": lambda config: Distillation(config.distillation_measure),
    "aligned_word_prediction": lambda config: AlignedWordPrediction(
        *_masked_language_head(config, own_words=False), share=config.awp_share
    ),
    "word_translation_ranking": lambda config: WordTranslationRanking(config.wtr_temperature),
    "triplet_ranking": lambda config: TripletRanking(config.triplet_margin, config.triplet_negatives),
    "adversarial": lambda config: Adversarial(
        config.encoder_config.hidden_size, config.critic_clip, config.critic_penalty
    ),
    "cycle": lambda config: CycleConsistency(
        config.encoder_config.hidden_size, config.triplet_margin, config.triplet_negatives
    ),
}
