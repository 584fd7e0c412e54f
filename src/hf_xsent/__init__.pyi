# The public names, each once: for type checkers, and for __init__.py, which loads each from its module here.
from hf_xsent.api.aligning import align_files as align_files
from hf_xsent.api.aligning import align_words as align_words
from hf_xsent.api.evaluating import evaluate as evaluate
from hf_xsent.api.mining import mine_files as mine_files
from hf_xsent.api.mining import score as score
from hf_xsent.api.training import finetune as finetune
from hf_xsent.api.training import pretrain as pretrain
from hf_xsent.api.training import publish as publish
from hf_xsent.comparison.pipeline import compare as compare
from hf_xsent.data.bitext import load_bitext as load_bitext
from hf_xsent.documents.alignment import align_documents as align_documents
from hf_xsent.evaluation.registry import load_tasks as load_tasks
from hf_xsent.mining.margin import mine_bitext as mine_bitext
from hf_xsent.models.dap import DapConfig as DapConfig
from hf_xsent.models.dap import DapForSentenceEmbedding as DapForSentenceEmbedding
from hf_xsent.models.dap import XlmrWithRTLHead as XlmrWithRTLHead
from hf_xsent.models.dual_pivot import DualPivotConfig as DualPivotConfig
from hf_xsent.models.dual_pivot import DualPivotForPreTraining as DualPivotForPreTraining
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding as DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder as SentenceEmbedder
from hf_xsent.models.moco import MoCoAlignedBert as MoCoAlignedBert
from hf_xsent.models.moco import MoCoConfig as MoCoConfig
from hf_xsent.models.moco import MoCoForSentenceEmbedding as MoCoForSentenceEmbedding
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining as SentenceEncoderForPreTraining
from hf_xsent.models.wacse import WacseConfig as WacseConfig
from hf_xsent.models.wacse import WacseForPreTraining as WacseForPreTraining
from hf_xsent.models.wacse import WacseForSentenceEmbedding as WacseForSentenceEmbedding
from hf_xsent.publishing.model_card import write_card as write_card
from hf_xsent.publishing.onnx import export_onnx as export_onnx
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer as export_sentence_transformer
from hf_xsent.publishing.vocabulary_trimming import trim_vocabulary as trim_vocabulary
from hf_xsent.sentence_transformers.evaluation import TaskEvaluator as TaskEvaluator
from hf_xsent.sentence_transformers.losses import AlignmentLoss as AlignmentLoss
from hf_xsent.training.arguments import AlignmentTrainingArguments as AlignmentTrainingArguments
from hf_xsent.training.trainer import AlignmentTrainer as AlignmentTrainer

__version__: str
