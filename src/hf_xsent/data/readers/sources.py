"""Describe a source of sentence pairs: its format and its files."""

from __future__ import annotations

import glob
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from os.path import isdir, isfile  # unlike Path's, do not raise for long names
from pathlib import Path

from hf_xsent.data.languages import find_language, language_of_tag, matching_tags
from hf_xsent.data.readers.columns import Columns, name_languages
from hf_xsent.data.readers.compression import strip_compression
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.files import is_hub_id, is_local

_SUFFIX_FORMATS = {
    ".tsv": "tsv", ".txt": "tsv", ".tab": "tsv", ".csv": "csv", ".tmx": "tmx", ".po": "po", ".pot": "po", ".mo": "mo",
    ".gmo": "mo", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
}  # fmt: skip


@dataclass(frozen=True)
class BitextSource:
    """A file, pair of files, folder or data set with sentence pairs of one source language.

    ``path`` is a file, a Moses pair (two files joined by a comma, or their common prefix), a folder, or a data set on
    the Hub as ``owner/name``, ``owner/name:config`` or ``owner/name:config@revision``. A column is a number from 0
    or a name, nested ones with dots (``translation.de``). ``in_memory``: the file holds what was given in memory.
    ``code_from`` is the part of a name from which the language is read, such as en-de, empty if it has no code, None if
    the language is stated.
    """

    language: str
    path: str
    target_language: str = "en"
    columns: Columns | None = None
    split: str = "train"
    in_memory: bool = False
    code_from: str | None = None

    def __post_init__(self) -> None:
        find_language(self.language)
        find_language(self.target_language)

    @property
    def name(self) -> str:
        """Return what messages call it."""
        if not self.in_memory:
            return self.path
        return "the pairs" if self.language == "und" else f"the {self.language} pairs"

    @property
    def target_first(self) -> bool:
        """Return whether the name that has the language's code has the target's before it."""
        return bool(self.code_from) and str(self.code_from).endswith((f"-{self.language}", f"_{self.language}"))

    def place(self, number: int) -> str:
        """Return what messages call one of its rows."""
        return f"pair {number} of {self.name}" if self.in_memory else f"{self.path}:{number}"


def source_format(source: BitextSource) -> str:
    """Return the format of a source by its file name; raise a `DataError` if it is unknown."""
    path = Path(source.path)
    if isdir(path):
        return "datasets"
    if isfile(path):
        if (by_name := format_of_name(path.name)) is None:
            raise DataError(
                f"{path}: unknown format {path.suffix!r}; formats are {' '.join(_SUFFIX_FORMATS)}, "
                "and two text files joined by a comma, such as pairs.de,pairs.en"
            )
        return by_name
    if moses_files(source):
        return "moses"
    if format_of_name(source.path) or not is_hub_id(source.path):
        name, equals, _ = source.path.partition("=")
        if equals and name.isalpha():
            find_language(name)  # raises an error for german=pairs.tsv that names the code
        raise DataError(f"no such file or folder: {source.path}{nearest_file(path)}")
    return "datasets"


def format_of_name(name: str) -> str | None:
    """Return the format of a file's suffix, None if the suffix has none."""
    return _SUFFIX_FORMATS.get(Path(strip_compression(name)).suffix.lower())


def end_of_name(path: str) -> str:
    """Return the last part of a name before its suffix, such as en-de of talks.en-de.tsv.gz."""
    name = strip_compression(Path(path).name)
    stem = name.rpartition(".")[0] if format_of_name(name) else name.partition("@")[0]
    return re.split("[.:]", stem)[-1]


def moses_files(source: BitextSource) -> tuple[Path, Path] | None:
    """Return the files of source and target of a Moses pair, joined by a comma or by their prefix, None without one.

    Codes in the names of joined files decide which is the target.
    """
    if (files := _files_of_prefix(source)) is not None:
        return files
    first, comma, second = (part.strip() for part in source.path.partition(","))
    if not comma:
        return None
    places = [
        matching_tags(map(end_of_name, names), code)
        for names, code in itertools.product(((first,), (second,)), (source.language, source.target_language))
    ]
    in_order, reversed_ = places[0] or places[3], places[1] or places[2]
    return (Path(second), Path(first)) if reversed_ and not in_order else (Path(first), Path(second))


def _files_of_prefix(source: BitextSource) -> tuple[Path, Path] | None:
    prefix = Path(source.path)
    sides: list[Path] = []
    for code in (source.language, source.target_language):
        paths = sorted(prefix.parent.glob(glob.escape(prefix.name) + ".*"))
        suffixes = (strip_compression(path.name)[len(prefix.name) + 1 :] for path in paths)
        files = {suffix: path for suffix, path in zip(suffixes, paths, strict=True) if language_of_tag(suffix)}
        match = matching_tags(files, code)
        if not match:
            return None
        if len(match) > 1:
            raise DataError(f"{prefix} has files of {' and '.join(match)}: state one of these codes, not {code}")
        sides.append(files[match[0]])
    return sides[0], sides[1]


def source_files(source: BitextSource) -> list[Path]:
    """List the local files of a source (none for a data set on the Hub); raise a `DataError` if one is missing."""
    kind = source_format(source)
    if kind == "moses":
        files = list(moses_files(source) or ())
    elif kind == "datasets" and not is_local(source.path):
        return []
    elif isdir(source.path):
        files = sorted(path for path in Path(source.path).rglob("*") if path.is_file())
        if not is_saved_dataset(source.path) and not any(path.suffix == ".parquet" for path in files):
            folder = source.path.rstrip("/")
            raise DataError(
                f"the folder {source.path} was not written by save_to_disk and has no Parquet files: name files, "
                f"de={folder}/*.tsv for one language, {folder}/{{language}}-en.tsv for several"
            )
        return files
    else:
        files = [Path(source.path)]
    for path in files:
        if not isfile(path):
            raise DataError(f"no such file: {path}{nearest_file(path)}")
    return files


def is_saved_dataset(folder: str) -> bool:
    """Return whether ``save_to_disk`` of datasets wrote this folder."""
    names = ("dataset_info.json", "dataset_dict.json", "state.json")
    return any((Path(folder) / name).exists() for name in names)


def require_language(source: BitextSource, names: Sequence[str]) -> None:
    """Raise an error if a file whose language is not stated has a column of languages, which is not read."""
    unread = [name for name in ("language", "lang") if name in names]
    if source.language == "und" and source.code_from == "" and unread:
        raise DataError(
            f"{source.name}: the column {unread[0]} of a file is not read: name the language, as in de={source.path}, "
            f"or und={source.path} for a mixture; in Python, a Dataset is read by language"
        )


def require_order(source: BitextSource, first: int | str, second: int | str) -> None:
    """Raise an error if the language is from a name such as en-de, and nothing says which column has it."""
    if source.columns is None and source.target_first and not name_languages([str(first), str(second)]):
        code, target = source.language, source.target_language
        named = f"{{{code!r}: …}}" if source.in_memory else f"{code}={source.path}"
        raise DataError(
            f"{source.name}: which column has {code}? {source.code_from} has {target} first: name the language, as in "
            f"{named}, if it is column {first}; if it is column {second}, give --columns "
            f"{code}={second},{first}"
        )


def nearest_file(path: Path) -> str:
    """Suggest a similar file name of the same folder for a missing file."""
    if not isdir(path.parent):
        return f"; the folder {path.parent} does not exist either"
    return did_you_mean(path.name, (other.name for other in path.parent.iterdir()))
