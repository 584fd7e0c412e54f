"""Cached pairs are used until their files change; a damaged cache ends in one sentence."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hf_xsent.data.bitext import load_bitext
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import OutputError


def _load_pairs(folder: Path) -> Any:
    return load_bitext({"de": folder / "x.tsv"}, cache_dir=folder / "stored")


def _load_sentences(folder: Path) -> Any:
    return load_sentences(folder / "x.txt", folder / "stored")


@pytest.mark.parametrize("load", [_load_pairs, _load_sentences])
def test_a_damaged_cache_is_named(tmp_path: Path, load: Callable[[Path], Any]) -> None:
    (tmp_path / "x.tsv").write_text("".join(f"Satz {n}\tline {n}\n" for n in range(100)))
    (tmp_path / "x.txt").write_text("".join(f"Satz {n}\n" for n in range(100)))
    assert len(load(tmp_path)) == len(load(tmp_path)) == 100
    (file,) = (tmp_path / "stored").rglob("*.arrow")
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(OutputError, match=r"stored.* is missing or damaged .*: delete it"):
        load(tmp_path)
