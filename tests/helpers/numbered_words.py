"""A model for tests of mining whose sentences are a letter and a number."""

from __future__ import annotations

import numpy as np


class Words:
    """A model whose vectors are of the sentence's number, so that ``a7`` and ``b7`` translate each other."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.encoded: list[str] = []
        self.fail_after = fail_after

    def encode(self, texts: list[str]) -> np.ndarray:
        self.encoded += [text for text in texts if text[1:].isdecimal()]
        if self.fail_after is not None and len(self.encoded) > self.fail_after:
            raise KeyboardInterrupt
        return np.array([vector(text) for text in texts], dtype=np.float32)


def vector(text: str) -> np.ndarray:
    """Return the vector of a sentence's number with a little noise of its letter."""
    number = int(text[1:]) if text[1:].isdecimal() else len(text)
    meaning = np.random.default_rng(number).standard_normal(24)
    return meaning + 0.2 * np.random.default_rng(ord(text[0]) * 1000 + number).standard_normal(24)
