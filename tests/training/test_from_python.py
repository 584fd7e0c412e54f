"""Training from Python, without the command line: plain arguments, pairs in memory, a folder that opens anywhere."""

from __future__ import annotations

import json
import logging
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from datasets import Dataset, DatasetDict
from huggingface_hub import ModelCard
from polars import DataFrame
from training_run import unfinish
from transformers import AutoModel, AutoTokenizer, TrainerCallback, TrainingArguments

from hf_xsent import (
    AlignmentTrainer,
    AlignmentTrainingArguments,
    DapForSentenceEmbedding,
    DualPivotForPreTraining,
    SentenceEncoderForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
    load_bitext,
    pretrain,
)
from hf_xsent.cli import main
from hf_xsent.errors import DataError, Interrupted, ModelError, OutputError, RecipeError
from hf_xsent.models.loading import load_config
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.publishing.hub import plan_upload
from hf_xsent.runs.identity import identify_model
from hf_xsent.runs.run import RunState
from hf_xsent.training.recipe import build_recipe
from sentence_transformers import SentenceTransformer

Pairs = list[tuple[str, str]]
RANKING = {"translation_ranking": 1.0}
SAVING: dict[str, Any] = {"save_steps": 2, "eval_strategy": "no"}


def _train(encoder: Path, output: Path, pairs: Any, dev: Any = None, **settings: Any) -> AlignmentTrainer:
    model = XlmrWithRTLHead.from_pretrained(str(encoder), **{"objectives": RANKING, "pooling": "mean"} | settings)
    arguments = TrainingArguments(
        str(output), max_steps=2, per_device_train_batch_size=4, use_cpu=True, report_to="none", disable_tqdm=True,
        eval_strategy="no" if dev is None else "epoch",
    )  # fmt: skip
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    trainer = AlignmentTrainer(model, arguments, pairs, dev, processing_class=tokenizer)
    trainer.train()
    return trainer


def test_numbers_of_numpy_are_numbers(encoder_folders: dict[str, Path], pairs: Pairs, tmp_path: Path) -> None:
    rate = np.logspace(-5, -3, 3)[1]
    settings = {"learning_rate": rate, "max_steps": np.int64(1), "lr_scheduler_kwargs": {"num_decay_steps": rate}}
    arguments = TrainingArguments(
        str(tmp_path / "out"), lr_scheduler_type="warmup_stable_decay", report_to=[], **settings
    )
    model = SentenceEncoderForPreTraining.from_pretrained(str(encoder_folders["bert"]))
    AlignmentTrainer(model, arguments, {"de": pairs}, alpha=np.float64(0.3)).train()
    recipe = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text("utf-8"))
    assert (recipe["learning_rate"], recipe["alpha"]) == (float(rate), 0.3)


def test_pretrain_and_export_name_the_way_of_models_in_memory(tmp_path: Path, tiny_encoders: Path) -> None:
    model = SentenceTransformer(str(tiny_encoders))
    with pytest.raises(RecipeError, match="^model takes a folder .*, not SentenceTransformer: .*AlignmentTrainer"):
        pretrain(model=model, data={"de": "pairs.tsv"}, output_dir=str(tmp_path / "run"))
    with pytest.raises(ModelError, match="not SentenceTransformer: save .* save_pretrained"):
        export_sentence_transformer(model, tmp_path / "out")


