"""A recipe and flags become one checked object; help shows the same settings and loads nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from hf_xsent.cli import COMMANDS, load_command, main
from hf_xsent.errors import RecipeError
from hf_xsent.models import METHODS
from hf_xsent.objectives.registry import OBJECTIVES, objective_class
from hf_xsent.settings.declare import settings_of
from hf_xsent.settings.hints import OTHER_NAMES
from hf_xsent.settings.recipes import recipe_file
from hf_xsent.training.arguments import AlignmentTrainingArguments
from hf_xsent.training.pretrain import pretrain
from hf_xsent.training.recipe import Recipe, recipe_settings
from hf_xsent.training.run_card import recipe_of, write_recipe
from hf_xsent.training.settings import (
    DataSettings,
    RunSettings,
    StartSettings,
    TrainingSettings,
)

TR, RTL, TLM, AWP, WTR = (
    *("translation_ranking", "representation_translation", "translation_language_modeling"),
    *("aligned_word_prediction", "word_translation_ranking"),
)


def _read(tmp_path: Path, text: str, *flags: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return pretrain.parse([str(path), "--output_dir", str(tmp_path / "out"), "--use_cpu", *flags])


def _flags(*flags: str) -> Recipe:
    return pretrain.parse(["--output_dir", "out", "--use_cpu", *flags])


def _refused(tmp_path: Path, text: str, *flags: str) -> str:
    with pytest.raises(RecipeError) as error:
        _read(tmp_path, text, *flags)
    assert "\n" not in str(error.value)
    return str(error.value)


def _weights(recipe: Recipe) -> dict[str, float]:
    return {name: settings.weight for name, settings in recipe.config.objectives.items()}


# What is read


def test_a_recipe_fills_all_parts_with_their_types(tmp_path: Path) -> None:
    recipe = _read(
        tmp_path,
        """
        model: some/encoder
        method: dap
        data: [de=de.tsv, fr=fr.tsv]
        learning_rate: 5e-5
        warmup_steps: 1e2
        alpha: 0.3
        max_steps: 20
        normalize: false
        languages: [de, fr, en]
        objectives:
          translation_ranking: {weight: 0.5, temperature: 5e-2, margin: 1, symmetric: true}
          representation_translation: 0.1
        dev_pairs: 7
        clean: false
        """,
    )
    assert (recipe.start.model, recipe.start.method) == ("some/encoder", "dap")
    assert recipe.data.data == ["de=de.tsv", "fr=fr.tsv"]
    ranking = recipe.config.objectives[TR]
    numbers = (recipe.training.learning_rate, recipe.training.warmup_steps, ranking.temperature, ranking.margin)
    assert numbers == (5e-5, 100.0, 0.05, 1.0)
    assert all(isinstance(number, float) for number in numbers)  # PyYAML takes 5e-5 for a string
    assert (recipe.data.alpha, recipe.training.max_steps, recipe.data.dev_pairs) == (0.3, 20, 7)
    assert (ranking.symmetric, recipe.config.normalize, recipe.data.clean) == (True, False, False)
    assert recipe.config.languages == ["de", "fr", "en"]
    assert _weights(recipe) == {TR: 0.5, RTL: 0.1}


@pytest.mark.parametrize("method", METHODS)
def test_a_method_without_other_settings_is_the_papers(method: str) -> None:
    recipe = _flags("--method", method)
    assert type(recipe.config) is METHODS[method][0]
    assert recipe.config.to_dict() == METHODS[method][0]().to_dict()


def test_the_method_without_a_name_ranks_translations() -> None:
    recipe = _flags("--model", "m")
    assert recipe.start.method == "alignment" and _weights(recipe) == {TR: 1.0}


def test_a_flag_beats_the_recipe_and_the_recipe_beats_the_default(tmp_path: Path) -> None:
    text = (
        "objectives: {translation_ranking: {temperature: 0.1, symmetric: true}}\nseed: 7\ndata: [de=de.tsv]\nmodel: a"
    )
    flags = ["--temperature", "0.2", "--symmetric", "false", "--data", "fr=fr.tsv", "es=es.tsv", "--model=b"]
    recipe = _read(tmp_path, text, *flags)
    ranking = recipe.config.objectives[TR]
    assert (ranking.temperature, ranking.symmetric, recipe.start.model) == (0.2, False, "b")
    assert recipe.data.data == ["fr=fr.tsv", "es=es.tsv"]
    assert recipe.training.seed == 7
    assert recipe.training.eval_strategy == "steps"


def test_a_flag_may_name_one_entry_of_a_mapping() -> None:
    recipe = _flags("--data", "{de: a.tsv}", "--data.fr", "b.tsv", "--prompts.query", "query: ")
    assert recipe.data.data == ["de=a.tsv", "fr=b.tsv"] and recipe.config.prompts == {"query": "query: "}


def test_a_flag_may_be_written_with_dashes(tmp_path: Path) -> None:
    assert _read(tmp_path, "model: m", "--max-length", "9").config.max_length == 9


def test_unset_settings_are_left_to_the_method(tmp_path: Path) -> None:
    recipe = _read(tmp_path, "method: ppa\nmax_length: 9\nnormalize: true")
    assert (recipe.config.max_length, recipe.config.normalize) == (9, True)
    assert recipe.config.random_input_shuffling
    assert not recipe.config.objectives[TLM].reset_positions


# Objectives and their settings


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("{translation_ranking: 2}", {TR: 2.0}),
        ("{translation_ranking: 1e-1}", {TR: 0.1}),
        ("{translation_ranking: }", {TR: 1.0}),
        ("{translation_ranking: {temperature: 0.1}, representation_translation: 0.5}", {TR: 1.0, RTL: 0.5}),
    ],
)
def test_weights_in_a_recipe(tmp_path: Path, stated: str, expected: dict[str, float]) -> None:
    assert _weights(_read(tmp_path, f"objectives: {stated}")) == expected


@pytest.mark.parametrize(
    ("words", "expected"),
    [([TR], {TR: 1.0}), ([f"{TR}=0.5", f"{RTL}=1e-1"], {TR: 0.5, RTL: 0.1})],
)
def test_weights_in_flags(words: list[str], expected: dict[str, float]) -> None:
    assert _weights(_flags("--objectives", *words)) == expected


@pytest.mark.parametrize(
    "text", [f'{{"{TR}": {{"temperature": 0.1}}, "{RTL}": 0.5}}', f"{{{TR}: {{temperature: 0.1}}, {RTL}: 0.5}}"]
)
def test_objectives_may_be_the_text_of_a_mapping(tmp_path: Path, text: str) -> None:
    for recipe in (_flags("--objectives", text), _read(tmp_path, f"objectives: '{text}'")):
        assert _weights(recipe) == {TR: 1.0, RTL: 0.5} and recipe.config.objectives[TR].temperature == 0.1
    with pytest.raises(RecipeError, match=f"^--objectives.{TR}: unknown key 'temprature'; did you mean"):
        _flags("--objectives", text.replace("temperature", "temprature"))


def test_chosen_objectives_keep_the_settings_that_the_recipe_has_for_them(tmp_path: Path) -> None:
    text = "objectives: {translation_ranking: {weight: 3, temperature: 0.1}, representation_translation: 0.5}"
    recipe = _read(tmp_path, text, "--objectives", "translation_ranking=2", "translation_language_modeling=0.1")
    assert _weights(recipe) == {TR: 2.0, TLM: 0.1}
    assert recipe.config.objectives[TR].temperature == 0.1


def test_chosen_objectives_keep_the_methods_settings_of_them() -> None:
    recipe = _flags("--method", "ppa", "--objectives", f"{TLM}=0.5")
    assert _weights(recipe) == {TLM: 0.5} and not recipe.config.objectives[TLM].reset_positions


def test_a_flag_alone_sets_a_setting_that_one_objective_has() -> None:
    recipe = _flags("--method", "dap", "--temperature", "0.02", "--head_layers", "1", "--symmetric")
    assert recipe.config.objectives[TR].temperature == 0.02 and recipe.config.objectives[TR].symmetric
    assert recipe.config.objectives[RTL].head_layers == 1
    assert _weights(recipe) == {TR: 1.0, RTL: 0.8}


def test_a_flag_that_several_objectives_have_is_ambiguous() -> None:
    with pytest.raises(RecipeError) as error:
        _flags("--method", "wacse", "--temperature", "0.1")
    assert str(error.value) == (
        f"--temperature is a setting of several objectives: write --objectives.{TR}.temperature or "
        f"--objectives.{WTR}.temperature"
    )
    recipe = _flags("--method", "wacse", f"--objectives.{WTR}.temperature=0.1")
    assert recipe.config.objectives[WTR].temperature == 0.1
    assert recipe.config.objectives[TR].temperature == 0.05


def test_a_flag_of_an_objective_that_is_not_chosen_names_it() -> None:
    with pytest.raises(RecipeError, match=f"^(--)?head_layers is a setting of {RTL}.*, which this run does not train"):
        _flags("--head_layers", "1")
    with pytest.raises(RecipeError, match=rf"{RTL} is not an objective of this run; add (--)?objectives.{RTL}.weight"):
        _flags(f"--objectives.{RTL}.head_layers", "1")


@pytest.mark.parametrize("first", [True, False])
def test_an_objective_is_added_by_its_weight(first: bool) -> None:
    weight, layers = [f"--objectives.{RTL}.weight", "0.3"], [f"--objectives.{RTL}.head_layers", "1"]
    recipe = _flags(*(weight + layers if first else layers + weight))
    assert _weights(recipe) == {TR: 1.0, RTL: 0.3}
    assert recipe.config.objectives[RTL].head_layers == 1


def test_a_setting_that_names_a_missing_file_is_one_sentence() -> None:
    with pytest.raises(RecipeError, match="conflicting settings: .*No such file or directory: 'Infinity'"):
        _flags("--accelerator_config", "Infinity")


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--objectives", "translation_rankin=1"], "unknown objective 'translation_rankin'.*did you mean 'translation"),
        (["--objectives", f"{TR}=much"], f"^--objectives {TR} takes a number, not 'much'$"),
        (["--objectives", f"{TR}=0"], rf"^objectives.{TR}.weight 0.0 is not above 0$"),
        (["--objectives"], "^objectives is empty: name at least one of"),
        (
            ["--objectives.translation.weight", "1"],
            "unknown objective 'translation' in (--)?objectives.translation.weight",
        ),
        ([f"--objectives.{TR}", "50"], f"names no setting: write --objectives.{TR}.weight for its weight"),
        ([f"--objectives.{TR}.temprature", "1"], f"{TR} has no setting 'temprature'; did you mean 'temperature'"),
        ([f"--objectives.{TR}.temperature", "warm"], f"--objectives.{TR}.temperature takes a number, not 'warm'"),
        ([f"--objectives.{TR}.temperature"], f"--objectives.{TR}.temperature needs a value"),
        (["--temperature", "0"], f"^objectives.{TR}.temperature 0.0 is not above 0$"),
        (["--method", "dap", f"--objectives.{RTL}.vocabulary_size", "9"], f"{RTL} has no setting 'vocabulary_size'"),
    ],
)
def test_a_mistake_in_the_flags_of_objectives_is_one_sentence(flags: list[str], told: str) -> None:
    with pytest.raises(RecipeError, match=told) as error:
        _flags(*flags)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("stated", "told"),
    [
        ("5", "objectives takes a mapping such as {translation_ranking: 1.0}, not 5"),
        ("[translation_ranking=3]", "objectives takes a mapping such as"),
        ("{translation_ranking: {temprature: 1}}", "unknown key 'temprature'; did you mean 'temperature'"),
        ("{representation_translation: {vocabulary_size: 9}}", "unknown key 'vocabulary_size'"),
    ],
)
def test_a_mistake_in_the_objectives_of_a_recipe_is_one_sentence(tmp_path: Path, stated: str, told: str) -> None:
    assert told in _refused(tmp_path, f"objectives: {stated}")


# What is refused, each in one sentence


def test_an_unknown_key_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    told = _refused(tmp_path, "learning_rat: 1e-5")
    assert "unknown key 'learning_rat'" in told and "did you mean 'learning_rate'" in told
    assert str(tmp_path / "recipe.yaml") in told
    assert "unknown key 12" in _refused(tmp_path, "12: 1e-5")
    told = _refused(tmp_path, "objectives: {translation_ranking: {temprature: 1}}")
    assert str(tmp_path / "recipe.yaml") in told


@pytest.mark.parametrize(
    ("recipe", "key", "told"),
    [
        ("dap-small", "temperature", f"{TR}: {{temperature: …}}, {RTL}: {{}}"),
        ("mlm-small", "masked_share", "masked_language_modeling: {masked_share: …}"),
        ("wacse-small", "temperature", f"{TR}: {{temperature: …}}, {AWP}: {{}}, {WTR}: {{temperature: …}}"),
        ("tr-small", "mexma", f"{TR}: {{}}, mexma: …"),
        ("tr-small", "queue_size", "momentum_contrast"),
    ],
)
def test_a_key_that_belongs_in_objectives_is_shown_with_all_those_of_the_run(
    tmp_path: Path, recipe: str, key: str, told: str
) -> None:
    expected = f"{key} belongs in objectives: write objectives: {{{told}}}"
    if key == "queue_size":
        expected = f"{key} is a setting of {told}, which this run does not train with"
    for values, at, file in (({key: 0.3}, "", recipe), ({}, f"{tmp_path / 'own.yaml'}: ", tmp_path / "own.yaml")):
        (tmp_path / "own.yaml").write_text(f"{recipe_file(recipe).read_text('utf-8')}\n{key}: 0.3", "utf-8")
        with pytest.raises(RecipeError, match=f"^{re.escape(at + expected)}$"):
            pretrain.read(values, recipe=file)


def test_the_objectives_that_an_error_shows_train_as_the_flag_does() -> None:
    with pytest.raises(RecipeError) as error:
        pretrain.read({"temperature": 0.1}, recipe="dap-small")
    shown = str(error.value).partition("write objectives: ")[2].replace("…", "0.1")
    of_flag = pretrain.read({}, {"temperature": ["0.1"]}, "dap-small").config
    assert pretrain.read({"objectives": shown}, recipe="dap-small").config.objectives == of_flag.objectives


def test_an_unknown_flag_is_an_error_with_the_nearest(tmp_path: Path) -> None:
    told = _refused(tmp_path, "model: m", "--learning-rat", "1e-5")
    assert told.startswith("unknown flag --learning_rat") and "'learning_rate'" in told
    told = _refused(tmp_path, "model: m", "--temperatur=3")
    assert told.startswith("unknown flag --temperatur;") and "'temperature'" in told
    assert "no_such_thing" in _refused(tmp_path, "model: m", "--no_such_thing")


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("batch_size", "per_device_train_batch_size"),
        ("epochs", "num_train_epochs"),
        ("lr", "learning_rate"),
        ("train_file", "data"),
        ("eval_file", "dev"),
        ("model_name_or_path", "model"),
    ],
)
def test_names_of_other_libraries_are_understood(tmp_path: Path, name: str, meant: str) -> None:
    """On the command line, in a recipe and in Python."""
    assert _refused(tmp_path, "model: m", f"--{name}", "1") == f"unknown flag --{name}; did you mean {meant!r}?"
    assert _refused(tmp_path, f"{name}: 1").endswith(f"unknown key {name!r}; did you mean {meant!r}?")
    with pytest.raises(RecipeError, match=f"unknown key {name!r}; did you mean {meant!r}"):
        pretrain.read({name: 1})


def test_hints_name_settings() -> None:
    commands = [{*load_command(command).fields} for command in COMMANDS]
    for name, others in OTHER_NAMES.items():
        of_commands = {setting.partition(".")[0] for setting in others}
        assert any(name not in known and of_commands & known for known in commands), name


@pytest.mark.parametrize(
    ("command", "flag", "hint"),
    [
        ("evaluate", "batch_size", "; omit it: sentences are encoded in batches of up to 8,192 tokens"),
        ("evaluate", "query_instruction_for_retrieval", "; prompts are those that the model's folder states"),
        ("evaluate", "normalize_embeddings", "; omit it: similarities are cosines"),
        ("evaluate", "fp16", "; did you mean 'precision'?"),
        ("evaluate", "truncate_dim", "; did you mean 'dims'?"),
        ("evaluate", "eval_file", "; did you mean 'pairs'?"),
        ("compare", "learning_rate", "; did you mean 'settings.learning_rate'?"),
        ("mine", "top_k", "; did you mean 'top'?"),
        ("mine-negatives", "train_group_size", "; did you mean 'negatives'?"),
        ("export", "quantize", "; did you mean 'onnx'?"),
        ("publish", "repo_id", "; did you mean 'repository'?"),
        ("publish", "model", "; did you mean 'folder'?"),
    ],
)
def test_every_command_answers_the_flags_of_other_libraries(command: str, flag: str, hint: str) -> None:
    with pytest.raises(RecipeError, match=re.escape(f"unknown flag --{flag}{hint}")):
        load_command(command).parse([f"--{flag}", "1"])


def test_a_setting_of_another_method_is_an_error(tmp_path: Path) -> None:
    assert _refused(tmp_path, "method: dap\nlayers: [3]").startswith("the method dap has no setting 'layers'")
    assert _refused(tmp_path, "model: m", "--linear_map").startswith("the method alignment has no setting 'linear_map'")
    assert _read(tmp_path, "method: dual-pivot\nlayers: [3]").config.layers == [3]
    assert "unknown method 'dab'" in _refused(tmp_path, "method: dab")
    assert "--method needs a value" in _refused(tmp_path, "model: m", "--method")


def test_settings_that_exclude_each_other(tmp_path: Path) -> None:
    """Trainer's own rules come as one sentence, too."""
    assert "save" in _refused(tmp_path, "model: m", "--eval_strategy", "steps", "--save_strategy", "epoch").lower()


