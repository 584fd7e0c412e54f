"""YAML and flags become values of the declared types, or an error that names the place."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from hf_xsent.errors import RecipeError, naming_flags
from hf_xsent.models.encoder import Encoder
from hf_xsent.settings.command import command
from hf_xsent.settings.convert import convert, convert_words
from hf_xsent.settings.declare import Names, setting, settings_of, types_of
from hf_xsent.settings.read import read_settings, read_values, split_arguments
from hf_xsent.settings.yaml12 import read_mapping, write_yaml


class _Strategy(Enum):
    NO = "no"
    STEPS = "steps"


@pytest.fixture(autouse=True)
def _command_line() -> Iterator[None]:
    with naming_flags():
        yield


def _error(raises: Any) -> str:
    assert "\n" not in str(raises.value)
    return str(raises.value)


# Command lines


@dataclass(frozen=True)
class _Settings:
    source: str = setting(None, "Read this.", positional=True, required=True)
    more: list[str] | None = setting(None, "Read these, too.", positional=True)
    output: str | None = setting(None, "Write this.", aliases=("o",))
    k: int = setting(4, "Neighbours.", at_least=1)
    margin: float = setting(0.0, "Margin.")
    resume: bool = setting(False, "Resume.")
    budget: dict[str, Any] | None = setting(None, "Budget.")


def _split(*arguments: str) -> tuple[str | None, dict[str, list[str]]]:
    return split_arguments(arguments, settings_of(_Settings), types_of(_Settings))


def test_a_command_line_is_a_recipe_positional_settings_and_the_words_of_each_flag() -> None:
    path, flags = _split("a.txt", "run.yaml", "b.txt", "--resume", "c.txt", "-o", "out", "--margin", "-1", "--k=8")
    assert path == "run.yaml"
    assert flags == {
        **{"source": ["a.txt"], "more": ["b.txt", "c.txt"], "resume": []},
        **{"output": ["out"], "margin": ["-1"], "k": ["8"]},
    }


def test_an_unknown_flag_takes_all_words_so_that_a_special_reader_may_know_it() -> None:
    assert _split("a.txt", "--temperature", "1", "2") == (None, {"source": ["a.txt"], "temperature": ["1", "2"]})


@pytest.mark.parametrize("word", ["false", "False", "FALSE"])
def test_a_boolean_is_written_as_in_yaml(word: str) -> None:
    assert _split("a.txt", "--resume", word) == (None, {"source": ["a.txt"], "resume": [word]})
    assert convert_words("resume", [word], bool) is False


@pytest.mark.parametrize("arguments", [["--k", "1", "--k", "2"], ["-o", "a", "--output=b"]])
def test_a_repeated_flag_is_refused(arguments: list[str]) -> None:
    with pytest.raises(RecipeError, match="is given twice: write all its values after one --"):
        _split(*arguments)


def test_a_word_too_many_is_an_error() -> None:
    fields = {name: field for name, field in settings_of(_Settings).items() if name != "more"}
    with pytest.raises(RecipeError, match="^unexpected argument 'b': others are flags, listed by --help"):
        split_arguments(["a", "b"], fields, types_of(_Settings))


def test_a_tilde_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert convert_words("output", ["~/runs"], str | None) == "/home/me/runs"
    assert convert("model", "~/runs", Any) == Encoder("~/runs").name == "/home/me/runs"
    assert convert("data", {"de": ["~/de.tsv", "a~/b"]}, dict[str, list[str]]) == {"de": ["/home/me/de.tsv", "a~/b"]}


# Settings objects


def test_flags_replace_values_and_dotted_flags_change_one_entry_of_a_mapping() -> None:
    values = {"source": "a", "k": 8, "budget": {"steps": 5, "pairs": 7}}
    settings = read_settings(_Settings, values, {"k": ["9"], "budget.steps": ["50"], "more": ["b"]})
    assert settings == _Settings("a", ["b"], k=9, budget={"steps": 50, "pairs": 7})
    assert values["budget"] == {"steps": 5, "pairs": 7}


def test_text_that_yaml_would_change_stays_text() -> None:
    types = {"title": str | None, "settings": dict[str, Any]}
    flags = {"title": ["#1: which?"], "settings.prompts.query": ["query: "], "settings.data": ["007"]}
    read = read_values({"settings": {"v1.5": {"seed": 1}}}, {**flags, "settings.v1.5.seed": ["2"]}, types)
    settings = {"v1.5": {"seed": 2}, "prompts": {"query": "query: "}, "data": "007"}
    assert read == {"title": "#1: which?", "settings": settings}


def test_an_entry_of_text_stays_text() -> None:
    prompts = {"prompts": dict[str, str] | None}
    for text in ("query: ", ""):
        assert read_values({}, {"prompts.query": [text]}, prompts) == {"prompts": {"query": text}}


@pytest.mark.parametrize("first", ["data", "data.fr"])
def test_a_flag_and_one_of_its_entries_both_count(first: str) -> None:
    flags = {"data": ["{de: a.tsv}"], "data.fr": ["b.tsv"]}
    assert read_values({}, {first: flags[first], **flags}, HINTS) == {"data": ["de=a.tsv", "fr=b.tsv"]}
    assert read_values({"data": "{de: a.tsv}"}, {"data.fr": ["b.tsv"]}, HINTS) == {"data": ["de=a.tsv", "fr=b.tsv"]}


@pytest.mark.parametrize(
    ("values", "flags"), [({"data": ["de=a.tsv"]}, {}), ({}, {"data": ["de=a.tsv"]}), ({"data": {"fr": 1.5}}, {})]
)
def test_an_entry_of_what_is_no_mapping_is_refused_rather_than_replacing_it(values: Any, flags: Any) -> None:
    with pytest.raises(RecipeError) as raises:
        read_values(values, {**flags, "data.fr.path": ["b.tsv"]}, HINTS)
    assert "write all of it by such flags, or as a mapping" in _error(raises)


@pytest.mark.parametrize(
    ("values", "flags", "error"),
    [
        ({}, {}, "source is missing: give SOURCE"),
        ({"source": "a", "k": 0}, {}, "k 0 is not at least 1"),
        ({"source": "a"}, {"bugdet.steps": ["1"]}, "unknown flag --bugdet.steps; did you mean 'budget'?"),
        ({"source": "a", "hub_token": "x"}, {}, "hub_token holds a token or password"),
    ],
)
def test_missing_and_invalid_settings_are_one_sentence(values: Any, flags: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        read_settings(_Settings, values, flags)
    assert _error(raises).startswith(error)


# Values


@pytest.mark.parametrize(
    ("value", "hint", "expected"),
    [
        ("5e-5", float, 5e-5),
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
        ("no", _Strategy | str, "no"),
        ("no", str | None, "no"),
        (["de", "no"], list[str], ["de", "no"]),
        (Path("a"), str, "a"),
        (np.float32(0.5), float | None, 0.5),
        (np.int64(3), int, 3),
        (np.True_, bool, True),
    ],
)
def test_a_value_becomes_one_of_its_type(value: Any, hint: Any, expected: Any) -> None:
    found = convert("key", value, hint)
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
        (True, str, "key takes text, not True"),
        ("yes", bool, "key takes true or false, not 'yes'"),
        ([1, "x"], list[int] | None, "key takes a list of whole numbers, not 'x' (item 1)"),
        ({"a": 1}, list[str], "key takes a list of text, not {'a': 1}"),
        (["a", ["b"]], list[str], "key takes a list of text, not ['b'] (item 1)"),
        ([torch.nn.Sequential(torch.nn.Tanh())], list[str], "key takes a list of text, not a Sequential (item 0)"),
        ([1], float | str, "key takes a number or text, not [1]"),
        ("step", _Strategy | str, "key 'step' is unknown: use no, steps; did you mean 'steps'?"),
    ],
)
def test_a_value_of_another_type_is_one_sentence(value: Any, hint: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        convert("key", value, hint)
    assert _error(raises) == error


def test_an_error_shows_the_start_of_a_long_value() -> None:
    with pytest.raises(RecipeError) as raises:
        convert("key", [*range(1000), "x"], list[int])
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
        (["64", "32"], list[int], [64, 32]),
        (["64"], list[int], [64]),
        (["a"], list[str] | str, "a"),
        (["a", "b"], list[str] | str, ["a", "b"]),
        (["false"], list[str] | bool | None, False),
        (["true"], list[str] | bool | None, True),
        (["a=1"], list[str] | bool | None, ["a=1"]),
    ],
)
def test_the_words_after_a_flag_become_a_value(words: list[str], hint: Any, expected: Any) -> None:
    assert convert_words("key", words, hint) == expected


@pytest.mark.parametrize(
    ("words", "hint", "error"),
    [
        ([], float, "--key needs a value"),
        ([], list[str] | dict[str, Any] | None, "--key needs a value"),
        ([""], float | None, "--key needs a value"),  # --key=$UNSET
        (["a", ""], list[str] | None, "--key needs a value"),
        (["1", "2"], float, "--key takes one value, not '1 2'"),
        (["x"], float, "--key takes a number, not 'x'"),
        (["1", "x"], list[int], "--key takes a list of whole numbers, not 'x' (item 1)"),
    ],
)
def test_a_flag_with_other_words_is_one_sentence(words: list[str], hint: Any, error: str) -> None:
    with pytest.raises(RecipeError) as raises:
        convert_words("key", words, hint)
    assert _error(raises) == error


# Recipes


HINTS = {"learning_rate": float, "data": Names, "languages": list[str] | None, "seed": int, "name": str | None}


def test_a_flag_replaces_the_recipes_value_and_null_is_a_value_where_the_type_has_it() -> None:
    stated = {"learning_rate": None, "seed": 1, "name": None}
    assert read_values(stated, {"seed": ["2"]}, HINTS) == {"name": None, "seed": 2}


def test_named_lists_may_be_mappings() -> None:
    stated = {"data": {"de": "a.tsv", "fr": ["b.tsv", "c.tsv"], "rule": None, "flag": True, "share": 0.5}}
    expected = ["de=a.tsv", "fr=b.tsv", "fr=c.tsv", "rule=null", "flag=true", "share=0.5"]
    assert read_values(stated, {}, HINTS) == {"data": expected}
    numbers = {"data": {"rule": np.int64(9), "flags": [np.True_, Path("a")]}}
    assert read_values(numbers, {}, HINTS) == {"data": ["rule=9", "flags=true", "flags=a"]}
    assert read_values({"data": "de=a.tsv"}, {}, HINTS) == {"data": ["de=a.tsv"]}
    assert read_values({"data": {"no": "a.tsv"}}, {}, HINTS) == {"data": ["no=a.tsv"]}


@pytest.mark.parametrize("text", ['{"de": "a.tsv", "fr": ["b.tsv"]}', "{de: a.tsv, fr: b.tsv}"])
def test_a_mapping_may_be_text_in_flags_recipes_and_python(text: str) -> None:
    hints = {**HINTS, "options": dict[str, Any] | str | None, "tasks": list[Any] | dict[str, Any] | None}
    for values in (read_values({"data": text}, {}, hints), read_values({}, {"data": [text]}, hints)):
        assert values == {"data": ["de=a.tsv", "fr=b.tsv"]}
    for name in ("options", "tasks"):
        values = read_values({name: text}, {}, hints)
        assert values == read_values({}, {name: [text]}, hints) and values[name]["de"] == "a.tsv"


@pytest.mark.parametrize(
    ("stated", "flags", "error"),
    [
        ({"sed": 1}, {}, "run.yaml: unknown key 'sed'; did you mean 'seed'?"),
        ({3: 1}, {}, "run.yaml: unknown key 3: use one of learning_rate, data, languages, seed, name"),
        ({"seed": "x"}, {}, "run.yaml: seed takes a whole number, not 'x'"),
        ({"languages": {"de": 1}}, {}, "run.yaml: languages takes a list of text, not {'de': 1}"),
        ({"data": {"de": {"a": 1}}}, {}, "run.yaml: data: de takes text, a number or a list of them, not {'a': 1}"),
        ({}, {"sed": ["1"]}, "unknown flag --sed; did you mean 'seed'?"),
        ({}, {"seed": ["x"]}, "--seed takes a whole number, not 'x'"),
        ({"name": ""}, {}, "run.yaml: name needs a value"),
        ({}, {"data.de": []}, "--data.de needs a value"),
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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: &a [*a", "not valid YAML"),
        ("x: 1\na: !!bool x", "not valid YAML"),
        ("seed: 1\na: {b: 1}\nseed: 2", "not valid YAML: a key is given twice, line 3, column 1"),
        ("a: !!python/object/apply:os.system [id]", "could not determine a constructor"),
    ],
)
def test_yaml_that_cannot_be_read_is_one_short_sentence(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    with pytest.raises(RecipeError, match=message) as raises:
        read_mapping(tmp_path / "recipe.yaml")
    assert len(_error(raises)) < 400


def test_yaml_has_the_types_of_version_1_2(tmp_path: Path) -> None:
    text = "a: &a {x: 1}\nb: {<<: *a, y: 5e-5}\nlanguages: [no, on]\ndate: 2020-01-01\ntime: 1:30\nflag: true\n"
    (tmp_path / "recipe.yaml").write_text(text)
    assert read_mapping(tmp_path / "recipe.yaml") == {
        **{"a": {"x": 1}, "b": {"x": 1, "y": 5e-5}, "languages": ["no", "on"]},
        **{"date": "2020-01-01", "time": "1:30", "flag": True},
    }


def test_text_and_numbers_of_a_written_recipe_are_read_as_they_were(tmp_path: Path) -> None:
    settings = {"output_dir": "1e-4", "model": "08", "languages": ["no", "1e5"], "rate": 1e-4, "steps": 8, "x": None}
    (tmp_path / "recipe.yaml").write_text(write_yaml(settings))
    assert read_mapping(tmp_path / "recipe.yaml") == yaml.safe_load(write_yaml(settings)) == settings


def test_a_json_file_is_a_recipe_unless_a_positional_setting_takes_it(tmp_path: Path) -> None:
    @dataclass(frozen=True)
    class Settings:
        pairs: str = setting(None, "Pairs.", positional=True, required=True)
        output: str = setting("out", "Output.", aliases=("o",))
        k: int = setting(4, "Neighbours.")

    recipe = tmp_path / "recipe.json"
    recipe.write_text('{"k": 8}')
    score = command(Settings)(lambda settings: (settings.pairs, settings.k))
    assert score.run(["pairs.json"]) == score("pairs.json") == ("pairs.json", 4)
    assert score.run(["pairs.json", str(recipe)]) == score("pairs.json", recipe) == ("pairs.json", 8)
