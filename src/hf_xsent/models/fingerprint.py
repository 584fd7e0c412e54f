"""Which model it is, by what its files hold: for results that are kept and must not outlive it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from huggingface_hub import hf_hub_download

from hf_xsent.errors import ModelError
from hf_xsent.files import digest, is_local
from hf_xsent.models.loading import one_sentence

_SAMPLES, _SAMPLE_BYTES = 64, 4096
_MODEL_FILES = ("*.safetensors", "config.json", "tokenizer*", "vocab*", "*.model")
_MODULE_FILES = ("*.safetensors", "config.json")  # of a folder that modules.json names


def fingerprint_model(name_or_path: str) -> str:
    """A hash that a model of a folder changes when it is trained on; of a Hub model its name and revision.

    Of large files, 64 pieces spread over them must do. Of folders within only sentence-transformers' modules count.
    """
    if not is_local(name_or_path):
        with one_sentence(name_or_path, "readable config.json"):
            config = Path(hf_hub_download(name_or_path, "config.json"))
        return f"{name_or_path}@{config.parent.name}"  # the Hub's cache: snapshots/<commit>/config.json
    return digest(_samples(Path(name_or_path)))


def _samples(folder: Path) -> Iterator[str | bytes]:
    for path in sorted({path for pattern in _MODEL_FILES for path in folder.glob(pattern)} | _modules(folder)):
        size = path.stat().st_size
        yield f"{path.relative_to(folder).as_posix()} {size}\n"
        with path.open("rb") as file:
            for start in np.linspace(0, max(0, size - _SAMPLE_BYTES), _SAMPLES, dtype=int).tolist():
                file.seek(start)
                yield file.read(_SAMPLE_BYTES)


def _modules(folder: Path) -> set[Path]:
    """What sentence-transformers puts around an encoder: the list of modules, and their files."""
    listed = folder / "modules.json"
    if not listed.is_file():
        return set()
    try:
        names = [str(module["path"]) for module in json.loads(listed.read_text(encoding="utf-8"))]
    except (ValueError, TypeError, KeyError) as error:
        raise ModelError(f"{listed} is no list of modules with their paths: export the model anew") from error
    folders = [folder / name for name in names if name]
    return {listed} | {path for one in folders for pattern in _MODULE_FILES for path in one.glob(pattern)}
