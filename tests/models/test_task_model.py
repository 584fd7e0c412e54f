"""Hugging Face's task models without padding: the same numbers, the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModel,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

from hf_xsent import MoCoAlignedBert, export_sentence_transformer
from hf_xsent.models.task_model import task_model

KINDS = [AutoModelForSequenceClassification, AutoModelForQuestionAnswering]


def _batch(folder: Path) -> dict[str, Tensor]:
    """Two texts a row, of many lengths; BERT's tokens of the second one are of type 1."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    firsts, seconds = (
        ["The dog sleeps.", "We eat bread.", "a"],
        ["Der Hund schläft im Garten.", "du", "Ich lese ein Buch."],
    )
    return dict(tokenizer(firsts, seconds, padding=True, return_tensors="pt"))


def _logits(outputs: Any) -> list[Tensor]:
    return [outputs.logits] if "logits" in outputs else [outputs.start_logits, outputs.end_logits]


@pytest.mark.parametrize("kind", KINDS)
def test_the_scores_are_those_of_the_plain_model_that_it_saves(tiny_encoders: Path, kind: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = task_model(str(tiny_encoders), kind).eval()
    model.save_pretrained(tmp_path)
    plain = kind.from_pretrained(tmp_path).eval()
    batch = _batch(tiny_encoders)
    assert "token_type_ids" not in batch or batch["token_type_ids"].any()
    real = batch["attention_mask"].bool()
    for ours, theirs in zip(_logits(model(**batch)), _logits(plain(**batch)), strict=True):
        if kind is AutoModelForQuestionAnswering:  # a score a token: those of padding mean nothing
            ours, theirs = ours[real], theirs[real]
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-4)


def test_gradients_reach_the_whole_encoder(encoder_folders: dict[str, Path]) -> None:
    model = task_model(str(encoder_folders["bert"]), AutoModelForSequenceClassification)
    model(**_batch(encoder_folders["bert"])).logits.square().sum().backward()
    unused = {name for name, weight in model.named_parameters() if weight.grad is None}
    assert unused == set()


def test_ours_exported_and_plain_start_equally(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = encoder_folders["bert-mlm"]
    trained = MoCoAlignedBert.from_backbone(
        str(folder), objectives={"momentum_contrast": {"queue_size": 4}}, max_length=32
    )
    trained.save_pretrained(tmp_path / "ours")
    AutoTokenizer.from_pretrained(folder).save_pretrained(tmp_path / "ours")
    export_sentence_transformer(tmp_path / "ours", tmp_path / "exported", verify=False)
    found = []
    for name in (tmp_path / "ours", tmp_path / "exported", folder):
        torch.manual_seed(1)
        found.append(task_model(str(name), AutoModelForSequenceClassification, num_labels=3).eval())
    plain = AutoModel.from_pretrained(folder).state_dict()
    for model in found:
        for name, weight in model.base_model.state_dict().items():
            assert name.startswith("pooler.") or torch.equal(weight, plain[name]), name
        assert model.config.num_labels == 3
    batch = _batch(folder)
    assert torch.equal(found[0](**batch).logits, found[1](**batch).logits)
    assert torch.equal(found[0](**batch).logits, found[2](**batch).logits)
