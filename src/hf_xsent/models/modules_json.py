"""Write and read the files by which SentenceTransformer opens a model: modules, and the settings of encode."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from transformers import PreTrainedConfig

from hf_xsent.errors import ModelError, UnsupportedModuleError
from hf_xsent.files import write_json
from hf_xsent.models.encode_interface import DOCUMENT
from hf_xsent.models.families import family
from hf_xsent.models.loading import EXPORTED_SETTINGS, loading_errors, model_file

TRANSFORMER = "sentence_transformers.models.Transformer"  # versions 2 to 6 read this name
_POOLING_FLAGS = {"pooling_mode_cls_token": "cls", "pooling_mode_mean_tokens": "mean", "pooling_mode_max_tokens": "max"}


def write_modules_json(folder: str | Path, config: Any) -> None:
    """Write modules.json with one module, which returns the ``sentence_embedding`` of the model's forward."""
    folder = Path(folder)
    text = {"method": "forward", "method_output_name": "sentence_embedding"}
    module: dict[str, Any] = {"max_seq_length": config.max_length, "module_output_name": "sentence_embedding"}
    write_json(folder / "sentence_bert_config.json", module | {"modality_config": {"text": text}})
    write_general_settings(folder, config, config.dim)
    write_json(folder / "modules.json", [{"idx": 0, "name": "0", "path": "", "type": TRANSFORMER}])


def write_general_settings(folder: Path, config: Any, dim: int | None) -> None:
    """Write prompts, similarity and the width of truncated embeddings, as SentenceTransformer reads them.

    ``SentenceTransformer.save`` writes this file, with ``__version__``, before it calls our ``save_pretrained``. Such a
    file has the settings that were changed in the SentenceTransformer, and is not replaced.

    SentenceTransformer adds an empty prompt ``document`` to models that have none, so that ``encode_document`` would
    not find ``passage`` or ``corpus``: their text is written as ``document``, too.
    """
    prompts = dict(config.prompts or {})
    if (name := next((one for one in DOCUMENT if one in prompts), None)) is not None:
        prompts["document"] = prompts[name]
    cut = {} if dim is None else {"truncate_dim": dim}
    names = {"prompts": prompts, "default_prompt_name": config.default_prompt_name}
    path = folder / "config_sentence_transformers.json"
    if not (path.is_file() and "__version__" in path.read_text(encoding="utf-8")):
        write_json(path, {**names, "similarity_fn_name": "cosine", **cut})


def exported_settings(name_or_path: str, config: PreTrainedConfig, **hub: Any) -> dict[str, Any]:
    """Return the settings of an export; empty for a plain encoder.

    Its modules take precedence over its config, because SentenceTransformer saves changed modules, prompts and lengths
    beside the unchanged config.
    """
    stated = dict(getattr(config, EXPORTED_SETTINGS, None) or {})
    stated.pop("model_type", None)
    if not stated or not (changed := sentence_transformer_settings(name_or_path, **hub)):
        return stated
    if "extraction" in changed:
        raise UnsupportedModuleError(f"{name_or_path!r} mixes its layers: open it with hf_xsent.SentenceEmbedder")
    longest = family(config).max_length(config)
    return changed | {"max_length": min(changed.get("max_length", longest), longest)}


def sentence_transformer_settings(name_or_path: str, **hub: Any) -> dict[str, Any]:
    """Return the settings of a sentence-transformers folder or Hub id; empty for a plain encoder."""
    read: Callable[..., Any] = partial(read_json, name_or_path, **hub)
    modules = read("modules.json", list)
    if not modules:
        return {}
    settings: dict[str, Any] = {}
    common = read("config_sentence_transformers.json")
    prompts = common.get("prompts") or {}
    if prompts:
        settings |= {"prompts": prompts, "default_prompt_name": common.get("default_prompt_name")}
    prompt = prompts.get(common.get("default_prompt_name"))
    for module in modules:
        if not isinstance(module, Mapping) or not {"type", "path"} <= module.keys():
            raise ModelError(f"{name_or_path!r} has a modules.json without types and paths: export the model again")
        kind = str(module["type"]).rsplit(".", 1)[-1]
        if kind == "Pooling":
            pooling = read(f"{module['path']}/config.json")
            settings["pooling"] = _pooling(name_or_path, pooling)
            if prompt and not pooling.get("include_prompt", True):
                raise UnsupportedModuleError(
                    f"{name_or_path!r} pools without its prompt: open it with sentence_transformers.SentenceTransformer"
                )
        elif kind == "Normalize":
            settings["normalize"] = True
        elif kind == "WeightedLayerPooling" or (kind == "Dense" and _is_map(read, module["path"], settings)):
            settings.setdefault("extraction", {})[kind] = module["path"]
        elif kind != "Transformer":
            raise UnsupportedModuleError(
                f"{name_or_path!r} has a module {kind}: open it with sentence_transformers.SentenceTransformer"
            )
    older = read("sentence_bert_config.json")  # before version 6
    if older.get("do_lower_case"):
        raise UnsupportedModuleError(
            f"{name_or_path!r} converts its input to lower case: open it with sentence_transformers.SentenceTransformer"
        )
    length = older.get("max_seq_length") or read("tokenizer_config.json").get("model_max_length")
    found = {"max_length": length, "dim": common.get("truncate_dim")}
    return settings | {setting: int(value) for setting, value in found.items() if value}


def _is_map(read: Callable[[str], Any], module: str, settings: dict[str, Any]) -> bool:
    """Return whether a Dense module is the linear map after a mix of layers."""
    stated = read(f"{module}/config.json")
    return str(stated.get("activation_function")).endswith("Identity") and "extraction" in settings


def read_json(name_or_path: str, file: str, kind: type = dict, **hub: Any) -> Any:
    """Read a JSON file of a model folder or Hub id; return an empty mapping or list if it does not exist."""
    if (found := model_file(name_or_path, file, **hub)) is None:
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
        raise UnsupportedModuleError(f"{name_or_path!r}: this pooling is not supported: {config}")
    return modes[0]
