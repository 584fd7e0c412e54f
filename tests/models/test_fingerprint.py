from __future__ import annotations

import shutil
from pathlib import Path

import torch

from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.fingerprint import fingerprint_model


def test_a_model_that_was_trained_on_in_its_place_is_another_one(tiny_encoders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoders, folder)
    before = fingerprint_model(str(folder))
    (folder / "results.json").write_text("{}")
    assert fingerprint_model(str(folder)) == before == fingerprint_model(str(tiny_encoders))
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    with torch.no_grad():
        for weight in embedder.model.parameters():
            weight += 1e-3
    embedder.model.encoder.save_pretrained(folder)
    assert fingerprint_model(str(folder)) != before
