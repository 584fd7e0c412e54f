"""Encode text into sentence embeddings: the interface of all encoders, and a model with its tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import DataError, ModelError, did_you_mean
from hf_xsent.models.batching import batches_by_length, evaluating, pad_rows, usual_tokens
from hf_xsent.models.families import family
from hf_xsent.models.loading import check_ids
from hf_xsent.settings.convert import convert
from hf_xsent.tensors.packing import POOLINGS

_SENTENCES_PER_TOKENIZER_CALL = 4096
_ROWS_AT_ONCE = 4096


class SupportsEncode(Protocol):
    """The interface of SentenceEmbedder and SentenceTransformer."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return one embedding per sentence."""


class SentenceTransformerMethods:
    """The methods of SentenceTransformer that its evaluators call, with the arguments that they pass."""

    similarity_fn_name = "cosine"

    config: Any  # of the model
    _vectors: Callable[..., np.ndarray]  # a method of each subclass

    def encode(
        self,
        sentences: Iterable[str],
        prompt_name: str | None = None,
        prompt: str | None = None,
        *,
        language: str | None = None,
        show_progress: bool = False,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        show_progress_bar: bool | None = False,
        batch_size: int | None = None,
        precision: str | None = None,
    ) -> Any:
        """Return N × width float32 embeddings; ``language`` is needed by models with language embeddings.

        Other arguments are those of ``SentenceTransformer.encode``. ``batch_size`` has no effect: a batch holds
        sentences of similar lengths, up to a number of tokens.
        """
        if prompt is None and prompt_name is not None:
            prompt = named_prompts(self.config.prompts).get(prompt_name)
            if prompt is None:
                raise ModelError(f"this model has no prompt named {prompt_name!r}: give its text as prompt")
        if precision not in (None, "float32"):
            raise ModelError(f"embeddings are float32, not {precision}: use sentence_transformers.quantize_embeddings")
        vectors = self._vectors(sentences, language, bool(show_progress or show_progress_bar), prompt, truncate_dim)
        if normalize_embeddings:
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
        if convert_to_tensor:
            return torch.from_numpy(vectors)
        return vectors if convert_to_numpy else list(torch.from_numpy(vectors))

    def encode_query(self, sentences: Iterable[str], **options: Any) -> Any:
        """Encode like ``encode``, by default with the prompt named query; without it, with no prompt."""
        return self.encode(sentences, **options | {"prompt_name": options.get("prompt_name") or "query"})

    def encode_document(self, sentences: Iterable[str], **options: Any) -> Any:
        """Encode like ``encode``, by default with the first of the prompts document, passage, corpus, or with none."""
        return self.encode(sentences, **options | {"prompt_name": options.get("prompt_name") or "document"})

    @staticmethod
    def similarity(first: Any, second: Any) -> Tensor:
        """Return the N × M cosines of two sets of embeddings."""
        first, second = (F.normalize(torch.as_tensor(vectors), dim=-1) for vectors in (first, second))
        return first @ second.T

    @property
    def model_card_data(self) -> SimpleNamespace:
        """Discard metrics of sentence-transformers' evaluators; ``hf-xsent publish`` reads results files."""
        return SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)


def named_prompts(prompts: Mapping[str, str] | None) -> dict[str, str]:
    """Return prompts by name, also ``query`` and ``document``, which each SentenceTransformer has, if only empty ones.

    An empty ``document`` has the text of ``passage`` or ``corpus``, if any.

    >>> named_prompts({"passage": "passage: "})
    {'query': '', 'passage': 'passage: ', 'document': 'passage: '}
    """
    named = {"query": "", **(prompts or {})}
    texts = (named.get(name) for name in ("document", "passage", "corpus"))
    return named | {"document": next(filter(None, texts), "")}


@dataclass(frozen=True)
class View:
    """The layer whose hidden states are pooled into a sentence embedding, and the pooling."""

    layer: int | None  # 0: the embeddings; None: the model's mix of layers
    pooling: str


