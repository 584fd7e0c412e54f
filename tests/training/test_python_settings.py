"""Settings of ``pretrain`` in Python that are mappings."""

from __future__ import annotations

import pydoc
from pathlib import Path
from typing import Any

import pytest
import yaml

from hf_xsent.errors import RecipeError
from hf_xsent.evaluation.evaluate import evaluate
from hf_xsent.models import METHODS
from hf_xsent.training.pretrain import pretrain
from hf_xsent.training.run_card import recipe_of, write_recipe


def test_prompts_and_arguments_of_schedulers_stay_mappings(tmp_path: Path) -> None:
    settings = {
        "model": "encoder",
        "data": {"de": "pairs.tsv"},
        "output_dir": "runs/out",
        "use_cpu": True,
        "prompts": {"query": "query: "},
        "default_prompt_name": "query",
        "lr_scheduler_type": "warmup_stable_decay",
        "lr_scheduler_kwargs": {"num_decay_steps": 2},
    }
    recipe = pretrain.read(settings)
    assert recipe.config.prompts == {"query": "query: "}
    assert recipe.training.lr_scheduler_kwargs == {"num_decay_steps": 2}
    write_recipe(tmp_path, "pretrain", recipe_of(recipe.training))
    recorded = yaml.safe_load((tmp_path / "recipe.yaml").read_text("utf-8"))
    assert recorded["lr_scheduler_kwargs"] == {"num_decay_steps": 2}


def test_pretrain_takes_no_value_by_position_but_a_recipe() -> None:
    with pytest.raises(RecipeError, match="no recipe xlm-roberta-base: it is neither a file nor the name of a recipe"):
        pretrain("xlm-roberta-base", data={"de": "pairs.tsv"})
    with pytest.raises(RecipeError, match="did you mean 'mixed-small'"):
        pretrain("mixed_small", model="xlm-roberta-base")
    with pytest.raises(RecipeError, match="pretrain takes only recipe by position: name the others"):
        pretrain("mixed-small", "xlm-roberta-base")
    with pytest.raises(RecipeError, match="recipe takes a path or a name, not {'model': 'm'}: give values by"):
        pretrain({"model": "m"})
    with pytest.raises(RecipeError, match="recipe is stated twice, by position and by name"):
        pretrain("mixed-small", recipe="mixed-small")
    with pytest.raises(RecipeError, match="recipe is stated twice, by position and by name"):
        evaluate("m", "recipe.yaml", recipe="mixed-small")
    with pytest.raises(RecipeError, match="no recipe recipe.yaml"):
        evaluate("m", "tatoeba=d", "recipe.yaml")


def test_a_recipe_with_another_ending_is_suggested(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("max_steps: 1\n")
    with pytest.raises(RecipeError, match="did you mean 'mine.yaml'"):
        pretrain(tmp_path / "mine.yml")


def test_help_shows_what_a_function_takes() -> None:
    shown = " ".join(pydoc.render_doc(pretrain, renderer=pydoc.plaintext).split())
    assert "pretrain(recipe: str | os.PathLike[str] | None = None, *, model:" in shown
    assert "objectives: list[str] | dict[str, typing.Any] | None = {'translation_ranking': 1.0}" in shown
    assert "**training_arguments" in shown and "triplet_ranking" not in shown.partition("Train from")[0]
    shown = pydoc.render_doc(evaluate, renderer=pydoc.plaintext)
    assert "recipe: " in shown.partition("max_length")[2]


BASE: dict[str, Any] = {"model": "encoder", "data": {"de": "pairs.tsv"}, "output_dir": "runs/out", "use_cpu": True}


@pytest.mark.parametrize(
    ("method", "objectives"),
    [
        ("dap", {"translation_ranking": {"temperature": 0.1}, "representation_translation": {"head_layers": 1}}),
        ("wacse", {"translation_ranking": {}, "word_translation_ranking": {"temperature": 0.5}}),
        ("ppa", {"momentum_contrast": {"temperature": 0.1}, "translation_language_modeling": {}}),
    ],
)
def test_objectives_without_a_weight_retain_the_weights_of_the_method(
    method: str, objectives: dict[str, Any], tmp_path: Path
) -> None:
    settings = BASE | {"method": method, "objectives": objectives}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(settings), "utf-8")
    expected = METHODS[method][0](objectives=objectives).objectives
    assert pretrain.read(settings).config.objectives == expected
    assert pretrain.parse([str(tmp_path / "recipe.yaml")]).config.objectives == expected


