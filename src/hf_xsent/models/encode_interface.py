"""Define the encode interface that evaluation and mining use, and check its embeddings."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from hf_xsent.errors import DataError, ModelError

QUERY, DOCUMENT = ("query",), ("document", "passage", "corpus")  # names of prompts, as sentence-transformers has them
_ROWS_AT_ONCE = 4096


class SupportsEncode(Protocol):
    """The interface of SentenceEmbedder and SentenceTransformer."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return one embedding per sentence."""


class SentenceTransformerMethods:
    """The methods of SentenceTransformer that its evaluators call, with the arguments that they pass."""

    similarity_fn_name = "cosine"

    def _prompts(self) -> Mapping[str, str]:
        """Return the model's prompts by name."""
        return {}

    _vectors: Callable[..., np.ndarray]  # a method of each subclass

    def encode(
        self,
        sentences: Sequence[str],
        language: str | None = None,
        show_progress: bool = False,
        *,
        prompt: str | None = None,
        normalize_embeddings: bool = False,
        truncate_dim: int | None = None,
        convert_to_numpy: bool = True,
        convert_to_tensor: bool = False,
        show_progress_bar: bool | None = False,
        batch_size: int | None = None,
        prompt_name: str | None = None,
        precision: str | None = None,
    ) -> Any:
        """Return N × width float32 embeddings; ``language`` is needed by models with language embeddings.

        Other arguments are those of ``SentenceTransformer.encode``. ``batch_size`` has no effect: a batch holds
        sentences of similar lengths, up to a number of tokens.
        """
        if prompt is None and prompt_name is not None:
            if prompt_name not in self._prompts():
                raise ModelError(f"this model has no prompt named {prompt_name!r}: give its text as prompt")
            prompt = self._prompts()[prompt_name]
        if precision not in (None, "float32"):
            raise ModelError(f"embeddings are float32, not {precision}: use sentence_transformers.quantize_embeddings")
        vectors = self._vectors(sentences, language, bool(show_progress or show_progress_bar), prompt, truncate_dim)
        if normalize_embeddings:
            vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
        if convert_to_tensor:
            return torch.from_numpy(vectors)
        return vectors if convert_to_numpy else list(torch.from_numpy(vectors))

    def encode_query(self, sentences: Sequence[str], **options: Any) -> Any:
        """Encode like ``encode``, by default with the prompt named query; without it, with no prompt."""
        return self._encode_with_prompt_of(QUERY, sentences, options)

    def encode_document(self, sentences: Sequence[str], **options: Any) -> Any:
        """Encode like ``encode``, by default with the first of the prompts document, passage, corpus, or with none."""
        return self._encode_with_prompt_of(DOCUMENT, sentences, options)

    def _encode_with_prompt_of(self, names: Sequence[str], sentences: Sequence[str], options: dict[str, Any]) -> Any:
        if options.get("prompt") is None and options.get("prompt_name") is None:
            prompts = self._prompts()
            options["prompt"] = next((prompts[name] for name in names if name in prompts), "")
        return self.encode(sentences, **options)

    @staticmethod
    def similarity(first: Any, second: Any) -> Tensor:
        """Return the N × M cosines of two sets of embeddings."""
        first, second = (F.normalize(torch.as_tensor(vectors), dim=-1) for vectors in (first, second))
        return first @ second.T

    @property
    def model_card_data(self) -> SimpleNamespace:
        """Discard metrics of sentence-transformers' evaluators; ``hf-xsent publish`` reads results files."""
        return SimpleNamespace(set_evaluation_metrics=lambda *_, **__: None)


def check_finite(vectors: np.ndarray, precision: str, name: Callable[[int], str]) -> None:
    """Raise an error if an embedding has NaN or infinite values; ``name`` describes the sentence of a row."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        finite = np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(1)
        if not finite.all():
            raise DataError(
                f"{name(start + int(finite.argmin()))} has a vector that is not finite in {precision}: "
                "its weights may be damaged or, in float16, too large: use float32"
            )
