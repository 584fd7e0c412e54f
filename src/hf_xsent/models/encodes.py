"""What evaluation and mining need of a model, and of its vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import numpy as np

from hf_xsent.errors import DataError

_ROWS_AT_ONCE = 4096


class SupportsEncode(Protocol):
    """SentenceEmbedder and SentenceTransformer have it."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """One vector a sentence."""


def check_finite(vectors: np.ndarray, precision: str, name: Callable[[int], str]) -> None:
    """Refuse vectors that are no numbers, of which any score would be noise; ``name`` says whose a row is."""
    for start in range(0, len(vectors), _ROWS_AT_ONCE):
        finite = np.isfinite(vectors[start : start + _ROWS_AT_ONCE]).all(1)
        if not finite.all():
            raise DataError(
                f"{name(start + int(finite.argmin()))} has a vector that is not finite in {precision}: "
                "is the model whole? float32 holds larger numbers than float16"
            )
