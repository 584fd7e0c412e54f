"""A setting of a command is one line of its settings class."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from cli_pages import cli_pages

from hf_xsent import mine_negatives, score_pairs
from hf_xsent.data.readers.columns import parse_columns
from hf_xsent.errors import RecipeError
from hf_xsent.mining import settings as declared
from hf_xsent.settings.command import command
from hf_xsent.settings.declare import setting


def test_a_new_setting_of_mine_is_in_flags_recipes_python_help_and_docs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class MineSettings(declared.MineSettings):
        __doc__ = declared.MineSettings.__doc__
        min_words: int = setting(1, "Skip sentences of fewer words.", at_least=1)  # the line

    @command(MineSettings)
    def mine_files(settings: MineSettings) -> int:
        return settings.min_words

    recipe = tmp_path / "mine.yaml"
    recipe.write_text("min_words: 4\n")
    assert mine_files("a.txt", "b.txt", "pairs.tsv", "encoder") == 1
    assert mine_files("a.txt", "b.txt", "pairs.tsv", "encoder", min_words=2) == 2
    flags = ["a.txt", "b.txt", "-o", "pairs.tsv", "--model", "encoder"]
    assert mine_files.run([*flags, "--min_words", "3"]) == 3
    assert mine_files.run([*flags, str(recipe)]) == 4
    with pytest.raises(RecipeError, match="min_words 0 is not at least 1"):
        mine_files.run([*flags, "--min_words", "0"])
    monkeypatch.setattr(declared, "MineSettings", MineSettings)
    assert "--min_words N           Skip sentences of fewer words. (at least 1; default: 1)" in cli_pages()["mine.md"]


def test_columns_may_be_stated_by_language_as_of_load_bitext() -> None:
    common = {"output": "out", "model": "model", "columns": {"de": (1, 2)}}
    for command_of, data in ((score_pairs, {"pairs": "a.tsv"}), (mine_negatives, {"data": ["a.tsv"]})):
        assert parse_columns(command_of.read(data | common).columns) == {"de": (1, 2)}
