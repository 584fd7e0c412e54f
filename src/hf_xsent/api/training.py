"""Train and fine-tune by the settings of recipes, and publish exports."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.arguments import FineTuningSettings
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.publishing import hub
from hf_xsent.settings.declaring import takes_names
from hf_xsent.training.recipe import DataSettings
from hf_xsent.training.trainer import AlignmentTrainer

_NAMED = {
    one.name for kind in (DataSettings, FineTuningSettings) for one in fields(kind) if takes_names(one)
}  # mappings that become NAME=VALUE; others become JSON


def pretrain(recipe: str | PathLike[str] | None = None, **settings: Any) -> AlignmentTrainer | None:
    """Train from a recipe file, settings, or both (a setting replaces the recipe's value); return the trainer.

    Settings are the keys of recipes (docs/settings.md), among them every field of transformers' TrainingArguments.
    ``data`` is a mapping or a list: ``{"de": file}`` or ``["de=file"]``. For pairs in memory use ``AlignmentTrainer``.
    Return None if the run to resume is finished.

    ```python
    from hf_xsent import pretrain

    trainer = pretrain(
        model="xlm-roberta-base", data={"de": "pairs.tsv"}, output_dir="runs/de", max_steps=1000,
        objectives={"translation_ranking": {"temperature": 0.05}},
    )
    ```
    """
    from hf_xsent.training.pretrain import main

    return main(_arguments(recipe, settings))


def finetune(task: str, recipe: str | PathLike[str] | None = None, **settings: Any) -> list[FineTuningReport]:
    """Fine-tune an encoder on ``xnli`` or ``mlqa``, save it, and measure every test set that is given.

    Settings are those of ``hf-xsent finetune``.

    ```python
    from hf_xsent import finetune

    reports = finetune(
        "xnli", model="xlm-roberta-base", train={"en": "multinli.tsv"}, output_dir="runs/xnli", max_steps=1000
    )
    ```
    """
    if task == "xnli":
        from hf_xsent.finetuning.xnli import main
    elif task == "mlqa":
        from hf_xsent.finetuning.mlqa import main
    else:
        raise RecipeError(f"unknown task {task!r}: use xnli or mlqa")
    return main(_arguments(recipe, settings))


def publish(
    folder: str | PathLike[str],
    repository: str,
    *,
    private: bool = False,
    revision: str | None = None,
    message: str | None = None,
) -> str:
    """Check an exported folder, upload it to the Hub and return its address; the same call resumes.

    ```python
    from hf_xsent import publish

    publish("exported/mine", "org/mine", private=True)
    ```
    """
    return hub.publish(hub.plan_upload(Path(folder), repository), private, revision, message)


def _arguments(recipe: str | PathLike[str] | None, settings: Mapping[str, Any]) -> list[str]:
    """Return recipe and settings as command line arguments, so that one reader checks all values."""
    arguments = [] if recipe is None else [fspath(recipe)]
    for name, value in settings.items():
        if name == "objectives" and isinstance(value, Mapping):
            arguments += _objectives(value)
        elif name == "columns" and isinstance(value, Mapping):
            columns = {key: _values(name, one) for key, one in value.items()}
            arguments += ["--columns", *(f"{key}={','.join(one)}" for key, one in columns.items())]
        elif isinstance(value, Mapping) and name not in _NAMED:
            arguments += [f"--{name}", json.dumps(value)]
        elif value is not None:
            arguments += [f"--{name}", *_values(name, value)]
        elif name == "save_total_limit":  # None: keep all checkpoints
            arguments += [f"--{name}", "null"]
    return arguments


def _objectives(objectives: Mapping[str, Any]) -> list[str]:
    stated = {name: one if isinstance(one, Mapping) else {"weight": one} for name, one in objectives.items()}
    weights = {name: f"={one['weight']}" if "weight" in one else "" for name, one in stated.items()}
    arguments = ["--objectives", *(name + weight for name, weight in weights.items())]
    for name, one in stated.items():
        for key, value in one.items():
            if key != "weight" and value is not None:
                arguments += [f"--objectives.{name}.{key}", *_values(key, value)]
    return arguments


def _values(name: str, value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [f"{key}={text}" for key, one in value.items() for text in _values(name, one)]
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [text for one in value for text in _values(name, one)]
    if isinstance(value, bool):
        return [str(value).lower()]
    if isinstance(value, str | int | float | PathLike):
        return [str(value)]
    raise RecipeError(f"{name} takes text, numbers, lists and mappings, not {type(value).__name__}")
