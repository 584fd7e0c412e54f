"""PPA: post-pretraining alignment by momentum contrast and translation language modelling (Pan et al., 2021).

``objectives/momentum_contrast.py`` has eq. 1 to 3; ``input_shuffling.py`` chooses the query of each pair at random.
"""

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
class MoCoConfig(AlignmentConfig):
    """The sentence embedding is CLS (section 2.1); L = L_MoCo + L_TLM (eq. 4) without reset positions (2.2)."""

    model_type = "ppa"

    pooling: str | None = pooling_setting("cls")
    objectives: dict[str, Any] = field(
        default_factory=lambda: {
            "momentum_contrast": 1.0,
            "translation_language_modeling": {"weight": 1.0, "reset_positions": False},
        }
    )
    random_input_shuffling: bool = setting(True, "Swap source and target of each pair at random.")


class MoCoAlignedBert(SentenceEncoderForPreTraining):
    """A query encoder with momentum encoder, projection heads and queue, for training."""

    config_class = MoCoConfig


class MoCoForSentenceEmbedding(SentenceEncoder):
    """The query encoder and its pooling after training."""

    config_class = MoCoConfig
