from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
from hf_xsent.models.objectives import FROM_THE_CHECKPOINT

from hf_xsent import DapConfig
from hf_xsent.errors import RecipeError
from hf_xsent.models import METHODS
from hf_xsent.training.arguments import AlignmentTrainingArguments, Recipe, read_recipe
from hf_xsent.training.plan import model_settings, parse_weights
from hf_xsent.training.recipe import COMMON_TRAINING_FLAGS, DataArguments, ModelArguments, RunArguments


def _read(tmp_path: Path, text: str, *flags: str) -> Recipe:
    path = tmp_path / "recipe.yaml"
    path.write_text(text, encoding="utf-8")
    return read_recipe([str(path), "--output_dir", str(tmp_path / "out"), *flags])


def _refused(tmp_path: Path, text: str, *flags: str) -> str:
    with pytest.raises(RecipeError) as error:
        _read(tmp_path, text, *flags)
    assert "\n" not in str(error.value)
    return str(error.value)


# What is read


def test_a_recipe_fills_all_parts_with_their_types(tmp_path: Path) -> None:
    recipe = _read(
        tmp_path,
        """
        model: some/encoder
        data: [de=de.tsv, fr=fr.tsv]
        learning_rate: 5e-5
        warmup_steps: 1e2
        temperature: 5e-2
        margin: 1
        alpha: 0.3
        max_steps: 20
        symmetric: true
        normalize: false
        languages: [de, fr, en]
        objectives: {translation_ranking: 0.5}
        dev_pairs: 7
        clean: false
        """,
    )
    assert recipe.model.model == "some/encoder"
    assert recipe.data.data == ["de=de.tsv", "fr=fr.tsv"]
    numbers = (recipe.training.learning_rate, recipe.training.warmup_steps, recipe.model.temperature)
    assert numbers == (5e-5, 100.0, 0.05)
    assert all(isinstance(number, float) for number in numbers)  # PyYAML takes 5e-5 for a string
    assert (recipe.model.margin, recipe.data.alpha, recipe.training.max_steps) == (1, 0.3, 20)
    assert (recipe.model.symmetric, recipe.model.normalize, recipe.data.clean) == (True, False, False)
    assert recipe.model.languages == ["de", "fr", "en"]
    assert model_settings(recipe.model)["objectives"] == {"translation_ranking": 0.5}
    assert recipe.data.dev_pairs == 7


def test_a_mapping_for_the_trainer_is_taken(tmp_path: Path) -> None:
    recipe = _read(tmp_path, "lr_scheduler_kwargs: {num_cycles: 2}\nlr_scheduler_type: cosine_with_restarts")
    assert recipe.training.lr_scheduler_kwargs == {"num_cycles": 2}


def test_json_is_a_recipe_too(tmp_path: Path) -> None:
    recipe = _read(tmp_path, '{"model": "m", "learning_rate": 5e-05, "data": ["de=a.tsv"]}')
    assert (recipe.model.model, recipe.training.learning_rate, recipe.data.data) == ("m", 5e-5, ["de=a.tsv"])


def test_a_flag_beats_the_recipe_and_the_recipe_beats_the_default(tmp_path: Path) -> None:
    text = "temperature: 0.1\nseed: 7\nsymmetric: true\ndata: [de=de.tsv]\nmodel: a"
    flags = ["--temperature", "0.2", "--symmetric", "false", "--data", "fr=fr.tsv", "es=es.tsv", "--model=b"]
    recipe = _read(tmp_path, text, *flags)
    assert (recipe.model.temperature, recipe.model.symmetric, recipe.model.model) == (0.2, False, "b")
    assert recipe.data.data == ["fr=fr.tsv", "es=es.tsv"]
    assert recipe.training.seed == 7
    assert recipe.training.eval_strategy == "steps"


