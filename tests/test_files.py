from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_xsent import files
from hf_xsent.cli import main
from hf_xsent.errors import OutputError

NAMES = st.text(
    st.characters(codec="utf-8", exclude_characters="/\\:\0", exclude_categories=("Cc", "Cs")), min_size=1, max_size=30
).filter(lambda name: name not in (".", ".."))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(), values, max_size=3),
    max_leaves=8,
)


# Write


@given(NAMES, st.text())
def test_text_comes_back_under_any_name(name: str, text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "new" / name
        for content in ("what was there before", text):
            files.write_text(path, content)
        assert path.read_bytes() == text.encode()
        assert os.listdir(path.parent) == [name]


@given(JSON)
def test_json_comes_back(content: object) -> None:
    with TemporaryDirectory() as folder:
        files.write_json(Path(folder) / "a.json", content)
        assert json.loads((Path(folder) / "a.json").read_text("utf-8")) == content


@pytest.mark.parametrize("stop", [ValueError, KeyboardInterrupt])
def test_an_interrupted_write_leaves_the_old_file(stop: type[BaseException], tmp_path: Path) -> None:
    def lines() -> Iterator[str]:
        yield "new\n" * 10_000
        raise stop

    files.write_text(tmp_path / "a.txt", "old")
    with pytest.raises(stop):
        files.write_text(tmp_path / "a.txt", lines())
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a.txt", "old")]


def test_a_new_folder_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    for name in ("old.txt", "new.txt"):
        with files.writing(tmp_path / "model", folder=True) as part:
            (part / name).write_text(name)
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*")] == ["model", "model/new.txt"]


def test_content_is_on_the_disk_before_its_name_and_the_name_before_what_follows(
    tmp_path: Path, disk: list[str]
) -> None:
    with files.writing(tmp_path / "model", folder=True) as part:
        (part / "weights").write_text("1")
        (part / "link").symlink_to("nothing")
    files.write_text(tmp_path / "state", "finished")
    flushed = [name.split(".")[0] for name in disk]
    here = tmp_path.name
    assert flushed == ["weights", "model", "rename model", here, "state", "rename state", here]


def test_a_link_to_a_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "model").symlink_to(tmp_path / "disk")
    for name in ("old.txt", "new.txt"):
        with files.writing(tmp_path / "model", folder=True) as part:
            (part / name).write_text(name)
    assert (tmp_path / "model").is_symlink()
    assert [path.relative_to(tmp_path).as_posix() for path in (tmp_path / "disk").rglob("*")] == ["disk/new.txt"]
    assert len([*tmp_path.iterdir()]) == 2


