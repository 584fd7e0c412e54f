from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForPreTraining, AutoTokenizer, TrainerCallback

from hf_xsent import (
    AlignmentTrainer,
    AlignmentTrainingArguments,
    SentenceEmbedder,
    XlmrWithRTLHead,
    evaluate,
    load_bitext,
)
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import DataError, ModelError
from hf_xsent.evaluation.pairs import retrieval_by_language
from hf_xsent.evaluation.task import Metrics
from hf_xsent.training import callbacks
from hf_xsent.training import trainer as trainer_module

Pairs = list[tuple[str, str]]


@pytest.fixture
def bitext(tmp_path: Path, pairs: Pairs) -> Bitext:
    """Sixteen pairs in two languages: ten and six."""
    for language, some in (("de", pairs[:10]), ("fr", pairs[10:])):
        text = "".join(f"{source}\t{target}\n" for source, target in some)
        (tmp_path / f"{language}.tsv").write_text(text, encoding="utf-8")
    return load_bitext(str(tmp_path / "{language}.tsv"), cleaning=None, cache_dir=tmp_path / "cache")


def _arguments(folder: Path, **settings: Any) -> AlignmentTrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "per_device_train_batch_size": 8,
        "learning_rate": 3e-3,
        "logging_steps": 1,
        "eval_strategy": "no",
        "eval_on_start": False,
        "load_best_model_at_end": False,
        "save_strategy": "no",
        "report_to": "none",
    }
    return AlignmentTrainingArguments(**defaults | settings)


def _trainer(
    encoder: Path, train: Bitext, arguments: AlignmentTrainingArguments, dev: Bitext | None = None, **settings: Any
) -> AlignmentTrainer:
    torch.manual_seed(arguments.seed)
    settings.setdefault("objectives", {"translation_ranking": 1.0})
    model = XlmrWithRTLHead.from_backbone(str(encoder), **settings)
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    return AlignmentTrainer(model, arguments, train, dev, tokenizer)


def _metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def _without_dropout(trainer: AlignmentTrainer) -> AlignmentTrainer:
    for module in trainer.model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    return trainer


# Training


def test_training_lowers_the_loss_and_finds_translations(tiny_encoders: Path, tmp_path: Path, bitext: Bitext) -> None:
    arguments = _arguments(tmp_path / "run", max_steps=40, eval_strategy="steps", eval_steps=20, eval_on_start=True)
    trainer = _trainer(tiny_encoders, bitext, arguments, dev=bitext, pooling="mean")
    trainer.train()
    losses = [line["loss"] for line in _metrics(tmp_path / "run") if "loss" in line]
    assert len(losses) == 40
    assert sum(losses[-5:]) < 0.5 * sum(losses[:5])
    accuracies = [line["eval_accuracy"] for line in _metrics(tmp_path / "run") if "eval_accuracy" in line]
    assert len(accuracies) == 3
    assert accuracies[-1] > accuracies[0] + 20


