from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from sentence_transformers.models import Dense, Pooling, Transformer
from transformers import AutoTokenizer, DistilBertConfig, DistilBertModel, TrainingArguments

from hf_xsent import (
    AlignmentTrainer,
    DapForSentenceEmbedding,
    SentenceEncoderForPreTraining,
    export_sentence_transformer,
)
from hf_xsent.data.sampling.collators import PairCollator
from hf_xsent.errors import ModelError
from hf_xsent.models.config import AlignmentConfig
from hf_xsent.models.loading import load_config
from hf_xsent.objectives.base import Needs
from hf_xsent.training.teacher import Teachers
from sentence_transformers import SentenceTransformer

CPU = torch.device("cpu")
SENTENCES = ["A dog runs.", "The cat drinks milk in a big city.", "a"]


def _student(teacher: Path | str, encoder: Path, **settings: Any) -> AlignmentConfig:
    return AlignmentConfig(
        objectives={"distillation": {"teacher": str(teacher)}},
        encoder_config=load_config(str(encoder)),
        **{"pooling": "mean"} | settings,
    )


def _vectors(teacher: Path, encoder: Path, **settings: Any) -> torch.Tensor:
    """Return what a teacher makes of the targets of a batch."""
    arguments: Any = SimpleNamespace(device=CPU, bf16=False)
    model: Any = SimpleNamespace(config=_student(teacher, encoder, **settings), parameters=tuple)
    teachers = Teachers({"distillation": teacher}, model, arguments)
    taught = teachers({"target_texts": SENTENCES, "x": 1}, CPU)
    assert taught.keys() == {"distillation_teacher_target", "x"}
    vectors: torch.Tensor = taught["distillation_teacher_target"]
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
        np.testing.assert_allclose(_vectors(folder, encoder), _expected(folder), atol=1e-5)


@pytest.mark.parametrize("settings", [{"pooling": "cls"}, {"pooling": "max", "normalize": True, "max_length": 5}])
def test_a_plain_encoder_embeds_like_the_student(encoder_folders: dict[str, Path], settings: dict[str, Any]) -> None:
    encoder = encoder_folders["bert"]
    student = DapForSentenceEmbedding.from_backbone(str(encoder), **settings).eval()
    np.testing.assert_allclose(_vectors(encoder, encoder, **settings), student.encode(SENTENCES), atol=1e-5)


def test_a_teacher_whose_pooling_only_sentence_transformers_chooses_says_so(
    encoder_folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    encoder = encoder_folders["bert"]
    _vectors(_other_family(encoder, tmp_path), encoder)
    assert "states no pooling: SentenceTransformer averages its hidden states" in caplog.text


def test_equal_teachers_embed_a_side_once_and_each_objective_gets_its_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, list[str]]] = []

    def teacher(name: str) -> Any:
        def encode(sentences: list[str]) -> np.ndarray:
            calls.append((name, sentences))
            return np.full((len(sentences), 2), len(name))

        return encode

    sides = {"one": {"target"}, "two": {"source", "target"}, "three": {"target"}}
    kinds = {name: SimpleNamespace(needs=Needs(teacher=frozenset(needed))) for name, needed in sides.items()}
    monkeypatch.setattr("hf_xsent.training.teacher.objective_class", kinds.get)
    same = teacher("a")
    model: Any = SimpleNamespace(config=SimpleNamespace(objectives=sides), parameters=tuple)
    arguments: Any = None  # nothing is opened
    teachers = Teachers({"one": same, "two": same, "three": teacher("other")}, model, arguments)
    taught = teachers({"source_texts": ["x"], "target_texts": ["y"]}, CPU)
    assert calls == [("a", ["y"]), ("a", ["x"]), ("other", ["y"])]
    assert {name: vectors[0, 0].item() for name, vectors in taught.items()} == {
        "one_teacher_target": 1,
        "two_teacher_source": 1,
        "two_teacher_target": 1,
        "three_teacher_target": 5,
    }


