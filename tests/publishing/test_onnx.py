"""ONNX files give the vectors of their export, at every batch and length."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoTokenizer

from hf_xsent import DapForSentenceEmbedding, SentenceEmbedder, evaluate, export_sentence_transformer
from hf_xsent.cli import main
from hf_xsent.errors import MissingExtraError, ModelError, OutputError
from hf_xsent.models.loading import load_encoder
from hf_xsent.models.sentence_transformer_files import read_modules
from hf_xsent.publishing import onnx

needs_onnx = pytest.mark.skipif(find_spec("onnxruntime") is None, reason="the extra onnx is not installed")


PROMPT = {"prompts": {"query": "the dog: ", "other": "x"}, "default_prompt_name": "query"}


def _export(encoder: Path, folder: Path, **settings: Any) -> Path:
    model = DapForSentenceEmbedding.from_backbone(str(encoder), **settings).eval()
    return export_sentence_transformer(model, folder, AutoTokenizer.from_pretrained(encoder), verify=False)


@needs_onnx
@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("bert", {"pooling": "cls", "max_length": 12, "normalize": True}),
        ("xlm-roberta", {"pooling": "mean", "max_length": 128, **PROMPT}),
        ("modernbert", {"pooling": "max", "max_length": 40}),
    ],
)
def test_the_vectors_are_the_same(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str], family: str, settings: dict[str, Any]
) -> None:
    folder = _export(encoder_folders[family], tmp_path / family, **settings)
    assert onnx.export_onnx(folder) == folder / "onnx" / "model.onnx"
    assert [path.name for path in (folder / "onnx").iterdir()] == ["model.onnx"]
    ours = SentenceEmbedder.from_pretrained(str(folder), device="cpu").encode(sentences)
    np.testing.assert_allclose(onnx.OnnxEncoder(folder).encode(sentences), ours, atol=1e-4)
    single = onnx.OnnxEncoder(folder).encode(sentences[:1])
    np.testing.assert_allclose(single, ours[:1], atol=1e-4)


class _TorchSession:
    """What ``OnnxEncoder`` uses of onnxruntime, computed by torch."""

    def __init__(self, path: str, providers: list[str]) -> None:
        folder = str(Path(path).parents[1])
        names = ["input_ids", "attention_mask"]
        self.model = onnx._Sentences(load_encoder(folder), names, read_modules(folder), torch.nn.Identity()).eval()

    @torch.no_grad()
    def run(self, outputs: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
        assert outputs == ["sentence_embedding"]
        return [self.model(*(torch.tensor(inputs[name]) for name in self.model.names))[1].numpy()]


@pytest.mark.parametrize("settings", [{}, PROMPT, PROMPT | {"default_prompt_name": None}], ids=["none", "one", "named"])
def test_the_default_prompt_precedes_each_sentence(
    encoder_folders: dict[str, Path],
    tmp_path: Path,
    sentences: list[str],
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
) -> None:
    """Without onnxruntime; ``test_the_vectors_are_the_same`` has a prompt with it."""
    folder = _export(encoder_folders["xlm-roberta"], tmp_path / "out", pooling="mean", max_length=12, **settings)
    monkeypatch.setattr(onnx, "load_onnxruntime", lambda: SimpleNamespace(InferenceSession=_TorchSession))
    vectors = onnx.OnnxEncoder(folder).encode(sentences)
    assert onnx.OnnxEncoder(folder).encode([]).shape == (0, vectors.shape[1])
    with pytest.raises(ModelError, match="encode takes a list of sentences, not str"):
        onnx.OnnxEncoder(folder).encode(sentences[0])
    prompt = "the dog: " if settings.get("default_prompt_name") else ""
    embedder = SentenceEmbedder.from_pretrained(str(folder), device="cpu")
    np.testing.assert_allclose(vectors, embedder.encode([prompt + one for one in sentences], prompt=""), atol=1e-5)
    for ours, theirs in ((onnx.OnnxEncoder(folder).encode_query, embedder.encode_query),
                         (onnx.OnnxEncoder(folder).encode_document, embedder.encode_document)):  # fmt: skip
        np.testing.assert_allclose(ours(sentences), theirs(sentences), atol=1e-5)
    pairs = {"de": list(zip(sentences, sentences[1:], strict=False))}
    (report,) = evaluate(onnx.OnnxEncoder(folder), pairs=pairs).reports
    assert report.settings == {"model": "OnnxEncoder"}


@pytest.mark.parametrize(
    ("extra", "flags"),
    [("onnx", ["--onnx", "float32"]), ("onnx", ["--openvino", "true"]), ("gguf", ["--gguf", "float16"])],
)
def test_a_missing_extra_is_named_before_the_model_is_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], extra: str, flags: list[str]
) -> None:
    for name in ("onnxruntime", "openvino", "gguf"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["export", str(tmp_path / "no-model"), "--output", str(tmp_path / "out"), *flags]) == 2
    assert f'pip install "hf-xsent[{extra}]"' in capsys.readouterr().err


@needs_onnx
@pytest.mark.slow
def test_large_weights_are_in_a_second_file_named_after_the_first(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.onnx._internal.exporter._onnx_program._LARGE_MODEL_THRESHOLD", 1000)
    folder = _export(encoder_folders["bert"], tmp_path / "out")
    for _ in range(2):
        onnx.export_onnx(folder)
        assert sorted(path.name for path in (folder / "onnx").iterdir()) == ["model.onnx", "model.onnx.data"]
    ours = SentenceEmbedder.from_pretrained(str(folder), device="cpu").encode(["The dog sleeps."])
    np.testing.assert_allclose(onnx.OnnxEncoder(folder).encode(["The dog sleeps."]), ours, atol=1e-4)


@needs_onnx
@pytest.mark.slow
def test_int8_is_smaller_and_similar(
    encoder_folders: dict[str, Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    _export(encoder_folders["bert"], tmp_path / "out", pooling="mean")
    folder = tmp_path / "quantized"
    assert main(["export", str(tmp_path / "out"), "--output", str(folder), "--onnx", "int8"]) == 0
    assert any(message.startswith("int8: the smallest cosine with float32") for message in caplog.messages)
    plain, quantized = folder / onnx.ONNX, folder / onnx.ONNX_INT8
    assert quantized.stat().st_size < 0.8 * plain.stat().st_size
    whole, small = (onnx.OnnxEncoder(folder, file).encode(["The dog sleeps."]) for file in (onnx.ONNX, onnx.ONNX_INT8))
    assert 0.98 < float((whole * small).sum() / np.linalg.norm(whole) / np.linalg.norm(small)) < 1
    assert 0.95 < onnx.quantize_onnx(folder) < 1


def test_the_folder_of_javascript_runtimes_needs_the_check(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(tmp_path), "--output", "out", "--node", "x"]) == 2
    assert "--node is for opening the export in other runtimes: add --check" in capsys.readouterr().err


@needs_onnx
def test_a_model_that_differs_is_not_written(
    encoder_folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = _export(encoder_folders["bert"], tmp_path / "out")
    monkeypatch.setattr(onnx, "_export", lambda model, batch, path: path.write_bytes(b"wrong"))
    monkeypatch.setattr(onnx, "_difference", lambda model, path, batch: 0.01)
    with pytest.raises(ModelError, match=r"differ from torch's by 1\.0e-02: nothing was written"):
        onnx.export_onnx(folder)
    assert not (folder / "onnx").exists()


def test_missing_files_and_packages_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OutputError, match="is not an export: write one with hf-xsent export"):
        onnx.export_onnx(tmp_path)
    (tmp_path / "modules.json").write_text("[]")
    (tmp_path / "config.json").write_text('{"hf_xsent": {}}')
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", None)
    with pytest.raises(MissingExtraError, match=r'pip install "hf-xsent\[onnx\]"'):
        onnx.export_onnx(tmp_path)


OPEN_WITH_ONNX = """
import sys
import numpy as np
from sentence_transformers import SentenceTransformer
np.save(sys.argv[2], SentenceTransformer(sys.argv[1], backend="onnx").encode(sys.argv[3:]))
"""


@needs_onnx
@pytest.mark.slow
def test_sentence_transformers_onnx_backend_gives_our_vectors(
    encoder_folders: dict[str, Path], tmp_path: Path, sentences: list[str]
) -> None:
    """It needs optimum-onnx, and that transformers 4: HF_XSENT_ONNX_PYTHON is a Python that has both."""
    python = os.environ.get("HF_XSENT_ONNX_PYTHON")
    if python is None:
        pytest.skip("HF_XSENT_ONNX_PYTHON is unset: make test-extras sets it")
    folder = _export(encoder_folders["bert"], tmp_path / "out", pooling="mean", max_length=16)
    onnx.export_onnx(folder)
    plain = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"} | {"HF_HUB_OFFLINE": "1"}
    output = tmp_path / "found.npy"
    command = [python, "-c", OPEN_WITH_ONNX, str(folder), str(output), *sentences]
    done = subprocess.run(command, env=plain, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_allclose(np.load(output), onnx.OnnxEncoder(folder).encode(sentences), atol=1e-4)
