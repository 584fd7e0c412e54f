"""Fingerprint models by their files, so that cached results and extractions are not used for another model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from huggingface_hub import hf_hub_download
from torch import nn

from hf_xsent.errors import ModelError
from hf_xsent.files import digest, file_digest, is_local
from hf_xsent.models.loading import loading_errors

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


def fingerprint_weights(module: nn.Module) -> str:
    """Return a hash of the weights of a loaded model, the same in every precision that represents them."""
    return digest([(name, weight.float().cpu().numpy().tobytes()) for name, weight in module.state_dict().items()])
