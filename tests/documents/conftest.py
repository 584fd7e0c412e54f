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
        self.encoded += [sentence for sentence in sentences if sentence[2:4] == ": "]
        return np.array([self._vector(sentence) for sentence in sentences], np.float32)

    def _vector(self, sentence: str) -> np.ndarray:
        numbers = [int(word) for word in sentence.split() if word.isdecimal()] or [len(sentence)]
        words = [np.random.default_rng(number).standard_normal(WIDTH) for number in numbers]
        noise = np.random.default_rng(sum(sentence.encode())).standard_normal(WIDTH)
        return np.mean(words, axis=0) + 0.15 * noise + 0.3


@pytest.fixture
def model() -> Any:
    return Meanings()
