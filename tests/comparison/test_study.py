"""A study is checked as a whole before anything is trained: one sentence that names the key."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from study_file import StudyFile

from hf_xsent.comparison.compare import list_runs
from hf_xsent.comparison.planning import steps_of
from hf_xsent.comparison.study import Budget, read_study
from hf_xsent.errors import HfXsentError, RecipeError


def test_recipe_file_settings_and_method_are_laid_over_each_other(study: StudyFile):
    methods = {"TR": None, "other": {"learning_rate": 1.0, "recipe": None, "poolings": ["mean", "max"], "seeds": 3}}
    read = read_study(study.write(methods=methods))
    first, other = read.methods
    assert first.settings["objectives"] == {"translation_ranking": {"weight": 1, "temperature": 0.1}}
    assert "max_steps" not in first.settings  # the budget's
    assert (first.settings["learning_rate"], other.settings["learning_rate"]) == (1e-3, 1.0)
    assert "objectives" not in other.settings
    assert (other.poolings, other.seeds) == (("mean", "max"), (3,))
    assert (first.poolings, first.seeds) == (("cls",), (0,))


def test_objectives_are_chosen_by_weight_and_keep_what_recipe_and_settings_say_of_them(study: StudyFile):
    settings = study.content["settings"] | {"objectives": {"translation_ranking": {"symmetric": True}}}
    chosen = {"translation_ranking": 0.5, "representation_translation": {"weight": 0.1, "head_layers": 1}}
    ours, alone = read_study(
        study.write(settings=settings, methods={"DAP": {"objectives": chosen}, "RTL": {"objectives": {"mexma": None}}}),
        ["methods.RTL.objectives={representation_translation: 0.3}"],
    ).methods
    assert ours.settings["objectives"] == {
        "translation_ranking": {"weight": 0.5, "temperature": 0.1, "symmetric": True},
        "representation_translation": {"weight": 0.1, "head_layers": 1},
    }
    assert alone.settings["objectives"] == {"representation_translation": {"weight": 0.3}}


def test_a_setting_of_an_objective_is_set_from_the_command_line_beside_its_weight(study: StudyFile):
    path = study.write(methods={"DAP": {"objectives": {"translation_ranking": 2}}})
    (method,) = read_study(path, ["methods.DAP.objectives.translation_ranking.symmetric=true"]).methods
    assert method.settings["objectives"] == {
        "translation_ranking": {"weight": 2, "temperature": 0.1, "symmetric": True}
    }


def test_values_are_set_from_the_command_line(study: StudyFile):
    changes = [
        "budget={pairs: 100}",
        "settings.learning_rate=0.5",
        "tasks.retrieval.max_pairs=3",
        "methods.new.seeds=[7]",
    ]
    read = read_study(study.write(), changes)
    assert read.budget == Budget("pairs", 100)
    assert read.tasks["retrieval"]["max_pairs"] == 3
    assert [method.name for method in read.methods] == ["none", "TR", "new"]
    assert read.methods[2].settings["learning_rate"] == 0.5
    with pytest.raises(RecipeError, match="--set takes key=value"):
        read_study(study.write(), ["budget"])


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pooling": ["cls"]}, "unknown key 'pooling'; did you mean 'poolings'"),
        ({"model": None}, "model is missing: .*--set model="),
        ({"budget": {"hours": 1}}, "budget takes one of steps, pairs, minutes"),
        ({"budget": {"steps": 0}}, "budget.steps takes a number above 0, not 0"),
        ({"budget": {"steps": float("nan")}}, "budget.steps takes a number above 0, not nan"),
        ({"budget": {"minutes": float("inf")}}, "budget.minutes takes a number above 0, not inf"),
        ({"budget": {"steps": 2.5}}, "budget.steps takes a whole number"),
        ({"settings": {"seed": 3}}, "settings.seed is not allowed in a study: use seeds"),
        ({"settings": {"learning_rat": 3}}, "settings: unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ({"methods": {"TR": {"max_steps": 9}}}, "methods.TR.max_steps is not allowed in a study: use budget"),
        ({"methods": {"TR": {"objective": 1}}}, "methods.TR: unknown key 'objective'; did you mean 'objectives'"),
        ({"methods": {"TR": {"poolings": "first"}}}, "methods.TR: unknown pooling 'first': use cls, mean, max"),
        ({"methods": {"TR": {"recipe": "none.yaml"}}}, "cannot read the recipe .*none.yaml"),
        ({"methods": {"none": {"train": False, "alpha": 1}}}, "methods.none.alpha: an untrained method takes no other"),
        ({"methods": ["TR"]}, "methods takes keys with values"),
        ({"seeds": [1, 1]}, "methods.none.seeds takes one or more different values"),
        ({"seeds": ["x"]}, "methods.none: a seed takes int, not 'x'"),
        ({"tasks": {"tatoba": {"data": "x"}}}, "tasks: unknown task 'tatoba': .*did you mean 'tatoeba'"),
        ({"tasks": {"tatoeba": {}}}, "tasks.tatoeba.data is missing"),
        ({"tasks": {"tatoeba": {"data": "x", "languages": ["de", False]}}}, "tatoeba.languages takes .*, not False"),
        ({"tasks": {"tatoeba": {"data": "x", "groups": 3}}}, "tatoeba: unknown option 'groups'; did you mean 'group'"),
        ({"tasks": {"retrieval": {"data": "x", "max_pairs": "a"}}}, "retrieval.max_pairs has the wrong type: 'a'"),
        ({"plot": "layer"}, "plot: unknown key 'layer'; did you mean 'layers'"),
        ({"keep_models": "some"}, "keep_models takes bool, not 'some'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_one_sentence(study: StudyFile, changes: dict[str, Any], told: str):
    with pytest.raises(RecipeError, match=told) as raised:
        read_study(study.write(**changes))
    assert str(raised.value).startswith(f"{study.path}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"methods": {"TR": {"objectives": {"translation_rankin": 1}}}}, "methods.TR: .*translation_ranking"),
        ({"methods": {"TR": {"max_length": "long"}}}, "methods.TR: max_length takes a whole number, not 'long'"),
        ({"methods": {"TR": {"method": "wacs"}}}, "methods.TR: unknown method 'wacs'.*did you mean 'wacse'"),
        ({"methods": {"W": {"method": "wacse", "objectives": {"word_translation_ranking": 1}}}}, "methods.W: .*links"),
        ({"data": "/nowhere/de-en.tsv"}, "methods.TR: no such file.*nowhere"),
        ({"tasks": {"tatoeba": {"data": "/nowhere"}}}, "no such file or folder: /nowhere"),
        ({"tasks": {"tatoeba": {"data": "/nowhere", "group": 37}}}, "unknown group '37'"),
        ({"model": "/nowhere/model"}, "'/nowhere/model' is not a folder"),
    ],
)  # fmt: skip
def test_what_recipes_and_tasks_ask_for_is_checked_before_any_run(study: StudyFile, changes: dict[str, Any], told: str):
    with pytest.raises(HfXsentError, match=told) as raised:
        list_runs(study.write(**changes), study.out)
    assert "\n" not in str(raised.value)
    assert not (study.out / "runs").exists()


def test_a_file_that_is_no_study_is_told(tmp_path: Path):
    (tmp_path / "empty.yaml").write_text("")
    (tmp_path / "broken.yaml").write_text("a: [")
    for name, told in (("empty", "holds no settings"), ("broken", "YAML"), ("missing", "cannot read the study")):
        with pytest.raises(RecipeError, match=told):
            read_study(tmp_path / f"{name}.yaml")


def test_budgets_come_to_steps():
    assert steps_of(Budget("steps", 30), 64) == 30
    assert steps_of(Budget("pairs", 129), 64) == 3


def test_all_methods_of_a_seed_come_before_those_of_the_next(study: StudyFile):
    methods = {"TR": None, "none": {"train": False}, "longer": {"max_length": 30}}
    runs = list_runs(study.write(methods=methods, seeds=[5, 6], budget={"pairs": 9}), study.out)
    assert [run.name for run in runs] == [
        "none, cls", "TR, cls, seed 5", "longer, cls, seed 5", "TR, cls, seed 6", "longer, cls, seed 6"
    ]  # fmt: skip
    assert [run.steps for run in runs] == [0, 3, 3, 3, 3]


def test_runs_are_known_by_content_not_by_name_or_place(study: StudyFile, tmp_path: Path):
    def folders(**changes: Any) -> set[str]:
        return {run.folder.name for run in list_runs(study.write(**changes), study.out) if run.seed is not None}

    before = folders()
    assert folders(settings=study.content["settings"] | {"cache_dir": str(tmp_path / "elsewhere")}) == before
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tmp_path.glob("*-en.tsv"):
        (moved / file.name).write_bytes(file.read_bytes())
    assert folders(data=f"{moved}/{{language}}-en.tsv") == before
    assert folders(settings=study.content["settings"] | {"alpha": 0.3}).isdisjoint(before)
    assert folders(budget={"steps": 5}).isdisjoint(before)
    assert {name.rsplit("-", 1)[1] for name in folders(methods={"renamed": None})} == {
        name.rsplit("-", 1)[1] for name in before
    }
    assert folders(methods={"TR": {"objectives": {"translation_ranking": 2}}}).isdisjoint(before)
    with (moved / "de-en.tsv").open("a", encoding="utf-8") as file:
        file.write("Hallo, Welt!\tHello, world!\n")
    assert folders(data=f"{moved}/{{language}}-en.tsv").isdisjoint(before)


def test_runs_are_known_by_the_content_of_the_files_of_cleaning_rules(study: StudyFile, tmp_path: Path):
    found, rules = set(), [f"exclude={tmp_path}/test.txt"]
    for sentence in ("One sentence.", "Another one."):
        (tmp_path / "test.txt").write_text(f"{sentence}\n", encoding="utf-8")
        path = study.write(settings=study.content["settings"] | {"rules": rules}, methods={"TR": None})
        found.add(list_runs(path, study.out)[0].folder)
    assert len(found) == 2


def test_a_value_written_in_another_way_is_the_same_run(study: StudyFile):
    def run(*changes: str) -> Any:
        (found,) = list_runs(study.write(methods={"TR": None}), study.out, changes)
        return found

    rate, temperature = "methods.TR.learning_rate", "methods.TR.objectives.translation_ranking.temperature"
    written = run(f"{rate}=1e-3", f"{temperature}='5e-2'", "settings.logging_steps='1'")
    assert written == run(f"{rate}=0.001", f"{temperature}=0.05")
    assert written.recipe["learning_rate"] == 1e-3


def test_a_teacher_is_known_by_its_pooling(study: StudyFile, encoder_folders: dict[str, Path], tmp_path: Path):
    teacher, found = tmp_path / "teacher", set()
    shutil.copytree(encoder_folders["bert"], teacher)
    modules = [{"path": "", "type": "models.Transformer"}, {"path": "1_Pooling", "type": "models.Pooling"}]
    (teacher / "modules.json").write_text(json.dumps(modules))
    (teacher / "1_Pooling").mkdir()
    for flag in ("pooling_mode_cls_token", "pooling_mode_mean_tokens"):
        (teacher / "1_Pooling" / "config.json").write_text(json.dumps({flag: True}))
        objectives = {"distillation": {"weight": 1, "teacher": str(teacher)}}
        path = study.write(methods={"student": {"objectives": objectives}})
        found.add(list_runs(path, study.out)[0].folder)
    assert len(found) == 2


def test_a_teacher_is_known_by_its_files(study: StudyFile, encoder_folders: dict[str, Path], tmp_path: Path):
    def folder(teacher: Path) -> str:
        objectives = {"distillation": {"weight": 1, "teacher": str(teacher)}}
        runs = list_runs(study.write(methods={"student": {"objectives": objectives}}), study.out)
        return runs[0].folder.name

    moved = tmp_path / "moved"
    shutil.copytree(encoder_folders["bert"], moved)
    assert folder(moved) == folder(encoder_folders["bert"]) != folder(encoder_folders["xlm-roberta"])
