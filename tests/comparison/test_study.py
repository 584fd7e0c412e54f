"""A study is checked as a whole before anything is trained: one sentence that names the key."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from datasets import Dataset, DatasetDict
from pandas import DataFrame
from study_file import StudyFile
from torch.nn import Linear

from hf_xsent import SentenceEncoderForPreTraining, load_bitext
from hf_xsent.comparison.compare import compare, list_runs
from hf_xsent.comparison.process import measure, open_embedder
from hf_xsent.comparison.report import report_document
from hf_xsent.comparison.results import collect
from hf_xsent.comparison.run import Run
from hf_xsent.comparison.settings import Budget
from hf_xsent.comparison.study import Study, read_study
from hf_xsent.data.readers.resolving import resolve_sources
from hf_xsent.errors import HfXsentError, RecipeError
from hf_xsent.evaluation.registry import load_task
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.runs.run import RunState
from hf_xsent.settings.yaml12 import parse_yaml
from hf_xsent.training import arguments, plan


def _read(study: StudyFile, flags: dict[str, list[str]] | None = None, **changes: Any) -> Study:
    study.write(**changes)
    return study.read(flags)


def _runs(study: StudyFile, flags: dict[str, list[str]] | None = None, **changes: Any) -> list[Run]:
    study.write(**changes)
    return study.runs(flags)


def test_recipe_file_settings_and_method_are_laid_over_each_other(study: StudyFile):
    other = {"learning_rate": 1.0, "recipe": None, "poolings": ["mean", "max"], "seeds": 3}
    first, other = _read(study, methods={"TR": None, "other": other}).methods
    assert first.recipe["objectives"] == {"translation_ranking": {"weight": 1, "temperature": 0.1}}
    assert "max_steps" not in first.recipe  # the budget's
    assert (first.recipe["learning_rate"], other.recipe["learning_rate"]) == (1e-3, 1.0)
    assert "objectives" not in other.recipe
    assert (other.poolings, other.seeds) == (("mean", "max"), (3,))
    assert (first.poolings, first.seeds) == (("cls",), (0,))


def test_all_mistakes_in_methods_and_tasks_are_stated_at_once(study: StudyFile) -> None:
    methods = {"one": {"objective": 1}, "two": {"bf": True}, "three": {"objective": 1}, "four": {}}
    with pytest.raises(RecipeError) as raised:
        _read(study, methods=methods, tasks={"tatoeba": {"dat": "x"}, "sts": {"data": "x"}})
    text = str(raised.value).removeprefix(f"{study.path}: ")
    places = [mistake.partition(": unknown")[0] for mistake in text.split("; also ")]
    assert places == [
        "tasks.tatoeba",
        "tasks.sts",
        "methods.one, methods.three",
        "methods.two",
    ]
    study.write(methods={"one": {"max_length": 9999}, "two": {"model": "nowhere/at-all"}})
    with pytest.raises(HfXsentError, match=r"methods.one: max_length 9999 .*; also methods.two: 'nowhere/at-all'"):
        study.runs()


def test_a_check_loads_a_tokenizer_once_and_measures_no_precision(
    study: StudyFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[str] = []
    monkeypatch.setattr(plan, "load_tokenizer", lambda name: loaded.append(name) or load_tokenizer(name))
    monkeypatch.setattr(arguments, "bfloat16_is_faster", None)  # not called
    assert len(_runs(study, methods={"one": {"bf16": "auto"}, "two": {"poolings": ["mean", "max"]}})) == 3
    assert len(loaded) == 1


def test_a_recipe_file_states_the_pooling_of_methods_that_name_none(study: StudyFile, tmp_path: Path) -> None:
    (tmp_path / "max.yaml").write_text("method: alignment\npooling: max\nseed: 5\n", "utf-8")
    methods = {
        "max": {"recipe": str(tmp_path / "max.yaml")},
        "own": {"recipe": str(tmp_path / "max.yaml"), "poolings": "cls"},
    }
    stated, own = _read(study, methods=methods, poolings=None).methods
    assert (stated.poolings, stated.seeds) == (("max",), (0,))
    assert own.poolings == ("cls",)


def test_objectives_are_chosen_by_weight_and_keep_what_recipe_and_settings_say_of_them(study: StudyFile):
    settings = study.content["settings"] | {"objectives": {"translation_ranking": {"symmetric": True}}}
    chosen = {"translation_ranking": 0.5, "representation_translation": {"weight": 0.1, "head_layers": 1}}
    methods = {"DAP": {"objectives": chosen}, "RTL": {"objectives": {"mexma": None}}}
    flags = {"methods.RTL.objectives": ["{representation_translation: 0.3}"]}
    ours, alone = _read(study, flags, settings=settings, methods=methods).methods
    assert ours.recipe["objectives"] == {
        "translation_ranking": {"weight": 0.5, "temperature": 0.1, "symmetric": True},
        "representation_translation": {"weight": 0.1, "head_layers": 1},
    }
    assert alone.recipe["objectives"] == {"representation_translation": {"weight": 0.3}}


def test_values_inside_a_study_are_set_by_flags(study: StudyFile):
    flags = {
        "budget": ["{pairs: 100}"],
        "settings.learning_rate": ["0.5"],
        "tasks.pairs.max_pairs": ["3"],
        "methods.none.seeds": ["null"],
        "methods.TR.objectives.translation_ranking.symmetric": ["true"],
    }
    methods = {"none": {"train": False}, "TR": {"objectives": {"translation_ranking": 2}}}
    read = _read(study, flags, methods=methods)
    assert read.budget == Budget(pairs=100)
    assert read.tasks["pairs"]["max_pairs"] == 3
    assert [method.name for method in read.methods] == ["none", "TR"]
    assert read.methods[1].recipe["learning_rate"] == 0.5
    ranking = {"weight": 2, "temperature": 0.1, "symmetric": True}
    assert read.methods[1].recipe["objectives"] == {"translation_ranking": ranking}


@pytest.mark.parametrize("own", [None, {}, {"data": {}}])
@pytest.mark.parametrize("task", ["pairs", "retrieval", "tatoeba"])
def test_a_flag_gives_the_data_of_a_task_without(study: StudyFile, task: str, own: Any) -> None:
    read = _read(study, {f"tasks.{task}.data": ["de=dev.tsv"]}, tasks={task: own})
    assert read.tasks[task]["data"] == "de=dev.tsv"


def test_a_flag_adds_no_method(study: StudyFile):
    with pytest.raises(RecipeError, match="has no method 'TRR'; did you mean 'TR'"):
        _read(study, {"methods.TRR.learning_rate": ["1"]}, methods={"TR": {}})
    study.write(methods={"low-rate": {}})
    (method,) = compare.parse([str(study.path), "--methods.low-rate.learning_rate", "1e-6"]).methods
    assert method.recipe["learning_rate"] == 1e-6


def test_a_study_is_called_by_its_file_alone(study: StudyFile):
    study.write(title=None)
    read = compare.read({}, {}, study.path)
    assert (read.title, read.output) == ("study", Path("runs/study"))
    assert compare.parse([str(study.path), "--budget.steps", "9"]).budget == Budget(steps=9)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"pooling": ["cls"]}, "unknown key 'pooling'; did you mean 'poolings'"),
        ({"model": None}, "model is missing: .*(--)?model"),
        ({"budget": {"hours": 1}}, "budget: unknown key 'hours'"),
        ({"budget": {"batch_size": 1}}, "budget: unknown key 'batch_size': use one of steps, pairs"),
        ({"exclude": "a.tsv"}, "unknown key 'exclude'; did you mean 'settings.rules.exclude'"),
        ({"budget": {"steps": 1, "pairs": 2}}, "budget: give one of steps and pairs"),
        ({"budget": {"steps": 0}}, "budget: steps 0 is not above 0"),
        ({"budget": {"steps": 2.5}}, "budget: steps takes a whole number"),
        ({"settings": {"model": "x"}}, "settings: model is not allowed: state it beside settings, or in a method"),
        ({"settings": {"seed": 3}}, "settings: seed is not allowed: the study sets it"),
        ({"settings": {"learning_rat": 3}}, "settings: unknown key 'learning_rat'; did you mean 'learning_rate'"),
        ({"methods": {"TR": {"max_steps": 9}}}, "methods.TR: max_steps is not allowed: the study sets it"),
        ({"methods": {"TR": {"objective": 1}}}, "methods.TR: unknown key 'objective'; did you mean 'objectives'"),
        ({"methods": {"TR": {"recipe": "none.yaml"}}}, "no recipe .*none.yaml: it is neither a file nor"),
        ({"methods": {"TR": 1}}, "methods.TR: give a mapping of settings, such as {recipe: mixed-small}, not 1"),
        ({"methods": ["TR"]}, "methods takes a mapping"),
        ({"seeds": ["x"]}, "seeds takes a list of whole numbers, not"),
        ({"tasks": {"tatoba": {"data": "x"}}}, "unknown task 'tatoba': .*did you mean 'tatoeba'"),
        ({"tasks": {"tatoeba": {}}}, "tasks.tatoeba.data is missing"),
        ({"tasks": {"pairs": {}}}, "tasks.pairs.data is missing"),
        ({"tasks": {"retrieval": {}}}, "tasks.retrieval.data is missing"),
        ({"methods": {"TR": {"data": []}}}, "methods.TR: data has no pairs"),
        ({"settings": {"rules": {"longest": 3}}}, "settings: rules: unknown key 'longest'"),
        ({"tasks": {"tatoeba": {"data": "x", "language": 3}}}, "tatoeba: unknown key 'language'; did you mean 'lan"),
        ({"tasks": {"pairs": {"data": "x", "max_pairs": "a"}}}, "pairs: max_pairs takes a whole number, not"),
        ({"tasks": {"bucc": {"data": "x", "max_pairs": 4}}}, "tasks.bucc: unknown key 'max_pairs'"),
    ],
)  # fmt: skip
def test_a_mistake_in_the_file_is_one_sentence(study: StudyFile, changes: dict[str, Any], told: str):
    with pytest.raises(HfXsentError, match=told) as raised:
        _read(study, **changes)
    assert str(raised.value).startswith(f"{study.path}: ") and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"methods": {"TR": {"objectives": {"translation_rankin": 1}}}}, "methods.TR: .*translation_ranking"),
        ({"settings": {"masked_share": 0.3}, "methods": {"M": {"recipe": "mlm-small"}}}, "^methods.M: masked_share"),
        ({"methods": {"TR": {"matryoshka": [32]}}}, "^methods.TR: .* {translation_ranking: {}, matryoshka: …}"),
        ({"methods": {"TR": {"max_length": "long"}}}, "methods.TR: max_length takes a whole number, not 'long'"),
        ({"methods": {"TR": {"method": "wacs"}}}, "methods.TR: unknown method 'wacs'.*did you mean 'wacse'"),
        ({"methods": {"W": {"method": "wacse", "objectives": {"word_translation_ranking": 1}}}}, "methods.W: .*links"),
        ({"data": "/nowhere/de-en.tsv"}, "methods.none, methods.TR: no such file.*nowhere"),
        ({"methods": {"TR": {"poolings": "first"}}}, "methods.TR: pooling 'first' is unknown"),
        ({"methods": {"TR": {"languages": ["de", "en"]}}}, "methods.TR: tasks do not say the language of a text"),
        ({"methods": {"no": {"train": False, "encoder_layers": 1}}}, "methods.no: an untrained method has all layers"),
        ({"tasks": {"tatoeba": {"data": "/nowhere"}}}, "no such file or folder: /nowhere"),
        ({"model": "/nowhere/model"}, "'/nowhere/model' is not a folder"),
        (
            {"methods": {"TR": {"per_device_train_batch_size": 32}}, "budget": {"pairs": 99}},
            "methods.TR: a step of 32 pairs is more than the 16 training pairs, so that steps do not add up to",
        ),
    ],
)  # fmt: skip
def test_what_recipes_and_tasks_ask_for_is_checked_before_any_run(study: StudyFile, changes: dict[str, Any], told: str):
    with pytest.raises(HfXsentError, match=told) as raised:
        _runs(study, **changes)
    assert "\n" not in str(raised.value)
    assert not (study.out / "runs").exists()


def test_retrieval_searches_the_target_language_of_the_study(study: StudyFile, tmp_path: Path):
    (tmp_path / "pairs.tsv").write_text("de\ten\tfr\nJa.\tYes.\tOui.\nNein.\tNo.\tNon.\n", encoding="utf-8")
    settings = study.content["settings"] | {"target_language": "fr"}
    options = {"data": f"de={tmp_path / 'pairs.tsv'}"}
    for task, target in ((options, "Oui."), (options | {"target_language": "en"}, "Yes.")):
        read = _read(study, settings=settings, tasks={"pairs": task})
        (test_set,) = load_task("pairs", read.tasks["pairs"], tmp_path / "cache").sets
        assert test_set.targets[0] == target
    with pytest.raises(RecipeError, match=r"several target languages \(en, fr\): set tasks.pairs.target_language"):
        _read(study, methods={"TR": None, "other": {"target_language": "fr"}})


def test_pairs_in_memory_of_a_task_have_the_target_language_of_the_methods(study: StudyFile, tmp_path: Path) -> None:
    study.write()
    frame = DataFrame({"en": ["A dog.", "A cat."], "de": ["Ein Hund.", "Eine Katze."]})
    content = study.content | {"data": frame, "tasks": {"pairs": frame}}
    read = read_study(
        [content | {"settings": study.content["settings"] | {"target_language": "de"}}], where=str(study.path)
    )
    (test_set,) = load_task("pairs", read.tasks["pairs"], tmp_path / "cache").sets
    assert (test_set.language, test_set.sources[0], test_set.targets[0]) == ("en", "A dog.", "Ein Hund.")
    data = read.methods[0].recipe["data"]
    assert load_bitext(data, target_language="de", cleaning=None, cache_dir=tmp_path / "cache").languages == {"en": 2}


def test_a_bitext_keeps_its_target_language_in_a_study(study: StudyFile, tmp_path: Path) -> None:
    study.write()
    german = load_bitext({"fr": [("Un chien.", "Ein Hund.")]}, target_language="de", cleaning=None, cache_dir=tmp_path)
    for shared in (True, False):
        content = study.content | ({"data": german} if shared else {"methods": {"TR": {"data": german}}})
        read = read_study([content | {"tasks": {"pairs": german}}], where=str(study.path))
        assert read.methods[-1].recipe["target_language"] == read.tasks["pairs"]["target_language"] == "de"


@pytest.fixture
def within_english(tmp_path: Path, pairs: list[tuple[str, str]]) -> Path:
    """A folder with one track of STS 2017, which retention measures."""
    folder = tmp_path / "benchmarks" / "sts17"
    folder.mkdir(parents=True)
    english = [target for _, target in pairs]
    lines = "".join(f"{first}\t{second}\n" for first, second in zip(english, english[::-1], strict=True))
    (folder / "STS.input.track5.en-en.txt").write_text(lines, encoding="utf-8")
    (folder / "STS.gs.track5.en-en.txt").write_text("".join(f"{row}\n" for row in range(len(pairs))), encoding="utf-8")
    return folder.parent


def test_retention_compares_with_the_start_in_the_pooling_of_the_run(study: StudyFile, within_english: Path):
    tasks = {"retention": {"data": str(within_english)}}
    (run,) = _runs(study, tasks=tasks, methods={"none": {"train": False}}, poolings=["cls"])
    measure(run)
    found = run.measurement("retention")
    assert found is not None
    assert found.report.groups["all"]["cosine"] == pytest.approx(1)


def test_methods_may_start_from_different_encoders(
    study: StudyFile, within_english: Path, encoder_folders: dict[str, Path]
):
    other = str(encoder_folders["xlm-roberta"])
    methods = {"none": {"train": False}, "other": {"train": False, "model": other}, "TR": {"model": other}}
    tasks = {"retention": {"data": str(within_english)}}
    runs = _runs(study, tasks=tasks, methods=methods)
    assert [run.model for run in runs] == [study.content["model"], other, other]
    assert runs[0].folder.name != runs[1].folder.name
    assert _runs(study, model=other, tasks=tasks, methods={"TR": {}})[0].folder == runs[2].folder  # the same run
    for run in runs[:2]:
        measure(run)
        found = run.measurement("retention")
        assert found is not None and found.report.groups["all"]["cosine"] == pytest.approx(1)  # with its own start
    results = collect(study.read(), runs)
    text = report_document(results).markdown()
    assert "starts from the encoder in its column start" in text
    assert "| method | start | pooling |" in text and "| other | xlm-roberta | cls |" in text
    (only,) = _runs(study, tasks=tasks, methods={"none": {"train": False}})
    text = report_document(collect(study.read(), [only])).markdown()
    assert f"starts from {only.model}" in text and "| method | pooling |" in text


def test_the_start_of_a_method_is_checked_before_any_run(study: StudyFile):
    with pytest.raises(HfXsentError, match="methods.far: '/nowhere' is not a folder"):
        _runs(study, methods={"TR": None, "far": {"model": "/nowhere"}})


def test_an_untrained_method_has_the_prompts_of_its_recipe(study: StudyFile):
    settings = study.content["settings"] | {"prompts": {"query": "The dog "}, "default_prompt_name": "query"}
    (without,) = _runs(study, methods={"none": {"train": False}})
    (run,) = _runs(study, methods={"none": {"train": False}}, settings=settings)
    assert run.folder != without.folder
    embedder = open_embedder(run)
    assert embedder.prompt == "The dog "
    assert (embedder.encode_query(["sleeps"]) == embedder.encode(["sleeps"])).all()


@pytest.mark.parametrize(("of_start", "named"), [(None, "query"), ("query", None)])
def test_an_untrained_method_has_the_prompt_of_its_start_that_its_recipe_names(
    study: StudyFile, tmp_path: Path, of_start: str | None, named: str | None
):
    start = SentenceEncoderForPreTraining.from_pretrained(
        study.content["model"], prompts={"query": "The dog "}, default_prompt_name=of_start
    )
    start.save_pretrained(tmp_path / "start")
    settings = study.content["settings"] | {"default_prompt_name": named}
    (run,) = _runs(study, model=str(tmp_path / "start"), settings=settings, methods={"none": {"train": False}})
    assert open_embedder(run).prompt == ("The dog " if named else "")


def test_paths_and_numbers_of_python_are_those_of_a_file(study: StudyFile, tmp_path: Path):
    data = {"de": tmp_path / "de-en.tsv"}
    parts = {
        "methods": {"TR": {"data": data, "cache_dir": tmp_path, "frozen_layers": np.int64(1)}},
        "tasks": {"pairs": {"data": data}},
    }
    settings = study.content["settings"] | {"recipe": tmp_path / "recipe.yaml"}
    (run,) = list_runs(compare.read(study.content | parts | {"settings": settings, "output": study.out}))
    run.write_job()
    assert Run.read(run.folder) == run
    assert run.recipe["data"] == run.tasks["pairs"]["data"] == {"de": str(data["de"])}


def test_budgets_come_to_steps():
    assert Budget(steps=30).steps_of(64) == 30
    assert Budget(pairs=129).steps_of(64) == 3


def test_all_methods_of_a_seed_come_before_those_of_the_next(study: StudyFile):
    methods = {"TR": None, "none": {"train": False}, "longer": {"max_length": 30}}
    runs = _runs(study, methods=methods, seeds=[5, 6], budget={"pairs": 9})
    assert [run.name for run in runs] == [
        "none, cls", "TR, cls, seed 5", "longer, cls, seed 5", "TR, cls, seed 6", "longer, cls, seed 6"
    ]  # fmt: skip
    assert [run.steps for run in runs] == [0, 3, 3, 3, 3]


def test_a_seed_or_pooling_that_is_given_twice_is_one_run(study: StudyFile):
    assert [run.name for run in _runs(study, methods={"TR": None}, seeds=[5, 5], poolings=["cls", "cls"])] == [
        "TR, cls, seed 5"
    ]


def test_a_method_has_the_pooling_of_its_start_unless_one_is_stated(
    study: StudyFile, encoder_folders: dict[str, Path], tmp_path: Path
):
    start = SentenceEncoderForPreTraining.from_pretrained(study.content["model"], pooling="max")
    start.save_pretrained(tmp_path / "start")
    plain = {"model": str(encoder_folders["bert"])}
    methods = {"none": {"train": False}, "TR": None, "plain": plain, "cls": {"poolings": "cls"}}
    runs = _runs(study, model=str(tmp_path / "start"), poolings=None, methods=methods)
    assert [run.name for run in runs] == ["none, max", "TR, max, seed 0", "plain, mean, seed 0", "cls, cls, seed 0"]


def test_a_run_whose_model_is_moved_but_that_is_not_finished_has_no_model(study: StudyFile):
    (run,) = _runs(study, methods={"TR": None})
    (run.training / "model.safetensors").parent.mkdir(parents=True)
    (run.training / "model.safetensors").touch()
    RunState({}).write(run.training)
    assert not run.has_model
    RunState({}, finished_at_step=4).write(run.training)
    assert run.has_model
    RunState({}, finished_at_step=4, problem="the score within languages fell").write(run.training)
    assert not run.has_model, "it failed, and fails again"


def test_runs_are_known_by_content_not_by_name_or_place(study: StudyFile, tmp_path: Path):
    def folders(**changes: Any) -> set[str]:
        return {run.folder.name for run in _runs(study, **changes) if run.seed is not None}

    before = folders()
    assert folders(settings=study.content["settings"] | {"cache_dir": str(tmp_path / "elsewhere")}) == before
    moved = tmp_path / "moved"
    moved.mkdir()
    for file in tmp_path.glob("*-en.tsv"):
        (moved / file.name).write_bytes(file.read_bytes())
    assert folders(data=f"{moved}/{{language}}-en.tsv") == before
    gold = tmp_path / "gold.tsv"
    gold.write_text("a\tb\n", "utf-8")
    rules = {"settings": study.content["settings"] | {"rules": {"exclude": str(gold)}}}
    with_rules = folders(**rules)
    rules["settings"]["rules"]["exclude"] = str(gold.rename(tmp_path / "other.tsv"))
    assert folders(**rules) == with_rules and with_rules.isdisjoint(before)
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
    folders, rules = set(), [f"exclude={tmp_path}/test.txt"]
    for sentence in ("One sentence.", "Another one."):
        (tmp_path / "test.txt").write_text(f"{sentence}\n", encoding="utf-8")
        settings = study.content["settings"] | {"rules": rules}
        folders.add(_runs(study, settings=settings, methods={"TR": None})[0].folder)
    assert len(folders) == 2


def test_rules_of_the_study_are_added_to_those_of_a_recipe(study: StudyFile, tmp_path: Path):
    (tmp_path / "mine.yaml").write_text("rules: {max_characters: 300}", "utf-8")
    settings = {**study.content["settings"], "rules": {"exclude": "gold.tsv"}}
    (method,) = _read(study, settings=settings, methods={"TR": {"recipe": str(tmp_path / "mine.yaml")}}).methods
    assert method.recipe["rules"] == {"max_characters": 300, "exclude": "gold.tsv"}


def test_runs_are_known_by_the_texts_of_retention_that_decide_their_weights(study: StudyFile, within_english: Path):
    def folder(share: float | str) -> Path:
        settings = study.content["settings"] | {
            "dev_pairs": 4,
            "retention": str(within_english),
            "share_of_start": share,
        }
        return _runs(study, settings=settings, methods={"TR": None})[0].folder

    before = folder("auto"), folder(0.5)
    scores = within_english / "sts17" / "STS.gs.track5.en-en.txt"
    scores.write_text("".join(reversed(scores.read_text("utf-8").splitlines(keepends=True))), "utf-8")
    assert folder("auto") != before[0] and folder(0.5) == before[1]


@pytest.mark.parametrize(
    "settings",
    [{"logging_steps": 7}, {"save_total_limit": 3}, {"learning_rate": "0.001"}, {"on_error": "raise"}],
    ids=lambda settings: next(iter(settings)),
)
def test_a_setting_that_does_not_change_results_is_the_same_run(study: StudyFile, settings: dict[str, Any]):
    (before,) = _runs(study, methods={"TR": None})
    (after,) = _runs(study, methods={"TR": settings})
    assert after.folder == before.folder


def test_auto_precision_is_one_run_whatever_is_measured(study: StudyFile, monkeypatch: pytest.MonkeyPatch):
    def folders(bf16: bool | str) -> set[Path]:
        runs = _runs(study, settings=study.content["settings"] | {"bf16": bf16})
        assert len(runs) == 2  # trained and untrained
        return {run.folder for run in runs}

    measured = []
    for faster in (False, True):
        monkeypatch.setattr("hf_xsent.training.arguments.bfloat16_is_faster", lambda *_, faster=faster, **__: faster)
        measured.append(folders("auto"))
    assert measured[0] == measured[1]
    assert measured[0].isdisjoint(folders(False) | folders(True))


def test_an_untrained_method_is_measured_once_whatever_the_budget_is(study: StudyFile):
    methods = {"none": {"train": False}}
    (before,) = _runs(study, methods=methods)
    (after,) = _runs(study, methods=methods, budget={"pairs": 80}, seeds=[4])
    (other,) = _runs(study, methods={"none": {"train": False, "max_length": 30}})
    assert after.folder == before.folder != other.folder


def test_a_teacher_is_known_by_its_files(study: StudyFile, encoder_folders: dict[str, Path], tmp_path: Path):
    def folder(teacher: Path) -> str:
        objectives = {"distillation": {"weight": 1, "teacher": str(teacher)}}
        return _runs(study, methods={"student": {"objectives": objectives}})[0].folder.name

    moved = tmp_path / "moved"
    shutil.copytree(encoder_folders["bert"], moved)
    assert folder(moved) == folder(encoder_folders["bert"]) != folder(encoder_folders["xlm-roberta"])


def test_the_smallest_study_of_the_page_is_the_same_in_python_and_in_a_file() -> None:
    page = (Path(__file__).parents[2] / "docs/comparing_methods.md").read_text("utf-8")
    python, yaml = (page.split(f"```{language}\n")[1].split("```")[0] for language in ("python", "yaml"))
    call = next(node for node in ast.walk(ast.parse(python)) if isinstance(node, ast.Call))
    said = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert said.pop("output")
    assert said == parse_yaml(yaml)


def test_training_pairs_that_a_task_measures_are_a_warning(study: StudyFile, caplog: pytest.LogCaptureFixture) -> None:
    _runs(study)
    folder = study.path.parent
    known = "methods.TR trains on 16 pairs that tasks.pairs measures: set settings: {rules: "
    assert [line for line in caplog.messages if "measures" in line] == [f"{known}{{exclude: FILES}}}}"]
    caplog.clear()
    gold = folder / "gold.tsv"
    gold.write_text("".join((folder / "de-en.tsv").read_text("utf-8").splitlines(keepends=True)[:4]), "utf-8")
    settings = study.content["settings"] | {"rules": {"exclude": str(gold)}}
    _runs(study, settings=settings, tasks={"pairs": {"data": f"de={gold}"}})
    assert not [line for line in caplog.messages if "measures" in line]
    pairs = [line.split("\t") for line in gold.read_text("utf-8").splitlines()]
    (folder / "roen.src-tgt").write_text("".join(f"{source} ||| {target}\n" for source, target in pairs), "utf-8")
    (folder / "roen.gold").write_text("1-1\n" * 4, "utf-8")
    _runs(study, tasks={"word_alignment": {"data": str(folder), "choose": "roen"}})
    assert [line for line in caplog.messages if "trains on 4 pairs that tasks.word_alignment measures" in line]


def test_a_study_in_python_names_the_files_of_pairs_in_memory(study: StudyFile) -> None:
    rows = {"source": ["Ein Hund.", "Eine Katze."], "target": ["A dog.", "A cat."]}
    splits = DatasetDict({"train": Dataset.from_dict(rows), "test": Dataset.from_dict(rows).select([1])})
    content = study.content | {"data": {"de": splits}, "tasks": {"pairs": {"data": {"de": splits}}}}
    study.write()
    read = read_study([content], where=str(study.path))
    for data, count in ((read.methods[0].recipe["data"], 2), (read.tasks["pairs"]["data"], 1)):
        ((source,),) = resolve_sources(data).values()
        assert source.language == "de" and len(Path(source.path).read_text("utf-8").splitlines()) == count
    for seeds in (range(2), np.arange(2), (0, np.int64(1))):
        read = read_study([content | {"seeds": seeds}], where=str(study.path))
        assert (0, 1) in {method.seeds for method in read.methods} <= {(0, 1), (None,)}
    with pytest.raises(RecipeError, match="seeds is missing: give (--)?seeds"):
        read_study([content | {"seeds": range(0)}])
    with pytest.raises(RecipeError, match="models and data by their folders, not Linear: save"):
        read_study([content | {"model": Linear(1, 1)}])


def test_a_study_in_python_names_the_folder_of_a_collection_in_memory(study: StudyFile) -> None:
    collection = {"corpus": {"a": "A dog."}, "queries": {"q": "Ein Hund."}, "qrels": {"q": "a"}}
    study.write()
    for options in (collection, {"data": collection}):
        read = read_study([study.content | {"tasks": {"retrieval": options}}], where=str(study.path))
        (folder,) = read.tasks["retrieval"]["data"]
        assert {path.name for path in Path(folder).iterdir()} == {"corpus.jsonl", "queries.jsonl", "qrels.jsonl"}
