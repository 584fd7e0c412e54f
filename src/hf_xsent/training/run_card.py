"""Write the recipe and the model card of a run into its output folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml
from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from hf_xsent.files import write_text
from hf_xsent.publishing.model_card import CardFacts, encoding_facts, facts_of_run, render_card
from hf_xsent.settings.declare import default_of
from hf_xsent.training.settings import FolderSettings

RECIPE_FILE = "recipe.yaml"
_MAPPINGS = {  # settings of TrainingArguments
    *("lr_scheduler_kwargs", "gradient_checkpointing_kwargs", "activation_checkpointing_kwargs", "accelerator_config")
}
_OF_COMMAND = {field.name for field in fields(FolderSettings)}


def recipe_of(training: TrainingArguments) -> dict[str, Any]:
    """Return the arguments that differ from their defaults, except Hub tokens, as keys of a recipe."""
    settings: dict[str, Any] = {}
    for field in fields(training):
        value = getattr(training, field.name, None)
        if isinstance(value, AcceleratorConfig):
            defaults = AcceleratorConfig().to_dict()
            value = {name: part for name, part in value.to_dict().items() if part != defaults[name]} or None
        ours = "results" in field.metadata  # declared by setting()
        plain = isinstance(value, str | int | float | None) or (value and (ours or field.name in _MAPPINGS))
        public = field.init and not field.name.endswith("_token")  # the folder may be pushed to the Hub
        if public and plain and value != default_of(field) and field.name not in _OF_COMMAND:
            settings[field.name] = getattr(value, "value", value)
    return settings


def write_recipe(folder: str | Path, command: str, options: Mapping[str, Any], training: TrainingArguments) -> None:
    """Write all settings of this run as a recipe that repeats it."""
    settings = {key: value for key, value in options.items() if value is not None} | recipe_of(training)
    text = f"# hf-xsent {command} {RECIPE_FILE}\n{yaml.safe_dump(settings, sort_keys=False)}"
    write_text(Path(folder) / RECIPE_FILE, text)


def write_run_recipe(trainer: Trainer) -> None:
    """Write the recipe of a run; if it was not started from one, as far as the trainer knows it."""
    settings = getattr(trainer, "settings_of_run", None)
    if settings is None:
        config = trainer.accelerator.unwrap_model(trainer.model).config
        start = {"model": config.encoder_config.name_or_path or None, "method": config.model_type}
        data = {name: getattr(trainer, name, None) for name in ("alpha", "target_language")}
        settings = start | config.recipe() | data
    write_recipe(str(trainer.args.output_dir), "pretrain", settings, trainer.args)


def write_run_card(
    trainer: Trainer,
    folder: str | Path,
    name: str | None = None,
    license: str | None = None,
    base_model: str | None = None,
) -> None:
    """Write the model card of a run, or of its export, into its folder; omit unknown facts, so that no run fails."""
    folder = Path(folder)
    if not (facts := facts_of_run(folder)):
        write_run_recipe(trainer)
        facts = facts_of_run(folder)
    bitext: Any = trainer.train_dataset
    if not facts["languages"] and hasattr(bitext, "languages"):
        facts["pairs"] = dict(bitext.languages)
        facts["languages"] = sorted({*facts["pairs"], getattr(trainer, "target_language", "en")})
    known = {"name": name, "license": license, "base_model": base_model, "repository": trainer.hub_model_id}
    facts |= encoding_facts(folder) | {key: value for key, value in known.items() if value}
    write_text(folder / "README.md", f"{render_card(CardFacts(**facts))}\n")
