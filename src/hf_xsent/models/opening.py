"""Open the model of a command, given by name or as an object, on the device of this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from hf_xsent.errors import ModelError
from hf_xsent.files import digest
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.runs.identity import identify_model
from hf_xsent.settings.common import EncodingSettings

# The last one is longer than the maximum length of most models, so that a changed one changes its embedding.
_PROBES = ("A dog runs.", "Ein zweiter Satz.", "第三句话。", " ".join(map(str, range(600))))


def open_encoder(
    settings: EncodingSettings,
    device: str | None = None,
    open_named: Callable[..., SentenceEmbedder] | None = None,
) -> tuple[Any, dict[str, str]]:
    """Return the encoder on ``device`` (default: this process's), and the values that identify its embeddings.

    The model is a folder or Hub id, or any object with ``encode``, such as our models and SentenceTransformer, which is
    identified by the embeddings of a few sentences.
    """
    model = settings.model
    options = {name: getattr(settings, name) for name in ("pooling", "max_length", "precision")}
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        options["device"] = device or this_device(settings.device)
        embedder = (open_named or SentenceEmbedder.from_pretrained)(name, **options)
        return embedder, identify_embeddings(name, embedder)
    if not hasattr(model, "encode"):
        raise ModelError(f"{type(model).__name__} has no encode: give a folder, a Hub id or a model that encodes text")
    if ignored := [name for name, value in options.items() if value not in (None, "float32")]:
        raise ModelError(f"{ignored[0]} applies to a model given by its folder or Hub id: set it on the model")
    vectors = np.asarray(model.encode(list(_PROBES)), dtype=np.float32)
    return model, {"model": digest(vectors.round(3).tobytes())}


def identify_embeddings(name_or_path: str, embedder: SentenceEmbedder) -> dict[str, str]:
    """Return everything that determines an embedding besides the sentence."""
    return {
        "model": identify_model(name_or_path),
        "pooling": embedder.pooling,
        "max_length": str(embedder.max_length),
        "precision": str(embedder.model.dtype).removeprefix("torch."),
        "prompt": embedder.prompt,
    }


def this_device(device: str | None = None) -> str:
    """Return the device: by default the GPU of this process, which processes may share, or the CPU."""
    if device or not torch.cuda.is_available():
        return device or "cpu"
    return f"cuda:{int(os.environ.get('LOCAL_RANK', 0)) % torch.cuda.device_count()}"


def is_first_process() -> bool:
    """Return whether this process writes the results of all processes, which torchrun starts."""
    return int(os.environ.get("RANK", 0)) == 0
