from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers.models import Dense, Pooling, Transformer
from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel

from hf_xsent import DapForSentenceEmbedding
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import ModelError
from hf_xsent.training.teacher import Teacher
from sentence_transformers import SentenceTransformer

CPU = torch.device("cpu")
SENTENCES = ["A dog runs.", "The cat drinks milk in a big city.", "a"]


def _vectors(teacher: Teacher) -> torch.Tensor:
    batch = teacher({"target_texts": SENTENCES, "other": 1}, CPU)
    assert batch.keys() == {"teacher_vectors", "other"}
    vectors: torch.Tensor = batch["teacher_vectors"]
    assert vectors.dtype == torch.float32 and not vectors.requires_grad and not vectors.is_inference()
    return vectors


def _expected(folder: Path) -> np.ndarray:
    return np.asarray(SentenceTransformer(str(folder), device="cpu").encode(SENTENCES))


def _dense(encoder: Path, folder: Path, width: int) -> Path:
    transformer = Transformer(str(encoder))
    SentenceTransformer(modules=[transformer, Pooling(32), Dense(32, width)], device="cpu").save(str(folder))
    return folder


def _other_family(encoder: Path, folder: Path) -> Path:
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    DistilBertModel(
        DistilBertConfig(vocab_size=len(tokenizer), dim=32, n_heads=4, n_layers=1, hidden_dim=64)
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_a_teacher_is_whatever_opens(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    """A plain encoder, one with a layer of its own on top, one of a family that we do not know."""
    encoder = encoder_folders["bert"]
    folders = [encoder, _dense(encoder, tmp_path / "dense", 32), _other_family(encoder, tmp_path / "distilbert")]
    for folder in folders:
        np.testing.assert_allclose(_vectors(Teacher.load(str(folder), 32, CPU)), _expected(folder), atol=1e-5)


def test_a_folder_of_ours_teaches_with_its_own_pooling(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["xlm-roberta"]
    model = DapForSentenceEmbedding.from_backbone(str(encoder), pooling="max").eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.embed([batch["input_ids"]], [batch["attention_mask"]])
    torch.testing.assert_close(_vectors(Teacher.load(str(tmp_path), 32, CPU)), expected, atol=1e-5, rtol=1e-4)


def test_a_teacher_of_another_width_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = _dense(encoder_folders["bert"], tmp_path / "dense", 12)
    with pytest.raises(
        ModelError, match="has embeddings of width 12, the student of 32: choose models of equal width$"
    ):
        Teacher.load(str(folder), 32, CPU)


def test_a_teacher_that_wants_to_know_the_language_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["bert"]
    DapForSentenceEmbedding.from_backbone(str(encoder), languages=["de", "en"]).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot encode text alone: this model has language embeddings") as error:
        Teacher.load(str(tmp_path), 32, CPU)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="^the teacher cannot be loaded: the model folder .* has no readable config"):
        Teacher.load(str(tmp_path), 32, CPU)


def test_the_batch_carries_the_targets_as_they_are(encoder_folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    examples = [{"source": "Ja", "target": one, "language": "de"} for one in SENTENCES]
    assert PairCollator(tokenizer, 8, target_texts=True)(examples)["target_texts"] == SENTENCES
    assert "target_texts" not in PairCollator(tokenizer, 8)(examples)
