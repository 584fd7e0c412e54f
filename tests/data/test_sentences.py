from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from hf_xsent.data import sentences
from hf_xsent.data.sentences import load_sentences
from hf_xsent.errors import DataError


def test_distinct_sentences_keep_their_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\ufeffone\n\ntwo \nONE\n" + "x" * 1001 + "\n  \nthree", encoding="utf-8")
    read = load_sentences(tmp_path / "a.txt", tmp_path / "work")
    assert read[:] == ["one", "two", "three"] and read.line_numbers(0).tolist() == [1, 3, 7]
    assert (read.counts.read, read.counts.retained) == (7, 3)
    assert read.counts.removed == {"empty": 2, "too_long": 1, "repeated": 1}


def test_a_line_that_is_too_long_does_not_make_a_later_one_a_repetition(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A dog" + " " * 1000 + "runs.\nA dog runs.\nA dog  runs.", encoding="utf-8")
    read = load_sentences(tmp_path / "a.txt", tmp_path / "work")
    assert read[:] == ["A dog runs."] and read.line_numbers(0).tolist() == [2]
    assert read.counts.removed == {"too_long": 1, "repeated": 1}


def test_batches_are_the_sentences_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentences, "ROWS_PER_BATCH", 4)
    (tmp_path / "a.txt").write_text("\n".join(map(str, range(11))))
    read = load_sentences(tmp_path / "a.txt", tmp_path / "work")
    assert [read.batch(number) for number in range(read.batch_count)] == [
        ["0", "1", "2", "3"],
        ["4", "5", "6", "7"],
        ["8", "9", "10"],
    ]
    assert read[9] == read[-2] == "9" and read[3:6] == ["3", "4", "5"]
    assert read.lines_of(np.array([0, 9])).tolist() == [1, 10]


def test_a_small_file_has_batches_for_several_processes(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("\n".join(map(str, range(20_000))))
    read = load_sentences(tmp_path / "a.txt", tmp_path / "work")
    assert [len(read.batch(number)) for number in range(read.batch_count)] == [1250] * 16


def test_compressed_files_are_read_and_what_was_read_is_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert len(load_sentences(path, tmp_path / "work")) == 2
    monkeypatch.setattr(sentences, "_write", lambda *_: pytest.fail("read again"))
    assert len(load_sentences(path, tmp_path / "work")) == 2


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no sentences: of 0 lines"),
        (b"\n\n", "has no sentences: of 2 lines, 2 are empty"),
        (b"ok\n\xff\xfe\n", ":2: not UTF-8"),
    ],
)
def test_files_without_sentences_raise(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError) as error:
        load_sentences(tmp_path / "a.txt", tmp_path / "work")
    assert message in str(error.value)
    assert not list((tmp_path / "work").glob("*.json"))


def test_lines_that_are_not_text_are_skipped_and_counted(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "a.txt").write_bytes(b"one\n\xff\xfe\n\ntwo\n")
    read = load_sentences(tmp_path / "a.txt", tmp_path / "work", on_error="skip")
    assert read[:] == ["one", "two"] and read.line_numbers(0).tolist() == [1, 4]
    assert (read.counts.read, read.counts.bad, read.counts.retained) == (4, 1, 2)
    assert "skipped" in caplog.text and "a.txt:2: not UTF-8" in caplog.text


def test_a_table_in_place_of_sentences_is_refused_but_a_stray_tab_is_not(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("Hallo\tHello\n\n" * 30)
    with pytest.raises(DataError, match=r"pairs\.tsv seems to be a table.*cut -f 1 pairs\.tsv"):
        load_sentences(tmp_path / "pairs.tsv", tmp_path / "work")
    for name in ("a.jsonl", "a.csv", "a.tmx"):
        with pytest.raises(DataError, match=f"{name} seems to be a table or records, not text"):
            load_sentences(Path(shutil.copy(tmp_path / "pairs.tsv", tmp_path / name)), tmp_path / "work")
    (tmp_path / "a.txt").write_text("one\ttab\n\tindented\nthree\n")
    assert len(load_sentences(tmp_path / "a.txt", tmp_path / "work")) == 3


def test_a_folder_and_a_missing_file_raise(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    messages = {
        tmp_path: "is a folder: give a file",
        tmp_path / "a.txt": "no such file",
        tmp_path / "pipe": "is a pipe",
    }
    for path, message in messages.items():
        with pytest.raises(DataError, match=message):
            load_sentences(path, tmp_path / "work")
