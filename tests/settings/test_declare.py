"""A setting is declared once: its default, help, range and place follow from the dataclass field."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

import pytest
from settings_page import PAGE, settings_page

from hf_xsent.errors import RecipeError
from hf_xsent.settings.declare import (
    check_settings,
    default_of,
    derived,
    help_of,
    is_derived,
    is_saved,
    metavar_of,
    range_of,
    setting,
    settings_of,
)


@dataclass
class _Settings:
    temperature: float = setting(0.05, "Divide cosines by this.", above=0)
    share: float | None = setting(None, "Mask this share.", at_least=0, below=1)
    steps: int = setting(3, "Take this many steps.", at_least=1, at_most=9)
    margin: float = setting(0.0, "Subtract this.")
    dims: list[int] | None = setting(None, "Rank these widths.", at_least=1)
    pooling: str = setting("cls", "Pool by this.", choices=("cls", "mean"))
    data: list[str] = setting([], "Read these.", named=True)
    teacher: str | None = setting(None, "Learn from this model.", saved=False)
    clean: bool = setting(True, "Clean.")
    columns: list[str] | None = setting(None, "Columns; without it, all.", metavar="COLUMN")
    size: int | None = derived()
    ids: tuple[int, ...] | None = derived(saved=False)


FIELDS = {one.name: one for one in fields(_Settings)}


def test_a_recipe_may_set_all_but_what_is_derived() -> None:
    assert list(settings_of(_Settings)) == [name for name in FIELDS if name not in ("size", "ids")]
    assert [name for name, one in FIELDS.items() if is_derived(one)] == ["size", "ids"]


def test_config_json_holds_all_but_what_says_that_it_is_not_saved() -> None:
    assert [name for name, one in FIELDS.items() if not is_saved(one)] == ["teacher", "ids"]
    assert "ids=" not in repr(_Settings(ids=(1, 2)))


def test_a_mutable_default_is_not_shared() -> None:
    one, other = _Settings(), _Settings()
    one.data.append("de=de.tsv")
    assert other.data == default_of(FIELDS["data"]) == []


@pytest.mark.parametrize(
    ("name", "text", "metavar"),
    [
        ("temperature", "Divide cosines by this. (above 0; default: 0.05)", "X"),
        ("share", "Mask this share. (at least 0 and below 1; default: none)", "X"),
        ("steps", "Take this many steps. (at least 1 and at most 9; default: 3)", "N"),
        ("dims", "Rank these widths. (at least 1; default: none)", "N …"),
        ("pooling", "Pool by this. (default: cls)", "{cls,mean}"),
        ("teacher", "Learn from this model. (default: none)", "TEXT"),
        ("clean", "Clean. (default: true)", "true|false"),
        ("data", "Read these. (default: none)", "NAME=VALUE …"),
        ("columns", "Columns; without it, all.", "COLUMN …"),
    ],
)
def test_help_states_range_and_default(name: str, text: str, metavar: str) -> None:
    assert help_of(FIELDS[name]) == text
    assert metavar_of(FIELDS[name]) == metavar


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"temperature": 1e-9, "share": 0, "steps": 9, "margin": -2.5, "dims": [1, 64]},
        {"share": 0.999, "steps": 1, "dims": (3,), "pooling": "mean"},
    ],
)
def test_values_within_their_ranges_pass(values: dict[str, Any]) -> None:
    check_settings(_Settings(**values))


@pytest.mark.parametrize(
    ("values", "error"),
    [
        ({"temperature": 0.0}, "temperature 0.0 is not above 0"),
        ({"temperature": -1}, "temperature -1 is not above 0"),
        ({"temperature": float("nan")}, "temperature nan is not above 0"),
        ({"temperature": float("inf")}, "temperature inf is not above 0"),
        ({"margin": float("nan")}, "margin nan is not finite"),
        ({"share": 1.0}, "share 1.0 is not at least 0 and below 1"),
        ({"share": -0.1}, "share -0.1 is not at least 0 and below 1"),
        ({"steps": 0}, "steps 0 is not at least 1 and at most 9"),
        ({"steps": 10}, "steps 10 is not at least 1 and at most 9"),
        ({"dims": [4, 0]}, "dims 0 is not at least 1"),
        ({"pooling": "meen"}, "pooling 'meen' is unknown: use cls, mean; did you mean 'mean'?"),
    ],
)
def test_a_value_out_of_its_range_is_one_sentence(values: dict[str, Any], error: str) -> None:
    with pytest.raises(RecipeError) as raised:
        check_settings(_Settings(**values), "objectives.ranking.")
    assert str(raised.value) == f"objectives.ranking.{error}"


def test_ranges_are_described_in_words() -> None:
    assert [range_of(FIELDS[name]) for name in ("temperature", "share", "margin")] == [
        "above 0",
        "at least 0 and below 1",
        "",
    ]


def test_the_settings_page_of_the_docs_is_true() -> None:
    assert PAGE.read_text("utf-8") == settings_page(), "run python tests/helpers/settings_page.py"
