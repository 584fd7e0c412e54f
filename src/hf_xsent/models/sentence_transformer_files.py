"""Write and read the files by which SentenceTransformer opens a model: modules, and the settings of encode."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import PreTrainedConfig

from hf_xsent.errors import ModelError, UnsupportedModuleError
from hf_xsent.files import write_json
from hf_xsent.models.families import family
from hf_xsent.models.linear_map import ACTIVATIONS, LinearMap
from hf_xsent.models.loading import load_config, split_config
from hf_xsent.models.text_encoder import named_prompts
from hf_xsent.runs.hub import read_model_file

logger = logging.getLogger(__name__)
GENERAL_FILE = "config_sentence_transformers.json"  # prompts, similarity, and the width of truncated embeddings
_TYPES = "sentence_transformers.models."  # versions 2 to 6 read these names; version 6 has others
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}
# MLX and text-embeddings-inference up to 1.2 require flags that are always false here.
_OTHER_FLAGS = ("mean_sqrt_len_tokens", "weightedmean_tokens", "lasttoken")
_MIX, _MAP = "WeightedLayerPooling", "Dense"  # dual pivot has both; other models may have a map after pooling
OPEN_THERE = "open it with sentence_transformers.SentenceTransformer"


def write_modules(model: Any, folder: Path, dim: int | None) -> None:
    """Write the modules of a plain encoder: the transformer, the mix of layers, pooling, the map, normalization."""
    config, modules = model.config, [("Transformer", "")]

    def add(kind: str) -> Path:
        modules.append((kind, f"{len(modules)}_{kind}"))
        (folder / modules[-1][1]).mkdir(exist_ok=True)
        return folder / modules[-1][1]

    width, depth = config.encoder_config.hidden_size, config.encoder_config.num_hidden_layers
    if hasattr(model, "mixing_weights"):
        layers = {"word_embedding_dimension": width, "layer_start": 0, "num_hidden_layers": depth}
        _write_module(add(_MIX), layers, {"layer_weights": model.mixing_weights})
        path = folder / "config.json"
        write_json(path, json.loads(path.read_text(encoding="utf-8")) | {"output_hidden_states": True})
    pooling = "mean" if config.pooling == "sum" else config.pooling  # cosines ignore the length
    flags = {flag: mode == pooling for flag, mode in _POOLING_FLAGS.items()}
    flags |= {f"pooling_mode_{name}": False for name in _OTHER_FLAGS}
    write_json(add("Pooling") / "config.json", {"word_embedding_dimension": width, **flags})
    if (linear_map := getattr(model, "linear_map", None)) is not None:
        sizes = {"in_features": width, "out_features": width}
        activation = {"activation_function": f"torch.nn.{type(linear_map.activation).__name__}"}
        weights = {f"linear.{name}": weight for name, weight in linear_map.named_parameters()}
        _write_module(add(_MAP), {**sizes, "bias": len(weights) > 1, **activation}, weights)
    if config.normalize:
        add("Normalize")
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": config.max_length, "do_lower_case": False})
    _write_general_settings(folder, config, dim)
    _write_modules_json(folder, modules)


def write_own_module(config: Any, folder: Path, dim: int | None) -> None:
    """Write one module, which returns the ``sentence_embedding`` of our model's forward, after ``import hf_xsent``."""
    text = {"method": "forward", "method_output_name": "sentence_embedding"}
    module: dict[str, Any] = {"max_seq_length": config.max_length, "module_output_name": "sentence_embedding"}
    write_json(folder / "sentence_bert_config.json", module | {"modality_config": {"text": text}})
    _write_general_settings(folder, config, dim)
    _write_modules_json(folder, [("Transformer", "")])


def _write_modules_json(folder: Path, modules: list[tuple[str, str]]) -> None:
    rows = [
        {"idx": number, "name": str(number), "path": path, "type": f"{_TYPES}{kind}"}
        for number, (kind, path) in enumerate(modules)
    ]
    write_json(folder / "modules.json", rows)


