from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from hf_xsent.errors import ModelError
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.models.loading import load_tokenizer
from hf_xsent.models.sentence_transformer_files import read_json
from hf_xsent.runs.identity import identify_model


def test_a_model_that_was_trained_on_in_its_place_is_another_one(tiny_encoders: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(tiny_encoders, folder)
    before = identify_model(str(folder))
    (folder / "results.json").write_text("{}")
    assert identify_model(str(folder)) == before == identify_model(str(tiny_encoders))
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    with torch.no_grad():
        for weight in embedder.model.parameters():
            weight += 1e-3
    embedder.model.encoder.save_pretrained(folder)
    assert identify_model(str(folder)) != before


def test_models_that_differ_in_one_byte_or_a_token_are_different_models(tmp_path: Path) -> None:
    weights, found = bytearray(1 << 20), set()
    for place in (500_000, 500_001, 700_000):
        weights[place] = 1
        (tmp_path / "model.safetensors").write_bytes(weights)
        found.add(identify_model(str(tmp_path)))
    for name in ("special_tokens_map.json", "added_tokens.json", "merges.txt", "sentence_bert_config.json"):
        (tmp_path / name).write_text("{}")
        found.add(identify_model(str(tmp_path)))
    assert len(found) == 7


def test_exports_that_differ_in_a_module_are_different_models(encoder_folders: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "exported"
    shutil.copytree(encoder_folders["bert"], folder)
    plain = identify_model(str(folder))
    modules = [{"type": "Transformer", "path": ""}, {"type": "Dense", "path": "3_Dense"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    found = {plain, identify_model(str(folder))}
    (folder / "3_Dense").mkdir()
    for name in ("config.json", "model.safetensors", "model.safetensors"):
        (folder / "3_Dense" / name).write_text(f"{len(found)}")
        found.add(identify_model(str(folder)))
    assert len(found) == 5
    (folder / "checkpoint-3").mkdir()
    (folder / "checkpoint-3" / "config.json").write_text("{}")
    assert identify_model(str(folder)) in found
    (folder / "modules.json").write_text("[3]")
    with pytest.raises(ModelError, match="is not a list of modules"):
        identify_model(str(folder))


def test_a_model_of_the_hub_is_known_by_its_revision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached, revision = tmp_path / "models--org--name", "0123456789abcdef0123456789abcdef01234567"
    (cached / "snapshots" / revision).mkdir(parents=True)
    (cached / "snapshots" / revision / "config.json").write_text('{"model_type": "bert"}')
    (cached / "refs").mkdir()
    (cached / "refs" / "main").write_text(revision)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert identify_model("org/name") == f"org/name@{revision}"
    assert read_json("org/name", "config.json") == {"model_type": "bert"}
    assert read_json("org/name", "modules.json", list) == []
    (cached / "snapshots" / revision / "small").mkdir()
    (cached / "snapshots" / revision / "small" / "config.json").write_text("{}")
    assert identify_model("org/name", subfolder="small") == f"org/name/small@{revision}"
    for opening in (identify_model, load_tokenizer, SentenceEmbedder.from_pretrained):
        with pytest.raises(
            ModelError, match="^'org/none' is not a folder, and as a Hub id it has no readable .*give the folder of a"
        ):
            opening("org/none")


def test_a_subfolder_is_identified_by_its_files(encoder_folders: dict[str, Path]) -> None:
    folder = encoder_folders["bert"]
    assert identify_model(str(folder.parent), subfolder=folder.name) == identify_model(str(folder))
