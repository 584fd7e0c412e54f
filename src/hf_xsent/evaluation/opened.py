"""Take opened models, and names, as models to evaluate."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from hf_xsent.errors import ModelError
from hf_xsent.models.embedder import SentenceEmbedder

_LENGTHS = ("max_seq_length", "max_length")  # of SentenceTransformer, and of ours


def is_name(model: Any) -> bool:
    """Return whether a model is named by its folder or Hub id."""
    return isinstance(model, str) or (isinstance(model, os.PathLike) and not hasattr(model, "encode"))


def open_models(models: Mapping[str, Any] | Sequence[Any]) -> dict[str, Any]:
    """Return opened models by name: that of a mapping, a folder or Hub id, or the class with its place of several."""
    if not isinstance(models, Mapping):
        several = len(models) > 1
        models = {
            os.fspath(model) if is_name(model) else f"{type(model).__name__}{f' {place}' if several else ''}": model
            for place, model in enumerate(models, 1)
        }
    for model in models.values():
        if not is_name(model) and not hasattr(model, "encode"):
            kind = type(model).__name__
            raise ModelError(f"{kind} has no encode: give a folder, a Hub id or a model that encodes text")
    return {
        name: SentenceEmbedder.from_pretrained(model) if is_name(model) else model for name, model in models.items()
    }


@contextmanager
def reading(models: Iterable[Any], max_length: int | None) -> Iterator[None]:
    """Let opened models read up to ``max_length`` tokens of a text in the block."""
    if max_length is None:
        yield
        return
    before = []
    try:
        for model in models:
            name = next((name for name in _LENGTHS if isinstance(getattr(model, name, None), int)), None)
            if name is None:
                kind = type(model).__name__
                raise ModelError(f"{kind} has no max_seq_length, which max_length could change: drop max_length")
            if not 2 <= max_length <= (longest := getattr(model, "longest_input", max_length)):
                raise ModelError(f"max_length {max_length} does not fit: this encoder takes 2 to {longest} tokens")
            before.append((model, name, getattr(model, name)))
            setattr(model, name, max_length)
        yield
    finally:
        for model, name, length in reversed(before):
            setattr(model, name, length)
