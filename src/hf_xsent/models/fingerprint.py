"""Fingerprint models by their files, so that cached results and extractions are not used for another model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from huggingface_hub import hf_hub_download
from transformers import PreTrainedModel

from hf_xsent.compat import attention_of
from hf_xsent.errors import ModelError
from hf_xsent.files import digest, file_digest, is_hub_id, is_local
from hf_xsent.models.loading import load_encoder, loading_errors

_MODULE_FILES = ("*.safetensors", "pytorch_model*", "config*.json")
_TOKENIZER_FILES = ("*token*.json", "tokenizer*", "vocab*", "merges.txt", "*.model")
_MODEL_FILES = (*_MODULE_FILES, *_TOKENIZER_FILES, "sentence_bert_config.json")


def fingerprint_model(name_or_path: str, hub: Mapping[str, Any] = MappingProxyType({})) -> str:
    """Return a Hub model's name and revision, or a hash of a model folder, which changes with further training.

    Of subfolders, hash only the modules of sentence-transformers.
    """
    if not is_local(name_or_path):
        with loading_errors(name_or_path, "readable config.json"):
            known = {key: hub[key] for key in ("revision", "cache_dir", "token", "local_files_only") if key in hub}
            config = Path(hf_hub_download(name_or_path, "config.json", **known))
        return f"{name_or_path}@{config.parent.name}"  # the Hub's cache: snapshots/<commit>/config.json
    folder = Path(name_or_path)
    files = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()} | _modules(folder)
    return digest([(path.relative_to(folder).as_posix(), file_digest(path)) for path in sorted(files)])


def _modules(folder: Path) -> set[Path]:
    """Return the path of modules.json and the paths of the files of its modules."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return set()
    try:
        names = [str(module["path"]) for module in json.loads(listed.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{listed} is not a list of modules with paths: export the model again") from error
    folders = [folder / name for name in names if name]
    return {listed} | {path for one in folders for pattern in _MODULE_FILES for path in one.glob(pattern)}


def load_fingerprinted(name: str, fingerprint: str, encoder_config: Any, dtype: Any) -> PreTrainedModel:
    """Load the encoder that a model was trained on; raise an error if it is missing or has changed."""
    options: dict[str, Any] = {}
    if is_hub_id(name):
        revision = fingerprint.rpartition("@")[2]
        options = {} if revision == "None" else {"revision": revision}
    elif not is_local(name):
        raise ModelError(
            f"the frozen encoder of this model is not at {name}: copy it there, or set encoder_name in the model's "
            "config.json to its folder"
        )
    elif fingerprint_model(name) != fingerprint:
        raise ModelError(f"{name} is not the encoder that this model was trained on: restore that encoder")
    if (attention := attention_of(encoder_config)) is not None:
        options["attn_implementation"] = attention
    return load_encoder(name, dtype=torch.float32 if dtype == "auto" else dtype, **options)
