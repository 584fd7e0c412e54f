"""What evaluation and mining need of a model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np


class Encodes(Protocol):
    """SentenceEmbedder and SentenceTransformer have it."""

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        """One vector a sentence."""
