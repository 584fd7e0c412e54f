"""The scripts and the notebook of examples/ run as they are, on tiny models and files."""

from __future__ import annotations

import json
import runpy
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from huggingface_hub import ModelCard
from transformers import AutoModel

from hf_xsent import SentenceEmbedder, SentenceEncoderForPreTraining, export_sentence_transformer
from hf_xsent.errors import DataError, OutputError
from sentence_transformers import SentenceTransformer

EXAMPLES = Path(__file__).parents[1] / "examples"
LONGEST_SCRIPT = 60


@pytest.fixture
def folder(
    encoder_folders: dict[str, Path], pairs: list[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A working folder with pairs, two text files and a Tatoeba test set."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HF_XSENT_ENCODER", str(encoder_folders["bert"]))
    Path("pairs.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs), "utf-8")
    Path("tatoeba").mkdir()
    for side, names in enumerate(
        (["news.sw.txt", "tatoeba/tatoeba.swh-eng.swh"], ["news.en.txt", "tatoeba/tatoeba.swh-eng.eng"])
    ):
        for name in names:
            Path(name).write_text("".join(f"{pair[side]}\n" for pair in pairs), "utf-8")
    return tmp_path


def _run(script: str, *arguments: Any) -> None:
    argv, sys.argv = sys.argv, [script, *map(str, arguments)]
    try:
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
    finally:
        sys.argv = argv


def test_training_and_publishing(
    folder: Path, encoder_folders: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    encoder = encoder_folders["bert"]
    train = ("train.py", "--model", encoder, "--data", "sw=pairs.tsv", "--output", "run", "--dev_pairs", 2, "--steps")
    _run(*train, 2)
    assert "accuracy@1 on dev" in capsys.readouterr().out
    with pytest.raises(OutputError, match="holds a run"):
        _run(*train, 1)
    shutil.rmtree("run")
    _run(*train, 1)
    assert type(AutoModel.from_pretrained("run")).__name__ == "AlignmentForSentenceEmbedding"
    options = ["--tatoeba", "tatoeba", "--languages", "sw", "--base_model", "org/encoder", "--output", "exported"]
    _run("evaluate_and_publish.py", "run", "org/mine", *options)
    card = ModelCard(Path("exported/README.md").read_text("utf-8"))
    assert card.data.base_model == "org/encoder" and "| swh | 16 |" in card.text


def test_training_with_sentence_transformers(folder: Path, encoder_folders: dict[str, Path]) -> None:
    options = ["--data", "sw=pairs.tsv", "--steps", 2, "--dev_pairs", 2, "--dims", 32, 16, "--output", "run"]
    _run("train_with_sentence_transformers.py", "--model", encoder_folders["bert"], *options)
    assert SentenceTransformer("run", local_files_only=True).encode(["Where?"]).shape == (1, 32)


def test_mining_and_training(folder: Path, encoder_folders: dict[str, Path]) -> None:
    options = ["--threshold", 0, "--min_score", -1, "--steps", 2, "--dev_pairs", 1, "--output", "mined"]
    _run(
        "mine_and_train.py", "news.sw.txt", "news.en.txt", "--language", "und", "--target_language", "und",
        "--model", encoder_folders["bert"], *options,
    )  # fmt: skip
    assert Path("mined/model/model.safetensors").is_file()
    with pytest.raises(DataError, match="no pairs|cleaning removed"):  # none is above the threshold
        _run("mine_and_train.py", "news.sw.txt", "news.en.txt", "--language", "und", "--model", encoder_folders["bert"],
             "--threshold", 9, "--output", "none")  # fmt: skip


def test_mined_pairs_are_trained_with_the_pooling_of_the_start(folder: Path, encoder_folders: dict[str, Path]) -> None:
    start = SentenceEncoderForPreTraining.from_pretrained(str(encoder_folders["bert"]), pooling="cls")
    start.save_pretrained("start")
    options = ["--threshold", 0, "--min_score", -1, "--steps", 1, "--dev_pairs", 1, "--output", "mined"]
    languages = ["--language", "und", "--target_language", "und"]
    _run("mine_and_train.py", "news.sw.txt", "news.en.txt", *languages, "--model", "start", *options)
    assert SentenceEmbedder.from_pretrained("mined/model").pooling == "cls"


def test_the_embeddings_of_the_page_are_compared_by_cosine(
    folder: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    exported = export_sentence_transformer(str(encoder_folders["bert"]), "exported")  # does not normalize
    for name in ("tokenizer.json", "onnx/model_quantized.onnx"):
        (exported / name).parent.mkdir(exist_ok=True)
        (exported / name).touch()
    monkeypatch.setattr("hf_xsent.publishing.onnx.OnnxEncoder", lambda path, _: SentenceEmbedder.from_pretrained(path))
    _run("browser/prepare.py", exported, "news.sw.txt", "--site", "site")
    vectors = np.fromfile("site/embeddings.bin", dtype=np.float32).reshape(16, -1)
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1)


def test_the_notebook(folder: Path, encoder_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    notebook = json.loads((EXAMPLES / "quickstart.ipynb").read_text("utf-8"))
    assert notebook["nbformat"] == 4
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    cells[0] = cells[0].replace("intfloat/multilingual-e5-small", str(encoder_folders["bert"]))
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(cells):
        exec(compile(cell, f"cell {number}", "exec"), names)
    assert names["trainer"].state.global_step == 20 and Path("exported/notebook/modules.json").is_file()
    assert not any(cell.get("outputs") for cell in notebook["cells"])


def test_scripts_stay_short() -> None:
    scripts = sorted(EXAMPLES.glob("*.py"))
    assert len(scripts) == 4
    for path in scripts:
        assert len(path.read_text("utf-8").splitlines()) <= LONGEST_SCRIPT, path.name
