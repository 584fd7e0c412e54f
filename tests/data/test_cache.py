"""Cached pairs are used until their files change; a damaged cache ends in one sentence."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset

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


def test_damaged_hashes_and_pairs_that_were_in_memory_cost_no_pairs(tmp_path: Path) -> None:
    pairs = [(f"Satz {n}", f"line {n}") for n in range(100)]
    load_bitext({"de": pairs}, cache_dir=tmp_path).train_dev_split(10)
    (file,) = tmp_path.rglob("sides.hashes")
    file.write_bytes(file.read_bytes()[:160])
    with pytest.raises(OutputError, match=r"sides.hashes is missing or damaged .*: delete it"):
        load_bitext({"de": pairs}, cache_dir=tmp_path).train_dev_split(10)
    (file,) = (tmp_path / "in_memory").glob("*.jsonl")
    file.write_bytes(file.read_bytes()[:100].rpartition(b"\n")[0] + b"\n")
    assert len(load_bitext({"de": pairs}, cache_dir=tmp_path)) == 100


def test_warnings_of_the_readers_are_repeated_when_the_cache_is_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    line = "Wir haben gestern ein Haus am See gekauft.\tWe bought a house by the lake.\n"
    (tmp_path / "pairs.tsv").write_text(line * 3 + "Hund\n", "utf-8")
    texts = []
    for _ in range(3):
        caplog.clear()
        load_bitext({"fr": tmp_path / "pairs.tsv"}, on_error="skip", cache_dir=tmp_path / "cache")
        texts.append([record.getMessage() for record in caplog.records if record.levelno == logging.WARNING])
    assert texts[0] == texts[1] == texts[2]
    assert len(texts[0]) == 2 and "source side seems to be German" in texts[0][0] and "1 bad rows" in texts[0][1]


def test_pairs_of_the_hub_are_read_again_after_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cached = tmp_path / "hub" / "datasets--org--name"
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    found = []
    for commit, rows in ((1, 1), (1, 3), (2, 2)):
        folder = cached / "snapshots" / f"{commit:040x}"
        for file, text in ((folder / ".gitattributes", ""), (cached / "refs" / "main", folder.name)):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        pairs = Dataset.from_dict({"de": ["ein Hund"] * rows, "en": ["a dog"] * rows})
        monkeypatch.setattr("datasets.load_dataset", lambda *_, pairs=pairs, **__: {"train": pairs})
        found.append(len(load_bitext("org/name:de-en", cleaning=None, cache_dir=tmp_path / "pairs")))
    assert found == [1, 1, 2]
