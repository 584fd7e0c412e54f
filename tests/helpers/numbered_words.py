"""Embed sentences such as ``a7`` by their number, for tests of mining."""

from __future__ import annotations

import numpy as np


class Words:
    """A model whose vectors are of the sentence's number, so that ``a7`` and ``b7`` translate each other."""

    def __init__(self, fail_after: int | None = None) -> None:
        self.encoded: list[str] = []
        self.fail_after = fail_after

    def encode(self, texts: list[str]) -> np.ndarray:
        self.encoded += texts
        if self.fail_after is not None and len(self.encoded) > self.fail_after:
            raise KeyboardInterrupt
        rows = []
        for text in texts:
            meaning = np.random.default_rng(int(text[1:])).standard_normal(24)
            rows.append(meaning + 0.2 * np.random.default_rng(ord(text[0]) * 1000 + int(text[1:])).standard_normal(24))
        return np.array(rows, dtype=np.float32)
