"""Dual pivot as a sentence-transformers folder that needs nothing of ours."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import DualPivotForPreTraining, SentenceEmbedder, export_sentence_transformer
from hf_xsent.errors import ModelError

FOREIGN = """
import sys
sys.modules["hf_xsent"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu", local_files_only=True)
np.save(sys.argv[2], model.encode(open(sys.argv[3], encoding="utf-8").read().splitlines()))
"""


def _model(folder: Path, **settings: object) -> DualPivotForPreTraining:
    model = DualPivotForPreTraining.from_backbone(str(folder), max_length=64, **settings)
    with torch.no_grad():
        for weight in (model.layer_scores, *(model.linear_map.parameters() if model.linear_map is not None else ())):
            if weight is not None:
                weight.add_(torch.randn_like(weight))
    return model


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"layers": [1, 2]},
        {"layer_mix": False},
        {"linear_map": False},
        {"variant": "authors", "layer_norm": False},
        {"variant": "authors", "layer_mix": False},
    ],
    ids=lambda one: str([*one]),
)
def test_exported_vectors_are_the_model_s(
    settings: dict[str, object], tiny_encoders: Path, sentences: list[str], tmp_path: Path
) -> None:
    model = _model(tiny_encoders, **settings)
    model.save_pretrained(tmp_path / "run")
    AutoTokenizer.from_pretrained(tiny_encoders).save_pretrained(tmp_path / "run")
    exported = export_sentence_transformer(tmp_path / "run", tmp_path / "exported")  # compares the vectors itself
    kinds = [one["type"].rsplit(".", 1)[-1] for one in json.loads((exported / "modules.json").read_text())]
    dense = [] if settings.get("linear_map") is False else ["Dense"]
    assert kinds == ["Transformer", "WeightedLayerPooling", "Pooling", *dense, "Normalize"]
    from sentence_transformers import SentenceTransformer

    ours = SentenceEmbedder.from_pretrained(str(tmp_path / "run")).encode(sentences)
    theirs = SentenceTransformer(str(exported), device="cpu", local_files_only=True).encode(sentences)
    assert abs(ours - theirs).max() < 1e-5
    reopened = SentenceEmbedder.from_pretrained(str(exported)).encode(sentences)
    assert abs(ours - reopened).max() < 1e-5


def test_an_exported_extraction_has_no_other_pooling(tiny_encoders: Path, tmp_path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_encoders)
    exported = export_sentence_transformer(_model(tiny_encoders), tmp_path / "exported", tokenizer)
    with pytest.raises(ModelError, match="mixes its layers"):
        SentenceEmbedder.from_pretrained(str(exported), pooling="cls")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"variant": "authors"}, "layer norm of each token.*layer_norm: false"),
        ({"map_bias": True}, "sum over tokens.*map_bias.*pooling: mean"),
    ],
)
def test_what_sentence_transformers_cannot_compute_is_not_exported(
    settings: dict[str, object], message: str, encoder_folders: dict[str, Path], tmp_path: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(encoder_folders["bert"])
    with pytest.raises(ModelError, match=message):
        export_sentence_transformer(_model(encoder_folders["bert"], **settings), tmp_path / "exported", tokenizer)
    assert not (tmp_path / "exported").exists()


def test_without_normalising_the_cosines_are_the_model_s(tiny_encoders: Path, tmp_path: Path) -> None:
    model = _model(tiny_encoders, normalize=False)
    exported = export_sentence_transformer(model, tmp_path / "exported", AutoTokenizer.from_pretrained(tiny_encoders))
    assert not any(exported.glob("*_Normalize"))


@pytest.mark.slow
def test_another_process_opens_it_without_our_code(
    encoder_folders: dict[str, Path], sentences: list[str], tmp_path: Path
) -> None:
    folder = encoder_folders["xlm-roberta"]
    model, tokenizer = _model(folder), AutoTokenizer.from_pretrained(folder)
    exported = export_sentence_transformer(model, tmp_path / "exported", tokenizer)
    ours = SentenceEmbedder(model, tokenizer).encode(sentences)
    (tmp_path / "text").write_text("\n".join(sentences), encoding="utf-8")
    arguments = [str(exported), str(tmp_path / "v.npy"), str(tmp_path / "text")]
    subprocess.run([sys.executable, "-c", FOREIGN, *arguments], check=True)
    assert abs(ours - np.load(tmp_path / "v.npy")).max() < 1e-5
