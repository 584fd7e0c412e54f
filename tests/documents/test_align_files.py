from __future__ import annotations

import errno
import json
import logging
import signal
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from forks import Fork, kill_before_replacing

from hf_xsent import align_document_files
from hf_xsent.cli import main
from hf_xsent.data.readers.formats import read_pairs
from hf_xsent.data.readers.sources import BitextSource
from hf_xsent.documents.align_files import COLUMNS
from hf_xsent.errors import DataError, HfXsentError, OutputError


def text(language: str, *numbers: int) -> str:
    return "".join(f"{language}: {1000 + number} {2000 + number}\n" for number in numbers)


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for language in ("de", "fr"):
        (tmp_path / language).mkdir()
    (tmp_path / "de" / "a.txt").write_text(text("de", *range(12)))
    (tmp_path / "fr" / "a.txt").write_text("\n" + text("fr", 0, 1, 2, 50, *range(3, 12)))
    (tmp_path / "de" / "b.txt").write_text(text("de", *range(20, 30)))
    (tmp_path / "fr" / "b.txt").write_text(text("fr", *range(20, 30)))
    return tmp_path


def align(folder: Path, model: Any, output: str = "out.tsv", **settings: Any) -> Any:
    settings = {"work": folder / "work", **settings}
    return align_document_files(folder / "de", folder / "fr", folder / output, model, **settings)


def test_pairs_of_all_documents_are_read_back_as_bitext(folders: Path, model: Any) -> None:
    assert str(align(folders, model)) == f"22 pairs are in {folders / 'out.tsv'}"
    rows = [line.split("\t") for line in (folders / "out.tsv").read_text().splitlines()]
    assert rows[0] == list(COLUMNS)
    assert rows[4][1:] == ["a.txt", "4", "6", "de: 1003 2003", "fr: 1003 2003"]  # line 1 is empty, line 5 skipped
    assert rows[-1][1:4] == ["b.txt", "10", "10"]
    pairs = list(read_pairs(BitextSource("de", str(folders / "out.tsv"), "fr")))
    assert pairs[0] == ("de: 1000 2000", "fr: 1000 2000") and len(pairs) == 22


def test_a_damaged_result_of_a_document_is_named(folders: Path, model: Any) -> None:
    align(folders, model)
    file = next((folders / "work").rglob("aligned/**/*.json"))
    file.write_bytes(file.read_bytes()[:200])
    with pytest.raises(OutputError, match=r"\.json is missing or damaged .*: delete it"):
        align(folders, model)


def test_json_lines_hold_the_numbers_of_spans(folders: Path, model: Any) -> None:
    (folders / "de" / "a.txt").write_text("de: 1000 2000\nde: 1001 2001 1002 2002\n")
    (folders / "fr" / "a.txt").write_text(text("fr", 0, 1, 2))
    align(folders, model, "out.jsonl")
    row = json.loads((folders / "out.jsonl").read_text().splitlines()[1])
    assert (row["source_numbers"], row["target_numbers"]) == ([2], [2, 3])
    assert row["target"] == "fr: 1001 2001 fr: 1002 2002"
    assert len(list(read_pairs(BitextSource("de", str(folders / "out.jsonl"), "fr")))) == 12


def test_parquet_has_the_same_columns_without_pairs(folders: Path, model: Any) -> None:
    for output, threshold in (("all.parquet", None), ("none.parquet", 9.0)):
        align(folders, model, output, threshold=threshold)
    every, none = (pq.read_table(folders / f"{name}.parquet") for name in ("all", "none"))
    assert every.num_rows and not none.num_rows and none.schema == every.schema


def test_a_second_run_encodes_nothing_that_is_cached(folders: Path, model: Any) -> None:
    align(folders, model)
    whole, encoded = (folders / "out.tsv").read_bytes(), len(model.encoded)
    (folders / "out.tsv").unlink()
    align(folders, model)
    assert (folders / "out.tsv").read_bytes() == whole and len(model.encoded) == encoded
    align(folders, model, threshold=2.0)
    assert (folders / "out.tsv").read_text() == "\t".join(COLUMNS) + "\n"
    assert len(model.encoded) == encoded
    (folders / "fr" / "b.txt").write_text(text("fr", *range(20, 31)))
    align(folders, model)
    assert not any("1001 2001" in text for text in model.encoded[encoded:])  # only the document that changed


@pytest.mark.parametrize("file", [2, *(pytest.param(file, marks=pytest.mark.slow) for file in (1, 3))])
def test_a_run_that_is_killed_ends_the_same(file: int, folders: Path, model: Any) -> None:
    align(folders, model)
    whole = (folders / "out.tsv").read_bytes()
    for path in [folders / "out.tsv", *(folders / "work").rglob("*.*")]:
        path.unlink()
    fork = Fork(kill_before_replacing, file, align, folders, model, log=folders / "log.txt")
    assert fork.wait() == -signal.SIGKILL, fork.output
    assert not (folders / "out.tsv").exists()
    align(folders, model)
    assert (folders / "out.tsv").read_bytes() == whole


