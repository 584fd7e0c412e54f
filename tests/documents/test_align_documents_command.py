from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hf_xsent.cli import main
from hf_xsent.models.embedder import SentenceEmbedder


@pytest.mark.parametrize(
    ("content", "output", "expected"),
    [
        (None, "o.tsv", "no such file: a.txt"),
        ("one\n", "a.txt", "a.txt would overwrite an input"),
        ("one\n", "folder", "folder cannot be written"),
    ],
)
def test_bad_files_are_refused_before_the_model_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    content: str | None,
    output: str,
    expected: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "b.txt").write_text("eins\n")
    if content is not None:
        (tmp_path / "a.txt").write_text(content)
    monkeypatch.setattr(SentenceEmbedder, "from_pretrained", lambda *_, **__: pytest.fail("the model was loaded"))
    assert main(["align-documents", "a.txt", "b.txt", "--model", "x", "-o", output]) == 2
    assert expected in capsys.readouterr().err


def test_documents_become_pairs_and_are_filtered(
    tmp_path: Path,
    encoder_folders: dict[str, Path],
    pairs: list[tuple[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    model: Any = str(encoder_folders["bert"])
    for side, name in enumerate(("a.txt", "b.txt")):
        (tmp_path / name).write_text(" ".join(pair[side] for pair in pairs[:4]) + "\n")
    assert main(["align-documents", "a.txt", "b.txt", "--model", model, "-o", "o.tsv", "--split", "text"]) == 0
    assert "pairs are in o.tsv" in capsys.readouterr().out
    assert main(["score", "o.tsv", "--model", model, "-o", "s.tsv", "--language", "de", "--filter", "min_score=2"]) == 0
    report = capsys.readouterr().out
    assert "min_score" in report and "0 scored pairs" in report
