"""Define the encode interface that evaluation and mining use, and check its embeddings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hf_xsent.errors import DataError

_ROWS_AT_ONCE = 4096


class SupportsEncode(Protocol):
    """The interface of SentenceEmbedder and SentenceTransformer."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """Return one embedding per sentence."""


def check_finite(vectors: np.ndarray, precision: str, name: Callable[[int], str]) -> None:
    """Raise an error if an embedding has NaN or infinite values; ``name`` describes the sentence of a row."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        finite = np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(1)
        if not finite.all():
            raise DataError(
                f"{name(start + int(finite.argmin()))} has a vector that is not finite in {precision}: "
                "is the model complete? float32 holds larger numbers than float16"
            )
