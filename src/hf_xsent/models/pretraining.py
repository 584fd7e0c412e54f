"""The one model that trains: it encodes each batch of pairs once, and every chosen objective reads from that."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from hf_xsent.errors import RecipeError, nearest
from hf_xsent.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig
from hf_xsent.objectives.pair_encoding import PairEncoding
from hf_xsent.objectives.translation_ranking import TranslationRanking
from hf_xsent.packing import fingerprints


@strict
class AlignmentConfig(SentenceEncoderConfig):
    """A sentence encoder and the objectives, by weight, that align it; the rest are the objectives' own settings."""

    model_type = "alignment"

    objectives: dict[str, float] = field(default_factory=lambda: {"translation_ranking": 1.0})
    temperature: float = 0.05
    margin: float = 0.0
    margin_before_temperature: bool = False
    symmetric: bool = False
    mask_repeated: bool = True

    def __post_init__(self, **kwargs: Any) -> None:
        """Check the objectives' names and weights."""
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


def _translation_ranking(config: AlignmentConfig) -> TranslationRanking:
    return TranslationRanking(
        temperature=config.temperature,
        margin=config.margin,
        margin_before_temperature=config.margin_before_temperature,
        symmetric=config.symmetric,
        mask_repeated=config.mask_repeated,
    )


OBJECTIVES: dict[str, Callable[[AlignmentConfig], nn.Module]] = {"translation_ranking": _translation_ranking}


@dataclass
class AlignmentOutput(ModelOutput):
    """The weighted sum of the objectives, and each of them by name before weighting."""

    loss: Tensor | None = None
    losses: dict[str, Tensor] | None = None


class SentenceEncoderForPreTraining(SentenceEncoder):
    """A sentence encoder with objectives: a preset of a paper or any other mix of them."""

    config_class = AlignmentConfig

    def __init__(self, config: AlignmentConfig, encoder: PreTrainedModel | None = None) -> None:
        super().__init__(config, encoder)
        self.objectives = nn.ModuleDict({name: OBJECTIVES[name](config) for name in config.objectives})
        self.post_init()

    def forward(  # type: ignore[override]  # training takes pairs where use takes sentences
        self,
        source_input_ids: Tensor,
        source_attention_mask: Tensor,
        target_input_ids: Tensor,
        target_attention_mask: Tensor,
        language_ids: Tensor | None = None,
        **_: object,
    ) -> AlignmentOutput:
        """The losses of a batch of pairs; ``language_ids`` (2N) are those of all sources, then of all targets."""
        ids, masks = (source_input_ids, target_input_ids), (source_attention_mask, target_attention_mask)
        source, target = self.embed(ids, masks, language_ids).chunk(2)
        pairs = PairEncoding(
            source=source,
            target=target,
            source_identity=fingerprints(source_input_ids, source_attention_mask),
            target_identity=fingerprints(target_input_ids, target_attention_mask),
        )
        losses = {name: objective(pairs) for name, objective in self.objectives.items()}
        total = sum(self.config.objectives[name] * loss for name, loss in losses.items())
        return AlignmentOutput(loss=total, losses={name: loss.detach() for name, loss in losses.items()})
