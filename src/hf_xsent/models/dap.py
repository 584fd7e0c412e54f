"""DAP: dual-alignment pre-training for cross-lingual sentence embedding (Li et al., 2023)."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from huggingface_hub.dataclasses import strict

from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.settings.model import pooling_setting


@strict
class DapConfig(AlignmentConfig):
    """The sentence embedding is CLS, no pooler (section 3); L = TR + w RTL (eq. 7).

    The paper states w = 1. The authors' code uses 0.1, but gathers without gradients, so that its 8 processes weight
    translation ranking 8 times less. With exact gradients, 0.8 is the same objective.
    """

    model_type = "dap"

    pooling: str | None = pooling_setting("cls")
    objectives: dict[str, Any] = field(
        default_factory=lambda: {"translation_ranking": 1.0, "representation_translation": 0.8}
    )


class XlmrWithRTLHead(SentenceEncoderForPreTraining):
    """A supported encoder with DAP's objectives and RTL head, for training."""

    config_class = DapConfig


class DapForSentenceEmbedding(SentenceEncoder):
    """The encoder and its pooling after training."""

    config_class = DapConfig
