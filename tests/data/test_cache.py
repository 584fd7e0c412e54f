"""A damaged cache is built again, with a line in the log."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.cleaning.rules import CleaningRules
from hf_xsent.data.sentences import load_sentences

DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda _: b"",
    "half": lambda data: data[: len(data) // 2],
    "flipped bits": lambda data: data[: (half := len(data) // 2)] + bytes([data[half] ^ 3]) + data[half + 1 :],
    "other bytes": lambda data: b"x" * len(data),
    "deep": lambda _: b"[" * 100_000,
}


def _load_pairs(folder: Path) -> list[Any]:
    return list(load_bitext({"de": folder / "x.tsv"}, cache_dir=folder / "stored"))


def _load_sentences(folder: Path) -> list[Any]:
    sentences = load_sentences(folder / "x.txt", folder / "stored")
    return [sentences[row] for row in range(len(sentences))]


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize(
    ("load", "name"),
    [
        (_load_pairs, "info.json"),
        (_load_pairs, "pairs.arrow"),
        (_load_sentences, "*.json"),
        (_load_sentences, "*.arrow"),
    ],
)
def test_what_is_damaged_is_read_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, load: Callable[[Path], list[Any]], name: str, damage: str
) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"Satz {n}\tline {n}\n" for n in range(100)))
    (tmp_path / "x.txt").write_text("".join(f"Satz {n}\n" for n in range(100)))
    expected = load(tmp_path)
    (file,) = (tmp_path / "stored").rglob(name)
    file.write_bytes(DAMAGE[damage](file.read_bytes()))
    assert load(tmp_path) == expected
    if name != "info.json" or damage != "flipped bits":  # which may hit the copy of the settings
        assert "is damaged" in caplog.text
    caplog.clear()
    assert load(tmp_path) == expected and "is damaged" not in caplog.text


def test_pairs_are_read_again_with_a_changed_tokenizer(tmp_path: Path, encoder_folders: dict[str, Path]) -> None:
    (tmp_path / "x.tsv").write_text("Die Katze trinkt Milch.\tThe cat drinks milk.\nDie Katze\tThe cat\n")
    tokenizer = tmp_path / "tokenizer"
    shutil.copytree(encoder_folders["bert"], tokenizer, ignore=shutil.ignore_patterns("*.safetensors"))
    rules = CleaningRules(min_pieces=3, tokenizer=str(tokenizer))

    def caches() -> int:
        load_bitext({"de": tmp_path / "x.tsv"}, cleaning=rules, cache_dir=tmp_path / "stored")
        return len(list((tmp_path / "stored").glob("de-*/info.json")))

    assert caches() == 1
    (tokenizer / "config.json").touch()  # not of the tokenizer
    assert caches() == 1
    shutil.copyfile(encoder_folders["xlm-roberta"] / "tokenizer.json", tokenizer / "tokenizer.json")
    assert caches() == 2


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