def test_only_the_first_process_writes(folders: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    assert align(folders, model) is None
    assert not (folders / "out.tsv").exists()
    monkeypatch.delenv("RANK")
    encoded = len(model.encoded)
    assert align(folders, model).pairs == 22
    assert len(model.encoded) == encoded


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"output": "de/a.tsv"}, "^output would be read as a document of .*/de: choose a place outside"),
        ({"output": "fr/x/a.tsv"}, "^output would be read as a document of .*/fr: choose"),
        ({"work": "de/work"}, "^work would be read as a document of .*/de: choose a place outside"),
        ({"output": "out.tsv.gz"}, "compressed file: name the output without .gz"),
        ({"on_error": "ignore"}, "on_error 'ignore' is unknown: use raise, skip"),
        ({"split": "line"}, "split 'line' is unknown: use lines, text"),
        ({"languages": ["german", "fr"], "split": "text"}, "unknown language code"),
        ({"languages": ["de", "fr"]}, "languages has the rules of sentence splitting: add (--)?split text"),
        ({"languages": ["de"], "split": "text"}, "(--)?languages takes the codes of source and target"),
        ({"device": "cpu"}, "device applies to a model given by its folder"),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_encoded(
    folders: Path, model: Any, settings: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    with pytest.raises(HfXsentError, match=message):
        align(folders, model, **settings)
    assert not model.encoded


def test_an_output_that_a_glob_would_match_is_refused(
    folders: Path, model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folders)
    with pytest.raises(OutputError, match=r"^output would be read as a document of de/\*: choose"):
        align_document_files("de/*", "fr/*", folders / "de" / "a.tsv", model)
    with pytest.raises(OutputError, match="would overwrite an input"):
        align_document_files("de/a.txt", "fr/a.txt", "fr/../de/a.txt", model)
    for _ in range(2):
        assert align_document_files("de/*.txt", "fr/*.txt", "de/a.tsv", model, work="de/work").pairs == 22


def test_documents_that_cannot_be_aligned_are_skipped_and_reported(
    folders: Path, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (folders / "fr" / "b.txt").write_bytes(b"\x00\x01")
    for language, order in (("de", 1), ("fr", -1)):
        (folders / language / "c.txt").write_text(text(language, *range(100, 160)[::order]))
    (folders / "de" / "d.txt").write_text(text("de", 1))
    with pytest.raises(DataError, match="d.txt has no file to align with"):
        align(folders, model)
    with caplog.at_level(logging.WARNING):
        assert align(folders, model, on_error="skip").pairs == 12
    assert f"skipped {folders}/de/d.txt: it has no file to align with" in caplog.text
    assert f"skipped b.txt: {folders}/fr/b.txt:1: NUL characters" in caplog.text
    assert "skipped c.txt" in caplog.text and "in another order" in caplog.text
    assert "2 of 3 documents were skipped" in caplog.text
    (folders / "de" / "d.txt").unlink()
    (folders / "fr" / "b.txt").write_text(text("fr", *range(20, 30)))
    with pytest.raises(DataError, match="in another order"):
        align(folders, model)
    (folders / "fr" / "c.txt").write_text(text("fr", *range(100, 160)))
    assert align(folders, model).pairs == 12 + 10 + 60


def test_a_document_that_may_not_be_read_is_skipped(
    folders: Path, model: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Path.open, open

    def refusing(path: Any, *options: Any, **named: Any) -> Any:  # the tests may run as root
        if str(path) == str(folders / "fr" / "b.txt"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return opened[isinstance(path, str)](path, *options, **named)

    monkeypatch.setattr(Path, "open", refusing)
    monkeypatch.setattr("builtins.open", refusing)
    with caplog.at_level(logging.WARNING):
        assert align(folders, model, on_error="skip").pairs == 12
    assert f"skipped b.txt: {folders}/fr/b.txt: cannot be read to its end" in caplog.text
    monkeypatch.undo()
    assert align(folders, model, on_error="skip").pairs == 12 + 10


def test_warnings_about_documents_are_repeated_when_the_command_resumes(
    folders: Path, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    (folders / "fr" / "b.txt").write_text(text("fr", *range(300, 312)))
    for _ in range(2):
        caplog.clear()
        assert align(folders, model).pairs
        warnings = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
        assert len(warnings) == 1 and "b.txt do not seem to be translations" in warnings[0]


def test_the_reason_to_skip_a_document_names_its_own_files(
    folders: Path, model: Any, caplog: pytest.LogCaptureFixture
) -> None:
    for name in ("c.txt", "d.txt"):
        for language in ("de", "fr"):
            (folders / language / name).write_text("")
    with caplog.at_level(logging.WARNING):
        align(folders, model, on_error="skip")
    for name in ("c.txt", "d.txt"):
        assert f"skipped {name}: {folders}/de/{name} is empty" in caplog.text


def test_a_run_without_any_good_document_is_an_error(folders: Path, model: Any) -> None:
    for name in ("a.txt", "b.txt"):
        (folders / "fr" / name).write_text("")
    with pytest.raises(DataError, match="a.txt is empty"):
        align(folders, model, on_error="skip")
    assert not (folders / "out.tsv").exists()


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
