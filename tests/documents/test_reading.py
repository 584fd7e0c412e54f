from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from hf_xsent.documents.reading import pair_documents, read_document, refuse_inside
from hf_xsent.errors import DataError, OutputError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "a.txt is empty: a document to align needs"),
        (b" \n\n", "a.txt is empty"),
        (b"%PDF\x00\x01", "a.txt:1: NUL characters in the line"),
        (b"one\ntw\xf6\n", "a.txt:2: not UTF-8"),
        (b"\xef\xbb\xbfone\n\xf6\n", "a.txt:2: not UTF-8"),
        (b"Hallo\tHello\n" * 3, "a.txt seems to be a table"),
    ],
)
def test_bad_files_are_refused(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(DataError, match=message):
        read_document(tmp_path / "a.txt")


def test_records_are_no_document(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('[{"text": "Hallo."}]')
    with pytest.raises(DataError, match=r"a\.json seems to be a table or records, not text"):
        read_document(tmp_path / "a.json")


def test_compressed_text_is_split_by_its_language(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "a.txt.gz", "wt", encoding="utf-8") as file:
        file.write("\ufeffEs ist der 3. Mai. Die Sonne scheint auf das Haus, aber es ist nicht warm.")
    document = read_document(tmp_path / "a.txt.gz", "text")
    assert document.sentences == ["Es ist der 3. Mai.", "Die Sonne scheint auf das Haus, aber es ist nicht warm."]


def test_a_document_in_another_language_than_stated_is_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = "Die Sonne scheint auf das Haus, aber es ist nicht warm, und der Hund schläft noch auf dem Sofa im Garten."
    (tmp_path / "a.txt").write_text(f"{text} {text}", "utf-8")
    for language in ("de", None):
        assert len(read_document(tmp_path / "a.txt", "text", language).sentences) == 2
    assert not caplog.messages
    read_document(tmp_path / "a.txt", "text", "ja")
    assert "a.txt seems to be German, not Japanese: check --languages" in caplog.text


def _files(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_text("x\n")


def test_folders_are_paired_by_names(tmp_path: Path) -> None:
    _files(tmp_path, "de/a.txt", "de/b/c.txt", "fr/b/c.txt.gz", "fr/a.txt")
    pairs = pair_documents(str(tmp_path / "de"), str(tmp_path / "fr"))
    assert [(name, str(other.relative_to(tmp_path))) for name, _, other in pairs] == [
        ("a.txt", "fr/a.txt"), ("b/c.txt", "fr/b/c.txt.gz"),
    ]  # fmt: skip


def test_globs_are_paired_by_their_wildcards(tmp_path: Path) -> None:
    _files(tmp_path, "1.de.txt", "2.de.txt", "1.fr.txt", "2.fr.txt")
    pairs = pair_documents(str(tmp_path / "*.de.txt"), str(tmp_path / "*.fr.txt"))
    assert [(name, source.name, target.name) for name, source, target in pairs] == [
        ("1", "1.de.txt", "1.fr.txt"), ("2", "2.de.txt", "2.fr.txt"),
    ]  # fmt: skip


def test_two_stars_match_any_number_of_folders(tmp_path: Path) -> None:
    _files(tmp_path, "1.de", "1.fr", "a/b/1.de", "a/b/1.fr")
    pairs = pair_documents(f"{tmp_path}/**/*.de", f"{tmp_path}//**/*.fr")
    assert sorted(name for name, _, _ in pairs) == ["1", "a/b/1"]
    _files(tmp_path, "de/1", "fr/1", "de/a/b/2", "fr/a/b/2")
    for end in ("", "/**", "/**/*"):
        assert sorted(name for name, _, _ in pair_documents(f"{tmp_path}/de{end}", f"{tmp_path}/fr{end}")) == [
            "1",
            "a/b/2",
        ]
    with pytest.raises(OutputError, match="would be read as a document"):
        refuse_inside("out", tmp_path / "de" / "a" / "out.tsv", [f"{tmp_path}/de/**"])


def test_a_star_that_matches_no_text_adds_nothing_to_the_name(tmp_path: Path) -> None:
    _files(tmp_path, "d/1.de", "d/1.fr")
    pairs = pair_documents(f"{tmp_path}/d*/*.de", f"{tmp_path}/d*/*.fr")
    assert [name for name, _, _ in pairs] == ["1"]  # "/1" would be an absolute path


def test_a_glob_has_no_wildcards_but_stars_and_matches_no_folders(tmp_path: Path) -> None:
    _files(tmp_path, "x [1]/1.de", "x [1]/1.fr", "x [1]/folder.de/a", "x [1]/folder.fr/a")
    pairs = pair_documents(str(tmp_path / "x [1]/*.de"), str(tmp_path / "x [1]/*.fr"))
    assert [name for name, _, _ in pairs] == ["1"]


@pytest.mark.parametrize(("files", "pattern"), [(("de/a.txt", "de/a.txt.gz"), "de"), (("x1y.de", "xy1.de"), "x*y*.de")])
def test_two_files_of_one_name_are_refused(tmp_path: Path, files: tuple[str, str], pattern: str) -> None:
    _files(tmp_path, *files, "fr/1")
    with pytest.raises(DataError, match=f"{files[0]} and .*{files[1]} are both the document"):
        pair_documents(str(tmp_path / pattern), str(tmp_path / "fr"))


def test_a_file_without_partner_is_reported(tmp_path: Path) -> None:
    _files(tmp_path, "de/a.txt", "de/b.txt", "fr/a.txt")
    with pytest.raises(DataError, match=r"b.txt has no file to align with"):
        pair_documents(str(tmp_path / "de"), str(tmp_path / "fr"))
    with pytest.raises(DataError, match="no file matches"):
        pair_documents(str(tmp_path / "*.x"), str(tmp_path / "fr"))
    with pytest.raises(DataError, match="no such file"):
        pair_documents(str(tmp_path / "de/a.txt"), str(tmp_path / "x"))
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DataError, match="pipe is a pipe or device, and input is read more than once: write"):
        pair_documents(str(tmp_path / "de/a.txt"), str(tmp_path / "pipe"))


def test_one_file_for_both_sides_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    _files(tmp_path, "a.txt")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    for target in ("a.txt", "link.txt"):
        with pytest.raises(DataError, match="a.txt is both source and target"):
            pair_documents(str(tmp_path / "a.txt"), str(tmp_path / target))
    with pytest.raises(DataError, match="is both source and target"):
        pair_documents(str(tmp_path), str(tmp_path), "skip")
    _files(tmp_path, "de/a.txt", "fr/a.txt", "de/b.txt")
    (tmp_path / "fr/b.txt").symlink_to(tmp_path / "de/b.txt")
    folders = str(tmp_path / "de"), str(tmp_path / "fr")
    with pytest.raises(DataError, match=r"b\.txt is both source and target"):
        pair_documents(*folders)
    assert [name for name, _, _ in pair_documents(*folders, "skip")] == ["a.txt"]
    assert caplog.messages == [f"skipped {folders[0]}/b.txt: it is both source and target"]
