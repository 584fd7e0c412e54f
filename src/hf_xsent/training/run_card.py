"""State the settings and the facts of a run, for its recipe and its model card."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from transformers import Trainer, TrainingArguments
from transformers.trainer_pt_utils import AcceleratorConfig

from hf_xsent.files import is_local, write_text
from hf_xsent.publishing.facts import ModelFacts, Stage, without_folders
from hf_xsent.publishing.model_card import compose_card, write_card
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


def facts_of_trainer(trainer: Any) -> ModelFacts:
    """Return what is known of the model that a trainer trained, also in earlier stages."""
    stage, start = _stage(trainer), str(settings_of_run(trainer).get("model", ""))
    earlier = trainer.origin.facts or ModelFacts.read(start)
    if earlier.stages or earlier.averaged:
        if not stage.steps:  # the weights are those of the run before
            return earlier
        models = ", ".join(earlier.averaged)
        mean = f" (the mean of {models}; a pair is counted for each that was trained on it)" if models else ""
        stage = replace(stage, continues=f"{Path(start).name or 'a model in memory'}{mean}")
    return ModelFacts(
        stages=[*earlier.stages, stage],
        languages=sorted({*stage.languages, *(earlier.languages if earlier.stages else ())}),
        base_model=earlier.base_model or ("" if is_local(start) else start),
        local_start=earlier.local_start,
        vocabulary=earlier.vocabulary,
        language_removed=earlier.language_removed,
    )


def _stage(trainer: Any) -> Stage:
    """Return what is known of the training of a trainer; of absolute paths, only the last name."""
    args, state, recipe = trainer.args, trainer.state, settings_of_run(trainer)
    bitext = getattr(trainer.train_dataset, "sides", trainer.train_dataset)
    rows: dict[str, int] = dict(getattr(bitext, "languages", {}))
    unpaired = getattr(bitext, "unpaired", {})
    local = {name for name, field in recipe_settings().items() if field.metadata.get("local")}
    changes = trainer.run.state.changes if trainer.run else []
    changed_at = [change["step"] for change in changes if "content of training pairs" in change["changed"]]
    best = state.best_global_step if _ends_with_best(trainer) and state.best_global_step != state.global_step else None
    return Stage(
        recipe=without_folders({key: value for key, value in recipe.items() if key not in local}),
        languages=sorted({*rows, str(recipe["target_language"])}) if rows else [],
        steps=state.global_step,
        epochs=state.epoch or 0.0,
        read_per_step=pairs_per_step(args, len(trainer.train_dataset or ())),
        changed_at=changed_at[-1] if changed_at else None,
        best_step=best,
        share_of_start=next((log["share_of_start"] for log in state.log_history if "share_of_start" in log), None),
        pairs={} if unpaired else rows,
        ledger=dict(getattr(bitext, "ledger", {})),
        unpaired=unpaired,
        measured=_measured(trainer),
    )


def _measured(trainer: Any) -> dict[str, tuple[float, float]]:
    """Return what was measured before and after training: on dev pairs, and within languages."""
    history = trainer.state.log_history
    logs = {log["step"]: log for log in history if "eval_accuracy" in log}
    of_best = _ends_with_best(trainer) and not trainer.args.share_of_start  # else the weights were measured last
    step = trainer.state.best_global_step if of_best else max(logs, default=0)
    before, after = logs.get(0, {}), logs.get(step, {}) if step else {}
    measured = {
        name: (before[key], after[key])
        for name in ("accuracy", "beside")
        if (key := f"eval_{name}") in before and key in after and before[key] < 100
    }
    within = [(log["retention_before"], log["retention"]) for log in history if "retention" in log]
    return measured | ({"retention": within[-1]} if within else {})


def _ends_with_best(trainer: Any) -> bool:
    """Return whether training ended with the weights of the best step, which may be averaged with the start since."""
    return trainer.args.load_best_model_at_end and not trainer.saves_checkpoint


def write_run_card(trainer: Trainer, folder: str | Path, title: str = "") -> None:
    """Write the card of a run, or of its export, into its folder; the title is its name if none is given."""
    facts = facts_of_trainer(trainer)
    facts = replace(facts, name=title or facts.name)
    name = trainer.hub_model_id or Path(str(trainer.args.output_dir)).resolve().name
    write_card(folder, facts, compose_card(folder, facts, name))
