"""Write a model as a plain folder that AutoModel and sentence-transformers 3 to 6 open without our code."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.files import write_json
from hf_xsent.models.adapters import plain_weights
from hf_xsent.models.families import family
from hf_xsent.models.linear_map import LinearMap
from hf_xsent.models.loading import EXPORTED_SETTINGS, quiet_loading
from hf_xsent.models.modules_json import TRANSFORMER, write_general_settings

logger = logging.getLogger(__name__)

# The names of versions 2 to 5, which version 6 still reads; older versions cannot read the names of version 6.
_POOLING = "sentence_transformers.models.Pooling"
_NORMALIZE = "sentence_transformers.models.Normalize"
_WEIGHTED_LAYERS = "sentence_transformers.models.WeightedLayerPooling"
_DENSE = "sentence_transformers.models.Dense"
_POOLING_FLAGS = {"cls": "pooling_mode_cls_token", "mean": "pooling_mode_mean_tokens", "max": "pooling_mode_max_tokens"}


def write_plain_folder(
    model: Any,
    tokenizer: Any,
    folder: Path,
    dtype: torch.dtype | None = None,
    width: int | None = None,
    max_shard_size: int | str = "50GB",
) -> None:
    """Write encoder, tokenizer, modules and, if missing, a minimal card; ``encode`` truncates embeddings to ``width``.

    The defaults of dtype and width are the model's; that of max_shard_size is transformers'.
    """
    config, dtype = model.config, dtype or model.encoder.dtype
    full = config.encoder_config.hidden_size
    width = width or config.dim or full
    dim = width if width < full else None
    weights = plain_weights(model.encoder) | _pooler(config.encoder_config)
    weights = {name: weight.to(dtype).contiguous() for name, weight in weights.items()}
    with quiet_loading():
        model.encoder.save_pretrained(folder, state_dict=weights, max_shard_size=max_shard_size)
    plain = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    for name in ("_name_or_path", EXPORTED_SETTINGS):
        plain.pop(name, None)
    stated: dict[str, Any] = {"dtype": str(dtype).removeprefix("torch."), **_matryoshka(config, width)}
    if not hasattr(model, "mixing_weights"):  # a mix of layers has weights besides the encoder's
        names = ["model_type", "pooling", "normalize", "max_length"]
        names += ["prompts", "default_prompt_name"] if config.prompts else []
        stated[EXPORTED_SETTINGS] = {name: getattr(config, name) for name in names} | ({"dim": dim} if dim else {})
    write_json(folder / "config.json", plain | _keys_of_transformers_4(plain) | stated)

    longest, side = tokenizer.model_max_length, tokenizer.padding_side
    tokenizer.model_max_length = config.max_length
    tokenizer.padding_side = "right"  # plain encoders would count positions from left padding
    try:
        tokenizer.save_pretrained(folder)
    finally:
        tokenizer.model_max_length, tokenizer.padding_side = longest, side
    settings = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    if settings.get("tokenizer_class") == "TokenizersBackend":  # transformers 4 knows PreTrainedTokenizerFast
        write_json(folder / "tokenizer_config.json", settings | {"tokenizer_class": "PreTrainedTokenizerFast"})

    modules = enumerate(_write_modules(model, folder).items())
    listed = [{"idx": i, "name": str(i), "path": path, "type": kind} for i, (path, kind) in modules]
    write_json(folder / "modules.json", listed)
    transformer = {"max_seq_length": config.max_length, "do_lower_case": False}
    write_json(folder / "sentence_bert_config.json", transformer)
    write_general_settings(folder, config, dim)
    if not (folder / "README.md").is_file():  # which may have been edited
        (folder / "README.md").write_text(_card(config, width), encoding="utf-8")


def _keys_of_transformers_4(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the names by which transformers 4 reads the rotary embeddings and global layers of ModernBERT."""
    if config["model_type"] != "modernbert":
        return {}
    kinds, rope = config["layer_types"], config["rope_parameters"]
    every = kinds.index("full_attention", 1) if "full_attention" in kinds[1:] else len(kinds)
    every_nth = ["sliding_attention" if number % every else "full_attention" for number in range(len(kinds))]
    if kinds != every_nth or any(one["rope_type"] != "default" for one in rope.values()):
        logger.warning("transformers 4 cannot compute this ModernBERT: open the export with transformers 5")
    return {
        "global_rope_theta": rope["full_attention"]["rope_theta"],
        "local_rope_theta": rope["sliding_attention"]["rope_theta"],
        "global_attn_every_n_layers": every,
    }