# What was read can be written and read again


@pytest.mark.parametrize(
    "flags",
    [
        [],
        ["--method", "ppa", "--objectives", "momentum_contrast=2", "--queue_size", "7", "--mask_repeated", "false"],
        ["--method", "dap", "--restrict_vocabulary", "--predicted_languages", "de", "en", "--languages", "de", "en"],
        ["--objectives", "matryoshka=1", "distillation=5", "--dims", "32", "8", "--teacher", "some/teacher"],
        ["--method", "dual-pivot", "--layers", "3", "5", "--layer_mix", "false", "--negatives", "2"],
        ["--data", "de=a.tsv", "--rules", "max_characters=9", "--learning_rate", "3e-5", "--eval_strategy", "no"],
    ],
)
def test_a_written_recipe_gives_an_equal_one(tmp_path: Path, flags: list[str]) -> None:
    first = _flags("--model", "some/encoder", *flags)
    write_recipe(tmp_path, "pretrain", first.to_dict() | recipe_of(first.training))
    second = pretrain.parse([str(tmp_path / "recipe.yaml")])
    assert (second.start, second.data, second.run) == (first.start, first.data, first.run)
    assert type(second.config) is type(first.config)
    assert second.config.objectives == first.config.objectives
    assert second.config.to_dict() == first.config.to_dict()
    assert second.training.to_dict() == first.training.to_dict()
    assert yaml.safe_load((tmp_path / "recipe.yaml").read_text())["method"] == first.start.method