class TextEncoder(SentenceTransformerMethods):
    """A sentence encoder and its tokenizer, which encode sentences in packed batches of similar lengths."""

    def __init__(
        self,
        model: Any,
        tokenizer: PreTrainedTokenizerBase,
        max_length: int | None = None,
        layer: int | None = None,
        dim: int | None = None,
        prompt: str | None = None,
    ) -> None:
        numbers = {"max_length": max_length, "layer": layer, "dim": dim}
        max_length, layer, dim = (convert(name, value, int | None) for name, value in numbers.items())
        self.longest_input: int = family(model.config.encoder_config).max_length(model.config.encoder_config)
        if max_length is not None and not 3 <= max_length <= self.longest_input:
            takes = f"this encoder takes 3 to {self.longest_input} tokens"
            raise ModelError(f"max_length {max_length} does not fit: {takes}")
        width: int = model.config.encoder_config.hidden_size
        if dim is not None and not 1 <= dim <= width:
            raise ModelError(f"dim {dim} does not exist: the embeddings of this model have {width} dimensions")
        self.model, self.config = model, model.config
        self.tokenizer = tokenizer
        self.max_length = max_length or model.config.max_length
        self.tokens_per_batch = usual_tokens(model.device)
        self.width = dim or model.config.dim or width
        self.prompt: str = model.config.default_prompt if prompt is None else prompt  # prepended to each sentence
        self.cut: set[str] | None = None  # collects the texts, with their prompts, that are longer than max_length
        self.view = View(model.default_layer if layer is None else layer, model.config.pooling)
        self.check_views([self.view])

    @property
    def role_prompts(self) -> dict[str, str]:
        """The prompts of the roles of texts: ``query``, ``document``, and none, which has the default prompt."""
        named = named_prompts(self.config.prompts)
        return {"": self.prompt, "query": named["query"], "document": named["document"]}

    @property
    def pooling(self) -> str:
        """The pooling of the model's config."""
        return self.model.config.pooling

    def check_views(self, views: Sequence[View]) -> None:
        """Raise an error for layers and poolings that do not exist."""
        last, own = len(self.model.backbone.layers), View(self.model.default_layer, self.pooling)
        for view in views:
            if view.layer is not None and not 0 <= view.layer <= last:
                layers = f"this encoder has layers 0 (embeddings) to {last}"
                raise ModelError(f"layer {view.layer} does not exist: {layers}")
            if view.pooling not in POOLINGS:
                choices = f"use one of {', '.join(POOLINGS)}{did_you_mean(view.pooling, POOLINGS)}"
                raise ModelError(f"unknown pooling {view.pooling!r}: {choices}")
            if self.model.linear_map is not None and own.layer is not None and view != own:
                raise ModelError("this model maps its last layer: it has no other layers or poolings")
            if view.layer is None and view.pooling != self.pooling:
                raise ModelError(
                    f"this model mixes its layers and has no pooling {view.pooling!r}: omit it, or also name a layer"
                )

    def _vectors(
        self, sentences: Iterable[str], language: str | None, progress: bool, prompt: str | None, dim: int | None
    ) -> np.ndarray:
        encoder = copy(self)
        encoder.prompt = self.prompt if prompt is None else prompt
        encoder.width = self.width if dim is None else min(dim, self.config.encoder_config.hidden_size)
        return encoder.encode_views(sentences, [self.view], language, progress)[0]

    @torch.inference_mode()
    def encode_views(
        self,
        sentences: Iterable[str],
        views: Sequence[View],
        language: str | None = None,
        show_progress: bool = False,
        into: Sequence[np.ndarray] | None = None,
    ) -> list[np.ndarray]:
        """Return embeddings for each view from one pass through the encoder; fill the arrays ``into`` if given."""
        refuse_single_sentence(sentences)
        self.check_views(views)
        ids = self._tokenize(sentences if isinstance(sentences, Sequence) else list(sentences))
        vectors = [np.empty((len(ids), self.width), np.float32) for _ in views] if into is None else list(into)
        progress = "encoding" if show_progress else None
        with evaluating(self.model):
            for rows in batches_by_length([len(row) for row in ids], self.tokens_per_batch, progress):
                for array, batch in zip(vectors, self._embed([ids[i] for i in rows], views, language), strict=True):
                    array[rows] = batch[:, : self.width].float().cpu().numpy()
        return vectors

    def _tokenize(self, sentences: Sequence[str]) -> list[list[int]]:
        ids: list[list[int]] = []
        for start in range(0, len(sentences), _SENTENCES_PER_TOKENIZER_CALL):
            block = sentences[start : start + _SENTENCES_PER_TOKENIZER_CALL]
            for row, sentence in enumerate(block, start):
                if not isinstance(sentence, str):
                    raise ModelError(f"encode takes a list of strings, but sentence {row} is {sentence!r}: remove it")
            texts = [self.prompt + sentence for sentence in block]
            batch = self.tokenizer(texts, truncation=True, max_length=self.max_length)
            check_ids(batch["input_ids"], self.tokenizer, self.config.encoder_config)
            ids += batch["input_ids"]
            if self.cut is not None:  # tokenizers in Python have no encodings
                rows = zip(texts, batch.encodings or (), strict=False)
                self.cut.update(text for text, encoding in rows if encoding.overflowing)
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
            raise ModelError(
                f"this model has language embeddings for {', '.join(known)}: pass one to its method encode, as in "
                f"encode(texts, language={known[0]!r}); functions and commands that do not cannot use such models"
            )
        return known.index(language)


def as_array(vectors: Any, texts: int) -> np.ndarray:
    """Return the embeddings of N texts by any ``encode`` as an array (N × width); a tensor may require gradients."""
    array = np.asarray(vectors.detach().float().cpu() if isinstance(vectors, Tensor) else vectors)
    if len(array.shape) != 2 or len(array) != texts:
        raise ModelError(
            f"encode returned an array of the shape {array.shape} for {texts} texts: return one vector per text"
        )
    return array


def check_finite(vectors: np.ndarray, precision: str, name: Callable[[int], str]) -> None:
    """Raise an error if an embedding has NaN or infinite values; ``name`` describes the sentence of a row."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        finite = np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(1)
        if not finite.all():
            raise DataError(
                f"{name(start + int(finite.argmin()))} has a vector that is not finite in {precision}: "
                "its weights may be damaged or, in float16, too large: use float32"
            )


def refuse_single_sentence(sentences: object) -> None:
    """Raise an error for a sentence in place of a list, whose characters would be encoded."""
    if isinstance(sentences, str) or not isinstance(sentences, Iterable):
        raise ModelError(f"encode takes a list of sentences, not {type(sentences).__name__}: use [sentence]")
