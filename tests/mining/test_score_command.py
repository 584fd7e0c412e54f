from __future__ import annotations

from pathlib import Path

import pytest

from hf_xsent.cli import main
from hf_xsent.models.embedder import SentenceEmbedder


@pytest.mark.parametrize(
    ("pairs", "output", "expected"),
    [
        ("a\tb\n", "folder", "folder cannot be written"),
        ("a\tb\n", "pairs.tsv", "pairs.tsv would overwrite an input"),
        ("a\tb\n", "pool.txt", "pool.txt would overwrite an input"),
        ("only one\n", "scored.tsv", "pairs.tsv:1"),
    ],
)
def test_files_that_cannot_be_read_or_written_are_refused_before_the_model_is_loaded(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    pairs: str,
    output: str,
    expected: str,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "pairs.tsv").write_text(pairs)
    (tmp_path / "pool.txt").write_text("a\n" * 9)
    monkeypatch.setattr(SentenceEmbedder, "from_pretrained", lambda *_, **__: pytest.fail("the model was loaded"))
    monkeypatch.chdir(tmp_path)
    flags = ["--model", "x", "-o", output, "--source_pool", "pool.txt", "--target_pool", "pool.txt"]
    assert main(["score", "pairs.tsv", *flags]) == 2
    assert expected in capsys.readouterr().err
    assert (tmp_path / "pool.txt").read_text() == "a\n" * 9