def _stated_pooling(config: Any) -> str:
    """Return the pooling of the export; the mean has the direction of the sum, and cosines ignore the length."""
    return "mean" if config.pooling == "sum" else str(config.pooling)


def _pooler(config: Any) -> dict[str, Tensor]:
    """Return weights for the pooler of BERT's classes; without them, AutoModel warns of missing weights.

    The pooler is the identity with tanh. No embedding of this package uses it.
    """
    if "add_pooling_layer" not in family(config).arguments:
        return {}
    width = config.hidden_size
    return {"pooler.dense.weight": torch.eye(width), "pooler.dense.bias": torch.zeros(width)}


def _matryoshka(config: Any, width: int) -> dict[str, Any]:
    """Return the config keys from which vLLM reads the widths that its parameter ``dimensions`` accepts."""
    objective = getattr(config, "objectives", {}).get("matryoshka")
    full = config.encoder_config.hidden_size
    earlier = getattr(config.encoder_config, "matryoshka_dimensions", None)  # of an export
    dims = {full, width, *(objective.dims or [] if objective else earlier or [])}
    return {"is_matryoshka": True, "matryoshka_dimensions": sorted(dims)} if len(dims) > 1 else {}


def _write_modules(model: Any, folder: Path) -> dict[str, str]:
    """Write the modules that pool hidden states, each in its folder; return their types by folder."""
    config, modules = model.config, {"": TRANSFORMER}

    def add(kind: str) -> Path:
        path = f"{len(modules)}_{kind.rsplit('.', 1)[-1]}"
        modules[path] = kind
        return folder / path

    if hasattr(model, "mixing_weights"):
        _check_extraction(model)
        _write_weighted_layers(model, add(_WEIGHTED_LAYERS))
    pooling = add(_POOLING)
    pooling.mkdir(exist_ok=True)
    stated = _stated_pooling(config)
    flags = {flag: mode == stated for mode, flag in _POOLING_FLAGS.items()}
    flags["pooling_mode_mean_sqrt_len_tokens"] = False  # text-embeddings-inference up to 1.2 reads four flags
    write_json(pooling / "config.json", {"word_embedding_dimension": config.encoder_config.hidden_size, **flags})
    if getattr(model, "linear_map", None) is not None:
        _write_dense(model.linear_map, add(_DENSE))
    if config.normalize:
        add(_NORMALIZE)
    return modules


def _check_extraction(model: Any) -> None:
    """Raise an error if sentence-transformers has no module for a part of the extraction."""
    what = None
    if model.layer_norm is not None:
        what = "a layer norm of each token", "layer_norm: false"
    elif model.config.pooling == "sum" and model.config.map_bias:
        what = "the sum over tokens, which the mean cannot replace if map_bias is true", "pooling: mean"
    if what is not None:
        raise ModelError(
            f"sentence-transformers has no module for {what[0]}: use the run's folder, or train with {what[1]}"
        )


def _write_weighted_layers(model: Any, folder: Path) -> None:
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
    folder.mkdir(exist_ok=True)
    write_json(folder / "config.json", config)
    weights = {name: one.float().cpu().contiguous() for name, one in weights.items()}
    save_file(weights, str(folder / "model.safetensors"))


def _card(config: Any, width: int) -> str:
    """Return a minimal model card; hf-xsent publish writes a full one."""
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

Embeddings of {width} dimensions; translations are close together. Pooling: {_stated_pooling(config)};
sentences are truncated to {config.max_length} tokens.

```python
from sentence_transformers import SentenceTransformer

model = SentenceTransformer("path/to/this/folder")
vectors = model.encode(["A dog runs.", "Ein Hund rennt."])
```
"""