def test_keeping_all_checkpoints_can_be_stated_in_every_form(tmp_path: Path) -> None:
    """Also in the recipe that a run writes."""
    (tmp_path / "stated.yaml").write_text(yaml.safe_dump(BASE | {"save_total_limit": None}), "utf-8")
    recipe = pretrain.read(BASE | {"save_total_limit": None})
    write_recipe(tmp_path, "pretrain", BASE | recipe_of(recipe.training))
    of_file, of_run = (pretrain.parse([str(tmp_path / f"{name}.yaml")]) for name in ("stated", "recipe"))
    assert [one.training.save_total_limit for one in (recipe, of_file, of_run)] == [None, None, None]
    assert pretrain.read(BASE).training.save_total_limit == 2


def test_columns_by_language_and_configs_of_libraries_are_mappings() -> None:
    columns, config = {"de": [0, 1], "mined.tsv": ["source", "target"]}, {"split_batches": False}
    recipe = pretrain.read(BASE | {"columns": columns, "accelerator_config": config})
    assert recipe.data.columns == ["de=0", "de=1", "mined.tsv=source", "mined.tsv=target"]
    assert recipe.training.accelerator_config.split_batches is False
    assert "accelerator_config" not in recipe_of(recipe.training)
    recipe = pretrain.read(BASE | {"accelerator_config": {"even_batches": False}, "report_to": ["none"]})
    assert recipe_of(recipe.training)["accelerator_config"] == {"even_batches": False}


def test_a_mapping_of_rules_adds_to_those_of_the_recipe_and_a_list_replaces_them(tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(BASE | {"rules": {"max_characters": 300}}), "utf-8")
    added = pretrain.read({"rules": {"exclude": "gold.tsv"}}, recipe=recipe).data.rules
    assert added == ["max_characters=300", "exclude=gold.tsv"]
    assert pretrain.read({"rules": ["exclude=gold.tsv"]}, recipe=recipe).data.rules == ["exclude=gold.tsv"]
    for rules in (["max_characters=300"], "max_characters=300", "{max_characters: 300}"):  # a list as runs write it
        recipe.write_text(yaml.safe_dump(BASE | {"rules": rules}), "utf-8")
        assert pretrain.read({"rules": {"exclude": "gold.tsv"}}, recipe=recipe).data.rules == added
        assert pretrain.read({}, {"rules.exclude": ["gold.tsv"]}, recipe=recipe).data.rules == added
    with pytest.raises(RecipeError, match="^rules: exclude takes text"):
        pretrain.read({"rules": {"exclude": {"de": {"file": "gold.tsv"}}}}, recipe=recipe)
    with pytest.raises(RecipeError, match="^rules: unknown key 'exlude'; did you mean 'exclude'"):
        pretrain.read({"rules": {"exlude": [("Ein Hund.", "A dog.")]}}, recipe=recipe)
    with pytest.raises(RecipeError, match="^unknown key 'output_dr'; did you mean 'output_dir'"):
        pretrain.read({"output_dr": "out"}, recipe=recipe)


def test_none_in_python_is_null_and_a_path_is_text(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(BASE | {"head_learning_rate": 0.5}), "utf-8")
    recipe = pretrain.read({"head_learning_rate": None, "cache_dir": tmp_path}, recipe=tmp_path / "recipe.yaml")
    assert recipe.training.head_learning_rate is None and recipe.data.cache_dir == str(tmp_path)
