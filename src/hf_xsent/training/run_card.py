"""State the settings and the facts of a run, for its recipe and its model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from hf_xsent.files import is_local, write_text
from hf_xsent.publishing.model_card import compose_card, facts_of_all, facts_of_run, without_folders, write_card
from hf_xsent.runs.run import RECIPE_FILE
from hf_xsent.settings.declare import default_of
from hf_xsent.settings.yaml12 import write_yaml
from hf_xsent.training.measuring import pairs_per_step
from hf_xsent.training.recipe import recipe_settings
from hf_xsent.training.settings import FolderSettings

_MAPPINGS = {  # settings of TrainingArguments
    *("optim_target_modules", "lr_scheduler_kwargs", "gradient_checkpointing_kwargs"),
    *("activation_checkpointing_kwargs", "accelerator_config"),
}
_NOT_RECORDED = {field.name for field in fields(FolderSettings)} | {"dataloader_pin_memory"}  # false on any CPU


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
        usual = (None, training.save_steps) if field.name == "eval_steps" else (default_of(field),)
        if public and plain and value not in usual and field.name not in _NOT_RECORDED:
            settings[field.name] = getattr(value, "value", value)
    return settings


def write_recipe(folder: str | Path, command: str, settings: Mapping[str, Any]) -> None:
    """Write settings as a recipe that repeats a run."""
    text = f"# hf-xsent {command} {RECIPE_FILE}\n{write_yaml(settings)}"
    write_text(Path(folder) / RECIPE_FILE, text)


def settings_of_run(trainer: Any) -> dict[str, Any]:
    """Return the settings of a run as a recipe; if it was not started from one, as far as the trainer knows them."""
    return settings_besides_arguments(trainer) | recipe_of(trainer.args)


def settings_besides_arguments(trainer: Any) -> dict[str, Any]:
    """Return the settings of a run besides the training arguments, which another call of train may have changed."""
    stated = getattr(trainer, "stated_settings", None)
    if stated is None:
        config: Any = trainer.model.config
        stated = {"model": trainer.origin.name, "method": config.model_type} | config.recipe()
        stated |= {name: getattr(trainer, name) for name in ("alpha", "target_language")}
    elif trainer.origin.facts is not None:  # another call of train has trained the model since
        stated = {**stated, "model": trainer.origin.name}
    return {key: value for key, value in stated.items() if value is not None}


def facts_of_trainer(trainer: Any) -> dict[str, Any]:
    """Return what a model card states of a run; of absolute paths, which may be private, only the last name."""
    recipe, bitext = settings_of_run(trainer), getattr(trainer.train_dataset, "sides", trainer.train_dataset)
    rows: dict[str, int] = dict(getattr(bitext, "languages", {}))
    start = str(recipe.get("model", ""))
    local = {name for name, field in recipe_settings().items() if field.metadata.get("local")}
    facts = {
        "base_model": "" if is_local(start) else start,
        "languages": sorted({*rows, str(recipe["target_language"])}) if rows else [],
        "recipe": without_folders({key: value for key, value in recipe.items() if key not in local}),
        "pairs": {} if getattr(bitext, "unpaired", {}) else rows,
        "ledger": dict(getattr(bitext, "ledger", {})),
        "training": _training_sentences(trainer),
        "measured": _measured_sentences(trainer),
    }
    earlier = trainer.origin.facts or (facts_of_run(start) if start else {})
    of_start = ("base_model", "local_start", "language_removed", "vocabulary")
    facts |= {name: earlier[name] for name in of_start if earlier.get(name)}
    if "recipe" not in earlier:
        return facts
    if not trainer.state.global_step:  # the weights are those of the run before
        return dict(earlier)
    before = Path(start).name or "a model in memory"
    stages = (
        f"It continued the training of {before}: pairs and languages are of all stages, recipe and steps of the last."
    )
    return facts | {"training": [*facts["training"], stages]} | facts_of_all([earlier, facts])


def _training_sentences(trainer: Any) -> list[str]:
    """State the steps, and which weights are those of the model."""
    args, state = trainer.args, trainer.state
    pairs, epochs = pairs_per_step(args, len(trainer.train_dataset or ())), state.epoch or 0
    unpaired = getattr(getattr(trainer.train_dataset, "sides", trainer.train_dataset), "unpaired", {})
    read = "unpaired sentences per side" if unpaired else "pairs"
    sentences = [f"Training took {state.global_step:,} steps of {pairs:,} {read} ({epochs:.2f} epochs)."]
    for language, (source, target) in unpaired.items():
        both = f"{source:,} sentences in {language} and {target:,} in {trainer.target_language}"
        sentences.append(f"It read {both}, which are unpaired.")
    step = state.best_global_step
    if _is_best(trainer) and step not in (None, state.global_step):
        sentences.append(f"The weights are those of step {step:,}, the best on the dev pairs.")
    for log in state.log_history:
        if "share_of_start" in log:
            share = log["share_of_start"]
            sentences.append(f"The weights are averaged with those of the start, whose share is {share:g}.")
    return sentences


def _measured_sentences(trainer: Any) -> list[str]:
    """State what was measured before training and after it: dev pairs, and the score within languages."""
    history = trainer.state.log_history
    logs = {log["step"]: log for log in history if "eval_accuracy" in log}
    step = trainer.state.best_global_step if _is_best(trainer) else max(logs, default=0)  # that of the weights
    sentences = []
    for name, what in (
        ("eval_accuracy", "Accuracy@1 on dev pairs"),
        ("eval_beside", "Beside the query's language, it"),
    ):
        if step and all(name in logs.get(each, ()) for each in (0, step)) and logs[0][name] < 100:
            before, after = logs[0][name], logs[step][name]
            sentences.append(f"{what} was {before:.2f} before training and is {after:.2f} after it.")
    for log in history:
        if "retention" in log:
            before, after = log["retention_before"], log["retention"]
            sentences.append(
                f"The score within languages was {before:.2f} before training and is {after:.2f} after it."
            )
    return sentences


def _is_best(trainer: Any) -> bool:
    """Return whether the weights are those of the best step."""
    args = trainer.args
    return args.load_best_model_at_end and not args.share_of_start and not trainer.saves_checkpoint


def write_run_card(trainer: Trainer, folder: str | Path, **facts: str) -> None:
    """Write the card of a run, or of its export, into its folder; ``facts`` replace those of the run."""
    facts_of_card = facts_of_trainer(trainer) | facts
    name = trainer.hub_model_id or Path(str(trainer.args.output_dir)).resolve().name
    write_card(folder, facts_of_card, compose_card(folder, facts_of_card, name))