def _write_module(folder: Path, config: Mapping[str, object], weights: Mapping[str, Tensor]) -> None:
    write_json(folder / "config.json", config)
    tensors = {name: weight.detach().float().cpu().contiguous() for name, weight in weights.items()}
    save_file(tensors, folder / "model.safetensors")


def _write_general_settings(folder: Path, config: Any, dim: int | None) -> None:
    """Write prompts, similarity and the width of truncated embeddings, as SentenceTransformer reads them.

    ``SentenceTransformer.save`` writes this file, with ``__version__``, before it calls our ``save_pretrained``. Such a
    file has the settings that were changed in the SentenceTransformer, and is not replaced.

    SentenceTransformer adds an empty prompt ``document`` to models that have none, so that ``encode_document`` would
    not find ``passage`` or ``corpus``: their text is written as ``document``, too. An empty default prompt is none.
    """
    prompts = dict(config.prompts or {})
    if prompt := named_prompts(prompts)["document"]:
        prompts["document"] = prompt
    truncated = {} if dim is None else {"truncate_dim": dim}
    names = {"prompts": prompts, "default_prompt_name": config.default_prompt_name if config.default_prompt else None}
    path = folder / GENERAL_FILE
    if not (path.is_file() and "__version__" in path.read_text(encoding="utf-8")):
        write_json(path, {**names, "similarity_fn_name": "cosine", **truncated})


def stated_settings(name_or_path: str, config: PreTrainedConfig, **hub: Any) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """Return the encoder's config, and the settings of embeddings that a folder or Hub id states.

    They are the settings of a model of this package (with ``model_type``), as far as SentenceTransformer has not saved
    others since; those of the modules of a sentence-transformers model; or none, if it is a plain encoder. ``map`` is
    the path of a linear map after pooling.
    """
    encoder_config, saved = split_config(config)
    modules = read_modules(name_or_path, **hub)
    if not modules:
        return encoder_config, saved
    if hasattr(config, "encoder_config"):  # the only module is our model, with its normalization
        modules["normalize"] = modules["normalize"] or saved["normalize"]
    elif _differ(name_or_path, modules, saved, encoder_config.num_hidden_layers, **hub):
        what = "other modules, or weights of layers, than its config.json states"
        raise UnsupportedModuleError(f"{name_or_path!r} has {what}: {OPEN_THERE}")
    if saved.get("pooling") == "sum" and modules.get("pooling") == "mean":
        modules["pooling"] = "sum"
    replaced = ("normalize", "prompts", "default_prompt_name", "dim")
    own = ("mix", "map") if "mix" in modules else ()  # which dual pivot's model reads itself
    return encoder_config, {name: value for name, value in saved.items() if name not in replaced} | {
        name: value for name, value in fitting(modules, encoder_config).items() if name not in own
    }


def _differ(name: str, modules: Mapping[str, Any], saved: Mapping[str, Any], depth: int, **hub: Any) -> bool:
    """Return whether the mix of layers and its map, which training elsewhere changes, do not fit the settings."""
    mixes = saved.get("model_type") == "dual-pivot"
    if not mixes or "mix" not in modules:
        return mixes != ("mix" in modules)
    weights = _tensors(name, modules["mix"], **hub)["layer_weights"].tolist()
    layers = saved.get("layers") or range(depth + 1)
    mixed, others = ({weights[i] for i in range(len(weights)) if (i in layers) == used} for used in (True, False))
    fits = len(weights) == depth + 1 and not any(others) and min(mixed) >= 0 < max(mixed)
    constant = not saved.get("layer_mix", True) and len(mixed) > 1
    return not fits or constant or ("map" in modules) != saved.get("linear_map", True)


def fitting(settings: Mapping[str, Any], encoder_config: PreTrainedConfig) -> dict[str, Any]:
    """Return settings with at most the length and the width of an encoder, as SentenceTransformer takes them."""
    longest = family(encoder_config).max_length(encoder_config)
    limits = {"max_length": longest, "dim": encoder_config.hidden_size}
    fitted = {"max_length": longest, **settings}
    return fitted | {name: min(fitted[name], limit) for name, limit in limits.items() if name in fitted}


