from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from datasets import Dataset, DatasetDict
from training_process import torchrun
from training_run import Pairs, Run
from transformers import AutoModel, AutoTokenizer, BertConfig, DistilBertConfig

from hf_xsent import DapForSentenceEmbedding, SentenceEmbedder, XlmrWithRTLHead
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.errors import DataError, HfXsentError, ModelError, OutputError, RecipeError
from hf_xsent.models.saved_form import saved_weights
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.training.pretrain import pretrain


@pytest.fixture
def _no_model_is_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise AssertionError("the model was loaded before the mistake was found")

    monkeypatch.setattr(XlmrWithRTLHead, "from_backbone", fail)
    monkeypatch.setattr("hf_xsent.models.saved_model.load_encoder", fail)


def _snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


# A run


def test_a_run_leaves_all_that_is_needed_and_nothing_else(run: Run) -> None:
    run.start()
    assert sorted(path.name for path in run.out.iterdir()) == [
        "1_Pooling",
        "README.md",
        "bitext.json",
        "checkpoint-3",
        "checkpoint-6",
        "config.json",
        "config_sentence_transformers.json",
        "metrics.jsonl",
        "model.safetensors",
        "modules.json",
        "recipe.yaml",
        "run_state.json",
        "sentence_bert_config.json",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "training.json",
    ]
    assert type(AutoModel.from_pretrained(run.out)) is DapForSentenceEmbedding
    embedder = SentenceEmbedder.from_pretrained(str(run.out), device="cpu")
    assert (embedder.pooling, embedder.max_length) == ("cls", 24)
    assert embedder.encode(["Wo ist der Bahnhof?"]).shape == (1, 32)
    assert json.loads((run.out / "bitext.json").read_text())
    steps = [line["step"] for line in run.metrics if "eval_accuracy" in line]
    assert steps == [0, 3, 6]  # before the first step, too
    assert {"eval_accuracy_de", "eval_accuracy_fr"} <= set(run.metrics[0])


def test_the_saved_recipe_starts_the_same_run_again(run: Run, tmp_path: Path) -> None:
    run.start("--temperature", "0.1", "--symmetric", "true", "--objectives", "translation_ranking=0.5")
    first = saved_weights(run.out)
    shutil.move(run.out, tmp_path / "first")
    pretrain.run([str(tmp_path / "first" / "recipe.yaml")])
    second = saved_weights(run.out)
    assert all(torch.equal(first[name], second[name]) for name in first)
    texts = [(folder / "recipe.yaml").read_text() for folder in (tmp_path / "first", run.out)]
    assert texts[0] == texts[1]
    assert "overwrite" not in texts[0] and "resume" not in texts[0]
    recipe = pretrain.parse([str(run.out / "recipe.yaml")])
    ranking = recipe.config.objectives["translation_ranking"]
    assert (ranking.weight, ranking.temperature, ranking.symmetric) == (0.5, 0.1, True)
    assert recipe.training.learning_rate == 1e-3


def test_without_dev_pairs_nothing_is_measured(run: Run) -> None:
    run.start(dev_pairs=0)
    assert not any("eval_accuracy" in line for line in run.metrics)
    assert (run.out / "model.safetensors").is_file()


def test_nothing_is_held_out_if_nothing_measures_it(run: Run) -> None:
    trainer = run.start(eval_strategy="no", max_steps=1)
    assert len(trainer.train_dataset) == 16 and trainer.eval_dataset is None
    averaged = run.start("--overwrite", eval_strategy="no", share_of_start=0.1, max_steps=1)  # and measured
    assert len(averaged.train_dataset) == 12 and len(averaged.eval_dataset) == 4


def test_a_dev_set_of_ones_own_is_used(run: Run) -> None:
    trainer = run.start(dev=[f"fr={run.folder}/fr.tsv"], data=[f"de={run.folder}/de.tsv"], dev_pairs=None)
    assert len(trainer.train_dataset) == 10
    assert "eval_accuracy_fr" in run.metrics[0] and "eval_accuracy_de" not in run.metrics[0]


