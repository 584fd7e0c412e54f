"""Open models and pairs, given as objects or by name."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.cache import default_cache_dir
from hf_xsent.data.in_memory import is_in_memory, write_sources
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.sources import BitextSource, resolve_sources
from hf_xsent.errors import ModelError, RecipeError
from hf_xsent.files import digest
from hf_xsent.mining.shards import ProcessRunner, default_device
from hf_xsent.mining.vectors import identify_model
from hf_xsent.models.embedder import SentenceEmbedder

# The last one is longer than the maximum length of most models, so that a changed one changes its embedding.
_PROBES = ("A dog runs.", "Ein zweiter Satz.", "第三句话。", " ".join(map(str, range(600))))


def open_encoder(model: Any, options: Mapping[str, Any], open_named: Any = None) -> tuple[Any, dict[str, str]]:
    """Return an encoder, and the values that identify its embeddings in a work folder.

    ``model`` is a folder or Hub id, opened with ``options``, or any object with ``encode``, such as our models and
    SentenceTransformer, which is identified by the embeddings of a few sentences.
    """
    if isinstance(model, str | os.PathLike):
        name = os.fspath(model)
        encoder = (open_named or SentenceEmbedder.from_pretrained)(name, **options)
        return encoder, identify_model(name, encoder)
    if not hasattr(model, "encode"):
        raise ModelError(f"{type(model).__name__} has no encode: give a folder, a Hub id or a model that encodes text")
    if stated := [name for name, value in options.items() if value not in (None, "float32") and name != "device"]:
        raise ModelError(f"{stated[0]} applies to a model given by its folder or Hub id: set it on the model")
    vectors = np.asarray(model.encode(list(_PROBES)), dtype=np.float32)
    return model, {"model": digest(vectors.round(3).tobytes())}


def one_source(
    pairs: Any,
    language: str = "und",
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    **links: Any,
) -> BitextSource:
    """Return a single source of pairs, given as a path or in memory."""
    if is_in_memory(pairs):
        folder = default_cache_dir() / "in_memory"
        plain = None if isinstance(columns, Mapping) else columns
        data: Any = write_sources(pairs, folder, target_language, plain, "train", language)
    else:
        data = {language: pairs}
    sources = resolve_sources(data, target_language=target_language, columns=columns, **links)[language]
    if len(sources) > 1:
        raise RecipeError(f"{pairs} matches {len(sources)} files: give one file per run")
    return sources[0]


def this_process() -> ProcessRunner:
    """Return this process's rank and the number of processes, which torchrun sets."""
    return ProcessRunner(int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1)))


def this_device(device: str | None) -> str:
    """Return the device, by default this process's GPU if it has one."""
    return device or default_device(int(os.environ.get("LOCAL_RANK", 0)))


def work_folder(work: str | Path | None, output: str | Path) -> Path:
    """Return the folder of intermediate results."""
    return Path(work or f"{str(output).rstrip('/')}.work")