def test_metrics_are_one_line_a_log_with_step_and_each_loss(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    arguments = _arguments(tmp_path / "run", max_steps=6, logging_steps=2, eval_strategy="steps", eval_steps=3)
    trainer = _trainer(encoder_folders["bert"], bitext, arguments, dev=bitext)
    trainer.train()
    lines = _metrics(tmp_path / "run")
    assert all(next(iter(line)) == "step" for line in lines)
    training = [line for line in lines if "loss" in line]
    assert [line["step"] for line in training] == [2, 4, 6]
    assert [line["step"] for line in lines if "eval_accuracy" in line] == [3, 6]
    for line in training:
        assert line["loss_translation_ranking"] == pytest.approx(line["loss"], abs=2e-4)
        assert line["pairs_per_second"] > 0 and line["learning_rate"] >= 0


def test_the_logged_loss_is_the_weighted_one_and_its_parts_are_not(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    settings: dict[str, Any] = {"objectives": {"translation_ranking": 0.25}}
    _trainer(encoder_folders["bert"], bitext, _arguments(tmp_path / "run", max_steps=3), **settings).train()
    for line in _metrics(tmp_path / "run")[:3]:
        assert line["loss"] == pytest.approx(0.25 * line["loss_translation_ranking"], abs=2e-4)


@pytest.mark.parametrize("pairs_of_step", [6, 12])
def test_the_pairs_of_an_epoch_do_not_depend_on_accumulation(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext, pairs_of_step: int
) -> None:
    rows = []
    for accumulated in (1, 3):
        sizes = {
            "gradient_accumulation_steps": accumulated,
            "per_device_train_batch_size": pairs_of_step // accumulated,
        }
        trainer = _trainer(encoder_folders["bert"], bitext, _arguments(tmp_path / "run", **sizes))
        rows.append(list(trainer.train_sampler()))
    assert rows[0] == rows[1] and len(rows[0]) == 12


def test_accumulated_half_batches_are_averaged_not_added(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    """One step of plain gradient descent over two half batches, worked by hand."""
    descent: dict[str, Any] = {
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "max_steps": 1,
        "optim": "sgd",
        "learning_rate": 0.5,
        "lr_scheduler_type": "constant",
        "warmup_steps": 0,
        "max_grad_norm": 0.0,
        "weight_decay": 0.0,
    }
    trainer = _without_dropout(_trainer(encoder_folders["bert"], bitext, _arguments(tmp_path / "run", **descent)))
    model = trainer.model
    halves = [[bitext[i] for i in rows] for rows in torch.tensor(list(trainer.train_sampler()))[:8].split(4)]
    collator = PairCollator(trainer.tokenizer, model.config.max_length)
    weights = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    losses = [model(**collator(half)).loss for half in halves]
    (sum(losses) / 2).backward()
    gradients = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()

    trainer.train()
    (line,) = (line for line in _metrics(tmp_path / "run") if "loss" in line)
    expected = sum(loss.item() for loss in losses) / 2
    assert line["loss"] == pytest.approx(expected, abs=2e-4)
    assert line["loss_translation_ranking"] == pytest.approx(expected, abs=2e-4)
    for name, weight in model.named_parameters():
        moved = weights[name] - 0.5 * gradients.get(name, torch.zeros(()))
        torch.testing.assert_close(weight, moved, atol=1e-6, rtol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert max(gradient.abs().max() for gradient in gradients.values()) > 1e-3


def test_the_best_checkpoint_on_dev_is_what_stays(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext, monkeypatch: pytest.MonkeyPatch
) -> None:
    accuracies = iter([10.0, 50.0, 90.0, 60.0])

    def measured(*_: Any, **__: Any) -> dict[str, Metrics]:
        accuracy = next(accuracies)
        return {"de": dict.fromkeys(("mean", "forward", "backward", "beside"), accuracy)}

    monkeypatch.setattr(trainer_module, "retrieval_by_language", measured)
    choosing: dict[str, Any] = {"eval_strategy": "steps", "eval_on_start": True, "load_best_model_at_end": True}
    every: dict[str, Any] = {"max_steps": 6, "eval_steps": 2, "save_strategy": "steps", "save_steps": 2}
    trainer = _trainer(encoder_folders["bert"], bitext, _arguments(tmp_path / "run", **choosing | every), dev=bitext)
    trainer.train()
    (tmp_path / "run" / "_unfinished").mkdir()
    (tmp_path / "run" / "_unfinished" / "optimizer.pt").touch()  # of a killed run
    trainer.save_model()
    assert not (tmp_path / "run" / "optimizer.pt").exists() and not (tmp_path / "run" / "_unfinished").exists()
    assert trainer.state.best_model_checkpoint == str(tmp_path / "run" / "checkpoint-4")
    final, best, last = (
        AutoModelForPreTraining.from_pretrained(tmp_path / "run" / name).state_dict()
        for name in (".", "checkpoint-4", "checkpoint-6")
    )
    assert all(torch.equal(final[name], best[name]) for name in best)
    assert any(not torch.equal(final[name], last[name]) for name in last)


# Evaluation


def test_dev_accuracy_is_measured_for_each_language(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    trainer = _trainer(encoder_folders["xlm-roberta"], bitext, _arguments(tmp_path / "run"), dev=bitext, pooling="mean")
    metrics = trainer.evaluate()
    embedder = SentenceEmbedder(trainer.model, trainer.tokenizer)
    expected = retrieval_by_language(embedder, {language: bitext.pairs(language) for language in ("de", "fr")})
    accuracies = {f"eval_accuracy{end}" for end in ("", "_forward", "_backward", "_de", "_fr")}
    assert set(metrics) - {"epoch"} == {"eval_beside", *accuracies}
    assert metrics["eval_beside"] == pytest.approx((expected["de"]["beside"] + expected["fr"]["beside"]) / 2)
    assert metrics["eval_accuracy_de"] == expected["de"]["mean"]
    assert metrics["eval_accuracy_fr"] == expected["fr"]["mean"]
    assert metrics["eval_accuracy"] == pytest.approx((expected["de"]["mean"] + expected["fr"]["mean"]) / 2)
    assert metrics["eval_accuracy_forward"] == pytest.approx(
        (expected["de"]["forward"] + expected["fr"]["forward"]) / 2
    )
    assert trainer.evaluate(bitext.train_dev_split(2)[1], metric_key_prefix="test").keys() == {
        name.replace("eval", "test") for name in metrics
    }


def test_models_with_language_embeddings_are_measured_too(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    arguments = _arguments(tmp_path / "run", max_steps=2, eval_strategy="steps", eval_steps=2, save_strategy="steps")
    trainer = _trainer(encoder_folders["bert"], bitext, arguments, dev=bitext, languages=["de", "fr", "en"])
    trainer.train()
    assert trainer.model.language_embeddings.weight.any()
    (measured,) = [line for line in _metrics(tmp_path / "run") if "eval_accuracy_fr" in line]
    with pytest.raises(ModelError, match=re.escape("retrieval_by_language(model, {language: (sources, targets)}, ")):
        evaluate(str(tmp_path / "run"), pairs=str(tmp_path / "de.tsv"))
    model = SentenceEmbedder.from_pretrained(tmp_path / "run", device="cpu")
    card = (tmp_path / "run" / "README.md").read_text("utf-8")
    assert 'um acht Uhr."], language="de")' in card and "It encodes only de, fr, en" in card
    assert "hf-xsent mine" not in card and "hf-xsent evaluate" not in card
    for language in bitext.languages:
        figures = retrieval_by_language(model, {language: bitext.pairs(language)}, "en")[language]
        assert figures["mean"] == pytest.approx(measured[f"eval_accuracy_{language}"], abs=0.01)


def test_measuring_does_not_count_as_training_time(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr(callbacks.time, "perf_counter", lambda: clock[0])

    def slow(*_: Any, **__: Any) -> dict[str, Metrics]:
        clock[0] += 1000
        return {"de": dict.fromkeys(("mean", "forward", "backward", "beside"), 1.0)}

    class Tick(TrainerCallback):
        def on_step_end(self, *_: Any, **__: Any) -> None:
            clock[0] += 2

    monkeypatch.setattr(trainer_module, "retrieval_by_language", slow)
    arguments = _arguments(tmp_path / "run", max_steps=4, logging_steps=2, eval_strategy="steps", eval_steps=1)
    trainer = _trainer(encoder_folders["bert"], bitext, arguments, dev=bitext)
    trainer.add_callback(Tick())
    trainer.train()
    rates = [line["pairs_per_second"] for line in _metrics(tmp_path / "run") if "loss" in line]
    assert rates == [pytest.approx(4.0), pytest.approx(4.0)]


# What goes in


def test_every_language_is_drawn_as_its_share_says(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    arguments = _arguments(tmp_path / "run")
    for alpha, german in ((1.0, 10), (0.0, 8)):
        trainer = _trainer(encoder_folders["bert"], bitext, arguments)
        trainer.alpha = alpha
        assert sum(bitext[row]["language"] == "de" for row in trainer.train_sampler()) == german


def test_the_tokenizer_is_that_of_the_models_folder(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    model = XlmrWithRTLHead.from_backbone(str(encoder_folders["bert"]))
    assert AlignmentTrainer(model, _arguments(tmp_path / "run"), bitext).tokenizer is model.tokenizer
    without = XlmrWithRTLHead(model.config)
    with pytest.raises(DataError, match="^the model's folder has no tokenizer: pass one as processing_class$"):
        AlignmentTrainer(without, _arguments(tmp_path / "run"), bitext)


def test_gradient_checkpointing_is_a_flag_away(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    weights = []
    for on in (False, True):
        arguments = _arguments(tmp_path / str(on), max_steps=2, gradient_checkpointing=on)
        trainer = _without_dropout(_trainer(encoder_folders["bert"], bitext, arguments))
        trainer.train()
        weights.append(trainer.model.encoder.encoder.layer[0].attention.self.query.weight)
    torch.testing.assert_close(weights[1], weights[0], atol=1e-5, rtol=1e-4)


def test_bfloat16_keeps_the_weights_in_float32(
    encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext
) -> None:
    trainer = _trainer(
        encoder_folders["bert"], bitext, _arguments(tmp_path / "run", max_steps=3, bf16=True), dev=bitext
    )
    trainer.train()
    assert {weight.dtype for weight in trainer.model.parameters()} == {torch.float32}
    assert all(torch.isfinite(torch.tensor(line["loss"])) for line in _metrics(tmp_path / "run") if "loss" in line)
    trainer.evaluate()


def test_heads_learn_at_their_own_rate(encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext) -> None:
    arguments = _arguments(tmp_path / "run", learning_rate=1e-4, head_learning_rate=1e-2, weight_decay=0.1)
    objectives = {"translation_ranking": 1.0, "representation_translation": 1.0}
    trainer = _trainer(encoder_folders["bert"], bitext, arguments, objectives=objectives, max_length=64)
    names = {weight: name for name, weight in trainer.model.named_parameters()}
    seen = {}
    assert trainer.create_optimizer() is trainer.create_optimizer()
    for group in trainer.create_optimizer().param_groups:
        for weight in group["params"]:
            seen[names[weight]] = (group["lr"], group["weight_decay"])
    assert len(seen) == len(names)
    for name, (rate, decay) in seen.items():
        assert rate == (1e-2 if name.startswith("objectives.") else 1e-4), name
        assert decay == (0.0 if "bias" in name or "norm" in name.lower() else 0.1), name


def test_batches_of_one_language(encoder_folders: dict[str, Path], tmp_path: Path, bitext: Bitext) -> None:
    arguments = _arguments(tmp_path / "run", one_language_batches=True, per_device_train_batch_size=2)
    trainer = _trainer(encoder_folders["bert"], bitext, arguments)
    rows = list(trainer.train_sampler())
    languages = [bitext[row]["language"] for row in rows]
    assert len(set(languages)) > 1
    assert all(languages[start] == languages[start + 1] for start in range(0, len(rows) - 1, 2))
