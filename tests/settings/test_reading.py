"""YAML and flags become values of the declared types, or an error that names the place."""

from __future__ import annotations

import os
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.errors import RecipeError
from hf_xsent.settings.reading import (
    Names,
    convert_value,
    named_values,
    read_mapping,
    read_values,
    split_arguments,
    value_of_flag,
)


class _Strategy(Enum):
    NO = "no"
    STEPS = "steps"


def _error(raises: Any) -> str:
    assert "\n" not in str(raises.value)
    return str(raises.value)


# Command lines


def test_a_command_line_is_a_recipe_and_the_words_after_each_flag() -> None:
    path, flags = split_arguments(
        [
            "recipe.yaml",
            "--data",
            "de=a.tsv",
            "fr=b.tsv",
            "--max-length",
            "9",
            "--model=x=y",
            "--resume",
            "--margin",
            "-1",
        ]
    )
    assert path == "recipe.yaml"
    assert flags == {
        "data": ["de=a.tsv", "fr=b.tsv"],
        "max_length": ["9"],
        "model": ["x=y"],
        "resume": [],
        "margin": ["-1"],
    }


def test_without_a_recipe_there_is_no_path() -> None:
    assert split_arguments(["--resume"]) == (None, {"resume": []})
    assert split_arguments([]) == (None, {})


@pytest.mark.parametrize("arguments", [["--data", "de=a", "--data", "fr=b"], ["-o", "a", "--output_dir=b"]])
def test_a_repeated_flag_is_refused(arguments: list[str]) -> None:
    with pytest.raises(RecipeError) as raises:
        split_arguments(arguments)
    name = "data" if "--data" in arguments else "output_dir"
    assert _error(raises) == f"--{name} is given twice: write all its values after one --{name}"


def test_a_word_before_the_first_flag_is_an_error() -> None:
    with pytest.raises(RecipeError) as raises:
        split_arguments(["recipe.yaml", "other.yaml", "--seed", "1"])
    assert _error(raises) == "unexpected argument 'other.yaml': the recipe comes first, then --flag value"


