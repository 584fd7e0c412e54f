"""The recipes that travel with the project: the commands in their heads are read as they stand."""

from __future__ import annotations

import re
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
