"""Read folders that sentence-transformers or ``hf-xsent export`` wrote: settings, and dual pivot's extraction."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import torch
from safetensors.torch import load_file
from torch import Tensor

from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotConfig, DualPivotForSentenceEmbedding
from hf_xsent.models.loading import load_encoder, loading_errors, model_file
from hf_xsent.models.sentence_encoder import SentenceEncoder

_MIX, _MAP = "WeightedLayerPooling", "Dense"
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def open_exported(name_or_path: str, dtype: torch.dtype, stated: dict[str, Any]) -> SentenceEncoder:
    """Open a model by the settings of its modules, as ``sentence_transformer_settings`` returns them."""
    if "extraction" in stated:
        return _open_extraction(name_or_path, stated.pop("extraction"), dtype, **stated)
    return SentenceEncoder.from_backbone(name_or_path, dtype=dtype, **stated)


def _open_extraction(
    name_or_path: str, modules: Mapping[str, str], dtype: torch.dtype, **settings: Any
) -> DualPivotForSentenceEmbedding:
    """Open a model whose ``modules`` (paths by kind) mix layers and may map the result."""
    encoder = load_encoder(name_or_path, dtype=dtype)
    weights = _tensor(name_or_path, modules[_MIX], "layer_weights").float()
    if len(weights) != encoder.config.num_hidden_layers + 1 or (weights < 0).any() or weights.sum() <= 0:
        raise ModelError(
            f"{name_or_path!r} does not have a weight of 0 or more for each layer, or all are 0: "
            "open it with sentence_transformers.SentenceTransformer"
        )
    biased = _MAP in modules and _read_json(name_or_path, f"{modules[_MAP]}/config.json").get("bias", True)
    settings |= {
        "map_bias": biased,
        "pooling": "mean" if biased else "sum",
    }  # without biases, the embeddings of both poolings differ only in length
    config = DualPivotConfig(
        encoder_config=encoder.config,
        layers=weights.nonzero().flatten().tolist(),
        layer_mix=True,
        linear_map=_MAP in modules,
        **settings,
    )
    model = DualPivotForSentenceEmbedding(config, encoder=encoder)
    with torch.no_grad():
        assert model.layer_scores is not None
        model.layer_scores.copy_(weights[model.layers].log())
        if model.linear_map is not None:
            for name, weight in model.linear_map.named_parameters():
                weight.copy_(_tensor(name_or_path, modules[_MAP], f"linear.{name}"))
    return model.eval()


def _tensor(name_or_path: str, module: str, name: str) -> Tensor:
    found = model_file(name_or_path, f"{module}/model.safetensors")
    with loading_errors(name_or_path, f"readable {module}/model.safetensors"):
        tensors = {} if found is None else load_file(found)
    if name not in tensors:
        raise ModelError(f"{name_or_path!r} has no {name} in {module}/model.safetensors: export the model again")
    return tensors[name]


def sentence_transformer_settings(name_or_path: str) -> dict[str, Any]:
    """Return the settings of a sentence-transformers folder or Hub id; empty for a plain encoder."""
    modules = _read_json(name_or_path, "modules.json", list)
    if not modules:
        return {}
    settings: dict[str, Any] = {}
    common = _read_json(name_or_path, "config_sentence_transformers.json")
    prompts = common.get("prompts") or {}
    if prompts:
        settings |= {"prompts": prompts, "default_prompt_name": common.get("default_prompt_name")}
    prompt = prompts.get(common.get("default_prompt_name"))
    for module in modules:
        if not isinstance(module, Mapping) or not {"type", "path"} <= module.keys():
            raise ModelError(f"{name_or_path!r} has a modules.json without types and paths: export the model again")
        kind = str(module["type"]).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = _read_json(name_or_path, f"{module['path']}/config.json")
            settings["pooling"] = _pooling(name_or_path, pooling)
            if prompt and not pooling.get("include_prompt", True):
                raise ModelError(
                    f"{name_or_path!r} pools without its prompt: open it with sentence_transformers.SentenceTransformer"
                )
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind == "WeightedLayerPooling" or (kind == "Dense" and _is_map(name_or_path, module["path"], settings)):
            settings.setdefault("extraction", {})[kind] = module["path"]
        elif kind != "Transformer":
            raise ModelError(
                f"{name_or_path!r} has a module {kind}: open it with sentence_transformers.SentenceTransformer"
            )
    older = _read_json(name_or_path, "sentence_bert_config.json")  # before version 6
    if older.get("do_lower_case"):
        raise ModelError(
            f"{name_or_path!r} converts its input to lower case: open it with sentence_transformers.SentenceTransformer"
        )
    length = older.get("max_seq_length") or _read_json(name_or_path, "tokenizer_config.json").get("model_max_length")
    found = {"max_length": length, "dim": common.get("truncate_dim")}
    return settings | {setting: int(value) for setting, value in found.items() if value}


def _is_map(name_or_path: str, module: str, settings: dict[str, Any]) -> bool:
    """Return whether a Dense module is the linear map after a mix of layers."""
    stated = _read_json(name_or_path, f"{module}/config.json")
    return str(stated.get("activation_function")).endswith("Identity") and "extraction" in settings


def _read_json(name_or_path: str, file: str, kind: type = dict) -> Any:
    """Read a JSON file of a model folder or Hub id; return an empty mapping or list if it does not exist."""
    if (found := model_file(name_or_path, file)) is None:
        return kind()
    with loading_errors(name_or_path, f"readable {file}"):
        content = json.loads(found.read_text(encoding="utf-8"))
        if not isinstance(content, kind):
            raise ValueError(f"it holds {type(content).__name__}, not {kind.__name__}")
    return content


def _pooling(name_or_path: str, config: dict[str, Any]) -> str:
    """Return the pooling, from ``pooling_mode`` (version 6) or from ``pooling_mode_*`` flags (earlier versions)."""
    modes = [mode for key, mode in _POOLING_FLAGS.items() if config.get(key)] or [str(config.get("pooling_mode"))]
    if len(modes) != 1 or modes[0] not in _POOLING_FLAGS.values():
        raise ModelError(f"{name_or_path!r}: this pooling is not supported: {config}")
    return modes[0]
