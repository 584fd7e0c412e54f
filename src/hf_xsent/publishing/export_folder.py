"""Recognize exported folders, and store in them the facts of the run that trained the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hf_xsent.errors import OutputError
from hf_xsent.files import write_json

RUN_FACTS = "training.json"
_EXPORTED = (
    *("README.md", ".eval_results", RUN_FACTS, "modules.json", "[1-9]_*", "onnx"),
    *("config.json", "config_sentence_transformers.json", "sentence_bert_config.json"),
    *("model.safetensors*", "model-*.safetensors", "special_tokens_map.json", "added_tokens.json"),
    *("tokenizer*", "vocab*", "merges.txt", "*.model"),
)


def is_export(folder: str | Path) -> bool:
    """Return whether a folder is an export (a plain encoder and modules of sentence-transformers) and not a run."""
    folder = Path(folder)
    if not (folder / "modules.json").is_file():
        return False
    try:
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return True  # incomplete: a later check reports the missing config
    return "encoder_config" not in config


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


def write_run_facts(folder: Path, facts: dict[str, Any]) -> None:
    """Store the facts of the run in an export."""
    write_json(folder / RUN_FACTS, facts)


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