# What help shows is what there is


@pytest.fixture(scope="module")
def shown() -> str:
    command = [sys.executable, "-c", _HELP]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={"COLUMNS": "200"})
    loaded, seconds = done.stderr.split()[-2:]
    assert loaded == "none", f"help loads {loaded}"
    assert float(seconds) < 1, f"help takes {seconds} seconds of CPU"
    return done.stdout


_HELP = f"""
import sys, time
sys.path[:0] = {[str(Path(sys.modules["hf_xsent"].__file__).parents[1])]!r}
import hf_xsent_cli
hf_xsent_cli.main(["pretrain", "--help"])
loaded = [name for name in ("torch", "transformers") if name in sys.modules]
print(",".join(loaded) or "none", time.process_time(), file=sys.stderr)
"""


def test_every_flag_of_help_is_one_that_recipes_and_flags_take(shown: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = set(re.findall(r"^  --([\w.]+)", shown, re.MULTILINE))
    assert flags <= {*recipe_settings()}
    assert {name for config, _, _ in METHODS.values() for name in config.setting_names()} <= flags
    assert "--output_dir, --output, -o FOLDER" in shown
    shown_settings = {name for name, field in settings_of(TrainingSettings).items() if field.metadata["shown"]}
    assert shown_settings <= flags
    for title in ("start:", "model:", "data:", "run:", "training:"):
        assert f"\n{title}\n" in shown


def test_help_on_objectives_lists_each_with_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["pretrain", "--help", "objectives"]) == 0
    shown = capsys.readouterr().out
    for name in OBJECTIVES:
        for key in settings_of(objective_class(name).Settings):
            assert f"--objectives.{name}.{key} " in shown
    assert "lower value weights hard negatives more. (above 0; default: 0.05)" in " ".join(shown.split())


def test_every_method_is_named_in_the_help() -> None:
    (method,) = (field for field in fields(StartSettings) if field.name == "method")
    assert method.metadata["choices"] == (*METHODS,)


def test_no_flag_means_two_things() -> None:
    parts = (StartSettings, DataSettings, RunSettings, AlignmentTrainingArguments)
    names = [field.name for part in parts for field in fields(part)]
    assert len(names) == len(set(names))
    assert not {*names} & {key for config, _, _ in METHODS.values() for key in config.setting_names()}
    of_objectives = {key for name in OBJECTIVES for key in settings_of(objective_class(name).Settings)}
    assert not {*recipe_settings()} & of_objectives


def test_every_field_of_training_arguments_is_a_key() -> None:
    assert {one.name for one in fields(AlignmentTrainingArguments) if one.init} <= {*recipe_settings()}
