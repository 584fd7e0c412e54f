"""Register configs and models with the Auto classes of transformers on import."""

from __future__ import annotations

from transformers import AutoConfig, AutoModel, AutoModelForPreTraining

from hf_xsent.models.auto import register_exports
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.dap import DapConfig, DapForSentenceEmbedding, XlmrWithRTLHead
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding
from hf_xsent.models.moco import MoCoAlignedBert, MoCoConfig, MoCoForSentenceEmbedding
from hf_xsent.models.pretraining import AlignmentForSentenceEmbedding, SentenceEncoderForPreTraining
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.models.wacse import WacseConfig, WacseForPreTraining, WacseForSentenceEmbedding

METHODS: dict[str, tuple[type[AlignmentConfig], type[SentenceEncoderForPreTraining], type[SentenceEncoder]]] = {
    "alignment": (AlignmentConfig, SentenceEncoderForPreTraining, AlignmentForSentenceEmbedding),
    "dap": (DapConfig, XlmrWithRTLHead, DapForSentenceEmbedding),
    "ppa": (MoCoConfig, MoCoAlignedBert, MoCoForSentenceEmbedding),
    "wacse": (WacseConfig, WacseForPreTraining, WacseForSentenceEmbedding),
    "dual-pivot": (DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding),
}

for _config, _training, _sentence in METHODS.values():
    AutoConfig.register(_config.model_type, _config, exist_ok=True)
    AutoModelForPreTraining.register(_config, _training, exist_ok=True)
    AutoModel.register(_config, _sentence, exist_ok=True)
register_exports({config.model_type: sentence for config, _, sentence in METHODS.values()})
