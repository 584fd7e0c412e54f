"""Any mix of objectives that is not the preset of a paper; translation ranking (TR) alone by default."""

from __future__ import annotations

from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.sentence_encoder import SentenceEncoder


class AlignmentForSentenceEmbedding(SentenceEncoder):
    """What remains after training: the encoder and its pooling."""

    config_class = AlignmentConfig
