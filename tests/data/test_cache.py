"""A damaged cache is built again, with a line in the log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.sentences import load_sentences

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "flipped bits": lambda data: data[: (half := len(data) // 2)] + bytes([data[half] ^ 3]) + data[half + 1 :],
    "other bytes": lambda data: b"x" * len(data),
    "deep": lambda _: b"[" * 100_000,
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("name", ["info.json", "pairs.arrow"])
def test_a_damaged_cache_of_pairs_is_built_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, damage: str
) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"Satz {n}\tline {n}\n" for n in range(100)))

    def load() -> tuple[list[str], list[str]]:
        return load_bitext({"de": tmp_path / "x.tsv"}, cache_dir=tmp_path / "cache").pairs("de")

    expected = load()
    (file,) = (tmp_path / "cache").rglob(name)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert load() == expected
    if name == "pairs.arrow" or damage != "flipped bits":  # which may hit the copy of the settings
        assert "is damaged" in caplog.text
    caplog.clear()
    assert load() == expected and not caplog.text


def test_damaged_hashes_are_computed_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"Satz {n}\tline {n}\n" for n in range(100)))
    rows = np.arange(100)
    expected = load_bitext({"de": tmp_path / "x.tsv"}, cache_dir=tmp_path / "cache").side_hashes(rows)
    (file,) = (tmp_path / "cache").rglob("sides.npy")
    for damage in ("empty", "half", "other bytes"):
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
        found = load_bitext({"de": tmp_path / "x.tsv"}, cache_dir=tmp_path / "cache").side_hashes(rows)
        np.testing.assert_array_equal(found, expected)
        assert "sides.npy is damaged" in caplog.text
        caplog.clear()


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("suffix", [".json", ".arrow"])
def test_damaged_sentences_are_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str, damage: str
) -> None:
    (tmp_path / "x.txt").write_text("".join(f"line {n}\n" for n in range(100)))

    def load() -> list[tuple[str, int]]:
        sentences = load_sentences(tmp_path / "x.txt", tmp_path / "work")
        return [sentences[row] for row in range(len(sentences))]

    expected = load()
    (file,) = (tmp_path / "work").glob(f"*{suffix}")
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert load() == expected
    assert "is damaged" in caplog.text
