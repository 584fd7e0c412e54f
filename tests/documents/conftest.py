from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

WIDTH = 64


class Meanings:
    """A model for sentences such as ``de: 3 4``: the mean of their words' meanings, whatever the language."""

    def __init__(self) -> None:
        self.encoded: list[str] = []

    def encode(self, sentences: Sequence[str]) -> np.ndarray:
        self.encoded += sentences
        return np.array([self._vector(one) for one in sentences], np.float32)

    def _vector(self, sentence: str) -> np.ndarray:
        words = [
            np.random.default_rng(int(word)).standard_normal(WIDTH) for word in sentence.split() if word.isdecimal()
        ]
        noise = np.random.default_rng(sum(sentence.encode())).standard_normal(WIDTH)
        return np.mean(words, axis=0) + 0.15 * noise + 0.3


@pytest.fixture
def model() -> Any:
    return Meanings()
