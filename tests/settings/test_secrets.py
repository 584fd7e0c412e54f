"""Tokens and passwords are refused in recipes, studies and command lines, by an error that does not show them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from hf_xsent import load_bitext
from hf_xsent.cli import main
from hf_xsent.errors import RecipeError
from hf_xsent.settings.read import read_values, split_arguments
from hf_xsent.settings.secrets import refuse_secrets
from hf_xsent.settings.yaml12 import read_mapping

TOKEN = "hf_" + "aB3dE6gH9j" * 3 + "WxYz"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"hub_token": "short"}, "hub_token"),
        ({"settings": {"hub_token": ["in", "a list"]}}, "settings.hub_token"),
        ({"methods": {"DAP": {"api_key": "x"}}}, "methods.DAP.api_key"),
        ({"title": f"with {TOKEN}"}, "title"),
        ({"data": {"de": [f"https://user:{TOKEN}@huggingface.co/pairs.tsv"]}}, "data.de"),
        ({"data": ["de=https://me:pass@example.org/pairs.tsv"]}, "data"),
        ({"data": "https://example.org/pairs.tsv?version=2&access_token=abc"}, "data"),
        ({"methods": {TOKEN: None}}, "methods"),
    ],
)
def test_a_secret_is_refused_by_its_key_or_its_form(settings: dict[str, Any], named: str):
    with pytest.raises(RecipeError, match=rf"study: {re.escape(named)} .*HF_TOKEN.*hf auth login") as refused:
        refuse_secrets(settings, "study: ")
    for secret in (TOKEN, "short", "in a list", "pass@", "abc"):
        assert secret not in str(refused.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"hub_token": None, "push_to_hub": True, "hub_model_id": "me/model"},
        {"include_num_input_tokens_seen": "all", "title": "hf_xsent against hf_multilingual"},
        {"data": {"de": "https://example.org/pairs.tsv?version=2"}, "methods": {"token": {"train": False}}},
        {"data": ["de=s3://bucket/a:b.tsv", "fr=me@host:pairs.tsv"]},
        {"model": {"last-token": "pooled"}},
    ],
)
def test_other_settings_are_not_taken_for_secrets(settings: dict[str, Any]):
    refuse_secrets(settings)


@pytest.mark.parametrize(
    "arguments",
    [
        ["pretrain", "recipe.yaml", "--hub_token", "sesame"],
        ["finetune", "xnli", "--hub-token=sesame"],
        ["compare", "study.yaml", "--set", "settings.hub_token=sesame"],
        ["compare", "study.yaml", "--set", f"settings={{hub_token: {TOKEN}"],
        ["mine", f"https://me:{TOKEN}@huggingface.co/a.txt"],
        ["evaluate", "--model", TOKEN],
    ],
)
def test_the_command_line_names_the_argument_and_not_the_secret(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
):
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert "HF_TOKEN" in said and "sesame" not in said and TOKEN not in said
    assert said.count("\n") == 1


def test_arguments_of_a_python_call_are_checked_too():
    with pytest.raises(RecipeError, match="(--)?hub_token holds a token"):
        split_arguments(["--hub_token", "sesame"], {}, {})
    assert split_arguments(["--hub_token", "--resume"], {}, {})[1] == {"hub_token": [], "resume": []}
    types = {"pairs": Any, "model": Any}
    address = f"https://me:{TOKEN}@example.org/de.tsv"
    for value in (address, [address], {"de": address}, {"de": [address]}):
        with pytest.raises(RecipeError, match="^pairs holds a token") as refused:
            read_values({"pairs": value}, {}, types)
        assert TOKEN not in str(refused.value)
        with pytest.raises(RecipeError, match="^data holds a token"):
            load_bitext(value)
    pairs = [("see", address)]
    assert read_values({"pairs": pairs}, {}, types) == {"pairs": pairs}


def test_an_error_in_yaml_does_not_repeat_the_line(tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text("model: a\nhub_token: sesame: b\n")
    with pytest.raises(RecipeError, match="not valid YAML: .*line 2, column 18") as refused:
        read_mapping(tmp_path / "recipe.yaml")
    assert "sesame" not in str(refused.value)