def test_a_resumed_run_ends_as_the_uninterrupted_one_and_measures_no_step_twice(run: Run) -> None:
    """Nine steps, cut back to step 4, in the second epoch."""
    settings: dict[str, Any] = {"max_steps": 9, "save_total_limit": 5, "eval_steps": 2, "save_steps": 2}
    run.start(**settings)
    weights, lines = saved_weights(run.out), run.metrics
    for name in ("checkpoint-6", "checkpoint-8", "checkpoint-9"):
        shutil.rmtree(run.out / name, ignore_errors=True)
    (run.out / "model.safetensors").unlink()
    run.start("--resume", **settings)
    again = saved_weights(run.out)
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    for key in ("loss", "eval_accuracy"):
        before, after = ([(line["step"], line[key]) for line in logs if key in line] for logs in (lines, run.metrics))
        assert before == after
        assert len({step for step, _ in after}) == len(after)
    assert {line["step"] for line in run.metrics} >= set(range(1, 10))


def test_a_mistake_does_not_cost_the_run_that_was_there(run: Run) -> None:
    run.start(max_steps=3)
    before = _snapshot(run.out)
    with pytest.raises(HfXsentError):
        run.start("--overwrite", data=[f"de={run.folder}/nowhere.tsv"])
    with pytest.raises(HfXsentError):
        run.start("--overwrite", model=str(run.folder))
    with pytest.raises(OutputError, match="would replace the model"):
        run.start("--overwrite", model=str(run.out))
    assert _snapshot(run.out) == before


# Every mistake is told before a model is loaded, and nothing is written


@pytest.mark.usefixtures("_no_model_is_loaded")
@pytest.mark.parametrize(
    ("changes", "kind", "told"),
    [
        ({"model": None}, RecipeError, "no starting encoder: give --model"),
        ({"data": None}, RecipeError, "no bitext to train on: give --data"),
        ({"output_dir": None}, RecipeError, "no output folder: give --output_dir"),
        ({"data": ["de={folder}/nowhere.tsv"]}, DataError, "nowhere.tsv"),
        ({"dev": ["de={folder}/nowhere.tsv"]}, DataError, "nowhere.tsv"),
        ({"columns": ["0"]}, RecipeError, "columns takes two different names or numbers"),
        ({"max_length": 257}, RecipeError, "max_length 257 does not fit: this encoder takes 3 to 256 tokens"),
        ({"pooling": "last"}, RecipeError, "pooling 'last' is unknown: use cls, mean, max"),
        (
            {"objectives": {"matryoshka": {"dims": [16, 64]}}},
            RecipeError,
            "objectives.matryoshka.dims has 64, but this encoder's embeddings have 32",
        ),
        (
            {"objectives": {"distillation": 1}},
            RecipeError,
            "objectives.distillation.teacher is missing: set it to a Hub id",
        ),
        (
            {"objectives": {"distillation": {"teacher": "{folder}/nowhere"}}},
            ModelError,
            "the teacher cannot be loaded: '{folder}/nowhere' is not a folder",
        ),
        (
            {"objectives": {"distillation": {"teacher": "x"}}, "training_mlp": True},
            RecipeError,
            "training_mlp cannot be used with a teacher",
        ),
        ({"prompts": {"query": None}, "default_prompt_name": "query"}, RecipeError, "prompts takes a mapping, not"),
        ({"frozen_layers": 4}, RecipeError, "frozen_layers 4 does not fit: this encoder has 3 layers"),
        ({"early_stopping_patience": 2, "dev_pairs": 0}, RecipeError, "needs dev measurements: give --dev"),
        (
            {"objectives": {"representation_translation": {"head_layers": 9}}},
            RecipeError,
            "head_layers 9 does not fit: this encoder has 3 layers",
        ),
        (
            {"dev": ["de={folder}/de.tsv"], "eval_strategy": "no"},
            RecipeError,
            "eval_strategy no measures no dev pairs: drop --dev",
        ),
        ({"dev_pairs": 6}, DataError, "too few to hold out 6"),
        ({"model": "{folder}"}, ModelError, "config.json"),
        ({"model": "{folder}/nowhere"}, ModelError, "nowhere' is not a folder"),
    ],
)
def test_a_mistake_is_an_error_before_the_model_is_loaded(
    run: Run, changes: dict[str, Any], kind: type[HfXsentError], told: str
) -> None:
    def filled(value: Any) -> Any:
        if isinstance(value, list):
            return [filled(one) for one in value]
        if isinstance(value, dict):
            return {key: filled(one) for key, one in value.items()}
        return value.format(folder=run.folder) if isinstance(value, str) else value

    with pytest.raises(kind) as error:
        run.start(**{key: filled(value) for key, value in changes.items()})
    assert filled(told) in str(error.value)
    assert "\n" not in str(error.value)
    assert not run.out.exists()