KILLED = """
import os, signal, sys
import hf_xsent_cli  # without torch
from hf_xsent import files
with files.writing(sys.argv[1], folder=sys.argv[2] == "folder") as part:
    (part / "inside" if part.is_dir() else part).write_text("half of it")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_a_killed_process_left_is_never_taken_for_a_result(kind: str, tmp_path: Path) -> None:
    files.write_text(tmp_path / "out", "old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path / "out"), kind], check=False)
    assert done.returncode == -signal.SIGKILL
    assert (tmp_path / "out").read_text() == "old"
    files.write_text(tmp_path / "out", "new")
    assert (tmp_path / "out").read_text() == "new"
    (left,) = [path.name for path in tmp_path.iterdir() if path.name != "out"]
    assert left.startswith("out.") and left.endswith(".part")


def test_an_existing_folder_returns_if_its_replacement_cannot_be_moved(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "old.txt").write_text("years of work")
    with pytest.raises(FileNotFoundError, match=r"missing\.part"):
        files.move_into_place(tmp_path / "missing.part", tmp_path / "out")
    assert os.listdir(tmp_path) == ["out"]
    assert (tmp_path / "out" / "old.txt").read_text() == "years of work"


@pytest.mark.parametrize(
    "write",
    [
        lambda path: files.write_text(path, "x" * (1 << 17)),
        lambda path: files.write_arrays(path, np.zeros(1 << 17)),
        lambda path: files.write_arrays(path, {"a": np.zeros(1 << 17)}),
    ],
)
def test_a_full_disk_is_an_error_and_leaves_the_old_file(
    write: Callable[[Path], None], full_disk: None, tmp_path: Path
) -> None:
    files.write_text(tmp_path / "a", "old")
    with pytest.raises(OSError, match=f"(No space left on device|File too large): '{tmp_path}/a'"):
        write(tmp_path / "a")
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a", "old")]


def test_a_file_in_place_of_the_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    with pytest.raises(OutputError, match=f"{tmp_path}/a is a file, not a folder: choose another output"):
        files.write_text(tmp_path / "a" / "b" / "c.txt", "text")
    with pytest.raises(OutputError, match=f"{tmp_path}/a is a file, not a folder: choose another output"):
        files.check_writable(tmp_path / "a" / "b.txt")


def test_pipes_and_folders_are_refused_as_outputs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "stdout").symlink_to(tmp_path / "pipe")
    for name in ("pipe", "stdout", "."):
        with pytest.raises(OutputError, match="cannot be written: name a file"):
            files.check_writable(tmp_path / name)


def test_an_output_in_an_input_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "vectors").mkdir()
    with pytest.raises(OutputError, match=r"x\.parquet would be read as a part of an input"):
        files.check_writable(tmp_path / "vectors" / "x.parquet", [tmp_path / "vectors"])


def test_a_uri_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    Path("de.tsv").write_text("ein Hund\ta dog\n")
    for flag in ("--output", "--work"):
        paths = {"--output": "scored.tsv", "--work": "work"} | {flag: f"s3://bucket/{flag[2:]}"}
        arguments = [word for pair in paths.items() for word in pair]
        assert main(["score", "de.tsv", "--model", "org/none", *arguments]) == 2
        assert "is a URI, to which nothing is written: give a path" in capsys.readouterr().err
    assert [path.name for path in Path().iterdir()] == ["de.tsv"]


def test_errors_of_other_files_are_not_taken_for_ours(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"input\.txt"), files.writing(tmp_path / "out.txt"):
        (tmp_path / "input.txt").read_text()
    with pytest.raises(ConnectionError), files.writing(tmp_path / "out.txt"):
        raise ConnectionRefusedError(111, "refused")


# Full and read-only disks


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.EDQUOT])
def test_the_command_line_ends_with_one_sentence(
    number: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number), "/some/file")

    monkeypatch.setattr("hf_xsent.cli.load_command", fail)
    assert main(["pretrain"]) == 2
    assert capsys.readouterr().err == f"hf-xsent: /some/file: {os.strerror(number)}\n"


def test_the_command_line_knows_a_full_disk_by_the_text_of_other_libraries(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError(reason)

    monkeypatch.setattr("hf_xsent.cli.load_command", fail)
    for reason in (
        "I/O error: No space left on device (os error 28)",
        "PytorchStreamWriter failed writing file data/0",
    ):
        assert main(["pretrain"]) == 2
        assert capsys.readouterr().err == f"hf-xsent: {reason}\n"
    reason = "another"
    with pytest.raises(RuntimeError, match=reason):
        main(["pretrain"])


# Hash


@given(st.lists(st.text() | st.binary()))
def test_pieces_hash_as_the_whole(pieces: list[str | bytes]) -> None:
    whole = b"".join(piece.encode() if isinstance(piece, str) else piece for piece in pieces)
    assert files.digest(iter(pieces)) == files.digest(whole)


def test_a_file_that_changes_has_another_digest(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"old")
    os.utime(path, ns=(0, 0))
    old = files.file_digest(path)
    path.write_bytes(b"new")
    os.utime(path, ns=(0, 0))
    assert files.file_digest(path) != old


# Free space


@pytest.mark.parametrize(("needed", "fits"), [(1_000_000, True), (1_000_001, False)])
def test_too_little_space_is_an_error(needed: int, fits: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Callable[[Path], object] = lambda _: type("Usage", (), {"free": 1_000_000})  # noqa: E731
    monkeypatch.setattr("shutil.disk_usage", usage)
    folder = tmp_path / "not" / "there" / "yet"
    if fits:
        files.check_free_space(folder, needed, "the vectors", "use float16")
    else:
        with pytest.raises(OutputError, match=r"yet has 1\.0 MB free but the vectors need 1\.0 MB: use float16"):
            files.check_free_space(folder, needed, "the vectors", "use float16")


# Names


@pytest.mark.parametrize("name", ["owner/name", "owner/name:de-en", "owner/na.me:de@refs/pr/1", "xlm-roberta-base"])
def test_hub_ids(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert files.is_hub_id(name) and files.is_hub_id(name, owner=True) == ("/" in name)
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert files.is_local(name) and not files.is_hub_id(name)


@pytest.mark.parametrize("name", ["", "/a/b", "./a", "../a/b", "a/b/c", "~/a", "C:\\models\\a", "a b", "https://a.b/c"])
def test_paths_are_no_hub_ids(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert not files.is_hub_id(name)
