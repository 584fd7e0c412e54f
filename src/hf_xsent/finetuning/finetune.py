"""Fine-tune an encoder on XNLI or MLQA."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hf_xsent.finetuning.mlqa import finetune_mlqa
from hf_xsent.finetuning.report import FineTuningReport
from hf_xsent.finetuning.running import check_settings
from hf_xsent.finetuning.settings import FineTuningOptions
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.finetuning.xnli import finetune_xnli
from hf_xsent.settings.command import command
from hf_xsent.settings.declare import settings_of, types_of
from hf_xsent.settings.read import Flags, build_settings, read_values

_KINDS = (FineTuningOptions, FineTuningArguments)
_TYPES = {name: hint for kind in _KINDS for name, hint in types_of(kind).items()}


@dataclass(frozen=True)
class FineTuningRecipe:
    """All settings of a fine-tuning run."""

    options: FineTuningOptions
    training: FineTuningArguments


def build_recipe(layers: Sequence[Mapping[str, Any]], flags: Flags | None = None, where: str = "") -> FineTuningRecipe:
    """Build the settings from those of a file, of Python and of flags."""
    converted = read_values({name: layer[name] for layer in layers for name in layer}, flags or {}, _TYPES, where)
    if converted.get("task") == "mlqa":
        converted.setdefault("max_length", 384)
    return FineTuningRecipe(
        build_settings(FineTuningOptions, converted), build_settings(FineTuningArguments, converted)
    )


@command(
    FineTuningRecipe,
    build_recipe,
    {name: field for kind in _KINDS for name, field in settings_of(kind).items()},
    _TYPES,
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
