"""Text in, vectors out: a sentence encoder with its tokenizer, for evaluation, mining and search."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn
from tqdm import tqdm
from transformers import AutoModel, PreTrainedTokenizerBase
from transformers.utils import cached_file

from hf_xsent.errors import ModelError
from hf_xsent.models.backbone import family
from hf_xsent.models.loading import load_config, load_tokenizer, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig

if TYPE_CHECKING:
    from typing_extensions import Self

_SENTENCES_PER_TOKENIZER_CALL = 4096


class SentenceEmbedder:
    """Encodes sentences through the lean path: sorted by length, packed, a bounded number of tokens at a time."""

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
        layer: int | None = None,
        tokens_per_batch: int = 8192,
        dim: int | None = None,
    ) -> None:
        layers = len(model.backbone.layers)
        if layer is not None and not 0 <= layer <= layers:
            raise ModelError(f"layer {layer} does not exist: this encoder has layers 0 (embeddings) to {layers}")
        longest = family(model.config.encoder_config).max_length(model.config.encoder_config)
        if max_length is not None and not 2 <= max_length <= longest:
            raise ModelError(f"max_length {max_length} does not fit: this encoder takes 2 to {longest} tokens")
        width = model.config.encoder_config.hidden_size
        if dim is not None and not 1 <= dim <= width:
            raise ModelError(f"dim {dim} does not exist: the vectors of this model have {width} dimensions")
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length or model.config.max_length
        self.layer = layer
        self.tokens_per_batch = tokens_per_batch
        self.width: int = dim or width

    @classmethod
    def from_pretrained(
        cls,
        name_or_path: str,
        pooling: str | None = None,
        max_length: int | None = None,
        layer: int | None = None,
        dtype: torch.dtype = torch.float32,
        device: str | torch.device | None = None,
        dim: int | None = None,
    ) -> Self:
        """Open a model of ours, a sentence-transformers folder (transformer and pooling), or any supported encoder.

        Pooling and length are the model's own where it states them; a plain encoder is pooled by its mean. With
        ``dim`` only so many numbers of each vector are kept, as sentence-transformers' ``truncate_dim`` does.
        """
        config = load_config(name_or_path)
        if isinstance(config, SentenceEncoderConfig):
            if pooling is not None:
                config = type(config).from_dict(config.to_dict() | {"pooling": pooling})
            with quiet_loading():
                model = AutoModel.from_pretrained(name_or_path, config=config, dtype=dtype)
        else:
            stated = sentence_transformer_settings(name_or_path)
            kept = stated.pop("dim", None)
            dim = kept if dim is None else dim
            stated["pooling"] = pooling or stated.get("pooling", "mean")
            longest = family(config).max_length(config)
            stated["max_length"] = min(max_length or stated.get("max_length", 512), longest)
            model = SentenceEncoder.from_backbone(name_or_path, dtype=dtype, **stated)
        if device is None:
            device = "cuda" if torch.cuda.is_available() else "cpu"
        return cls(model.to(device).eval(), load_tokenizer(name_or_path), max_length, layer, dim=dim)

    @property
    def pooling(self) -> str:
        """How token states become a sentence vector."""
        return self.model.config.pooling

    @torch.inference_mode()
    def encode(self, sentences: Sequence[str], language: str | None = None, show_progress: bool = False) -> np.ndarray:
        """N × width float32 vectors, row i for sentence i; ``language`` for models with language embeddings."""
        if isinstance(sentences, str):
            raise ModelError("encode takes a list of sentences: put the one sentence into a list")
        ids = self._tokenize(sentences)
        order = sorted(range(len(ids)), key=lambda i: len(ids[i]), reverse=True)  # longest first: memory peaks at once
        vectors = np.empty((len(ids), self.width), dtype=np.float32)
        bar = tqdm(total=len(ids), desc="encoding", unit="sentence", disable=None if show_progress else True)
        start = 0
        with bar, _evaluating(self.model):
            while start < len(order):
                count = max(1, self.tokens_per_batch // len(ids[order[start]]))
                rows = order[start : start + count]
                vectors[rows] = self._embed([ids[i] for i in rows], language)
                start += count
                bar.update(len(rows))
        return vectors

    def _tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(sentences), _SENTENCES_PER_TOKENIZER_CALL):
            some = list(sentences[start : start + _SENTENCES_PER_TOKENIZER_CALL])
            ids += self.tokenizer(some, truncation=True, max_length=self.max_length)["input_ids"]
        return ids

    def _embed(self, ids: list[list[int]], language: str | None) -> np.ndarray:
        device = self.model.device
        longest = max(map(len, ids))
        mask = torch.arange(longest) < torch.tensor([len(row) for row in ids])[:, None]
        padded = torch.zeros(mask.shape, dtype=torch.long)
        padded[mask] = torch.tensor([token for row in ids for token in row])
        languages = None
        if self.model.config.languages:
            languages = torch.full((len(ids),), self._language_id(language), device=device)
        vectors = self._run([padded.to(device)], [mask.long().to(device)], languages)
        return vectors[:, : self.width].float().cpu().numpy()

    def _run(self, ids: list[Tensor], masks: list[Tensor], languages: Tensor | None) -> Tensor:
        return self.model.embed(ids, masks, languages, self.layer)

    def _language_id(self, language: str | None) -> int:
        known: list[str] = self.model.config.languages
        if language is None or language not in known:
            raise ModelError(f"this model has language embeddings for {', '.join(known)}: pass one as language")
        return known.index(language)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Without dropout; afterwards each part is in the mode it was in, also after an error."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def sentence_transformer_settings(name_or_path: str) -> dict[str, Any]:
    """Pooling, normalisation, length and cut of a sentence-transformers folder or Hub id; empty for a plain encoder."""
    modules = _stated(name_or_path, "modules.json")
    if modules is None:
        return {}
    settings: dict[str, Any] = {}
    for module in modules:
        kind = module["type"].rsplit(".", 1)[-1]
        if kind == "Pooling":
            settings["pooling"] = _pooling(_stated(name_or_path, f"{module['path']}/config.json") or {})
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind != "Transformer":
            raise ModelError(
                f"{name_or_path!r} has a module {kind}: open it with sentence_transformers.SentenceTransformer"
            )
    places = {"max_length": [("sentence_bert_config.json", "max_seq_length"),  # before version 6
                             ("tokenizer_config.json", "model_max_length")],
              "dim": [("config_sentence_transformers.json", "truncate_dim")]}  # fmt: skip
    for setting, files in places.items():
        stated = [(_stated(name_or_path, file) or {}).get(key) for file, key in files]
        if any(stated):
            settings[setting] = int(next(filter(None, stated)))
    return settings


def _stated(name_or_path: str, file: str) -> Any:
    """A JSON file of a model folder or Hub id; None where there is none."""
    found = cached_file(
        name_or_path,
        file,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if found is None else json.loads(Path(found).read_text(encoding="utf-8"))


def _pooling(config: dict[str, Any]) -> str:
    """Both layouts: ``pooling_mode`` of version 6, one ``pooling_mode_*`` flag each before."""
    legacy = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
    modes = [mode for key, mode in legacy.items() if config.get(key)] or [str(config.get("pooling_mode"))]
    if len(modes) != 1 or modes[0] not in legacy.values():
        raise ModelError(f"this pooling is not supported: {config}")
    return modes[0]
