"""The log of each objective's gradient norm: exact, without any effect on training."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import AlignmentTrainer, AlignmentTrainingArguments, XlmrWithRTLHead, load_bitext
from hf_xsent.data.bitext import Bitext
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import RecipeError
from hf_xsent.models.pretraining import SentenceEncoderForPreTraining
from hf_xsent.training.gradient_norms import GradientNorms

Pairs = list[tuple[str, str]]
OBJECTIVES = {
    "translation_ranking": {"weight": 0.5, "temperature": 0.1},
    "representation_translation": {"weight": 0.25, "head_layers": 1},
    "masked_language_modeling": {"weight": 2.0},
    "mexma": {"weight": 1.0},
}


@pytest.fixture
def batch(tiny_encoders: Path, pairs: Pairs) -> dict[str, Any]:
    examples = [{"source": source, "target": target, "language": "de"} for source, target in pairs]
    return dict(PairCollator(AutoTokenizer.from_pretrained(tiny_encoders), max_length=24)(examples))


def _model(encoder: Path, objectives: dict[str, Any]) -> SentenceEncoderForPreTraining:
    settings: dict[str, Any] = {"objectives": objectives, "max_length": 24, "pooling": "mean"}
    return XlmrWithRTLHead.from_backbone(str(encoder), **settings).train()


def _norm_alone(model: SentenceEncoderForPreTraining, batch: dict[str, Any], name: str) -> float:
    """The gradient of the whole loss where all other objectives have a weight of almost nothing."""
    alone: Any = copy.deepcopy(model)
    for other, settings in alone.config.objectives.items():
        object.__setattr__(settings, "weight", 1.0 if other == name else 0.0)
    torch.manual_seed(3)
    alone(**batch).loss.backward()
    gradients = [weight.grad.flatten() for weight in alone.encoder.parameters() if weight.grad is not None]
    return float(torch.cat(gradients).norm())


def test_each_norm_is_that_of_a_backward_pass_of_the_objective_alone(
    tiny_encoders: Path, batch: dict[str, Any]
) -> None:
    model = _model(tiny_encoders, OBJECTIVES)
    norms = GradientNorms(model)
    torch.manual_seed(3)
    state = torch.get_rng_state()
    norms.measure(model, batch)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(weight.grad is None for weight in model.parameters())
    found = norms.take()
    assert list(found) == [f"gradient_norm_{name}" for name in OBJECTIVES]
    for name in OBJECTIVES:
        assert found[f"gradient_norm_{name}"] == pytest.approx(_norm_alone(model, batch, name), rel=1e-4)
    assert norms.take() == {}


def test_keys_of_momentum_contrast_enter_the_queue_once(tiny_encoders: Path, batch: dict[str, Any]) -> None:
    contrast = {"momentum_contrast": {"weight": 1, "queue_size": 64, "projection": 8}}
    model: Any = _model(tiny_encoders, contrast)
    norms = GradientNorms(model)
    norms.measure(model, batch)
    model(**batch)
    model.end_step()
    assert int(model.objectives["momentum_contrast"].pointer) == len(batch["source_input_ids"])


@pytest.fixture
def bitext(tmp_path: Path, pairs: Pairs) -> Bitext:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    (tmp_path / "de.tsv").write_text(text, encoding="utf-8")
    return load_bitext(str(tmp_path / "{language}.tsv"), cleaning=None, cache_dir=tmp_path / "cache")


def _arguments(folder: Path, **settings: Any) -> AlignmentTrainingArguments:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "use_cpu": True,
        "per_device_train_batch_size": 8,
        "max_steps": 6,
        "logging_steps": 3,
        "eval_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
    }
    return AlignmentTrainingArguments(**defaults | settings)


def _losses(encoder: Path, folder: Path, bitext: Bitext, **settings: Any) -> list[dict[str, Any]]:
    arguments = _arguments(folder, **settings)
    torch.manual_seed(0)
    model = _model(encoder, {name: OBJECTIVES[name] for name in ("translation_ranking", "masked_language_modeling")})
    AlignmentTrainer(model, arguments, bitext, None, AutoTokenizer.from_pretrained(encoder)).train()
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line for line in lines if "loss" in line]


def test_norms_are_logged_at_logging_steps_and_training_is_the_same(
    tiny_encoders: Path, tmp_path: Path, bitext: Bitext
) -> None:
    plain = _losses(tiny_encoders, tmp_path / "plain", bitext)
    logged = _losses(tiny_encoders, tmp_path / "logged", bitext, log_gradient_norms=True)
    assert [line["step"] for line in logged] == [3, 6]
    assert [line["loss"] for line in logged] == [line["loss"] for line in plain]
    for line in logged:
        assert line["gradient_norm_translation_ranking"] > 0 and line["gradient_norm_masked_language_modeling"] > 0
    assert not any(name.startswith("gradient_norm") for line in plain for name in line)


def test_a_frozen_encoder_is_refused(tiny_encoders: Path, tmp_path: Path, bitext: Bitext) -> None:
    model = _model(tiny_encoders, {"representation_translation": 1.0})
    model.encoder.requires_grad_(False)
    arguments = _arguments(tmp_path, log_gradient_norms=True)
    with pytest.raises(RecipeError, match="frozen"):
        AlignmentTrainer(model, arguments, bitext, None, AutoTokenizer.from_pretrained(tiny_encoders))
