"""Identify the embeddings of a model; choose the device and the part of this process."""

from __future__ import annotations

import os

import torch

from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.runs.identity import identify_model


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
