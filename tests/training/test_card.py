"""What push_to_hub of the Trainer sends beside the weights."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from local_hub import TOKEN, LocalHub, environment_of
from training_run import Run
from transformers import AutoTokenizer, TrainingArguments

from hf_xsent import (
    AlignmentTrainer,
    AlignmentTrainingArguments,
    SentenceEncoderForPreTraining,
    XlmrWithRTLHead,
    export_sentence_transformer,
    load_bitext,
)
from hf_xsent.data.sides import TextSides
from hf_xsent.errors import OutputError, TrainingError
from hf_xsent.publishing.facts import ModelFacts
from hf_xsent.training import hub_trainer
from hf_xsent.training.run_card import RECIPE_FILE, _measured, recipe_of, write_recipe


def test_a_run_from_python_gets_our_card(
    encoder_folders: dict[str, Path], pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = encoder_folders["bert"]
    records = [{"source": a, "target": b, "origin": "Tatoeba|de", "licence": "CC BY\n2.0"} for a, b in pairs]
    bitext = load_bitext({"de": [*records[:6], *pairs[6:]]}, cleaning=None, cache_dir=tmp_path / "cache")
    assert TextSides.from_bitext(bitext, shuffle_independently=True).ledger == bitext.ledger  # as MLM alone reads it
    model = XlmrWithRTLHead.from_backbone(str(folder), max_length=16, objectives={"translation_ranking": 1.0})
    arguments = AlignmentTrainingArguments(str(tmp_path / "out"), max_steps=1, report_to=[], save_strategy="no")
    tokenizer = AutoTokenizer.from_pretrained(folder)
    trainer = AlignmentTrainer(model, arguments, bitext, None, tokenizer)
    trainer.hub_model_id = "org/tiny"
    for early in (trainer.create_model_card, trainer.save_model, trainer.push_to_hub):
        with pytest.raises(TrainingError, match="this trainer has not trained: call train first"):
            early()
    trainer.train()
    monkeypatch.setattr(hub_trainer, "upload_folder", lambda **_: Path("/nowhere/file").read_text())
    with pytest.raises(OutputError, match=r"^org/tiny is not fully uploaded \(.*No such file.*\): call push_to_hub"):
        trainer.push_to_hub()
    branches: list[str] = []
    monkeypatch.setattr(hub_trainer, "create_branch", lambda *_, branch, **__: branches.append(branch))
    for revision in ("refs/pr/1", "next"):
        with pytest.raises(OutputError, match="is not fully uploaded"):
            trainer.push_to_hub(revision=revision)
    assert branches == ["next"]
    trainer.create_model_card()  # saves the model, too
    card = ModelCard((tmp_path / "out" / "README.md").read_text("utf-8"))
    assert (tmp_path / "out/model.safetensors").is_file() and card.data.language == ["de", "en"]
    assert 'SentenceTransformer("org/tiny")' in card.text and "picks its translation" in card.text
    assert card.data.license is None and "Not stated for the weights" in card.text
    assert "| not stated | 10 |\n| Tatoeba\\|de, CC BY 2.0 | 6 |" in card.text


def test_a_recipe_holds_what_was_stated_and_no_token(tmp_path: Path) -> None:
    stated = {"output_dir": str(tmp_path), "seed": 7, "use_cpu": True, "optim_target_modules": ["query"]}
    training = TrainingArguments(**stated, hub_token="secret")
    assert recipe_of(training).items() >= stated.items()
    assert not {"hub_token", "learning_rate"} & {*recipe_of(training)}
    write_recipe(tmp_path, "finetune xnli", recipe_of(training))
    text = (tmp_path / RECIPE_FILE).read_text("utf-8")
    measured = AlignmentTrainingArguments(output_dir=str(tmp_path), use_cpu=True)
    assert "dataloader_pin_memory" not in recipe_of(measured)
    assert measured.eval_steps == measured.save_steps and "eval_steps" not in recipe_of(measured)
    assert text.startswith("# hf-xsent finetune xnli recipe.yaml\n") and yaml.safe_load(text) == recipe_of(training)


def test_a_run_and_its_checkpoints_state_their_facts_without_private_paths(run: Run) -> None:
    run.start()
    facts = ModelFacts.read(run.out)
    steps, accuracy, beside = facts.sentences()
    assert steps == "Training took 6 steps of 4 pairs (2.00 epochs)." and facts.base_model == ""
    dev = [log["eval_accuracy"] for log in run.metrics if "eval_accuracy" in log]
    assert accuracy == f"Accuracy@1 on dev pairs was {dev[0]:.2f} before training and is {max(dev[1:]):.2f} after it."
    assert beside.startswith("Beside the query's language, it was ")
    assert facts.pairs == {"de": 8, "fr": 4} and facts.languages == ["de", "en", "fr"]
    assert facts.recipe["data"] == ["de=de.tsv", "fr=fr.tsv"]
    assert str(run.folder) not in (run.out / "training.json").read_text("utf-8")
    of_checkpoint = ModelFacts.read(run.out / "checkpoint-3")
    assert of_checkpoint.sentences()[0] == "Training took 3 steps of 4 pairs (1.00 epochs)."
    assert replace(of_checkpoint, stages=facts.stages) == facts


def test_a_card_states_that_the_data_of_the_run_changed(run: Run) -> None:
    run.start(max_steps=3)
    run.start("--resume_with_changes", max_steps=4, data=[f"fr={run.folder}/fr.tsv"])
    sentences = ModelFacts.read(run.out).sentences()
    assert sentences[1] == "It changed its data at step 3: languages and counts are those since."
    run.start("--resume_with_changes", max_steps=5, data=[f"fr={run.folder}/fr.tsv"], learning_rate="2e-3")
    assert ModelFacts.read(run.out).sentences()[1] == sentences[1]


@pytest.mark.parametrize(
    ("share", "averaged", "after"), [(0.0, "", 30), (0.3, ", averaged with those of the start, whose share is 0.3", 20)]
)
def test_a_card_names_the_best_step_also_of_weights_that_were_averaged_since(
    run: Run, monkeypatch: pytest.MonkeyPatch, share: float, averaged: str, after: int
) -> None:
    accuracy_at = {0: 10.0, 3: 30.0, 6: 20.0}

    def measured(trainer: Any, _: Any) -> dict[str, float]:
        return {"accuracy": accuracy_at[trainer.state.global_step]}

    monkeypatch.setattr(AlignmentTrainer, "_measure_dev", measured)
    run.start(share_of_start=share)
    assert ModelFacts.read(run.out).sentences()[1:] == [
        f"The weights are those of step 3, the best on the dev pairs{averaged}.",
        f"Accuracy@1 on dev pairs was 10.00 before training and is {after}.00 after it.",
    ]


@pytest.mark.parametrize(("before", "told"), [(50.0, True), (100.0, False)])
def test_a_card_omits_dev_accuracy_that_was_perfect_before_training(before: float, told: bool) -> None:
    history = [{"step": step, "eval_accuracy": value} for step, value in ((0, before), (2, 100.0))]
    state = SimpleNamespace(global_step=2, epoch=1.0, log_history=history, best_global_step=None)
    args = AlignmentTrainingArguments("out", use_cpu=True, report_to="none", load_best_model_at_end=False)
    measured = _measured(SimpleNamespace(args=args, state=state, saves_checkpoint=False))
    assert ("accuracy" in measured) == told


@pytest.mark.slow
def test_push_to_hub_sends_model_and_card(encoder_folders: dict[str, Path], pairs, tmp_path: Path) -> None:
    """With the flags of TrainingArguments, against a Hub on this machine."""
    (tmp_path / "de.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in pairs), "utf-8")
    command = (
        f"--model {encoder_folders['bert']} --data de={tmp_path}/de.tsv --output_dir {tmp_path}/out --max_steps 2 "
    )
    command += f"--cache_dir {tmp_path}/cache --clean false --dev_pairs 0 --objectives translation_ranking=1 "
    command += "--per_device_train_batch_size 4 --push_to_hub --hub_model_id org/tiny --hub_private_repo true "
    command += "--save_steps 1 --eval_strategy no --hub_strategy every_save --hub_revision next"
    with LocalHub() as hub:
        code = f"from hf_xsent_cli import program; program({['pretrain', *command.split()]!r})"
        program, environment = [sys.executable, "-c", code], environment_of(hub, tmp_path)
        done = subprocess.run(program, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert TOKEN not in done.stdout + done.stderr
        assert hub.repositories["org/tiny"].private
        card = ModelCard(hub.text("org/tiny", "README.md", "next"))
        assert "picks its translation" in card.text and str(tmp_path) not in card.text
        assert card.data.language == ["de", "en"]
        config = json.loads(hub.text("org/tiny", "config.json", "next"))  # a plain encoder, opened without our code
        assert config["model_type"] == "bert" and config["hf_xsent"]["model_type"] == "alignment"
        files = {*hub.repositories["org/tiny"].files("next")[1]}
        assert {"modules.json", "recipe.yaml", "metrics.jsonl"} <= files
        assert not {"heads.safetensors", "run_state.json", "training_args.bin"} & files
        assert not any(name.startswith("checkpoint-") for name in files)
        uploaded = [commit for commit in hub.repositories["org/tiny"].commits.values() if "model.safetensors" in commit]
        assert len(uploaded) == 1, "only the finished model is uploaded"
    assert not (tmp_path / "out" / "training_args.bin").exists()


def test_the_card_of_a_run_that_replaces_that_of_its_model_counts_the_pairs_of_both_once(run: Run) -> None:
    trainer = run.start()
    first = ModelFacts.read(run.out).pairs
    trainer.train(overwrite=True)
    assert ModelFacts.read(run.out).pairs == {code: 2 * count for code, count in first.items()}
    assert f"| de | {2 * first['de']} |" in (run.out / "README.md").read_text("utf-8")


def test_the_card_states_the_accuracy_on_the_dev_pairs_of_the_run(run: Run) -> None:
    trainer = run.start()
    card = (run.out / "README.md").read_text("utf-8")
    trainer.evaluate({"tr": [("Kedi sütü içiyor.", "The cat drinks the milk.")]})  # alone, it is always found
    trainer.create_model_card()
    assert "Accuracy@1 on dev pairs was " in card and (run.out / "README.md").read_text("utf-8") == card
    for name, options, states in (("same", {}, True), ("other", {"dim": 4}, False)):
        export_sentence_transformer(run.out, run.out.parent / name, **options)
        assert ("Accuracy@1 on dev" in (run.out.parent / name / "README.md").read_text("utf-8")) == states


@pytest.mark.parametrize("in_memory", [False, True])
def test_the_card_of_a_second_stage_counts_the_pairs_of_both(run: Run, pairs, tmp_path: Path, in_memory: bool) -> None:
    trainer = run.start()
    model = trainer.model if in_memory else SentenceEncoderForPreTraining.from_pretrained(str(run.out))
    first, records = ModelFacts.read(run.out), [{"source": a, "target": b, "licence": "CC0"} for a, b in pairs]
    arguments = TrainingArguments(str(tmp_path / "second"), max_steps=1, report_to=[])
    AlignmentTrainer(model, arguments, load_bitext({"de": records}, cleaning=None, cache_dir=tmp_path)).train()
    facts = ModelFacts.read(tmp_path / "second")
    assert facts.pairs == {"de": first.pairs["de"] + 16, "fr": first.pairs["fr"]}
    assert facts.languages == first.languages and sum(facts.ledger.values()) == sum(facts.pairs.values())
    assert f"It continued the training of {run.out.name}: pairs and languages are of all" in facts.sentences()[-1]
    recipe = yaml.safe_load((tmp_path / "second" / RECIPE_FILE).read_text("utf-8"))
    assert recipe["model"] == str(run.out)
