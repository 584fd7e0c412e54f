"""Encode text into sentence embeddings with a model and its tokenizer, for evaluation, mining and search."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor
from transformers import AutoModel, PreTrainedTokenizerBase

from hf_xsent.errors import ModelError, nearest
from hf_xsent.models.batching import batches_by_length, evaluating, pad_rows
from hf_xsent.models.exported import open_exported, sentence_transformer_settings
from hf_xsent.models.families import family
from hf_xsent.models.loading import check_weights, load_config, load_tokenizer, loading_errors, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder, SentenceEncoderConfig, View
from hf_xsent.tensors.packing import POOLINGS

if TYPE_CHECKING:
    from typing_extensions import Self

_SENTENCES_PER_TOKENIZER_CALL = 4096


class SentenceEmbedder:
    """A model and its tokenizer, which encode sentences in packed batches of similar lengths."""

    def __init__(
        self,
        model: SentenceEncoder,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
        layer: int | None = None,
        tokens_per_batch: int = 8192,
        dim: int | None = None,
        prompt: str = "",
    ) -> None:
        self.longest_input: int = family(model.config.encoder_config).max_length(model.config.encoder_config)
        if max_length is not None and not 2 <= max_length <= self.longest_input:
            takes = f"this encoder takes 2 to {self.longest_input} tokens"
            raise ModelError(f"max_length {max_length} does not fit: {takes}")
        width = model.config.encoder_config.hidden_size
        if dim is not None and not 1 <= dim <= width:
            raise ModelError(f"dim {dim} does not exist: the embeddings of this model have {width} dimensions")
        self.model = model
        self.tokenizer = tokenizer
        self.max_length = max_length or model.config.max_length
        self.tokens_per_batch = tokens_per_batch
        self.width: int = dim or width
        self.prompt = prompt  # prepended to each sentence
        self.view = View(model.default_layer if layer is None else layer, model.config.pooling)
        self.check_views([self.view])

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
        """Open a model of this package, a sentence-transformers model (transformer and pooling) or a supported encoder.

        Without arguments, pooling, max_length and prompt are those of the model; the default pooling is mean. ``dim``
        truncates embeddings, like ``truncate_dim`` of sentence-transformers.
        """
        device = _device(device)
        prompt = ""
        config = load_config(name_or_path)
        if isinstance(config, SentenceEncoderConfig):
            if pooling is not None:
                config = type(config).from_dict(config.to_dict() | {"pooling": pooling})
            with quiet_loading(), loading_errors(name_or_path, "readable weights (model.safetensors)"):
                model = AutoModel.from_pretrained(name_or_path, config=config, dtype=dtype)
        else:
            stated = sentence_transformer_settings(name_or_path)
            default_dim, prompt = stated.pop("dim", None), stated.pop("prompt", "")
            dim = default_dim if dim is None else dim
            if pooling is not None and "extraction" in stated:
                raise ModelError(f"{name_or_path!r} mixes its layers and has no pooling {pooling!r}: omit it")
            stated["pooling"] = pooling or stated.get("pooling", "mean")
            longest = family(config).max_length(config)
            stated["max_length"] = min(max_length or stated.get("max_length", 512), longest)
            model = open_exported(name_or_path, dtype, stated)
        check_weights(model, name_or_path)
        return cls(model.to(device).eval(), load_tokenizer(name_or_path), max_length, layer, dim=dim, prompt=prompt)

    @property
    def pooling(self) -> str:
        """The pooling of the model's config."""
        return self.model.config.pooling

    def check_views(self, views: Sequence[View]) -> None:
        """Raise an error for layers and poolings that do not exist."""
        last = len(self.model.backbone.layers)
        for view in views:
            if view.layer is not None and not 0 <= view.layer <= last:
                layers = f"this encoder has layers 0 (embeddings) to {last}"
                raise ModelError(f"layer {view.layer} does not exist: {layers}")
            if view.pooling not in POOLINGS:
                choices = f"use one of {', '.join(POOLINGS)}{nearest(view.pooling, POOLINGS)}"
                raise ModelError(f"unknown pooling {view.pooling!r}: {choices}")
            if view.layer is None and view.pooling != self.pooling:
                raise ModelError(
                    f"this model mixes its layers and has no pooling {view.pooling!r}: omit it, name layers"
                )

    def encode(self, sentences: Sequence[str], language: str | None = None, show_progress: bool = False) -> np.ndarray:
        """Return N × width float32 embeddings; ``language`` is needed by models with language embeddings."""
        return self.encode_views(sentences, [self.view], language, show_progress)[0]

    @torch.inference_mode()
    def encode_views(
        self,
        sentences: Sequence[str],
        views: Sequence[View],
        language: str | None = None,
        show_progress: bool = False,
        into: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return embeddings for each view from one pass through the encoder; fill the arrays ``into`` if given."""
        if isinstance(sentences, str):
            raise ModelError("encode takes a list of sentences, not a string: use [sentence]")
        self.check_views(views)
        ids = self._tokenize(sentences)
        vectors = [np.empty((len(ids), self.width), np.float32) for _ in views] if into is None else list(into)
        progress = "encoding" if show_progress else None
        with evaluating(self.model):
            for rows in batches_by_length([len(one) for one in ids], self.tokens_per_batch, progress):
                for array, batch in zip(vectors, self._embed([ids[i] for i in rows], views, language), strict=True):
                    array[rows] = batch[:, : self.width].float().cpu().numpy()
        return vectors

    def _tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(sentences), _SENTENCES_PER_TOKENIZER_CALL):
            texts = [self.prompt + one for one in sentences[start : start + _SENTENCES_PER_TOKENIZER_CALL]]
            ids += self.tokenizer(texts, truncation=True, max_length=self.max_length)["input_ids"]
        return ids

    def _embed(self, ids: list[list[int]], views: Sequence[View], language: str | None) -> list[Tensor]:
        device = self.model.device
        padded, mask = pad_rows(ids)
        languages = None
        if self.model.config.languages:
            languages = torch.full((len(ids),), self._language_id(language), device=device)
        return self._run([padded.to(device)], [mask.long().to(device)], views, languages)

    def _run(
        self, ids: list[Tensor], masks: list[Tensor], views: Sequence[View], languages: Tensor | None
    ) -> list[Tensor]:
        return self.model.embed_views(ids, masks, views, languages)

    def _language_id(self, language: str | None) -> int:
        known: list[str] = self.model.config.languages
        if language is None or language not in known:
            raise ModelError(f"this model has language embeddings for {', '.join(known)}: pass one as language")
        return known.index(language)


def _device(device: str | torch.device | None) -> torch.device:
    """Return the device, by default a GPU if available; raise an error if it is not usable."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:  # unknown, or not in this machine
        reason = str(error).splitlines()[0]
        raise ModelError(f"device {str(device)!r} is not available, use cpu or cuda: {reason}") from error
    return chosen
