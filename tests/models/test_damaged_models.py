"""A model folder with a damaged file is refused in one sentence that names the folder and the file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hf_xsent.errors import ModelError
from hf_xsent.models.dual_pivot import DualPivotForPreTraining, DualPivotForSentenceEmbedding
from hf_xsent.models.embedder import SentenceEmbedder
from hf_xsent.publishing.sentence_transformer import export_sentence_transformer


@pytest.fixture(scope="module")
def export(encoder_folders: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with every kind of module: a mix of layers, pooling, and a linear map."""
    embedder = SentenceEmbedder.from_pretrained(str(encoder_folders["bert"]))
    model = DualPivotForPreTraining.from_backbone(str(encoder_folders["bert"]), objectives={"triplet_ranking": 1})
    folder = tmp_path_factory.mktemp("exports") / "export"
    return export_sentence_transformer(model, folder, tokenizer=embedder.tokenizer, verify=False)


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[1, 2]", b'"text"', b'{"a": 1}', b"x" * 100])
def test_a_damaged_file_of_an_export_is_named(export: Path, tmp_path: Path, content: bytes) -> None:
    files = [file.relative_to(export) for file in export.rglob("*") if file.suffix in (".json", ".safetensors")]
    assert len(files) >= 10
    for file in files:
        folder = tmp_path / str(file).replace("/", "-")
        shutil.copytree(export, folder)
        (folder / file).write_bytes(content)
        try:
            SentenceEmbedder.from_pretrained(str(folder))  # some files have defaults
        except ModelError as error:
            assert str(folder) in str(error) and "\n" not in str(error)
        shutil.rmtree(folder)


def test_a_folder_without_settings_of_a_module_is_refused(export: Path, tmp_path: Path) -> None:
    shutil.copytree(export, tmp_path / "model")
    for modules, message in (([{"idx": 0}], "without types and paths"), ({}, "readable modules.json")):
        (tmp_path / "model/modules.json").write_text(json.dumps(modules))
        with pytest.raises(ModelError, match=message):
            SentenceEmbedder.from_pretrained(str(tmp_path / "model"))


@pytest.mark.parametrize("size", [0, 3, 200])
def test_truncated_weights_are_named(encoder_folders: dict[str, Path], tmp_path: Path, size: int) -> None:
    shutil.copytree(encoder_folders["bert"], tmp_path / "model")
    weights = tmp_path / "model/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:size])
    with pytest.raises(ModelError, match=r"has no readable weights \(model.safetensors\)"):
        SentenceEmbedder.from_pretrained(str(tmp_path / "model"))


def test_a_model_is_not_saved_without_its_tokenizer_because_that_is_damaged(export: Path, tmp_path: Path) -> None:
    shutil.copytree(export, tmp_path / "model")
    (tmp_path / "model/tokenizer.json").write_bytes(b"{")
    model = DualPivotForSentenceEmbedding.from_pretrained(tmp_path / "model")
    with pytest.raises(ModelError, match="has no readable tokenizer"):
        model.save_pretrained(tmp_path / "saved")