def test_a_recipe_names_the_files_of_pairs_in_memory(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    sources, targets = zip(*pairs, strict=True)
    frame = DataFrame({"de": sources, "en": targets})
    splits = DatasetDict({"train": Dataset(frame[:12].to_arrow()), "validation": Dataset(frame[12:].to_arrow())})
    (tmp_path / "fr.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    settings: dict[str, Any] = {
        "model": str(encoder_folders["bert"]), "max_steps": 1, "use_cpu": True, "dev_pairs": 2, "dev_share": 0.2,
        "cache_dir": str(tmp_path / "cache"), "clean": False,
    }  # fmt: skip
    for name, data, rows in (
        ("frame", {"de": frame}, 14),
        ("mixed", {"de": pairs, "fr": tmp_path / "fr.tsv"}, 12),
        ("splits", splits, 12),
    ):
        of_set = {"splits": {"dev": splits}, "mixed": {"rules": {"exclude": frame[:2]}}}.get(name, {})
        pretrain(data=data, output_dir=tmp_path / name, **of_set, **settings)
        report = json.loads((tmp_path / name / "bitext.json").read_text("utf-8"))
        assert report["de"]["retained"] == rows
        recipe = yaml.safe_load((tmp_path / name / "recipe.yaml").read_text("utf-8"))
        pretrain(tmp_path / name / "recipe.yaml", output_dir=tmp_path / f"{name}-again")
        again = yaml.safe_load((tmp_path / f"{name}-again" / "recipe.yaml").read_text("utf-8"))
        assert recipe["data"] == again["data"]


def test_a_recipe_states_the_target_language_of_a_bitext(tmp_path: Path, pairs: Pairs) -> None:
    french = load_bitext({"de": pairs}, target_language="fr", cleaning=None, cache_dir=tmp_path)
    for stated in ({}, {"target_language": "en"}):  # as load_bitext
        recipe = build_recipe([{"cache_dir": str(tmp_path), **stated}, {"data": french}])
        assert recipe.data.target_language == "fr"


def test_a_missing_part_of_the_trainer_is_named(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    encoder = encoder_folders["bert"]
    tokenizer, arguments = AutoTokenizer.from_pretrained(encoder), TrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(ModelError, match="BertModel has no objectives to train: .*SentenceEncoderForPreTraining"):
        AlignmentTrainer(AutoModel.from_pretrained(encoder), arguments, pairs, processing_class=tokenizer)
    model = XlmrWithRTLHead.from_pretrained(str(encoder), objectives=RANKING)
    larger = AutoTokenizer.from_pretrained(encoder)
    larger.add_tokens(["Quokka"])
    with pytest.raises(ModelError, match="tokens, but the encoder only .*model.resize_token_embeddings"):
        AlignmentTrainer(model, arguments, pairs, processing_class=larger)
    trainer = AlignmentTrainer(model, arguments, processing_class=tokenizer)
    with pytest.raises(DataError, match="pass them as train_dataset"):
        trainer.train()
    with pytest.raises(DataError, match="pass them as eval_dataset"):
        trainer.evaluate()
    assert "eval_accuracy_de" in trainer.evaluate({"de": pairs[:4]})


def test_the_output_folder_opens_everywhere(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, sentences: list[str]
) -> None:
    output = tmp_path / "run"
    trainer = _train(encoder_folders["bert"], output, {"de": pairs[:10], "fr": pairs[10:]}, {"de": pairs[:4]})
    vectors = trainer.model.encode(sentences)
    opened = AutoModel.from_pretrained(output)
    assert type(opened) is DapForSentenceEmbedding
    np.testing.assert_allclose(opened.encode(sentences), vectors, atol=1e-5)
    theirs = SentenceTransformer(str(output), device="cpu", local_files_only=True)
    np.testing.assert_allclose(theirs.encode(sentences), vectors, atol=1e-5)
    recipe = yaml.safe_load((output / "recipe.yaml").read_text("utf-8"))
    assert recipe["method"] == "dap" and recipe["max_steps"] == 2
    stated = {name: one for name, one in trainer.model.config.recipe().items() if one is not None}
    assert stated["pooling"] == "mean" and {name: recipe[name] for name in stated} == stated
    assert json.loads((output / "bitext.json").read_text("utf-8"))["de"]["retained"] == 10
    logged = [json.loads(line) for line in (output / "metrics.jsonl").read_text("utf-8").splitlines()]
    assert any("eval_accuracy_de" in one for one in logged)
    card = ModelCard((output / "README.md").read_text("utf-8"))
    assert card.data.language == ["de", "en", "fr"]


def test_the_card_of_an_export_needs_no_run(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, sentences: list[str]
) -> None:
    sides = dict(zip(("de", "en"), map(list, zip(*pairs, strict=True)), strict=True))
    trainer = _train(encoder_folders["bert"], tmp_path / "run", Dataset.from_dict(sides))
    export_sentence_transformer(tmp_path / "run", tmp_path / "of_folder")
    export_sentence_transformer(trainer, tmp_path / "of_model")
    for folder in (tmp_path / "of_folder", tmp_path / "of_model"):
        command = ["publish", str(folder), "org/mine", "--dry_run", "--license", "mit", "--base_model", "org/base"]
        assert main(command) == 0
        card = ModelCard((folder / "README.md").read_text("utf-8"))
        assert card.data.license == "mit" and card.data.language == ["de", "en"] and "| de | 16 |" in card.text
        assert str(tmp_path) not in (folder / "training.json").read_text("utf-8")
        plan_upload(folder)
    opened = AutoModel.from_pretrained(tmp_path / "of_folder")
    assert type(opened) is DapForSentenceEmbedding and opened.config.pooling == "mean"
    np.testing.assert_allclose(opened.encode(sentences), trainer.model.encode(sentences), atol=1e-5)
    opened.save_pretrained(tmp_path / "again")
    assert json.loads((tmp_path / "again" / "config.json").read_text("utf-8"))["model_type"] == "bert"


def test_a_model_that_was_trained_again_is_not_exported_as_its_earlier_run(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    trainer = _train(encoder_folders["bert"], tmp_path / "run", pairs)
    again = TrainingArguments(
        str(tmp_path / "again"), max_steps=1, use_cpu=True, report_to="none", save_strategy="no"
    )  # fmt: skip
    first = export_sentence_transformer(trainer.model, tmp_path / "first")
    assert ModelFacts.read(first).exported_from == identify_model(str(tmp_path / "run"))
    with torch.no_grad():  # as a loop of one's own, or another trainer
        next(trainer.model.encoder.parameters()).mul_(1.1)
    changed = export_sentence_transformer(trainer.model, tmp_path / "changed")
    assert ModelFacts.read(changed).exported_from == ""  # so that results of the run are not published as its own
    AlignmentTrainer(trainer.model, again, pairs).train()
    facts = ModelFacts.read(export_sentence_transformer(trainer.model, tmp_path / "second"))
    assert facts.exported_from == "" and facts.pairs == {"und": 32}


def test_pairs_whose_sides_are_stated_as_one_language_are_refused(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    model = XlmrWithRTLHead.from_pretrained(str(encoder_folders["bert"]), objectives=RANKING)
    arguments = TrainingArguments(str(tmp_path), use_cpu=True)
    with pytest.raises(DataError, match="^the deu pairs: source and target are both de: state the language"):
        AlignmentTrainer(model, arguments, {"deu": pairs}, target_language="de")
    AlignmentTrainer(model, arguments, {"und": pairs}, target_language="und")


def test_a_language_without_an_embedding_ends_before_training(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    """Else the first dev measurement would, before the first checkpoint."""
    languages = {"objectives": RANKING, "languages": ["de", "en"]}
    model = XlmrWithRTLHead.from_pretrained(str(encoder_folders["bert"]), **languages)
    with pytest.raises(RecipeError, match="^language 'fr' of the data has no embedding, .* of de, en cannot"):
        AlignmentTrainer(model, TrainingArguments(str(tmp_path), use_cpu=True), {"de": pairs}, {"fr": pairs})


def test_the_export_of_an_opened_run_states_what_its_folder_does(
    encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    _train(encoder_folders["bert"], tmp_path / "run", pairs)
    expected = ModelFacts.read(export_sentence_transformer(tmp_path / "run", tmp_path / "folder", verify=False))
    model = AutoModel.from_pretrained(tmp_path / "run")
    assert ModelFacts.read(export_sentence_transformer(model, tmp_path / "opened", verify=False)) == expected
    with torch.no_grad():
        next(model.parameters()).add_(1)
    changed = ModelFacts.read(export_sentence_transformer(model, tmp_path / "changed", verify=False))
    assert changed.pairs == expected.pairs and changed.exported_from == "" != expected.exported_from


class _Averaging(torch.optim.SGD):
    """An optimizer as those of schedulefree: its groups count steps, and eval puts averaged weights into the model."""

    def train(self) -> None:
        self.modes = [*getattr(self, "modes", []), "train"]

    def eval(self) -> None:
        self.modes = [*getattr(self, "modes", []), "eval"]

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step(closure)
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


def test_an_optimizer_of_the_caller_measures_its_averages_and_resumes_with_its_groups(
    encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path
) -> None:
    def trainer(steps: int) -> AlignmentTrainer:
        torch.manual_seed(0)
        model = SentenceEncoderForPreTraining.from_pretrained(str(encoder_folders["bert"]))
        optimizer = _Averaging(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.ConstantLR(optimizer)
        arguments = _arguments(tmp_path / "run", max_steps=steps, save_steps=1, eval_strategy="steps", eval_steps=1)
        data = {"de": pairs[:12]}, {"de": pairs[12:]}
        return AlignmentTrainer(model, arguments, *data, optimizers=(optimizer, schedule))

    first = trainer(2)
    first.train()
    assert first.optimizer.optimizer.modes.count("eval") == 3  # before training, and after each step
    second = trainer(3)
    second.train(resume_from_checkpoint=True, allow_changes=True)
    assert second.optimizer.optimizer.param_groups[0]["steps"] == 3


def test_a_card_without_a_known_run_asks_for_its_facts(
    encoder_folders: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = encoder_folders["bert"]
    model = DapForSentenceEmbedding.from_backbone(str(folder))
    export_sentence_transformer(model, tmp_path / "out", AutoTokenizer.from_pretrained(folder), verify=False)
    assert main(["publish", str(tmp_path / "out"), "org/mine", "--license", "mit", "--dry_run"]) == 2
    assert "states no language and no base_model: publish it with --languages de sw en and " in capsys.readouterr().err


def test_automodel_loads_an_export_without_a_warning(
    tiny_encoders: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = DapForSentenceEmbedding.from_backbone(str(tiny_encoders))
    export_sentence_transformer(model, tmp_path / "out", AutoTokenizer.from_pretrained(tiny_encoders), verify=False)
    monkeypatch.setattr(logging.getLogger("transformers"), "propagate", True)
    _, report = AutoModel.from_pretrained(tmp_path / "out", sentence_encoder=None, output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_plain_arguments_keep_their_values(tmp_path: Path) -> None:
    plain = TrainingArguments(
        str(tmp_path), learning_rate=3e-4, per_device_train_batch_size=3, lr_scheduler_type="cosine", seed=5,
        warmup_steps=7, use_cpu=True, save_strategy="epoch", report_to="none", weight_decay=0.1, max_steps=9,
    )  # fmt: skip
    ours = AlignmentTrainingArguments.of(plain)
    for name in ("output_dir", "learning_rate", "seed", "warmup_steps", "weight_decay", "max_steps", "save_strategy"):
        assert getattr(ours, name) == getattr(plain, name), name
    assert ours.train_batch_size == 3 and not ours.remove_unused_columns and ours.pairs_per_chunk is None
    assert AlignmentTrainingArguments.of(ours) is ours
    assert AlignmentTrainingArguments.of(None).output_dir == "trainer_output"


def test_python_replaces_no_run_unless_asked_to(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    encoder, out = encoder_folders["bert"], tmp_path / "out"
    _trainer(encoder, _arguments(out, max_steps=4, **SAVING), {"de": pairs}).train()
    before = {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    for strategy, cure in (("steps", r": .*train\(overwrite=True\)"), ("no", ", .* choose another folder")):
        trainer = _trainer(encoder, _arguments(out, save_strategy=strategy, eval_strategy="no"), {"de": pairs})
        with pytest.raises(OutputError, match=f"holds a(nother)? run{cure}"):
            trainer.train()
    assert before == {path: path.stat().st_mtime_ns for path in out.rglob("*")}
    handler = signal.getsignal(signal.SIGTERM)
    for folder in (out, out / "checkpoint-9", out / "checkpoint-2"):
        with pytest.raises(OutputError, match=f"{folder} cannot be resumed: .* has checkpoint-4 as its newest.*copy"):
            _trainer(encoder, _arguments(out, max_steps=4, **SAVING), {"de": pairs}).train(str(folder))
    with pytest.raises(OutputError, match="checkpoint-4 cannot be resumed: the output folder .*new has no checkpoint"):
        _trainer(encoder, _arguments(tmp_path / "new", **SAVING), {"de": pairs}).train(str(out / "checkpoint-4"))
    assert signal.getsignal(signal.SIGTERM) is handler
    rounded = _trainer(encoder, _arguments(out, max_steps=4, **SAVING), {"de": pairs})
    rounded.model.bfloat16()
    with pytest.raises(OutputError, match=r"dtype torch\.float32, now torch\.bfloat16"):
        rounded.train(resume_from_checkpoint=True)
    _trainer(encoder, _arguments(out, **SAVING), {"de": pairs}).train(overwrite=True)
    assert [path.name for path in out.glob("checkpoint-*")] == ["checkpoint-2"]
    with pytest.raises(OutputError, match="no checkpoint in .*new to resume from"):
        _trainer(encoder, _arguments(tmp_path / "new"), {"de": pairs}).train(resume_from_checkpoint=True)


def test_the_trainer_of_pretrain_continues_or_replaces_its_run(
    encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    (tmp_path / "de.tsv").write_text("Ein Hund.\tA dog.\nEine Katze.\tA cat.\n" * 4, "utf-8")
    settings: dict[str, Any] = {"model": str(encoder_folders["bert"]), "data": {"de": str(tmp_path / "de.tsv")}}
    settings |= {"output_dir": str(tmp_path / "out"), "cache_dir": str(tmp_path / "cache"), "clean": False}
    settings |= {"use_cpu": True, "report_to": "none", "max_steps": 2, **SAVING}
    trainer = pretrain(**settings, dev_pairs=0, learning_rate=1e-3)
    with pytest.raises(OutputError, match="holds a run"):
        trainer.train()
    trainer.create_model_card()
    assert "It continued the training of" not in (tmp_path / "out/README.md").read_text("utf-8")
    trainer.args.learning_rate = 5e-5  # the default
    trainer.train(overwrite=True)
    assert ModelFacts.read(tmp_path / "out").pairs == {"de": 16}
    recipe = yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text("utf-8"))
    assert not {"learning_rate", "model"} & {*recipe}, "no folder holds the weights that it started from"
    trainer.args.max_steps = 4
    trainer.train(resume_from_checkpoint=True, allow_changes=True)
    assert RunState.read(tmp_path / "out").finished_at_step == 4
    assert ModelFacts.read(tmp_path / "out").pairs == {"de": 16}, "the same pairs"


def test_a_sentence_transformer_trains_in_stages(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    model, given = SentenceTransformer(str(encoder_folders["bert"]), device="cpu"), {"de": pairs}
    arguments = {"max_steps": 2, "use_cpu": True, "report_to": "none", "learning_rate": 1e-2}
    for stage, layers in enumerate((2, 0)):
        before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
        stated = AlignmentTrainingArguments(str(tmp_path / f"{stage}"), frozen_layers=layers, **arguments)
        trainer = AlignmentTrainer(model, stated, given, given)
        trainer.save_model(str(tmp_path / f"start-{stage}"))
        trainer.train()
        equal = {name for name, weight in model.named_parameters() if torch.equal(weight, before[name])}
        assert any(".layer.1.output.dense.weight" in name for name in equal) is (layers == 2)
    assert ModelFacts.read(tmp_path / "start-1").pairs == ModelFacts.read(tmp_path / "0").pairs == {"de": 16}
    assert ModelFacts.read(tmp_path / "1").pairs == {"de": 32}


def test_the_target_language_is_that_of_the_bitext(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    bitext = load_bitext({"de": pairs}, target_language="fr", cleaning=None, cache_dir=tmp_path / "cache")
    _train(encoder_folders["bert"], tmp_path / "out", bitext[:8])
    assert ModelFacts.read(tmp_path / "out").languages == ["de", "fr"]
    assert yaml.safe_load((tmp_path / "out" / "recipe.yaml").read_text("utf-8"))["target_language"] == "fr"


def test_python_finishes_a_run_of_the_command_line(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    (tmp_path / "de.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    out, cache = tmp_path / "out", tmp_path / "cache"
    settings: dict[str, Any] = {"max_steps": 4, **SAVING, "use_cpu": True, "report_to": "none"}
    settings |= {"per_device_train_batch_size": 4, "output_dir": str(out)}
    trainer = pretrain(
        model=str(encoder_folders["bert"]), data={"de": str(tmp_path / "de.tsv")}, clean=False, dev_pairs=0,
        objectives=RANKING, cache_dir=str(cache), **settings,
    )  # fmt: skip
    assert trainer is not None
    unfinish(out, "checkpoint-4")
    with pytest.raises(ModelError, match="is unfinished: give its newest checkpoint .*checkpoint-2"):
        load_config(str(out))
    bitext = load_bitext({"de": str(tmp_path / "de.tsv")}, cleaning=None, cache_dir=cache)
    again = AlignmentTrainer(
        type(trainer.model).from_backbone(str(encoder_folders["bert"]), config=trainer.model.config),
        AlignmentTrainingArguments(**settings),
        bitext,
        processing_class=AutoTokenizer.from_pretrained(encoder_folders["bert"]),
    )
    again.train(resume_from_checkpoint=True)
    state = RunState.read(out)
    assert state is not None and state.finished_at_step == 4 and state.changes == []


def test_an_error_in_training_restores_the_signal_handlers(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)]
    monkeypatch.setattr(AlignmentTrainer, "compute_loss", lambda *_, **__: pytest.fail("an error"))
    with pytest.raises(pytest.fail.Exception):
        _train(encoder_folders["bert"], tmp_path / "out", pairs)
    assert [signal.getsignal(one) for one in (signal.SIGTERM, signal.SIGINT)] == before


def test_nothing_is_saved_where_the_strategy_is_no(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    folder = encoder_folders["bert"]
    model = XlmrWithRTLHead.from_pretrained(str(folder), objectives=RANKING)
    arguments = TrainingArguments(str(tmp_path / "out"), max_steps=1, save_strategy="no", use_cpu=True)
    frame = DataFrame(
        [(number, *pair) for number, pair in enumerate(pairs)], schema=["n", "first", "second"], orient="row"
    )
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = AlignmentTrainer(model, arguments, frame, frame[:4], tokenizer, columns=("first", "second"))
    trainer.train()
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["metrics.jsonl"]
    assert list(zip(*trainer.train_dataset.pairs("und"), strict=True)) == pairs


def test_columns_by_language_may_be_those_of_training_or_of_dev_pairs(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    rows = [{"note": "x", "first": source, "second": target} for source, target in pairs[:8]]
    train, columns = {"de": rows, "fr": rows}, {"de": ("first", "second"), "fr": ("first", "second")}
    model = XlmrWithRTLHead.from_pretrained(str(encoder_folders["bert"]), objectives=RANKING)
    arguments = TrainingArguments(str(tmp_path / "out"), max_steps=1, use_cpu=True)
    trainer = AlignmentTrainer(model, arguments, train, {"de": rows[:4]}, columns=columns)
    assert trainer.evaluate({"fr": rows}).keys() > {"eval_accuracy_fr"}
    with pytest.raises(DataError, match="columns are given for 'sw', which is neither a language nor a file"):
        AlignmentTrainer(model, arguments, train, columns={**columns, "sw": ("first", "second")})


def test_an_export_states_the_run_that_saved_nothing(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    arguments = _arguments(tmp_path / "run", save_strategy="no")
    trainer = _trainer(encoder_folders["bert"], arguments, {"de": pairs}, encoder_layers=1)
    trainer.train()
    facts = ModelFacts.read(export_sentence_transformer(trainer, tmp_path / "out", verify=False))
    assert facts.pairs == {"de": 16} and facts.sentences()[0].startswith("Training took 2 steps")
    assert facts.recipe["encoder_layers"] == 1 and facts.exported_from == ""
    card = (tmp_path / "out" / "README.md").read_text("utf-8")
    assert "| de | 16 |" in card and "Training took 2 steps" in card


def test_ctrl_c_saves_nothing_where_the_strategy_is_no(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    class AtStepTwo(TrainerCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 1:
                signal.raise_signal(signal.SIGINT)

    trainer = _trainer(encoder_folders["bert"], _arguments(tmp_path / "run", save_strategy="no", max_steps=9), pairs)
    trainer.add_callback(AtStepTwo)
    with pytest.raises(Interrupted, match="^stopped by Ctrl-C after step 2: save_strategy no has saved nothing"):
        trainer.train()
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["metrics.jsonl"]


def test_a_measurement_before_training_leaves_the_metrics_of_the_run_in_the_folder(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    def trainer() -> AlignmentTrainer:
        arguments = _arguments(tmp_path / "run", eval_on_start=False, logging_steps=1)
        return _trainer(encoder_folders["bert"], arguments, {"de": pairs}, {"de": pairs})

    first, metrics = trainer(), tmp_path / "run" / "metrics.jsonl"
    first.evaluate()
    assert not metrics.exists()
    first.train()
    run = metrics.read_text("utf-8")
    assert [json.loads(line)["step"] for line in run.splitlines()] == [1, 2, 2, 2]
    trainer().evaluate()
    assert metrics.read_text("utf-8") == run


def test_dual_pivot_trains_on_plain_arguments_and_lists(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs, sentences: list[str]
) -> None:
    folder = encoder_folders["bert"]
    model = DualPivotForPreTraining.from_pretrained(str(folder))
    arguments = TrainingArguments(str(tmp_path / "out"), max_steps=2, use_cpu=True, report_to="none", disable_tqdm=True)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    AlignmentTrainer(model, arguments, {"de": pairs}, processing_class=tokenizer).train()
    opened = SentenceTransformer(str(tmp_path / "out"), device="cpu", local_files_only=True)
    np.testing.assert_allclose(opened.encode(sentences), model.encode(sentences), atol=1e-5)


def test_the_critic_of_a_dual_pivot_trains(encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs) -> None:
    folder = encoder_folders["bert"]
    model = DualPivotForPreTraining.from_pretrained(str(folder), objectives={"adversarial": 1, "cycle": 5})
    before = model.objectives["adversarial"].critic.weight.clone()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = AlignmentTrainer(model, _arguments(tmp_path / "out"), {"de": pairs}, processing_class=tokenizer)
    trainer.train()
    assert (model.objectives["adversarial"].critic.weight - before).abs().max() > 1e-6
    assert trainer.train_dataset.shuffle_independently


def _arguments(output: Path, **settings: Any) -> AlignmentTrainingArguments:
    plain: dict[str, Any] = {"use_cpu": True, "report_to": "none", "max_steps": 2, "per_device_train_batch_size": 4}
    return AlignmentTrainingArguments(str(output), **plain | settings)


def _trainer(
    encoder: Path, arguments: TrainingArguments, pairs: Any, dev: Any = None, **model: Any
) -> AlignmentTrainer:
    torch.manual_seed(0)
    started = XlmrWithRTLHead.from_pretrained(str(encoder), **{"objectives": RANKING} | model)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    return AlignmentTrainer(started, arguments, pairs, dev, processing_class=tokenizer, alpha=0.25)


def test_a_second_training_of_a_trainer_is_that_of_a_new_one(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    again = _trainer(
        encoder_folders["bert"], _arguments(tmp_path / "run", learning_rate=1e-3), {"de": pairs}, dropout=0
    )
    again.train()
    new = AlignmentTrainer(deepcopy(again.model), _arguments(tmp_path / "new", learning_rate=1e-4), {"de": pairs})
    new.train()
    again.args.learning_rate = 1e-4
    again.train(overwrite=True)
    for trained, weight in zip(again.model.parameters(), new.model.parameters(), strict=True):
        assert torch.equal(trained, weight)


class _Fails(TrainerCallback):
    """Ends the first training between two batches of its third step."""

    failed = False

    def on_substep_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 2 and not self.failed:
            self.failed = True
            raise RuntimeError("out of memory")


def test_a_step_that_failed_leaves_nothing_for_the_resumed_run(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    settings = {"objectives": {"momentum_contrast": {"queue_size": 16}}, "dropout": 0}
    options = {"gradient_accumulation_steps": 2, "max_steps": 4, "save_steps": 2, "logging_steps": 4}
    trainers = [
        _trainer(encoder_folders["bert"], _arguments(tmp_path / name, **options), {"de": pairs}, **settings)
        for name in ("failed", "whole")
    ]
    trainers[0].add_callback(_Fails())
    with pytest.raises(RuntimeError, match="out of memory"):
        trainers[0].train()
    with pytest.raises(OutputError, match=r"continue it .* train\(resume_from_checkpoint=True\)"):
        trainers[0].train()
    trainers[0].train(resume_from_checkpoint=True)
    trainers[1].train()
    for weight, whole in zip(*(trainer.model.state_dict().values() for trainer in trainers), strict=True):
        assert torch.equal(weight, whole)
    losses = [[log["loss_momentum_contrast"] for log in one.state.log_history if "loss" in log] for one in trainers]
    assert losses[0] == losses[1]


def test_a_share_of_the_start_is_one_of_language_embeddings_too(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    arguments = _arguments(tmp_path / "run", learning_rate=1e-2, share_of_start=0.999)
    trainer = _trainer(encoder_folders["bert"], arguments, {"de": pairs}, languages=["de", "en"], language_std=0.02)
    before = trainer.model.encode(["Ein Hund."], language="de")
    trainer.train()
    np.testing.assert_allclose(trainer.model.encode(["Ein Hund."], language="de"), before, atol=1e-2)


def test_the_recipe_has_the_adapters_and_the_mix_of_the_run(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    adapters = {"lora_rank": 2}
    _trainer(encoder_folders["bert"], _arguments(tmp_path / "run"), {"de": pairs}, **adapters).train()
    recipe = yaml.safe_load((tmp_path / "run" / "recipe.yaml").read_text("utf-8"))
    assert recipe.items() >= (adapters | {"alpha": 0.25, "target_language": "en"}).items()


NEGATIVES = {"translation_ranking": {"hard_negatives": 2}}


@pytest.mark.parametrize(
    ("objectives", "fields", "reason"),
    [
        (NEGATIVES, {}, "hard_negatives need target_negatives, but no pair has any: train on the JSONL of"),
        (
            NEGATIVES,
            {"source_negatives": ["Ja."]},
            "no pair has any: set symmetric: true, which reads source_negatives",
        ),
        (RANKING | {"word_translation_ranking": 1.0}, {}, "the objectives need word links, but no pair has any"),
    ],
)
def test_pairs_without_what_the_objectives_read_are_refused(
    encoder_folders: dict[str, Path],
    tmp_path: Path,
    pairs: Pairs,
    objectives: dict[str, Any],
    fields: dict[str, Any],
    reason: str,
) -> None:
    records = [{"source": source, "target": target} | fields for source, target in pairs]
    with pytest.raises(RecipeError, match=reason):
        _trainer(encoder_folders["bert"], _arguments(tmp_path), {"de": records}, objectives=objectives)


def test_a_trainer_without_dev_leaves_its_arguments_to_others(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    arguments = _arguments(tmp_path)
    assert _trainer(encoder_folders["bert"], arguments, {"de": pairs}).args.eval_strategy == "no"
    assert (arguments.eval_strategy, arguments.eval_on_start, arguments.load_best_model_at_end) == ("steps", True, True)


def test_plain_arguments_choose_the_best_model_by_dev_accuracy(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: Pairs
) -> None:
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=2, use_cpu=True, report_to="none", eval_strategy="steps", eval_steps=1,
        save_steps=1, load_best_model_at_end=True,
    )  # fmt: skip
    trainer = _trainer(encoder_folders["bert"], arguments, {"de": pairs[:10]}, {"de": pairs[10:]})
    trainer.train()
    accuracies = [line["eval_accuracy"] for line in trainer.state.log_history if "eval_accuracy" in line]
    assert trainer.state.best_metric == max(accuracies) and trainer.state.best_model_checkpoint is not None
