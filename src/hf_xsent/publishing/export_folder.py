"""Recognize exported folders and read how they encode."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from transformers import AutoConfig, PreTrainedTokenizerBase
from transformers.models.auto.tokenization_auto import tokenizer_class_from_name
from transformers.trainer import TRAINER_STATE_NAME

from hf_xsent.errors import OutputError
from hf_xsent.models.loading import SETTINGS
from hf_xsent.models.saved_form import HEADS_FILE, RUNTIMES_FILE
from hf_xsent.models.sentence_transformer_files import read_json, read_modules, stated_settings
from hf_xsent.publishing.runtimes import SERVED_FILES
from hf_xsent.runs.run import CHECKPOINT, RECIPE_FILE, RUN_STATE_FILE

_OF_RUNS = (HEADS_FILE, RECIPE_FILE, RUN_STATE_FILE, f"{CHECKPOINT}*", TRAINER_STATE_NAME)  # and of checkpoints


def check_export(folder: str | Path) -> None:
    """Raise an error unless a folder has modules of sentence-transformers, our settings, and nothing of a run."""
    folder = Path(folder)
    ours = (folder / "modules.json").is_file() and SETTINGS in read_json(str(folder), "config.json")
    if not ours or any(any(folder.glob(name)) for name in _OF_RUNS):
        raise OutputError(f"{folder} is not an export: write one with hf-xsent export")


def check_replaceable(folder: Path, overwrite: bool) -> None:
    """Raise an error if a folder that an export is to write has files, unless it is an export to overwrite."""
    if folder.resolve() in (here := Path.cwd(), *here.parents):
        raise OutputError(f"{folder} is the current folder, or holds it: name another folder")
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        if not overwrite:
            raise OutputError(f"{folder} exists already: choose another folder or replace it with --overwrite")
        check_export(folder)


def has_fast_tokenizer(folder: str | Path) -> bool:
    """Return whether the tokenizer of a saved model needs tokenizer.json; others, such as PhoBERT's, run in Python."""
    return bool(read_json(str(folder), "tokenizer_config.json").get("backend", "tokenizers") == "tokenizers")


def encoding_facts(folder: str | Path) -> dict[str, Any]:
    """Return how a saved model encodes, as its files state it: prompt, pooling, length, dimensions, tokenizer."""
    plain = "encoder_config" not in read_json(str(folder), "config.json")
    tokenizer = read_json(str(folder), "tokenizer_config.json")
    kind: Any = tokenizer_class_from_name(tokenizer.get("tokenizer_class", "")) or PreTrainedTokenizerBase
    encoder, settings = stated_settings(str(folder), AutoConfig.from_pretrained(folder))
    pooling, mixes_layers = settings["pooling"], settings["model_type"] == "dual-pivot"
    if mixes_layers and pooling == "mean":
        pooling = "mean of layers"
    return {
        "prompted": bool(settings.get("prompts")),
        "prompt": (settings.get("prompts") or {}).get(settings.get("default_prompt_name")) or "",
        "pooling": pooling,
        "layer": None if mixes_layers else encoder.num_hidden_layers,
        "max_length": settings["max_length"],
        "normalize": settings["normalize"],
        "dtype": str(encoder.dtype or "float32").removeprefix("torch."),
        "fast_tokenizer": has_fast_tokenizer(folder),
        "linear_map": "map" in read_modules(str(folder)),
        "dimensions": settings.get("dim") or encoder.hidden_size,
        "truncated": settings.get("dim") is not None,
        "plain": plain,
        "embedded_languages": settings.get("languages") or [],
        "pad_id": encoder.pad_token_id or 0,
        "pad_token": str(tokenizer.get("pad_token", "")),
        "truncates_left": tokenizer.get("truncation_side") == "left",
        "token_types": "token_type_ids" in tokenizer.get("model_input_names", kind.model_input_names),
        "files": [file for file in SERVED_FILES if (Path(folder) / file).is_file()],
        "opened": read_json(str(folder), RUNTIMES_FILE, list),
    }
