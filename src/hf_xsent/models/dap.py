"""DAP: dual-alignment pre-training for cross-lingual sentence embedding (Li et al., 2023)."""

from __future__ import annotations

from huggingface_hub.dataclasses import strict

from hf_xsent.models.pretraining import AlignmentConfig, SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder


@strict
class DapConfig(AlignmentConfig):
    """The sentence vector is CLS, no pooler (section 3); translation ranking trains it."""

    model_type = "dap"


class DapForPreTraining(SentenceEncoderForPreTraining):
    """What trains: the encoder with DAP's objectives."""

    config_class = DapConfig


class DapForSentenceEmbedding(SentenceEncoder):
    """What stays after training: the encoder and its pooling."""

    config_class = DapConfig
