"""List the methods, and let the Auto classes of transformers open saved models as the classes of their method.

The config.json of a saved model is that of its encoder; the settings under its key ``hf_xsent`` choose the class. The
modules of sentence-transformers take precedence over these settings. Other encoders open as before.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from transformers import CONFIG_MAPPING, AutoConfig, AutoModel, AutoModelForMaskedLM, AutoModelForPreTraining

from hf_xsent.compat import classes_by_config
from hf_xsent.errors import UnsupportedModuleError
from hf_xsent.models.config import AlignmentConfig, SentenceEncoderConfig
from hf_xsent.models.dap import DapConfig, DapForSentenceEmbedding, XlmrWithRTLHead
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForPreTraining, DualPivotForSentenceEmbedding
from hf_xsent.models.families import FAMILIES
from hf_xsent.models.loading import SETTINGS
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


def register_models() -> None:
    """Register our configs and classes, and loaders in place of the classes of each encoder family."""
    for config, training, sentence in METHODS.values():
        AutoConfig.register(config.model_type, config, exist_ok=True)
        AutoModelForPreTraining.register(config, training, exist_ok=True)
        AutoModel.register(config, sentence, exist_ok=True)
    for auto, column in ((AutoModelForPreTraining, 1), (AutoModel, 2)):
        classes = {name: method[column] for name, method in METHODS.items()}
        classes[SentenceEncoderConfig.model_type] = (SentenceEncoderForPreTraining, SentenceEncoder)[column - 1]
        for family in FAMILIES:
            plain = CONFIG_MAPPING[family]
            known = (
                classes_by_config(auto) if plain in classes_by_config(auto) else classes_by_config(AutoModelForMaskedLM)
            )
            auto.register(plain, _loader(known[plain], classes), exist_ok=True)


def _loader(plain: Any, classes: dict[str, Any]) -> Any:
    """Return a subclass of an encoder's class that opens saved models as ours, and anything else as the encoder."""

    class Loader(plain):
        @classmethod
        def from_pretrained(cls, name_or_path: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
            settings = getattr(config, SETTINGS, None)
            if isinstance(settings, dict) and settings.get("model_type") in classes:
                if kwargs.get("torch_dtype") is None and kwargs.get("dtype") is None:
                    kwargs["dtype"] = "auto"
                with suppress(UnsupportedModuleError):  # SentenceTransformer opens the plain encoder, with its modules
                    return classes[settings["model_type"]].from_pretrained(name_or_path, config=config, **kwargs)
            return plain.from_pretrained(name_or_path, *args, config=config, **kwargs)

        @classmethod
        def _from_config(cls, config: Any, **kwargs: Any) -> Any:
            return plain._from_config(config, **kwargs)

    Loader.__name__, Loader.__qualname__, Loader.__doc__ = plain.__name__, plain.__qualname__, plain.__doc__
    Loader.__module__ = plain.__module__  # so that transformers still prefers a checkpoint's remote code to this class
    return Loader