@pytest.mark.usefixtures("_no_model_is_loaded")
@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"alpha": 2}, "alpha 2.0 is not at least 0 and at most 1"),
        ({"languages": ["de", "en"]}, "language 'fr' of the data has no embedding"),
    ],
)
def test_settings_that_do_not_fit_the_bitext_are_errors_before_the_model_is_loaded(
    run: Run, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(HfXsentError, match=told):
        run.start(**changes)
    assert not run.out.exists()


@pytest.mark.usefixtures("_no_model_is_loaded")
def test_a_model_folder_that_will_not_do_is_an_error_before_it_is_loaded(
    run: Run, encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    folders = {name: tmp_path / name for name in ("bare", "unknown", "decoder", "small", "unpadded")}
    BertConfig().save_pretrained(folders["bare"])
    DistilBertConfig().save_pretrained(folders["unknown"])
    BertConfig(is_decoder=True).save_pretrained(folders["decoder"])
    BertConfig(vocab_size=7).save_pretrained(folders["small"])
    BertConfig().save_pretrained(folders["unpadded"])
    for name in ("unknown", "decoder", "small"):
        tokenizer.save_pretrained(folders[name])
    tokenizer.pad_token = None
    tokenizer.save_pretrained(folders["unpadded"])
    expected = {
        "bare": "holds no tokenizer: save one into it",
        "unknown": "the encoder family 'distilbert' is not supported",
        "decoder": "a decoder cannot encode sentences",
        "small": f"has {len(tokenizer)} tokens, but the encoder only 7 embeddings",
        "unpadded": "has no padding token: set pad_token and save it",
    }
    for name, told in expected.items():
        with pytest.raises((ModelError, RecipeError)) as error:
            run.start(model=str(folders[name]))
        assert told in str(error.value) and "\n" not in str(error.value)
    assert not run.out.exists()


# Several processes

_SCRIPT = """
import json, sys
from hf_xsent.cli import leave
from hf_xsent.training.pretrain import pretrain

for recipe in sys.argv[1:]:
    trainer = pretrain.run([recipe])
    weights = sum(weight.double().sum().item() for weight in trainer.model.parameters())
    print(json.dumps({"rank": trainer.args.process_index, "processes": trainer.args.world_size, "weights": weights}))
    del trainer  # leave() ends the process group that nothing holds
leave(0)
"""


@pytest.mark.slow
def test_two_processes_train_one_model(run: Run) -> None:
    """By torchrun: two recipes, one after the other."""
    distilled = {
        "lora_rank": 2,
        "frozen_layers": 1,
        "pairs_per_chunk": 2,
        "objectives": {"translation_ranking": 1, "distillation": {"teacher": run.settings["model"]}},
    }
    script, recipes = run.folder / "train.py", [run.folder / f"{name}.yaml" for name in ("plain", "distilled")]
    script.write_text(_SCRIPT)
    for recipe, settings in zip(recipes, ({}, distilled), strict=True):
        changes = {"ddp_backend": "gloo", "output_dir": str(run.folder / recipe.stem)}
        recipe.write_text(yaml.safe_dump(run.settings | settings | changes))
    process = torchrun(script, *map(str, recipes))
    said, errors = process.communicate(timeout=180)
    assert process.returncode == 0, errors[-4000:]
    told = [json.loads(one) for one in re.findall(r"{[^{}]*}", said)]  # their lines may run together
    assert sorted(one["rank"] for one in told) == [0, 0, 1, 1]
    assert {one["processes"] for one in told} == {2}
    weights = [[one["weights"] for one in told if one["rank"] == rank] for rank in range(2)]
    assert weights[0] == weights[1]
    for recipe, expected in zip(recipes, weights[0], strict=True):
        run.out = run.folder / recipe.stem
        written = sum(weight.double().sum().item() for weight in saved_weights(run.out).values())
        assert written == pytest.approx(expected, abs=1e-6)
        assert [line["step"] for line in run.metrics if "loss" in line] == [1, 2, 3, 4, 5, 6]
        assert sum("eval_accuracy" in line for line in run.metrics) == 3


def test_cleaning_rules_are_set_by_name_and_checked():
    rules = CleaningRules.parse(["max_characters=200", "copied_share=null", "max_length_ratio=2", "identical=false"])
    assert rules == CleaningRules(max_characters=200, copied_share=None, max_length_ratio=2, identical=False)
    assert CleaningRules.parse(None) == CleaningRules()
    with pytest.raises(RecipeError, match="cleaning rules: unknown key 'max_chars'; did you mean 'max_characters'"):
        CleaningRules.parse(["max_chars=3"])
    for wrong in ("max_characters=many", "identical=3", "max_characters=true", "max_characters", "max_characters=["):
        with pytest.raises(RecipeError, match="takes"):
            CleaningRules.parse([wrong])


# DAP, TLM and what comes after the last step


def _dap(**settings: Any) -> dict[str, Any]:
    return {"translation_ranking": 1, "representation_translation": {"weight": 0.8, **settings}}


def _head(folder: Path) -> Any:
    return XlmrWithRTLHead.from_pretrained(folder).objectives["representation_translation"]


def test_a_copy_saved_by_a_model_that_encodes_starts_new_heads(run: Run, tmp_path: Path) -> None:
    run.start(objectives=_dap(restrict_vocabulary=True), max_steps=1)
    opened = AutoModel.from_pretrained(run.out)
    opened.save_pretrained(tmp_path / "copy")
    trains = XlmrWithRTLHead.from_pretrained(tmp_path / "copy")
    assert (trains.encode(["ein Hund"]) == opened.encode(["ein Hund"])).all()


def test_the_vocabulary_of_the_data_restricts_the_head(run: Run, pairs: Pairs) -> None:
    run.start(objectives=_dap(restrict_vocabulary=True))
    tokenizer = AutoTokenizer.from_pretrained(run.out)
    used = {piece for _, target in pairs for piece in tokenizer(target)["input_ids"]} | set(tokenizer.all_special_ids)
    assert set(_head(run.out).prediction.vocabulary.tolist()) == used
    assert any("loss_representation_translation" in line for line in run.metrics)


def test_other_directions_learn_the_languages_of_the_data(run: Run) -> None:
    run.start(objectives=_dap(direction="both"))
    objectives = AutoModel.from_pretrained(run.out).config.objectives
    assert objectives["representation_translation"].predicted_languages == ["de", "en", "fr"]


def test_translation_language_modelling_trains_beside_ranking(run: Run) -> None:
    run.start(objectives={"translation_ranking": 1, "translation_language_modeling": 0.8})
    assert any("loss_translation_language_modeling" in line for line in run.metrics)


def test_dap_resumes_exactly(run: Run) -> None:
    run.assert_goes_on_exactly(objectives=_dap(masked_share=0.5), head_learning_rate="1e-2")


def test_columns_may_name_a_file_of_the_training_pairs_alone(run: Run, pairs: Pairs) -> None:
    (run.folder / "mined.tsv").write_text("".join(f"1.0\t{b}\t{a}\n" for a, b in pairs), "utf-8")
    changes = {"data": f"de={run.folder}/mined.tsv", "dev": f"de={run.folder}/de.tsv", "max_steps": 1}
    trainer = run.start(columns={"mined.tsv": "2,1"}, **changes)
    assert trainer.train_dataset[0]["source"] == trainer.eval_dataset[0]["source"] == pairs[0][0]
    with pytest.raises(DataError, match="columns are given for 'mine.tsv', which is neither a language nor a file"):
        run.start(columns={"mine.tsv": "2,1"}, **changes)


@pytest.mark.parametrize("key", ["", "papers.csv"])
def test_columns_by_name_find_the_header_with_the_languages(run: Run, pairs: Pairs, key: str) -> None:
    rows = [f'"{a}","{b}",{code}\n' for code in ("de", "sw") for a, b in pairs]
    (run.folder / "papers.csv").write_text("abstract,summary,language\n" + "".join(rows), "utf-8")
    names = "abstract,summary"
    columns = {key: names} if key else names.split(",")
    trainer = run.start(data=f"{run.folder}/papers.csv", columns=columns, dev=f"{run.folder}/papers.csv", max_steps=1)
    assert [*trainer.train_dataset.languages] == ["de", "sw"]


def test_dev_pairs_of_a_data_set_are_its_validation_split(run: Run, pairs: Pairs) -> None:
    parts = {"train": pairs[:10], "validation": pairs[10:]}
    DatasetDict(
        {
            name: Dataset.from_dict({"de": [a for a, _ in part], "en": [b for _, b in part]})
            for name, part in parts.items()
        }
    ).save_to_disk(str(run.folder / "set"))
    trainer = run.start(data=[f"de={run.folder}/set"], dev=[f"de={run.folder}/set"], max_steps=1)
    assert trainer.train_dataset.pairs("de")[1] == [target for _, target in parts["train"]]
    assert trainer.eval_dataset.pairs("de")[1] == [target for _, target in parts["validation"]]


def test_a_dry_run_states_what_the_run_would_take_and_leaves_nothing(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("INFO", logger="hf_xsent"):
        run.start("--dry_run", "true", max_steps=1000, eval_steps=0.3, save_steps=0.3, push_to_hub=True)
    assert not run.out.exists()
    message = caplog.messages[-1]
    assert message.startswith("1,000 steps of ")
    assert re.search("pairs/s: about .* minutes?; peak memory", message)
    run.start(max_steps=1)
    before = {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}
    settings = pretrain.parse([str(run.write({"max_steps": 1000})), "--dry_run"])
    pretrain(settings)
    assert (settings.training.max_steps, settings.training.output_dir) == (1000, str(run.out))
    assert before == {path: path.stat().st_mtime_ns for path in run.out.rglob("*")}, "of another run"


def test_a_batch_of_more_pairs_than_there_are_has_these_alone(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    """Of 16 pairs, 4 are held out; accumulated batches that do not fit into an epoch are fewer."""
    for batch, accumulated, pairs in ((64, 1, 12), (8, 2, 8), (4, 2, 8)):
        settings = {"per_device_train_batch_size": batch, "gradient_accumulation_steps": accumulated, "max_steps": 1}
        run.start("--overwrite", **settings)
        assert ModelFacts.read(run.out).sentences()[0].startswith(f"Training took 1 steps of {pairs} pairs")


# Masked language modelling alone


def test_without_pairs_each_side_is_shuffled_apart_and_with_pairs_none_is(run: Run) -> None:
    def rows(folder: str, objectives: dict[str, float]) -> set[tuple[str, str]]:
        settings: dict[str, Any] = {"method": "alignment", "dev_pairs": 0, "eval_strategy": "no", "save_strategy": "no"}
        trainer = run.start(objectives=objectives, output_dir=str(run.folder / folder), **settings)
        dataset: Any = trainer.train_dataset
        return {(row["source"], row["target"]) for row in map(dataset.__getitem__, range(len(dataset)))}

    pairs = rows("pairs", {"translation_ranking": 1, "masked_language_modeling": 1})
    apart = rows("apart", {"masked_language_modeling": 1})
    assert {one for one, _ in apart} == {one for one, _ in pairs}
    assert {one for _, one in apart} == {one for _, one in pairs}
    assert len(apart & pairs) < len(pairs) / 2
