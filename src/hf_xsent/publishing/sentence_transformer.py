"""Export to a plain encoder folder that AutoModel and every sentence-transformers version open without our code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import ModelError, OutputError
from hf_xsent.files import write_json, writing
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.loading import load_tokenizer, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder
from hf_xsent.publishing.extraction import DENSE, WEIGHTED_LAYERS, write_dense, write_weighted_layers

_SAMPLE = (
    "A sentence to compare vectors with.",
    "Ein zweiter Satz.",
    "第三句话。",
    "Третье предложение, немного длиннее.",
)
_LARGEST_DIFFERENCE = {torch.float32: 1e-5, torch.float16: 5e-3}

# The names of version 2 to 5, which version 6 still reads; its own names do not open in older versions.
_TRANSFORMER = "sentence_transformers.models.Transformer"
_POOLING = "sentence_transformers.models.Pooling"
_NORMALIZE = "sentence_transformers.models.Normalize"
_POOLING_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}


def export_sentence_transformer(
    model: SentenceEncoder | str | Path,
    folder: str | Path,
    tokenizer: PreTrainedTokenizerBase | None = None,
    dtype: torch.dtype = torch.float32,
    overwrite: bool = False,
    verify: bool = True,
    dim: int | None = None,
) -> Path:
    """Write ``model`` (or the checkpoint in that folder) as plain encoder, tokenizer and sentence-transformers modules.

    The folder appears whole or not at all. ``verify`` opens it with SentenceTransformer and compares vectors. With
    ``dim`` it says there that only so many numbers of each vector are kept (SentenceTransformer's ``truncate_dim``).
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not overwrite:
            raise OutputError(f"{folder} exists already: choose another folder or allow overwriting it")
        if not (folder / "modules.json").is_file():
            raise OutputError(f"{folder} holds files that are no exported model: choose another folder")
    embedder = _embedder(model, tokenizer, dim)
    config = embedder.model.config
    if config.languages:
        raise ModelError(
            "a model with language embeddings cannot be exported: a plain encoder has no place for them; train without"
        )
    if dtype not in _LARGEST_DIFFERENCE:
        raise ModelError(f"export as float32 or float16, not {dtype}")

    if len(embedder.tokenizer) > config.encoder_config.vocab_size:
        raise ModelError("the tokenizer has more pieces than the encoder has embeddings: they do not belong together")

    with writing(folder, folder=True) as part:
        _write(embedder, part, dtype)
        if verify:
            _verify(embedder, part, dtype)
    return folder


def _embedder(
    model: SentenceEncoder | str | Path, tokenizer: PreTrainedTokenizerBase | None, dim: int | None
) -> SentenceEmbedder:
    if isinstance(model, SentenceEncoder):
        if tokenizer is None:
            raise ModelError("the tokenizer is missing: pass it beside the model")
        return SentenceEmbedder(model, tokenizer, dim=dim)
    if not Path(model).is_dir():
        raise ModelError(f"there is no checkpoint folder {str(model)!r}")
    tokenizer = tokenizer or load_tokenizer(str(model))
    opened = SentenceEmbedder.from_pretrained(str(model), device="cpu", dim=dim)
    return SentenceEmbedder(opened.model, tokenizer, dim=opened.width)


def _write(embedder: SentenceEmbedder, folder: Path, dtype: torch.dtype) -> None:
    model, config = embedder.model, embedder.model.config
    with quiet_loading():
        model.encoder.save_pretrained(
            folder,
            state_dict={name: weight.to(dtype).contiguous() for name, weight in plain_weights(model.encoder).items()},
        )
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    plain.pop("_name_or_path", None)
    write_json(folder / "config.json", plain | {"dtype": str(dtype).removeprefix("torch.")})

    longest, embedder.tokenizer.model_max_length = embedder.tokenizer.model_max_length, config.max_length
    try:
        embedder.tokenizer.save_pretrained(folder)
    finally:
        embedder.tokenizer.model_max_length = longest
    stated = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if stated.get("tokenizer_class") == "TokenizersBackend":  # the name that transformers before 5 knows
        write_json(folder / "tokenizer_config.json", stated | {"tokenizer_class": "PreTrainedTokenizerFast"})

    modules = _write_modules(model, folder)
    write_json(
        folder / "modules.json",
        [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in enumerate(modules.items())],
    )
    write_json(
        folder / "sentence_bert_config.json",
        {
            "max_seq_length": config.max_length,
            "do_lower_case": False,
            "model_args": family(config.encoder_config).arguments,
        },
    )
    cut = {} if embedder.width == config.encoder_config.hidden_size else {"truncate_dim": embedder.width}
    write_json(
        folder / "config_sentence_transformers.json",
        {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine", **cut},
    )
    (folder / "README.md").write_text(_card(config, embedder.width), encoding="utf-8")


def _write_modules(model: SentenceEncoder, folder: Path) -> dict[str, str]:
    """What makes a vector of the encoder's states, each module in its folder; gives their types by folder."""
    config, modules = model.config, {"": _TRANSFORMER}

    def add(kind: str) -> Path:
        path = f"{len(modules)}_{kind.rsplit('.', 1)[-1]}"
        modules[path] = kind
        return folder / path

    if isinstance(model, DualPivotForSentenceEmbedding):
        write_weighted_layers(model, add(WEIGHTED_LAYERS))
    pooling = add(_POOLING)
    pooling.mkdir()
    stated = "mean" if config.pooling == "sum" else config.pooling  # one direction, and the length says nothing
    flags = {flag: mode == stated for mode, flag in _POOLING_FLAGS.items()}
    write_json(pooling / "config.json", {"word_embedding_dimension": config.encoder_config.hidden_size, **flags})
    if isinstance(model, DualPivotForSentenceEmbedding) and model.linear_map is not None:
        write_dense(model.linear_map, add(DENSE))
    if config.normalize:
        add(_NORMALIZE)
    return modules


def _verify(embedder: SentenceEmbedder, folder: Path, dtype: torch.dtype) -> None:
    """Both ways of opening the model must give the same vectors."""
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(list(_SAMPLE))
    ours, theirs = embedder.encode(_SAMPLE), np.asarray(theirs, dtype=np.float32)
    if embedder.pooling == "sum":
        ours, theirs = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (ours, theirs))
    difference = _largest_difference(ours, theirs)
    if difference > _LARGEST_DIFFERENCE[dtype]:
        raise ModelError(
            f"the exported folder gives other vectors than the model (by {difference:.1e}): nothing was written"
        )


def _largest_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Relative to the length of the vectors."""
    return float(np.abs(ours - theirs).max() / max(np.linalg.norm(ours, axis=1).mean(), 1e-12))


def _card(config: Any, width: int) -> str:
    """The least a model's page says; a full model card replaces it."""
    return f"""---
library_name: sentence-transformers
pipeline_tag: sentence-similarity
tags:
- sentence-transformers
- feature-extraction
- cross-lingual
- hf-xsent
---
# Cross-lingual sentence encoder

Vectors of {width} dimensions; translations lie close together. Pooling: {config.pooling};
sentences are cut after {config.max_length} tokens.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A dog runs.", "Ein Hund rennt."])
```
"""