def starting_settings(name_or_path: str, **hub: Any) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """Return what ``stated_settings`` does, of a model to start from; with other modules, its encoder is the start."""
    config = load_config(name_or_path, **hub)
    try:
        return stated_settings(name_or_path, config, **hub)
    except UnsupportedModuleError as error:
        logger.warning("%s; training starts from its encoder alone", error)
        return split_config(config)[0], {}


def read_modules(name_or_path: str, **hub: Any) -> dict[str, Any]:
    """Return the settings of a sentence-transformers folder or Hub id; empty for a plain encoder.

    ``mix`` and ``map`` are the paths of a weighted sum of layers and of a linear map after pooling, if any.
    """
    modules = read_json(name_or_path, "modules.json", list, **hub)
    if not modules:
        return {}
    kinds = []
    for module in modules:
        if not isinstance(module, Mapping) or not {"type", "path"} <= module.keys():
            raise ModelError(f"{name_or_path!r} has a modules.json without types and paths: export the model again")
        kind, path = str(module["type"]).rsplit(".", 1)[-1], str(module["path"])
        config = read_json(name_or_path, f"{path}/config.json", **hub) if kind in ("Pooling", _MAP) else {}
        kinds.append((kind, path, config))
    common = read_json(name_or_path, GENERAL_FILE, **hub)
    older = read_json(name_or_path, "sentence_bert_config.json", **hub)  # before version 6
    longest = older.get("max_seq_length")
    longest = longest or read_json(name_or_path, "tokenizer_config.json", **hub).get("model_max_length")
    return _settings_of_modules(repr(name_or_path), kinds, common, longest, older.get("do_lower_case"))


def settings_of_sentence_transformer(model: Any) -> dict[str, Any]:
    """Return the settings of a loaded SentenceTransformer; raise an error for modules that this package lacks."""
    kinds = [
        (type(module).__name__, "", module.get_config_dict() if hasattr(module, "get_config_dict") else {})
        for module in model
    ]
    common = {name: getattr(model, name, None) for name in ("prompts", "default_prompt_name", "truncate_dim")}
    lower, name = getattr(model[0], "do_lower_case", False), "this SentenceTransformer"
    settings = _settings_of_modules(name, kinds, common, model.max_seq_length, lower)
    if "mix" in settings or "pooling" not in settings:
        raise UnsupportedModuleError(f"{name} does not pool the last layer: {OPEN_THERE}")
    return settings


def _own_prompts(prompts: Mapping[str, str], default: str | None) -> dict[str, str]:
    """Return prompts without ``document`` if ``_write_general_settings`` or SentenceTransformer has added it."""
    others = {name: text for name, text in prompts.items() if name != "document"}
    added = default != "document" and prompts.get("document", "") in ("", named_prompts(others)["document"])
    return others if added else dict(prompts)


def _settings_of_modules(
    name: str, modules: list[tuple[str, str, dict[str, Any]]], common: Mapping[str, Any], longest: Any, lower: Any
) -> dict[str, Any]:
    """Return the settings that modules (kind, path and config of each) and the common settings state."""
    settings: dict[str, Any] = {"normalize": False}
    prompts, default = common.get("prompts") or {}, common.get("default_prompt_name")
    if any(prompts.values()):
        settings |= {"prompts": _own_prompts(prompts, default), "default_prompt_name": default}
    for kind, path, config in modules:
        if kind == "Pooling":
            settings["pooling"] = _pooling(name, config)
            if any(prompts.values()) and not config.get("include_prompt", True):
                raise UnsupportedModuleError(f"{name} pools without its prompt: {OPEN_THERE}")
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind == _MIX:
            settings["mix"] = path
        elif kind == _MAP and "pooling" in settings and "map" not in settings and not settings["normalize"]:
            settings["map"] = path
            if _activation(config) not in (["Identity"] if "mix" in settings else ACTIVATIONS):
                raise UnsupportedModuleError(f"{name} has a module {kind} with {_activation(config)}: {OPEN_THERE}")
            if config.get("in_features") != config.get("out_features") or config.get("use_residual"):
                raise UnsupportedModuleError(f"{name} has a module {kind} of other width or a residual: {OPEN_THERE}")
        elif kind != "Transformer":
            raise UnsupportedModuleError(f"{name} has a module {kind}: {OPEN_THERE}")
    if lower:
        raise UnsupportedModuleError(f"{name} converts its input to lower case: {OPEN_THERE}")
    numbers = {"max_length": longest, "dim": common.get("truncate_dim")}
    return settings | {name: int(value) for name, value in numbers.items() if value}


