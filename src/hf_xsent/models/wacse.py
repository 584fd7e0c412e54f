"""WACSE: word-aligned cross-lingual sentence embedding for low-resource languages (Miao et al., 2024)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from huggingface_hub.dataclasses import strict

from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.settings.declare import setting
from hf_xsent.settings.model import pooling_setting


@strict
class WacseConfig(AlignmentConfig):
    """The sentence embedding is CLS, no pooler; L = 0.8 TR + 0.1 AWP + 0.1 WTR (eq. 11, section 4.3).

    Language embeddings are initialized at random (section 6.1). The paper does not state their standard deviation; 0.02
    is that of the encoder's initial weights.
    """

    model_type = "wacse"

    pooling: str | None = pooling_setting("cls")
    language_std: float = setting(
        0.02, "Standard deviation of new language embeddings; 0 starts them at zero.", at_least=0
    )
    objectives: dict[str, Any] = field(
        default_factory=lambda: {
            "translation_ranking": 0.8,
            "aligned_word_prediction": 0.1,
            "word_translation_ranking": 0.1,
        }
    )


class WacseForPreTraining(SentenceEncoderForPreTraining):
    """A supported encoder with WACSE's objectives, trained on pairs with word links."""

    config_class = WacseConfig


class WacseForSentenceEmbedding(SentenceEncoder):
    """The encoder and its pooling after training."""

    config_class = WacseConfig
