"""What every objective reads: a batch of sentence pairs, encoded once."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class PairEncoding:
    """N pairs; row i of ``target`` is the translation of row i of ``source``."""

    source: Tensor  # N × d sentence vectors
    target: Tensor  # N × d
    source_identity: Tensor  # N: equal numbers where the sentences are equal
    target_identity: Tensor  # N