def test_flags_alone_are_enough(tmp_path: Path) -> None:
    recipe = read_recipe(["--output_dir", str(tmp_path), "--objectives", "translation_ranking=2", "--resume"])
    assert model_settings(recipe.model) == {"objectives": {"translation_ranking": 2.0}}
    assert recipe.run.resume and not recipe.run.overwrite


def test_a_flag_may_be_written_with_dashes(tmp_path: Path) -> None:
    assert _read(tmp_path, "model: m", "--max-length", "9", "--no-clean").model.max_length == 9


def test_one_value_where_a_list_is_meant(tmp_path: Path) -> None:
    """``data: pairs.tsv`` is what people write; it must not become a list of letters."""
    assert _read(tmp_path, "data: de=pairs.tsv").data.data in ("de=pairs.tsv", ["de=pairs.tsv"])


def test_unset_settings_are_left_to_the_method(tmp_path: Path) -> None:
    assert model_settings(_read(tmp_path, "model: m").model) == {}
    assert model_settings(_read(tmp_path, "max_length: 9\nnormalize: false").model) == {
        "max_length": 9,
        "normalize": False,
    }


@pytest.mark.parametrize(
    ("weights", "expected"),
    [
        (["translation_ranking"], {"translation_ranking": 1.0}),
        (["translation_ranking=0.5", "mlm=2"], {"translation_ranking": 0.5, "mlm": 2.0}),
        ({"translation_ranking": 1}, {"translation_ranking": 1.0}),
        ({"translation_ranking": "1e-1"}, {"translation_ranking": 0.1}),
    ],
)
def test_weights_of_objectives(weights: dict[str, float] | list[str], expected: dict[str, float]) -> None:
    assert parse_weights(weights) == expected


@pytest.mark.parametrize("weights", [["translation_ranking=much"], {"translation_ranking": None}])
def test_weights_that_are_no_numbers_are_refused(weights: dict[str, float] | list[str]) -> None:
    with pytest.raises(RecipeError, match="^objectives take numbers as weights, such as translation_ranking=1.0"):
        parse_weights(weights)


# What is refused, each in one sentence


def test_an_unknown_key_is_told_with_the_nearest(tmp_path: Path) -> None:
    told = _refused(tmp_path, "learning_rat: 1e-5")
    assert "unknown key 'learning_rat'" in told and "did you mean 'learning_rate'" in told
    assert str(tmp_path / "recipe.yaml") in told
    assert "unknown key 12" in _refused(tmp_path, "12: 1e-5")


def test_an_unknown_flag_is_told_with_the_nearest(tmp_path: Path) -> None:
    told = _refused(tmp_path, "model: m", "--learning-rat", "1e-5")
    assert told.startswith("unknown flag --learning-rat") and "'learning_rate'" in told
    assert "unknown flag --temperatur" in _refused(tmp_path, "model: m", "--temperatur=3")
    assert "no_such_thing" in _refused(tmp_path, "model: m", "--no_such_thing")


def test_an_abbreviated_flag_is_not_guessed(tmp_path: Path) -> None:
    assert "unknown flag --learning" in _refused(tmp_path, "model: m", "--learning", "1e-5")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("learning_rate: fast", "learning_rate"),
        ("temperature: warm", "temperature"),
        ("max_length: nine", "max_length"),
        ("symmetric: perhaps", "symmetric"),
        ("eval_strategy: sometimes", "sometimes"),
    ],
)
def test_a_word_of_a_wrong_type_is_told(tmp_path: Path, text: str, named: str) -> None:
    assert named in _refused(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("max_length: 9.5", "max_length"),
        ("max_length: [9]", "max_length"),
        ("temperature: [0.1]", "temperature"),
        ("learning_rate: [1e-5]", "learning_rate"),
        ("model: [a, b]", "model"),
        ("max_steps: 9.5", "max_steps"),
        ("symmetric: 7", "symmetric"),
        ("dev_pairs: true", "dev_pairs"),
        ("languages: {de: 1}", "languages"),
    ],
)
def test_a_value_to_which_yaml_gave_a_wrong_type_is_told(tmp_path: Path, text: str, named: str) -> None:
    assert named in _refused(tmp_path, text)