def test_a_folder_of_ours_teaches_with_its_own_pooling(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["xlm-roberta"]
    model = DapForSentenceEmbedding.from_backbone(str(encoder), pooling="max").eval()
    tokenizer = AutoTokenizer.from_pretrained(encoder)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    batch = tokenizer(SENTENCES, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = model.embed([batch["input_ids"]], [batch["attention_mask"]])
    torch.testing.assert_close(_vectors(tmp_path, encoder), expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("objective", ["distillation", "interpolation"])
def test_a_start_that_truncates_embeddings_teaches_whole_ones(
    encoder_folders: dict[str, Path], tmp_path: Path, pairs: list[tuple[str, str]], objective: str
) -> None:
    start = DapForSentenceEmbedding.from_backbone(str(encoder_folders["bert"]), pooling="mean")
    folder = str(export_sentence_transformer(start, tmp_path / "export", dim=16, verify=False))
    model = SentenceEncoderForPreTraining.from_pretrained(folder, objectives={objective: 1.0}, dropout=0.0)
    arguments = TrainingArguments(
        str(tmp_path / "run"), max_steps=1, use_cpu=True, report_to="none", save_strategy="no"
    )
    start, theirs = SentenceEncoderForPreTraining.from_pretrained(folder), SentenceTransformer(folder, device="cpu")
    of_distillation = [folder, start, start.encode, theirs, theirs.encode]
    for teacher in of_distillation if objective == "distillation" else [None]:
        trainer = AlignmentTrainer(model, arguments, {"de": pairs}, teachers={objective: teacher})
        trainer.train(overwrite=True)
        assert model.encode(["a dog"]).shape == (1, 16), "it truncates as the start does"


def test_a_teacher_of_another_width_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["bert"]
    folder = _dense(encoder, tmp_path / "dense", 12)
    with pytest.raises(
        ModelError, match="has embeddings of width 12, the student of 32: choose models of equal width$"
    ):
        _vectors(folder, encoder)


def test_a_teacher_in_memory_that_does_not_fit_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["bert"]
    given: Any = SentenceTransformer(str(_dense(encoder, tmp_path / "dense", 12)), device="cpu")
    with pytest.raises(ModelError, match="the teacher SentenceTransformer has embeddings of width 12, the student of"):
        _vectors(given, encoder)
    with pytest.raises(ModelError, match="^the teacher DistilBertModel has no encode: give a folder"):
        _vectors(DistilBertModel.from_pretrained(_other_family(encoder, tmp_path / "other")), encoder)


def test_a_teacher_that_wants_to_know_the_language_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["bert"]
    DapForSentenceEmbedding.from_backbone(str(encoder), languages=["de", "en"]).save_pretrained(tmp_path)
    AutoTokenizer.from_pretrained(encoder).save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="cannot encode text alone: this model has language embeddings") as error:
        _vectors(tmp_path, encoder)
    assert "\n" not in str(error.value)


def test_a_folder_that_is_not_a_model_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="^the teacher cannot be loaded: the model folder .* has no readable config"):
        _vectors(tmp_path, encoder_folders["bert"])


def test_a_teacher_without_some_of_its_weights_is_refused(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    encoder = encoder_folders["bert"]
    shutil.copytree(encoder, tmp_path / "teacher")
    config = json.loads((encoder / "config.json").read_text()) | {"num_hidden_layers": 4}
    (tmp_path / "teacher/config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="teacher' lacks 16 weights"):
        _vectors(tmp_path / "teacher", encoder)


def test_the_batch_has_the_texts_that_teachers_read(encoder_folders: dict[str, Path]) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    examples = [{"source": "Ja", "target": one, "language": "de"} for one in SENTENCES]
    batch = PairCollator(tokenizer, 8, texts=("source", "target"))(examples)
    assert (batch["source_texts"], batch["target_texts"]) == (["Ja"] * 3, SENTENCES)
    assert not any(name.endswith("_texts") for name in PairCollator(tokenizer, 8)(examples))
