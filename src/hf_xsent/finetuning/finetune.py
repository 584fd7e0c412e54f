"""Fine-tune an encoder on XNLI or MLQA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_xsent.errors import RecipeError
from hf_xsent.finetuning.mlqa import finetune_mlqa
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import check_settings
from hf_xsent.finetuning.settings import MlqaSettings, XnliSettings
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.finetuning.xnli import finetune_xnli
from hf_xsent.settings.command import command
from hf_xsent.settings.declare import settings_of, types_of
from hf_xsent.settings.read import Flags, build_settings, read_values

_TASKS: dict[str, type[Any]] = {"xnli": XnliSettings, "mlqa": MlqaSettings}
_KINDS = (XnliSettings, MlqaSettings, FineTuningArguments)


@dataclass(frozen=True)
class FineTuningRecipe:
    """All settings of a fine-tuning run."""

    options: Any  # of the task
    training: FineTuningArguments


def build_recipe(layers: Sequence[Mapping[str, Any]], flags: Flags | None = None, where: str = "") -> FineTuningRecipe:
    """Build the settings of the task that file, Python or flags name."""
    values = {name: layer[name] for layer in layers for name in layer}
    task = ((flags or {}).get("task") or [values.get("task")])[0]
    if task not in _TASKS:
        raise RecipeError(f"unknown task {task!r}: use {' or '.join(_TASKS)}")
    converted = read_values(values, flags or {}, types_of(_TASKS[task]) | types_of(FineTuningArguments), where)
    return FineTuningRecipe(build_settings(_TASKS[task], converted), build_settings(FineTuningArguments, converted))


@command(
    FineTuningRecipe,
    build_recipe,
    {name: field for kind in _KINDS for name, field in settings_of(kind).items()},
    {name: hint for kind in _KINDS for name, hint in types_of(kind).items()},
)
def finetune(recipe: FineTuningRecipe) -> list[FineTuningReport]:
    """Fine-tune an encoder on ``xnli`` or ``mlqa``, save it, and measure every test set that is given.

    ```python
    from hf_xsent import finetune

    reports = finetune(
        "xnli", model="xlm-roberta-base", train={"en": "multinli.tsv"}, output_dir="runs/xnli", max_steps=1000
    )
    ```
    """
    check_settings(recipe.options, recipe.training)
    if recipe.options.task == "xnli":
        return finetune_xnli(recipe.options, recipe.training)
    return finetune_mlqa(recipe.options, recipe.training)
