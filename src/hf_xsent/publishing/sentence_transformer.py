"""Export a model to a plain folder that AutoModel and every sentence-transformers version open without our code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from hf_xsent.errors import ModelError, OutputError
from hf_xsent.files import write_json, writing
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.dual_pivot import DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.families import family
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.models.loading import load_tokenizer, quiet_loading
from hf_xsent.models.sentence_encoder import SentenceEncoder

_SAMPLE = ("A sentence to compare.", "Ein zweiter Satz.", "第三句话。", "Третье предложение, немного длиннее.")
_LARGEST_DIFFERENCE = {torch.float32: 1e-5, torch.float16: 5e-3}

# The names of versions 2 to 5, which version 6 still reads; older versions cannot read the names of version 6.
_TRANSFORMER = "sentence_transformers.models.Transformer"
_POOLING = "sentence_transformers.models.Pooling"
_NORMALIZE = "sentence_transformers.models.Normalize"
_WEIGHTED_LAYERS = "sentence_transformers.models.WeightedLayerPooling"
_DENSE = "sentence_transformers.models.Dense"
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

    After an error nothing is written. ``verify`` opens the folder with SentenceTransformer and compares embeddings.
    ``dim`` is the number of dimensions that SentenceTransformer truncates embeddings to (its ``truncate_dim``).
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not overwrite:
            raise OutputError(f"{folder} exists already: choose another folder or overwrite it")
        if not (folder / "modules.json").is_file():
            raise OutputError(f"{folder} contains files but is not an export: choose another folder")
    embedder = _embedder(model, tokenizer, dim)
    config = embedder.model.config
    if config.languages:
        raise ModelError("a model with language embeddings cannot be exported as a plain encoder: train without them")
    if dtype not in _LARGEST_DIFFERENCE:
        raise ModelError(f"export as float32 or float16, not {dtype}")
    if len(embedder.tokenizer) > config.encoder_config.vocab_size:
        raise ModelError(
            "the tokenizer has more pieces than the encoder has embeddings: give the model's own tokenizer"
        )

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
            raise ModelError("the tokenizer is missing: pass it with the model")
        return SentenceEmbedder(model, tokenizer, dim=dim)
    if not Path(model).is_dir():
        raise ModelError(f"no checkpoint folder {str(model)!r}: check the path")
    tokenizer = tokenizer or load_tokenizer(str(model))
    opened = SentenceEmbedder.from_pretrained(str(model), device="cpu", dim=dim)
    return SentenceEmbedder(opened.model, tokenizer, dim=opened.width)


def _write(embedder: SentenceEmbedder, folder: Path, dtype: torch.dtype) -> None:
    model, config = embedder.model, embedder.model.config
    weights = {name: weight.to(dtype).contiguous() for name, weight in plain_weights(model.encoder).items()}
    with quiet_loading():
        model.encoder.save_pretrained(folder, state_dict=weights)
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    plain.pop("_name_or_path", None)
    write_json(folder / "config.json", plain | {"dtype": str(dtype).removeprefix("torch.")})

    longest, embedder.tokenizer.model_max_length = embedder.tokenizer.model_max_length, config.max_length
    try:
        embedder.tokenizer.save_pretrained(folder)
    finally:
        embedder.tokenizer.model_max_length = longest
    stated = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if stated.get("tokenizer_class") == "TokenizersBackend":  # transformers 4 knows PreTrainedTokenizerFast
        write_json(folder / "tokenizer_config.json", stated | {"tokenizer_class": "PreTrainedTokenizerFast"})

    modules = enumerate(_write_modules(model, folder).items())
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in modules]
    write_json(folder / "modules.json", listed)
    arguments = family(config.encoder_config).arguments
    transformer = {"max_seq_length": config.max_length, "do_lower_case": False, "model_args": arguments}
    write_json(folder / "sentence_bert_config.json", transformer)
    general: dict[str, Any] = {"prompts": {}, "default_prompt_name": None, "similarity_fn_name": "cosine"}
    cut = {} if embedder.width == config.encoder_config.hidden_size else {"truncate_dim": embedder.width}
    write_json(folder / "config_sentence_transformers.json", general | cut)
    (folder / "README.md").write_text(_card(config, embedder.width), encoding="utf-8")


def _write_modules(model: SentenceEncoder, folder: Path) -> dict[str, str]:
    """Write the modules that pool hidden states, each in its folder; return their types by folder."""
    config, modules = model.config, {"": _TRANSFORMER}

    def add(kind: str) -> Path:
        path = f"{len(modules)}_{kind.rsplit('.', 1)[-1]}"
        modules[path] = kind
        return folder / path

    if isinstance(model, DualPivotForSentenceEmbedding):
        _check_extraction(model)
        _write_weighted_layers(model, add(_WEIGHTED_LAYERS))
    pooling = add(_POOLING)
    pooling.mkdir()
    stated = "mean" if config.pooling == "sum" else config.pooling  # the same direction; cosines ignore the length
    flags = {flag: mode == stated for mode, flag in _POOLING_FLAGS.items()}
    write_json(pooling / "config.json", {"word_embedding_dimension": config.encoder_config.hidden_size, **flags})
    if isinstance(model, DualPivotForSentenceEmbedding) and model.linear_map is not None:
        _write_dense(model.linear_map, add(_DENSE))
    if config.normalize:
        add(_NORMALIZE)
    return modules


def _check_extraction(model: DualPivotForSentenceEmbedding) -> None:
    """Raise an error for what sentence-transformers has no module for."""
    what = None
    if model.layer_norm is not None:
        what = "a layer norm of each token", "layer_norm: false"
    elif model.config.pooling == "sum" and model.config.map_bias:
        what = "the sum over tokens, which a bias needs", "pooling: mean"
    if what is not None:
        raise ModelError(
            f"sentence-transformers has no module for {what[0]}: use the run's folder, or train with {what[1]}"
        )


def _write_weighted_layers(model: DualPivotForSentenceEmbedding, folder: Path) -> None:
    """Write the weighted sum of layers, with weight 0 for unused ones, and let the encoder return all hidden states."""
    config = model.config.encoder_config
    layers = {"layer_start": 0, "num_hidden_layers": config.num_hidden_layers}
    stated = {"word_embedding_dimension": config.hidden_size, **layers}
    _write_module(folder, stated, {"layer_weights": model.mixing_weights.detach()})
    path = folder.parent / "config.json"
    write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"output_hidden_states": True})


def _write_dense(linear_map: LinearMap, folder: Path) -> None:
    sizes = {"in_features": linear_map.in_features, "out_features": linear_map.out_features}
    weights = {f"linear.{name}": one.detach() for name, one in linear_map.named_parameters()}
    stated = {**sizes, "bias": len(weights) > 1, "activation_function": "torch.nn.modules.linear.Identity"}
    _write_module(folder, stated, weights)


def _write_module(folder: Path, config: dict[str, object], weights: dict[str, Tensor]) -> None:
    folder.mkdir()
    write_json(folder / "config.json", config)
    weights = {name: one.float().cpu().contiguous() for name, one in weights.items()}
    save_file(weights, str(folder / "model.safetensors"))


def _verify(embedder: SentenceEmbedder, folder: Path, dtype: torch.dtype) -> None:
    """Compare the embeddings of the model and of the folder opened with SentenceTransformer."""
    from sentence_transformers import SentenceTransformer

    with quiet_loading():
        theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True).encode(list(_SAMPLE))
    ours, theirs = embedder.encode(_SAMPLE), np.asarray(theirs, dtype=np.float32)
    if embedder.pooling == "sum":
        ours, theirs = (one / np.linalg.norm(one, axis=1, keepdims=True) for one in (ours, theirs))
    difference = _largest_difference(ours, theirs)
    if not difference <= _LARGEST_DIFFERENCE[dtype]:  # or NaN, of weights too large for float16
        raise ModelError(f"embeddings of the export differ from the model's by {difference:.1e}: nothing was written")


def _largest_difference(ours: np.ndarray, theirs: np.ndarray) -> float:
    """Return the largest difference, relative to the length of the embeddings."""
    return float(np.abs(ours - theirs).max() / max(np.linalg.norm(ours, axis=1).mean(), 1e-12))


def _card(config: Any, width: int) -> str:
    """Return a minimal model card, for the time before hf-xsent card writes a full one."""
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

Embeddings of {width} dimensions; translations are close together. Pooling: {config.pooling};
sentences are truncated to {config.max_length} tokens.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A dog runs.", "Ein Hund rennt."])
```
"""