def test_objectives_that_are_no_mapping(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="objective"):
        DapConfig(**model_settings(_read(tmp_path, "objectives: 5").model))
    recipe = _read(tmp_path, "objectives: [translation_ranking=3]")
    assert model_settings(recipe.model) == {"objectives": {"translation_ranking": 3.0}}


def test_a_flag_of_a_wrong_type_is_told(tmp_path: Path) -> None:
    assert "--max_length" in _refused(tmp_path, "model: m", "--max_length", "nine")
    assert "--data" in _refused(tmp_path, "model: m", "--data")


def test_a_recipe_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^cannot read the recipe .*nowhere\.yaml: No such file or directory$"):
        read_recipe([str(tmp_path / "nowhere.yaml")])
    with pytest.raises(RecipeError, match="^cannot read the recipe .*: Is a directory$"):
        read_recipe([str(tmp_path)])


@pytest.mark.parametrize("text", ["", "- model\n- data", "model", "# nothing"])
def test_a_recipe_without_settings(tmp_path: Path, text: str) -> None:
    assert "holds no settings: write lines such as 'model: xlm-roberta-base'" in _refused(tmp_path, text)


@pytest.mark.parametrize("content", [b"model: [a", b"model: \xff\xfe", b"a: b: c"])
def test_a_recipe_that_is_no_yaml(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_bytes(content)
    with pytest.raises(RecipeError, match="is no YAML") as error:
        read_recipe([str(path)])
    assert "\n" not in str(error.value)


def test_yaml_runs_no_code(tmp_path: Path) -> None:
    assert "is no YAML" in _refused(tmp_path, f"model: !!python/object/apply:os.mkdir ['{tmp_path}/made']")
    assert not (tmp_path / "made").exists()


def test_settings_that_exclude_each_other(tmp_path: Path) -> None:
    """Trainer's own rules come as one sentence, too."""
    assert "save" in _refused(tmp_path, "model: m", "--eval_strategy", "steps", "--save_strategy", "epoch").lower()


# What help shows is what there is


@pytest.mark.parametrize("method", METHODS)
def test_every_setting_of_every_method_is_a_flag(method: str) -> None:
    flags = {field.name for field in fields(ModelArguments)}
    config = METHODS[method][0]
    assert set(config.setting_names()) - FROM_THE_CHECKPOINT <= flags, "give these a flag in ModelArguments"


def test_every_flag_of_the_model_is_a_setting_of_some_method() -> None:
    known = {name for config, _, _ in METHODS.values() for name in config.setting_names()}
    assert {field.name for field in fields(ModelArguments)} - {
        "model",
        "method",
        "teacher",
        "rtl_vocabulary",
        "rtl_missing",
    } <= known


def test_every_method_is_named_in_the_help() -> None:
    (method,) = (field for field in fields(ModelArguments) if field.name == "method")
    assert all(name in method.metadata["help"] for name in METHODS)


def test_no_flag_means_two_things() -> None:
    parts = (ModelArguments, DataArguments, RunArguments, AlignmentTrainingArguments)
    names = [field.name for part in parts for field in fields(part)]
    assert len(names) == len(set(names))


def test_the_common_flags_exist() -> None:
    assert set(COMMON_TRAINING_FLAGS) <= {field.name for field in fields(AlignmentTrainingArguments)}


def test_a_recipe_may_name_data_and_objectives_by_mapping(tmp_path: Path):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(
        "data: {de: a.tsv, sw: [b.tsv, c.tsv]}\nobjectives: {translation_ranking: 2.0}\n"
        f"output_dir: {tmp_path / 'run'}\n"
    )
    read = read_recipe([str(recipe)])
    assert read.data.data == ["de=a.tsv", "sw=b.tsv", "sw=c.tsv"]
    assert read.model.objectives == ["translation_ranking=2.0"]
