"""hf-xsent: cross-lingual sentence encoders from any multilingual encoder and bitext.

Importing it registers every config and model with the Auto classes of transformers.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from hf_xsent.data.bitext import load_bitext
    from hf_xsent.documents.alignment import align_documents
    from hf_xsent.mining.margin import mine_bitext
    from hf_xsent.models.dap import DapConfig, DapForSentenceEmbedding, XlmrWithRTLHead
    from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding
    from hf_xsent.models.embedder import SentenceEmbedder
    from hf_xsent.models.moco import MoCoAlignedBert, MoCoConfig, MoCoForSentenceEmbedding
    from hf_xsent.models.wacse import WacseConfig, WacseForPreTraining, WacseForSentenceEmbedding
    from hf_xsent.publishing.sentence_transformer import export_sentence_transformer
    from hf_xsent.training.arguments import AlignmentTrainingArguments
    from hf_xsent.training.trainer import AlignmentTrainer

__all__ = [
    "AlignmentTrainer",
    "AlignmentTrainingArguments",
    "DapConfig",
    "XlmrWithRTLHead",
    "DapForSentenceEmbedding",
    "MoCoAlignedBert",
    "MoCoConfig",
    "MoCoForSentenceEmbedding",
    "DualPivotConfig",
    "DualPivotForPreTraining",
    "DualPivotForSentenceEmbedding",
    "SentenceEmbedder",
    "WacseConfig",
    "WacseForPreTraining",
    "WacseForSentenceEmbedding",
    "align_documents",
    "export_sentence_transformer",
    "load_bitext",
    "mine_bitext",
]

_HOMES = {
    "AlignmentTrainer": "training.trainer",
    "AlignmentTrainingArguments": "training.arguments",
    "DapConfig": "models.dap",
    "XlmrWithRTLHead": "models.dap",
    "DapForSentenceEmbedding": "models.dap",
    "MoCoAlignedBert": "models.moco",
    "MoCoConfig": "models.moco",
    "MoCoForSentenceEmbedding": "models.moco",
    "DualPivotConfig": "models.dual_pivot",
    "DualPivotForPreTraining": "models.dual_pivot",
    "DualPivotForSentenceEmbedding": "models.dual_pivot",
    "SentenceEmbedder": "models.embedder",
    "WacseConfig": "models.wacse",
    "WacseForPreTraining": "models.wacse",
    "WacseForSentenceEmbedding": "models.wacse",
    "align_documents": "documents.alignment",
    "export_sentence_transformer": "publishing.sentence_transformer",
    "load_bitext": "data.bitext",
    "mine_bitext": "mining.margin",
}


def __getattr__(name: str) -> Any:
    """Public names load their part of the library when first used."""
    if name not in _HOMES:
        raise AttributeError(f"module 'hf_xsent' has no attribute {name!r}")
    return getattr(import_module(f"hf_xsent.{_HOMES[name]}"), name)


# The command line answers --help before torch is loaded, and imports the models itself when a command needs them.
if PurePath(*sys.argv[:1]).stem != "hf-xsent":
    import_module("hf_xsent.models")
