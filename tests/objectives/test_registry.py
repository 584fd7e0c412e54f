"""Objectives by name: settings from recipes and configs, and what help reads without torch."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from every_objective import other_values

from hf_xsent import DapConfig, DualPivotConfig
from hf_xsent.errors import RecipeError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.objectives.base import Objective, SentenceObjective, TokenObjective
from hf_xsent.objectives.registry import (
    OBJECTIVES,
    merge_objectives,
    objective_class,
    read_objectives,
    write_objectives,
)
from hf_xsent.objectives.settings import ObjectiveSettings
from hf_xsent.settings.declare import help_of, is_derived, is_saved, range_of, settings_of


def _error(stated: Any) -> str:
    with pytest.raises(RecipeError) as raises:
        read_objectives(stated)
    assert "\n" not in str(raises.value)
    return str(raises.value)


# Classes


@pytest.mark.parametrize("name", OBJECTIVES)
def test_each_objective_has_a_loss_settings_and_help(name: str) -> None:
    kind = objective_class(name)
    assert issubclass(kind, Objective) and issubclass(kind, SentenceObjective | TokenObjective)
    assert issubclass(kind.Settings, ObjectiveSettings)
    assert kind.Settings.__dataclass_params__.frozen  # type: ignore[attr-defined]
    for one in settings_of(kind.Settings).values():
        assert help_of(one)[:1].isupper() and len(help_of(one)) > len(range_of(one)), one.name
    assert fields(kind.Settings)[0].name == "weight"


# What is read


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_weight_a_mapping_and_a_settings_object_give_the_same(name: str) -> None:
    kind = objective_class(name).Settings
    expected = {name: kind(weight=0.5)}
    for stated in (0.5, "0.5", {"weight": 0.5}, {"weight": "5e-1"}, kind(weight=0.5)):
        assert read_objectives({name: stated}) == expected
        assert AlignmentConfig(objectives={name: stated}).objectives == expected
    assert read_objectives({name: None}) == read_objectives({name: {}}) == {name: kind()}
    assert read_objectives({name: 2})[name].weight == 2.0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_settings_object_keeps_every_value(name: str) -> None:
    kind = objective_class(name).Settings
    settings = kind(weight=0.5, **other_values(name))
    assert read_objectives({name: settings})[name] == settings
    assert read_objectives(read_objectives({name: settings})) == {name: settings}


def test_derived_ids_survive_a_config_that_is_built_again() -> None:
    kind: Any = objective_class("representation_translation").Settings
    settings = kind(vocabulary_size=3, vocabulary_ids=(1, 5, 9))
    config = DapConfig(objectives={"representation_translation": settings}).replaced(max_length=16)
    assert config.objectives["representation_translation"].vocabulary_ids == (1, 5, 9)


def test_order_is_retained_and_values_are_of_their_types() -> None:
    read = read_objectives(
        {
            "cycle": 5,
            "translation_ranking": {"temperature": "5e-2", "symmetric": "true", "margin": 1},
            "matryoshka": {"dims": "64"},
        }
    )
    assert list(read) == ["cycle", "translation_ranking", "matryoshka"]
    ranking: Any = read["translation_ranking"]
    assert (ranking.temperature, ranking.symmetric, ranking.margin) == (0.05, True, 1.0)
    assert isinstance(ranking.margin, float) and isinstance(read["cycle"].weight, float)
    assert read["matryoshka"].dims == [64]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("stated", "error"),
    [
        ({}, f"objectives is empty: name at least one of {', '.join(OBJECTIVES)}"),
        (
            {"translation_rankin": 1.0},
            f"unknown objective 'translation_rankin': use {', '.join(OBJECTIVES)}; did you mean 'translation_ranking'",
        ),
        ({3: 1.0}, f"unknown objective 3: use {', '.join(OBJECTIVES)}"),
        (
            {"translation_ranking": {"temperatur": 0.1}},
            "objectives.translation_ranking.temperatur is not a setting; did you mean 'temperature'?",
        ),
        ({"triplet_ranking": {3: 0.1}}, "objectives.triplet_ranking.3 is not a setting"),
        ({"translation_ranking": {"queue_size": 4}}, "objectives.translation_ranking.queue_size is not a setting"),
        (
            {"translation_ranking": {"temperature": "warm"}},
            "objectives.translation_ranking.temperature takes a number, not 'warm'",
        ),
        (
            {"translation_ranking": {"symmetric": 1}},
            "objectives.translation_ranking.symmetric takes true or false, not 1",
        ),
        (
            {"representation_translation": {"head_layers": 1.5}},
            "objectives.representation_translation.head_layers takes a whole number, not 1.5",
        ),
        ({"matryoshka": {"dims": ["x"]}}, "objectives.matryoshka.dims takes a list of whole numbers, not 'x' (item 0)"),
        (
            {"representation_translation": {"direction": "bot"}},
            "objectives.representation_translation.direction 'bot' is unknown: use source_to_target, "
            "target_to_source, both; did you mean 'both'?",
        ),
        ({"matryoshka": {"dims": [8, 0]}}, "objectives.matryoshka.dims 0 is not at least 1"),
        ({"translation_ranking": 0}, "objectives.translation_ranking.weight 0.0 is not above 0"),
        ({"translation_ranking": -1.0}, "objectives.translation_ranking.weight -1.0 is not above 0"),
        ({"translation_ranking": float("nan")}, "objectives.translation_ranking.weight nan is not above 0"),
        ({"translation_ranking": "x"}, "objectives.translation_ranking.weight takes a number, not 'x'"),
        ({"translation_ranking": {"margin": float("inf")}}, "objectives.translation_ranking.margin inf is not finite"),
        ({"cycle": True}, "objectives.cycle takes a weight or a mapping of settings, not True"),
        ({"cycle": [1]}, "objectives.cycle takes a weight or a mapping of settings, not [1]"),
    ],
)
def test_what_is_wrong_is_one_sentence(stated: Any, error: str) -> None:
    assert _error(stated).startswith(error)


def test_the_nearest_setting_is_one_that_a_recipe_may_set() -> None:
    error = _error({"representation_translation": {"vocabulary_idz": [1]}})
    assert error.endswith("is not a setting; did you mean 'restrict_vocabulary'?")


def test_the_values_of_a_settings_object_are_checked() -> None:
    settings = objective_class("triplet_ranking").Settings(weight=0.0)
    assert _error({"triplet_ranking": settings}) == "objectives.triplet_ranking.weight 0.0 is not above 0"


def test_chosen_objectives_keep_the_settings_of_the_base() -> None:
    base = {"translation_ranking": {"weight": 1.0, "temperature": 0.1}, "cycle": 5.0, "distillation": 2.0}
    chosen = {"cycle": {"margin": 0.3}, "translation_ranking": 0.5, "adversarial": None, "distillation": None}
    assert merge_objectives(base, chosen) == {
        "cycle": {"weight": 5.0, "margin": 0.3},
        "translation_ranking": {"weight": 0.5, "temperature": 0.1},
        "adversarial": {},
        "distillation": {"weight": 2.0},
    }
    assert base["cycle"] == 5.0


# What is written


@pytest.mark.parametrize("name", OBJECTIVES)
def test_settings_survive_config_json(name: str, tmp_path: Path) -> None:
    kind = objective_class(name).Settings
    config_class: Any = DualPivotConfig if objective_class(name).needs.frozen_encoder else AlignmentConfig
    config = config_class(objectives={name: {"weight": 0.5, **other_values(name)}})
    saved = [field.name for field in fields(kind) if is_saved(field)]
    expected = {name: kind(weight=0.5, **{key: value for key, value in other_values(name).items() if key in saved})}

    plain = json.loads(json.dumps(config.to_dict()))
    assert [*plain["objectives"][name]] == saved
    config.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["objectives"] == plain["objectives"]
    assert config_class.from_dict(plain).objectives == expected
    assert config_class.from_pretrained(tmp_path).objectives == expected


@pytest.mark.parametrize("name", OBJECTIVES)
def test_what_a_recipe_states_reads_back_without_what_is_derived(name: str) -> None:
    kind = objective_class(name).Settings
    settings = kind(weight=0.5, **other_values(name))
    written = write_objectives({name: settings}, recipe=True)
    assert set(written[name]) <= set(settings_of(kind))
    given = {one.name: getattr(settings, one.name) for one in fields(kind) if not is_derived(one)}
    assert read_objectives(json.loads(json.dumps(written))) == {name: kind(**given)}


def test_type_hints_of_all_settings_resolve() -> None:
    for name in OBJECTIVES:
        kind = objective_class(name).Settings
        assert set(get_type_hints(kind)) == {one.name for one in fields(kind)}


@pytest.mark.parametrize("stated", [3, ["translation_ranking"], "translation_ranking"])
def test_objectives_that_are_no_mapping_are_refused(stated: Any) -> None:
    with pytest.raises(RecipeError, match="objectives takes a mapping such as {translation_ranking: 1.0}, not "):
        DapConfig(objectives=stated)
