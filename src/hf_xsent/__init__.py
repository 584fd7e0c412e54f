"""hf-xsent: cross-lingual sentence encoders from any multilingual encoder and bitext.

Importing it registers every config and model with the Auto classes of transformers.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_PUBLIC = {  # the public names of each module; __init__.pyi names them for type checkers
    "comparison.compare": "compare",
    "data.bitext": "load_bitext",
    "data.perturbing": "perturb",
    "documents.align_files": "align_document_files",
    "documents.alignment": "align_documents",
    "evaluation.evaluate": "evaluate",
    "evaluation.registry": "load_tasks",
    "finetuning.finetune": "finetune",
    "mining.hard_negatives": "mine_negatives",
    "mining.margin": "mine_bitext",
    "mining.mine": "mine_files",
    "mining.score": "score_pairs",
    "models.dap": "DapConfig DapForSentenceEmbedding XlmrWithRTLHead",
    "models.dual_pivot": "DualPivotConfig DualPivotForPreTraining DualPivotForSentenceEmbedding",
    "models.embedder": "SentenceEmbedder",
    "models.encoder": "Encoder",
    "models.moco": "MoCoAlignedBert MoCoConfig MoCoForSentenceEmbedding",
    "models.pretraining": "SentenceEncoderForPreTraining",
    "models.wacse": "WacseConfig WacseForPreTraining WacseForSentenceEmbedding",
    "publishing.check": "check_runtimes",
    "publishing.gguf": "export_gguf",
    "publishing.hub": "publish",
    "publishing.onnx": "export_onnx",
    "publishing.sentence_transformer": "export_sentence_transformer",
    "publishing.vocabulary_trimming": "trim_vocabulary",
    "sentence_transformers.evaluation": "TaskEvaluator",
    "sentence_transformers.losses": "AlignmentLoss",
    "training.arguments": "AlignmentTrainingArguments",
    "training.pretrain": "pretrain",
    "training.trainer": "AlignmentTrainer",
    "words.align": "align_words",
}
_MODULES = {name: f"hf_xsent.{module}" for module, names in _PUBLIC.items() for name in names.split()}
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    """Load a public name from its module when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module 'hf_xsent' has no attribute {name!r}")
    return getattr(import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted([*__all__, "__version__"])


if "hf_xsent_cli" not in sys.modules:  # the console script, which answers --help before torch is loaded
    import_module("hf_xsent.models")