def _activation(config: Mapping[str, Any]) -> str:
    return str(config.get("activation_function", "Tanh")).rpartition(".")[2]  # Tanh: the default of Dense


def read_map(name_or_path: str, modules: Mapping[str, Any], **hub: Any) -> LinearMap | None:
    """Read the linear map after pooling, if the settings of the model state one."""
    if "map" not in modules:
        return None
    config = read_json(name_or_path, f"{modules['map']}/config.json", **hub)
    weights = _tensors(name_or_path, modules["map"], **hub)
    return _linear_map(config, {name: weight.float() for name, weight in weights.items()})


def map_of_sentence_transformer(model: Any) -> LinearMap | None:
    """Return the linear map of a loaded SentenceTransformer, if it has one; both share the weights."""
    modules = [module for module in model if type(module).__name__ == _MAP]
    return _linear_map(modules[0].get_config_dict(), dict(modules[0].named_parameters())) if modules else None


def _linear_map(config: Mapping[str, Any], weights: Mapping[str, Tensor]) -> LinearMap:
    """Return a linear map of these weights, which it does not copy."""
    width, bias = len(weights["linear.weight"]), "linear.bias" in weights
    linear_map = LinearMap(width, width, bias, activation=_activation(config))
    linear_map.load_state_dict({name.removeprefix("linear."): weight for name, weight in weights.items()}, assign=True)
    return linear_map


def read_extraction(name_or_path: str, modules: Mapping[str, Any], layers: list[int], **hub: Any) -> dict[str, Tensor]:
    """Read the weights of these layers in the module ``mix``, and those of ``map``, by their names in dual pivot."""
    weights = _tensors(name_or_path, modules["mix"], **hub)["layer_weights"].float()
    linear = _tensors(name_or_path, modules["map"], **hub) if "map" in modules else {}
    maps = {name.replace("linear.", "linear_map.", 1): weight for name, weight in linear.items()}
    return {"layer_scores": weights[layers].log(), **maps}


def _tensors(name_or_path: str, module: str, **hub: Any) -> dict[str, Tensor]:
    weights: dict[str, Tensor] | None = read_model_file(name_or_path, f"{module}/model.safetensors", load_file, **hub)
    if weights is None:
        raise ModelError(f"{name_or_path!r} has no {module}/model.safetensors: export the model again")
    return weights


def read_json(name_or_path: str, file: str, kind: type = dict, **hub: Any) -> Any:
    """Read a JSON file of a model folder or Hub id; return an empty mapping or list if it does not exist."""

    def read(path: Path) -> Any:
        content = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(content, kind):
            raise ValueError(f"it holds {type(content).__name__}, not {kind.__name__}")
        return content

    content = read_model_file(name_or_path, file, read, **hub)
    return kind() if content is None else content


def _pooling(name: str, config: dict[str, Any]) -> str:
    """Return the pooling, from ``pooling_mode`` (version 6) or from ``pooling_mode_*`` flags (earlier versions)."""
    flags = [key for key, value in config.items() if key.startswith("pooling_mode_") and value]
    modes = [_POOLING_FLAGS.get(flag, flag) for flag in flags] or [str(config.get("pooling_mode"))]
    if len(modes) != 1 or modes[0] not in _POOLING_FLAGS.values():
        raise UnsupportedModuleError(
            f"{name} has the pooling {' and '.join(modes)}, which is not supported: {OPEN_THERE}"
        )
    return modes[0]
