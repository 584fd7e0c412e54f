"""The recipes that travel with the project: the commands in their heads are read as they stand."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

import pytest
import yaml
from transformers import XLMRobertaConfig

from hf_xsent.finetuning.arguments import MlqaSettings, XnliSettings
from hf_xsent.finetuning.trainer import FineTuningArguments
from hf_xsent.training.reading import read_dataclasses, read_recipe

ROOT = Path(__file__).parents[2]
RECIPES = sorted((ROOT / "trainer_scripts/recipes").glob("*.yaml"))
FINE_TUNED = {"xnli": XnliSettings, "mlqa": MlqaSettings}


def _commands(recipe: Path) -> list[tuple[list[str], list[str]]]:
    """What a recipe's head says to run with a recipe: the words before the recipe, and those from it on."""
    head = "\n".join(re.findall(r"^# ?(.*)", recipe.read_text("utf-8"), flags=re.MULTILINE)).replace("\\\n", " ")
    lines = re.findall(r"^ +((?:hf-xsent|torchrun) .*?)(trainer_scripts/recipes/.*)", head, flags=re.MULTILINE)
    return [(shlex.split(before), shlex.split(after)) for before, after in lines]


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_recipe_says_how_it_is_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    commands = _commands(path)
    assert f"trainer_scripts/recipes/{path.name}" in [arguments[0] for _, arguments in commands]
    for before, arguments in commands:
        if "finetune" in before:
            read_dataclasses([*arguments, "--use_cpu"], [FINE_TUNED[before[-1]], FineTuningArguments])
            continue
        assert before[-1] in ("pretrain", "trainer_scripts/run_pretrain.py")
        recipe = read_recipe([*arguments, "--use_cpu"])
        recipe.config.replaced(encoder_config=XLMRobertaConfig()).check_objectives()
        assert "method" in yaml.safe_load(path.read_text("utf-8"))


def test_conversational_pairs_and_the_others_go_to_files_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    talk, long_talk = "Sie kennt mich.\tShe knows me.\n", f"Ich {'s' * 160}.\tI {'s' * 160}.\n"
    menu, long_menu = "Wählen Sie eine Datei.\tYou select a file.\n", f"{'D' * 160}\t{'F' * 160}\n"
    title = "Nordwinter\tNorthern Winter\n"
    for language in ("de", "eu"):
        (tmp_path / f"{language}-en.tsv").write_text(talk + menu + long_talk + long_menu + title, "utf-8")
    output = tmp_path / "selected"
    monkeypatch.setattr(
        "sys.argv", ["script", str(tmp_path / "{language}-en.tsv"), "--output", str(output), "--others", "eu"]
    )
    runpy.run_path(str(ROOT / "trainer_scripts/conversational_pairs.py"), run_name="__main__")
    assert {path.name: path.read_text("utf-8") for path in output.iterdir()} == {
        "de.tsv": talk + long_talk,
        "eu.tsv": talk + long_talk,
        "eu-ZZ.tsv": menu + title,
    }