# Values


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("5e-5", float, 5e-5),  # YAML 1.1 reads text
        ("5e5", float, 5e5),
        ("1.5e5", float, 1.5e5),
        ("+1.5E5", float, 1.5e5),
        (".5e1", float, 5.0),
        ("2.5e-05", float, 2.5e-5),
        (3, float, 3.0),
        ("3", int, 3),
        ("3", float | None, 3.0),
        ("null", float | None, None),
        (None, float | None, None),
        ("yes", bool, True),
        ("false", bool, False),
        (True, bool | None, True),
        ("5e-5", str, "5e-5"),
        ("12", str, "12"),
        (12, str, "12"),
        ("true", str, "true"),
        ("a: b", str, "a: b"),
        ("{broken", str, "{broken"),
        (["1", 2], list[int], [1, 2]),
        ((1, 2), list[int], [1, 2]),
        (7, list[int] | None, [7]),
        ("de", list[str], ["de"]),
        (["de", 1], list[str], ["de", "1"]),
        ([], list[str] | None, []),
        ({"a": 1}, dict[str, Any] | str | None, {"a": 1}),
        ("{a: 1}", dict[str, Any] | str, {"a": 1}),
        ("steps", _Strategy, "steps"),
        ("steps", _Strategy | str, "steps"),
        (False, _Strategy | str, "no"),  # YAML 1.1 reads false
    ],
)
def test_a_value_becomes_one_of_its_type(value: Any, hint: Any, expected: Any) -> None:
    found = convert_value("key", value, hint)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("value", "hint", "error"),
    [
        ("warm", float, "key takes a number, not 'warm'"),
        (True, float, "key takes a number, not True"),
        (None, float, "key takes a number, not None"),
        (1.5, int, "key takes a whole number, not 1.5"),
        ("1.0", int, "key takes a whole number, not '1.0'"),
        (1, bool, "key takes true or false, not 1"),
        ("maybe", bool, "key takes true or false, not 'maybe'"),
        (True, str, "key takes text, not True; quote it: YAML reads a bare no, yes, on or off as true or false"),
        ([1, "x"], list[int] | None, "key takes a list, not [1, 'x']"),
        ({"a": 1}, list[str], "key takes a list, not {'a': 1}"),
        ([1], float | str, "key takes a number or text, not [1]"),
        ("step", _Strategy | str, "key 'step' is unknown: use no, steps; did you mean 'steps'?"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(value: Any, hint: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        convert_value("key", value, hint)
    assert _error(raises) == error


def test_an_error_shows_the_start_of_a_long_value() -> None:
    with pytest.raises(RecipeError) as raises:
        convert_value("key", [*range(1000), "x"], list[int])
    assert len(_error(raises)) < 150


# Flags


@pytest.mark.parametrize(
    ("words", "hint", "expected"),
    [
        ([], bool, True),
        (["false"], bool, False),
        ([], bool | None, True),
        (["1e-5"], float, 1e-5),
        (["a"], list[str] | None, ["a"]),
        (["a", "b"], list[str] | None, ["a", "b"]),
        ([], list[str] | None, []),
        (["64", "32"], list[int], [64, 32]),
        (["64"], list[int], [64]),
        (["a"], list[str] | str, "a"),
        (["a", "b"], list[str] | str, ["a", "b"]),
    ],
)
def test_the_words_after_a_flag_become_a_value(words: list[str], hint: Any, expected: Any) -> None:
    assert value_of_flag("key", words, hint) == expected


@pytest.mark.parametrize(
    ("words", "hint", "error"),
    [
        ([], float, "--key needs a value"),
        (["1", "2"], float, "--key takes one value, not '1 2'"),
        (["x"], float, "--key takes a number, not 'x'"),
        (["1", "x"], list[int], "--key takes a list, not ['1', 'x']"),
    ],
)
def test_a_flag_with_other_words_is_one_sentence(words: list[str], hint: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        value_of_flag("key", words, hint)
    assert _error(raises) == error


# Recipes


HINTS = {"learning_rate": float, "data": Names, "languages": list[str] | None, "seed": int, "name": str | None}


def test_a_flag_replaces_the_recipes_value_and_null_is_a_value_where_the_type_has_it() -> None:
    stated = {"learning_rate": None, "seed": 1, "name": None}
    assert read_values(stated, {"seed": ["2"]}, HINTS) == {"name": None, "seed": 2}


def test_a_bare_no_as_the_name_of_a_language_is_explained() -> None:
    with pytest.raises(RecipeError) as raises:
        read_values({"data": {False: "a.tsv"}}, {}, HINTS, "run.yaml")
    assert _error(raises) == "run.yaml: data: a key is false; quote it: YAML reads a bare no or yes so"


def test_named_lists_may_be_mappings() -> None:
    stated = {"data": {"de": "a.tsv", "fr": ["b.tsv", "c.tsv"], "rule": None, "flag": True, "share": 0.5}}
    expected = ["de=a.tsv", "fr=b.tsv", "fr=c.tsv", "rule=null", "flag=true", "share=0.5"]
    assert read_values(stated, {}, HINTS) == {"data": expected}
    assert read_values({"data": "de=a.tsv"}, {}, HINTS) == {"data": ["de=a.tsv"]}
    assert named_values("data", ["de=a.tsv"]) == ["de=a.tsv"]


@pytest.mark.parametrize(
    ("stated", "flags", "error"),
    [
        ({"sed": 1}, {}, "run.yaml: unknown key 'sed'; did you mean 'seed'?"),
        ({3: 1}, {}, "run.yaml: unknown key 3"),
        ({"seed": "x"}, {}, "run.yaml: seed takes a whole number, not 'x'"),
        ({"languages": {"de": 1}}, {}, "run.yaml: languages takes a list, not {'de': 1}"),
        ({"data": {"de": {"a": 1}}}, {}, "run.yaml: data: de takes one value or a list of values, not {'a': 1}"),
        ({}, {"sed": ["1"]}, "unknown flag --sed; did you mean 'seed'?"),
        ({}, {"seed": ["x"]}, "--seed takes a whole number, not 'x'"),
    ],
)
def test_what_is_wrong_in_a_recipe_is_one_sentence(stated: Any, flags: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        read_values(stated, flags, HINTS, "run.yaml")
    assert _error(raises) == error


def test_a_recipe_is_yaml_or_json(tmp_path: Path) -> None:
    path = tmp_path / "recipe"
    for text in ("objectives:\n  cycle: 1\nnames: [a]\n", '{"objectives": {"cycle": 1}, "names": ["a"]}'):
        path.write_text(text, encoding="utf-8")
        assert read_mapping(path) == {"objectives": {"cycle": 1}, "names": ["a"]}


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (None, "cannot read the recipe {path}: No such file or directory"),
        (b"", "the recipe {path} holds no settings: write lines such as 'model: xlm-roberta-base'"),
        (b"- a\n- b\n", "the recipe {path} holds no settings"),
        (b"model: [a\nseed: 1", "the recipe {path} is not valid YAML: while parsing a flow sequence"),
        (b"model: \xff", "the recipe {path} is not valid YAML: "),
    ],
)
def test_a_file_that_is_no_recipe_is_one_sentence(tmp_path: Path, content: bytes | None, error: str) -> None:
    path = tmp_path / "recipe.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(RecipeError) as raises:
        read_mapping(path)
    assert _error(raises).startswith(error.format(path=path))


@pytest.mark.parametrize("value", [False, ["de", False]])
def test_a_bare_no_of_yaml_is_explained(value: Any) -> None:
    with pytest.raises(RecipeError, match="languages takes a list, not .*False.*; quote it: YAML reads a bare no"):
        convert_value("languages", value, list[str] | None)


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 20)
)
MERGES = "a0: &a0 {x: 1}\n" + "".join(f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}\n" for n in range(1, 20))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BOMB, "more than 100,000 values"),
        (MERGES, "more than 100,000 values"),
        ("a: &a [*a]", "an alias of itself"),
        ("a: 2020-99-99", "not a valid timestamp, line 1, column 4"),
        ("a: 0x_", "not a valid int"),
        ("x: 1\na: !!bool x", "not a valid bool, line 2, column 4"),
        ("a: !!timestamp x", "not a valid timestamp"),
        ("a: 1" + ":59" * 3000, "not a valid int"),
        ("a: " + "[" * 20_000, "nested too deep"),
        ("- " * 20_000, "nested too deep"),
        ('a: "\\ud800"', "lone surrogate"),
        ('a: "\\0"', "NUL character"),
        ('a: "\\UFFFFFFFF"', "not valid YAML"),
        ("a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
        ("# \n" * 100_000, "larger than 256 KiB"),
    ],
)
def test_yaml_made_to_do_harm_is_refused_in_one_short_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message) as raises:
        read_mapping(tmp_path / "recipe.yaml")
    assert len(_error(raises)) < 400


def test_aliases_and_merges_are_read(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("a: &a {x: 1}\nb: {<<: *a, y: 2}\nc: *a\n")
    assert read_mapping(tmp_path / "recipe.yaml") == {"a": {"x": 1}, "b": {"x": 1, "y": 2}, "c": {"x": 1}}


def test_pipes_and_devices_are_refused_without_reading(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(RecipeError, match="not a regular file"):
            read_mapping(path)


@pytest.mark.parametrize("text", ["2020-99-99", "0x_", "!!bool x", "[" * 20_000, "&a [*a]"])
def test_values_of_flags_that_are_no_yaml_stay_text(text: str) -> None:
    assert value_of_flag("name", [text], str) == text
