"""List all objectives by name and read their settings; import an objective's file, and with it torch, on first use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from importlib import import_module
from typing import TYPE_CHECKING, Any, get_type_hints

from hf_xsent.errors import RecipeError, did_you_mean
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.convert import convert
from hf_xsent.settings.declare import check_settings, is_derived, is_saved, settings_of

if TYPE_CHECKING:
    from hf_xsent.objectives.base import Objective

OBJECTIVES = {  # name in recipes: file and class
    "translation_ranking": "translation_ranking:TranslationRanking",
    "matryoshka": "matryoshka:Matryoshka",
    "representation_translation": "representation_translation:RepresentationTranslation",
    "momentum_contrast": "momentum_contrast:MomentumContrast",
    "translation_language_modeling": "masked_language:TranslationLanguageModeling",
    "masked_language_modeling": "masked_language:MaskedLanguageModeling",
    "aligned_word_prediction": "word_alignment:AlignedWordPrediction",
    "word_translation_ranking": "word_alignment:WordTranslationRanking",
    "distillation": "distillation:Distillation",
    "interpolation": "interpolation:Interpolation",
    "mexma": "mexma:Mexma",
    "triplet_ranking": "triplet:TripletRanking",
    "adversarial": "adversarial:Adversarial",
    "cycle": "adversarial:CycleConsistency",
}


def objective_class(name: str) -> type[Objective]:
    """Import an objective's class."""
    if name not in OBJECTIVES:
        raise RecipeError(
            f"unknown objective {name!r}: use {', '.join(OBJECTIVES)}{did_you_mean(str(name), OBJECTIVES)}"
        )
    module, _, owner = OBJECTIVES[name].partition(":")
    kind: type[Objective] = getattr(import_module(f"hf_xsent.objectives.{module}"), owner)
    return kind


def read_objectives(stated: Mapping[str, Any], preset: Mapping[str, Any] | None = None) -> dict[str, ObjectiveSettings]:
    """Build the settings of each objective from ``{name: {setting: value}}`` or ``{name: weight}``.

    A setting that ``stated`` lacks comes from the method's ``preset``, or else from the default.
    """
    if not isinstance(stated, Mapping):
        raise RecipeError(f"objectives takes a mapping such as {{translation_ranking: 1.0}}, not {stated!r}")
    if not stated:
        raise RecipeError(f"objectives is empty: name at least one of {', '.join(OBJECTIVES)}")
    return {name: _settings(name, value, (preset or {}).get(name)) for name, value in stated.items()}


def merge_objectives(base: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return only the ``chosen`` objectives; settings that they do not state come from ``base``."""
    return {name: _stated(base.get(name)) | _stated(value) for name, value in chosen.items()}


def _stated(value: Any) -> dict[str, Any]:
    if isinstance(value, Mapping):
        return dict(value)
    return {} if value is None else {"weight": value}


def write_objectives(objectives: Mapping[str, Any], recipe: bool = False) -> dict[str, dict[str, Any]]:
    """Return the settings as plain data: those saved in config.json or, with ``recipe``, those that a recipe can set.

    A recipe does not list settings that are None.
    """
    return {
        name: {
            one.name: getattr(settings, one.name)
            for one in fields(settings)
            if (not is_derived(one) and getattr(settings, one.name) is not None if recipe else is_saved(one))
        }
        for name, settings in objectives.items()
    }


def _settings(name: str, stated: Any, preset: Any) -> ObjectiveSettings:
    """Build the settings of one objective, each converted to its type and checked against its range."""
    kind, where = objective_class(name).Settings, f"objectives.{name}."
    if isinstance(stated, kind):
        check_settings(stated, where)
        return stated  # frozen
    if isinstance(stated, bool) or not isinstance(stated, int | float | str | Mapping | None):
        raise RecipeError(f"objectives.{name} takes a weight or a mapping of settings, not {stated!r}")
    values = _stated(preset) | _stated(stated)
    hints = get_type_hints(kind)
    for key in values:
        if key not in hints:
            raise RecipeError(f"{where}{key} is not a setting{did_you_mean(str(key), [*settings_of(kind)])}")
    settings = kind(**{key: convert(where + key, value, hints[key]) for key, value in values.items()})
    check_settings(settings, where)
    return settings


def settings_by_objective() -> dict[str, tuple[type[ObjectiveSettings]]]:
    """Return the settings class of each objective by its name in flags."""
    return {f"objectives.{name}.": (objective_class(name).Settings,) for name in OBJECTIVES}
