"""Let AutoModel open exports as models of this package; other encoders open as before.

An export's config.json is that of a plain encoder, so that transformers alone opens it. Its key ``sentence_encoder``
(missing if the model has a mix of layers) states the settings of the model, by which ``AutoModel`` chooses our class
after ``import hf_xsent``. The files of sentence-transformers take precedence over these settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from transformers import AutoModel, PreTrainedModel
from transformers.models.bert import BertConfig, BertModel
from transformers.models.camembert import CamembertConfig, CamembertModel
from transformers.models.modernbert import ModernBertConfig, ModernBertModel
from transformers.models.roberta import RobertaConfig, RobertaModel
from transformers.models.xlm_roberta import XLMRobertaConfig, XLMRobertaModel

from hf_xsent.errors import UnsupportedModuleError
from hf_xsent.models.loading import EXPORTED_SETTINGS
from hf_xsent.models.sentence_encoder import SentenceEncoder

_FAMILIES: dict[Any, type[PreTrainedModel]] = {
    BertConfig: BertModel,
    RobertaConfig: RobertaModel,
    XLMRobertaConfig: XLMRobertaModel,
    CamembertConfig: CamembertModel,
    ModernBertConfig: ModernBertModel,
}


def register_exports(classes: Mapping[str, type[SentenceEncoder]]) -> None:
    """Register a loader for each encoder family; ``classes`` maps the model type of a config to our class."""
    for config, plain in _FAMILIES.items():
        AutoModel.register(config, _loader(plain, classes), exist_ok=True)


def _loader(plain: Any, classes: Mapping[str, type[SentenceEncoder]]) -> Any:
    """Return a subclass of an encoder class that loads exports as our class and anything else as the encoder."""

    class Loader(plain):
        @classmethod
        def from_pretrained(cls, name_or_path: Any, *args: Any, config: Any = None, **kwargs: Any) -> Any:
            stated = getattr(config, EXPORTED_SETTINGS, None)
            if isinstance(stated, dict) and stated.get("model_type") in classes:
                if kwargs.get("torch_dtype") is None and kwargs.get("dtype") is None:
                    kwargs["dtype"] = "auto"
                with suppress(UnsupportedModuleError):  # SentenceTransformer opens the plain encoder, with its modules
                    opened = classes[stated["model_type"]].from_pretrained(name_or_path, config=config, **kwargs)
                    (opened[0] if isinstance(opened, tuple) else opened).saves_plain = True
                    return opened
            return plain.from_pretrained(name_or_path, *args, config=config, **kwargs)

        @classmethod
        def _from_config(cls, config: Any, **kwargs: Any) -> Any:
            return plain._from_config(config, **kwargs)

    Loader.__name__, Loader.__qualname__, Loader.__doc__ = plain.__name__, plain.__qualname__, plain.__doc__
    Loader.__module__ = plain.__module__  # so that transformers still prefers a checkpoint's remote code to this class
    return Loader
