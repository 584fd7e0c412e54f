"""Recognize exported folders, and store in them the facts of the run that trained the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hf_xsent.errors import OutputError
from hf_xsent.models.saved_form import HEADS_FILE

RUN_FACTS = "training.json"
_OF_RUNS = (HEADS_FILE, "recipe.yaml")
_EXPORTED = (
    *("README.md", ".eval_results", RUN_FACTS, "modules.json", "[1-9]_*", "onnx"),
    *("config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("model.safetensors*", "model-*.safetensors", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer*", "vocab*", "merges.txt", "*.model"),
)


def is_export(folder: str | Path) -> bool:
    """Return whether a folder has a plain encoder with modules of sentence-transformers, and nothing of a run."""
    folder = Path(folder)
    return (folder / "modules.json").is_file() and not any((folder / name).exists() for name in _OF_RUNS)


def check_export(folder: str | Path) -> None:
    """Raise an error for a folder that is not an export."""
    if not is_export(folder):
        raise OutputError(f"{folder} is not an export: write one with hf-xsent export")


def check_replaceable(folder: str | Path) -> None:
    """Raise an error for a folder that is not an export, or has files that no export writes, such as checkpoints."""
    if not is_export(folder):
        raise OutputError(f"{folder} contains files but is not an export: choose another folder")
    for path in sorted(Path(folder).iterdir()):
        if not any(path.match(pattern) for pattern in _EXPORTED):
            raise OutputError(
                f"{path} is not part of an export and would be deleted: move it, or choose another folder"
            )


def read_run_facts(folder: str | Path) -> dict[str, Any]:
    """Read the facts of the run from an export; raise an error if it has none."""
    path = Path(folder) / RUN_FACTS
    try:
        facts: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise OutputError(
            f"{folder} has no readable {RUN_FACTS} (facts of the training run): give the run as --run"
        ) from error
    return facts
