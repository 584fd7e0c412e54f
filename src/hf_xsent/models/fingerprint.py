"""What tells one model from another: a hash of its files."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from hf_xsent.models.loading import load_config

_SAMPLES, _SAMPLE_BYTES = 64, 4096
_MODEL_FILES = ("*.safetensors", "config.json", "tokenizer*", "vocab*", "*.model")


def fingerprint_model(name_or_path: str) -> str:
    """A hash that a model of a folder changes when it is trained on; of a Hub model its name and revision.

    Of large files, 64 pieces spread over them must do.
    """
    folder = Path(name_or_path)
    if not folder.is_dir():
        return f"{name_or_path}@{getattr(load_config(name_or_path), '_commit_hash', None)}"
    digest = hashlib.sha256()
    for path in sorted({path for pattern in _MODEL_FILES for path in folder.glob(pattern)}):
        size = path.stat().st_size
        digest.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            for start in np.linspace(0, max(0, size - _SAMPLE_BYTES), _SAMPLES, dtype=int).tolist():
                file.seek(start)
                digest.update(file.read(_SAMPLE_BYTES))
    return digest.hexdigest()[:16]
