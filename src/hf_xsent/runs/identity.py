"""Identify models, data and settings: whatever decides a result, as plain values to record and to compare."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from hf_xsent.errors import ModelError
from hf_xsent.files import digest, file_digest, is_local
from hf_xsent.runs.hub import hub_file, loading_errors
from hf_xsent.settings.declare import decides_results

_MODULE_FILES = ("*.safetensors", "pytorch_model*", "config*.json")
_TOKENIZER_FILES = ("*token*.json", "tokenizer*", "vocab*", "merges.txt", "*.model")
_MODEL_FILES = (*_MODULE_FILES, *_TOKENIZER_FILES, "sentence_bert_config.json")


def identify_model(name_or_path: str, subfolder: str = "", **hub: Any) -> str:
    """Return a Hub model's name and commit, or a hash of a folder's weights, configs and tokenizer.

    ``hub`` are arguments of ``from_pretrained`` such as ``revision``. Of subfolders, only the modules of
    sentence-transformers count.
    """
    folder = Path(name_or_path, subfolder)
    if not is_local(name_or_path):
        with loading_errors(name_or_path, "readable config.json"):
            config = hub_file(name_or_path, "config.json", subfolder, **hub)
        commit = config.parents[len(Path(subfolder).parts)].name  # the cache has snapshots/<commit>/config.json
        return f"{folder.as_posix()}@{commit}"
    files = {path for pattern in _MODEL_FILES for path in folder.glob(pattern) if path.is_file()} | _modules(folder)
    return digest([(path.relative_to(folder).as_posix(), file_digest(path)) for path in sorted(files)])


def identify_files(paths: Iterable[str | Path]) -> str:
    """Return a hash of the contents of data files, in their order; their names and times do not count."""
    return digest([file_digest(Path(path)) for path in paths])


def deciding_settings(settings: Any) -> dict[str, Any]:
    """Return the fields of a settings dataclass that decide results: all that are not declared ``results=False``."""
    values = {field.name: getattr(settings, field.name) for field in fields(settings) if decides_results(field)}
    return {
        name: deciding_settings(value) if is_dataclass(value) and not isinstance(value, type) else value
        for name, value in values.items()
    }


def plain(identity: Mapping[str, Any]) -> dict[str, Any]:
    """Return an identity as JSON stores it.

    >>> plain({"languages": ("de", "en"), "data": Path("de.tsv")})
    {'languages': ['de', 'en'], 'data': 'de.tsv'}
    """
    return dict(json.loads(json.dumps(identity, default=lambda value: getattr(value, "value", str(value)))))


def differences(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the names whose values differ, each with its earlier and its present value."""
    names = dict.fromkeys([*earlier, *now])
    pairs = {name: (earlier.get(name), now.get(name)) for name in names}
    return {name: (before, after) for name, (before, after) in pairs.items() if before != after}


def first_difference(earlier: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Describe the first value that differs; empty if none does.

    >>> first_difference({"seed": 1, "k": 4}, {"seed": 2, "k": 4})
    'seed 1, not 2'
    """
    for name, (before, after) in differences(earlier, now).items():
        return f"{name} {before}, not {after}"
    return ""


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
    return {listed} | {path for module in folders for pattern in _MODULE_FILES for path in module.glob(pattern)}
