"""Recognize exported folders."""

from __future__ import annotations

from pathlib import Path

from hf_xsent.errors import OutputError
from hf_xsent.models.saved_form import HEADS_FILE

RUN_FACTS = "training.json"  # what runs, checkpoints and exports state of the run that trained the model
_OF_RUNS = (HEADS_FILE, "recipe.yaml")
_EXPORTED = (
    *("README.md", RUN_FACTS, "modules.json", "[1-9]_*", "onnx"),
    *("config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("model.safetensors*", "model-*.safetensors", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer*", "vocab*", "merges.txt", "*.model"),
)


def check_export(folder: str | Path) -> None:
    """Raise an error unless a folder has an encoder with modules of sentence-transformers, and nothing of a run."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file() or any((folder / name).exists() for name in _OF_RUNS):
        raise OutputError(f"{folder} is not an export: write one with hf-xsent export")


def check_replaceable(folder: str | Path) -> None:
    """Raise an error for a folder that is not an export, or has files that no export writes, such as checkpoints."""
    check_export(folder)
    for path in sorted(Path(folder).iterdir()):
        if not any(path.match(pattern) for pattern in _EXPORTED):
            raise OutputError(
                f"{path} is not part of an export and would be deleted: move it, or choose another folder"
            )
