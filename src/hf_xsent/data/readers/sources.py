"""Describe a source of sentence pairs: its format and its files."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from itertools import islice
from os import PathLike
from os.path import exists, isdir, isfile, samefile  # unlike Path's, do not raise for long names
from pathlib import Path

from hf_xsent.data.languages import find_language, language_of_tag, matching_tags
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.compression import SUFFIXES, strip_compression
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.files import is_hub_id, refuse_uri

_SUFFIX_FORMATS = {
    ".tsv": "tsv", ".txt": "tsv", ".tab": "tsv", ".csv": "csv", ".tmx": "tmx", ".po": "po", ".pot": "po", ".mo": "mo",
    ".gmo": "mo", ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
}  # fmt: skip
METADATA = {"dataset_info.json", "dataset_dict.json", "state.json"}  # of save_to_disk
IN_MEMORY = "in_memory"  # the folder of pairs that were in memory
_SPLITS = {name: name for name in ("train", "test", "validation")} | {"training": "train"}
_SPLITS |= dict.fromkeys(("valid", "val", "dev", "eval"), "validation")
_LINES_OF_A_TABLE = 20  # which all have a tab


def cache_folder(folder: str | PathLike[str] | None = None) -> Path:
    """Return the folder of the cache, by default inside ``HF_HOME``; ``~`` is expanded."""
    from huggingface_hub.constants import HF_HOME

    refuse_uri(str(folder or HF_HOME))
    return (Path(folder).expanduser() if folder else Path(HF_HOME) / "hf_xsent" / "bitext").absolute()


@dataclass(frozen=True)
class BitextSource:
    """A file, pair of files, folder or data set with sentence pairs of one source language.

    ``path`` is a file, a Moses pair (two files joined by a comma), a folder that ``save_to_disk`` wrote
    (`load_bitext` also reads folders of Parquet files), or a data set on the Hub as
    ``owner/name``, ``owner/name:config`` or ``owner/name:config@revision``. A column is a number from 0 or a name,
    nested ones with dots (``translation.de``).
    ``stated``: the language is given, or in a name, rather than unknown. ``by_column``: the pairs are those that have
    exactly this language in their column of languages; else also its varieties, such as de-AT of de.
    """

    language: str
    path: str
    target_language: str = "en"
    columns: Columns | None = None
    split: str = "train"
    stated: bool = True
    by_column: bool = False

    def __post_init__(self) -> None:
        find_language(self.language)
        find_language(self.target_language)

    @property
    def in_memory(self) -> bool:
        """Return whether the file in the cache holds pairs that were in memory."""
        return Path(self.path).parent.name == IN_MEMORY

    @property
    def name(self) -> str:
        """Return what messages call it."""
        if not self.in_memory:
            return self.path
        return "the pairs" if self.language == "und" else f"the {self.language} pairs"

    def place(self, number: int) -> str:
        """Return what messages call one of its rows."""
        return f"pair {number} of {self.name}" if self.in_memory else f"{self.path}:{number}"

    @property
    def format(self) -> str:
        """Return the format, such as tsv; raise a `DataError` if it is unknown or a file is missing."""
        return self._located[0]

    @property
    def files(self) -> list[Path]:
        """Return the local files (none of a data set on the Hub); raise a `DataError` if one is missing."""
        return self._located[1]

    @cached_property
    def _located(self) -> tuple[str, list[Path]]:
        path = Path(self.path)
        if is_saved_dataset(self.path):
            return "datasets", files_inside(self.path)
        if exists(path):
            refuse_missing(path)
            if (by_name := format_of_name(path.name)) is None:
                raise DataError(
                    f"{path}: unknown format {path.suffix!r}; formats are {' '.join(_SUFFIX_FORMATS)}, "
                    'and two text files joined by a comma, such as "pairs.de,pairs.en"'
                )
            return by_name, [path]
        if files := _joined_files(self):
            for file in files:
                refuse_missing(file)
            if samefile(*files):
                raise DataError(f"{self.path}: source and target are both {files[0]}: give two files")
            return "moses", files
        if len(parts := _files_of_prefix(path)) > 1:
            raise DataError(f"no such file or folder: {path}; join two files by a comma, such as {','.join(parts[:2])}")
        if (is_id := is_hub_id(self.path)) and not _seems_local(self.path):
            return "datasets", []
        name, equals, _ = self.path.partition("=")
        if equals and name.isalpha():
            find_language(name)  # raises an error for german=pairs.tsv that names the code
        of_hub = is_id and not format_of_name(self.path)
        way = f"; if it is a data set on the Hub, write {self.path}@main" if of_hub else ""
        raise DataError(f"no such file or folder: {self.path}{way}{nearest_file(path)}")


def format_of_name(name: str) -> str | None:
    """Return the format of a file's suffix, None if the suffix has none."""
    return _SUFFIX_FORMATS.get(Path(strip_compression(name)).suffix.lower())


def _seems_local(path: str) -> bool:
    """Return whether a missing path is that of a file, not a Hub id: by its suffix, a similar one, or its folder."""
    suffix, folder = Path(strip_compression(path)).suffix.lower(), path.rpartition("/")[0]
    similar = get_close_matches(suffix, [*_SUFFIX_FORMATS, *SUFFIXES], cutoff=0.7)
    return bool(format_of_name(path) or ("@" not in path and (similar or isdir(folder))))


def refuse_table(path: Path, texts: Iterable[str] = ()) -> None:
    """Raise an error if a file is no text by its name, or if all of its first lines have a tab."""
    first = list(islice(filter(None, map(str.strip, texts)), _LINES_OF_A_TABLE))
    if format_of_name(path.name) not in (None, "tsv") or (len(first) > 1 and all("\t" in text for text in first)):
        raise DataError(
            f"{path} seems to be a table or records, not text: give a file of one sentence per line, such as that of "
            f"cut -f 1 {path.name} for a TSV"
        )


def end_of_name(path: str) -> str:
    """Return the last part of a name before its suffix, such as en-de of talks.en-de.tsv.gz."""
    is_revised = is_hub_id(path) and ("/" in path or ":" in path)  # else @ is before a script: sr@latin
    name = strip_compression(Path(path.partition("@")[0] if is_revised else path).name)
    stem = name.rpartition(".")[0] if format_of_name(name) else name
    return re.split("[.:]", stem)[-1]


def is_name(path: str) -> bool:
    """Return whether a path has no wildcards, or is a file, a folder or a Moses pair with such characters."""
    return not glob.has_magic(path) or exists(path) or all(map(exists, joined(path)))


def joined(path: str) -> list[str]:
    """Return the paths of two files joined by a comma, which may be in their names, too; else the path alone."""
    parts = path.split(",")
    halves = [[",".join(half).strip() for half in (parts[:end], parts[end:])] for end in range(1, len(parts))]
    return next((two for two in halves if all(map(exists, two))), [path] if exists(path) or not halves else halves[0])


def _files_of_prefix(prefix: Path) -> list[str]:
    """Return the files whose names are a prefix and a language code."""
    paths = sorted(prefix.parent.glob(glob.escape(prefix.name) + ".*"))
    return [str(path) for path in paths if language_of_tag(strip_compression(path.name)[len(prefix.name) + 1 :])]


def _joined_files(source: BitextSource) -> list[Path]:
    """Return two files joined by a comma, the source's first; codes in their names decide which is the target's."""
    names = joined(source.path)
    if len(names) < 2:
        return []
    if not all(names):
        raise DataError(f"{source.path}: two files are joined by a comma without spaces, such as pairs.de,pairs.en")
    own, target = (
        [bool(matching_tags([end_of_name(name)], code)) for name in names]
        for code in (source.language, source.target_language)
    )
    is_reversed = (own[1] or target[0]) and not (own[0] or target[1])
    return [Path(name) for name in (reversed(names) if is_reversed else names)]


def expand_folder(path: str, split: str) -> list[str]:
    """Return the Parquet files in a folder that ``save_to_disk`` did not write, else the path.

    Their names are those of no split, or all of this one; of ``test`` also all of another one.
    """
    if not isdir(path) or is_saved_dataset(path):
        return [path]
    folder = path.rstrip("/")
    if not (files := files_inside(folder, "*.parquet")):
        raise DataError(
            f"the folder {folder} was not written by save_to_disk and has no Parquet files: name files, "
            f"de={folder}/*.tsv for one language, {folder}/{{language}}-en.tsv for several"
        )
    words = [re.split("[^a-z]+", str(file.relative_to(folder)).lower()) for file in files]
    splits = {frozenset(_SPLITS[word] for word in of_file if word in _SPLITS) for of_file in words}
    found = sorted(frozenset().union(*splits))
    if found and (splits != {frozenset(found[:1])} or (split != "test" and found[0] != _SPLITS.get(split, split))):
        example = next((file for file, of_file in zip(files, words, strict=True) if split in of_file), files[0])
        raise DataError(
            f"the folder {folder} has Parquet files of the split {' and '.join(found)}, and not all files may be meant "
            f"for {split}: name those that are, such as de={example}"
        )
    return [*map(str, files)]


def files_inside(folder: str | Path, pattern: str = "*") -> list[Path]:
    """Return the files in a folder and its subfolders, without hidden ones, such as those of git."""
    names = glob.glob(f"{glob.escape(str(folder))}/**/{pattern}", recursive=True)
    return [Path(name) for name in sorted(names) if isfile(name)]


def is_saved_dataset(folder: str) -> bool:
    """Return whether ``save_to_disk`` of datasets wrote this folder."""
    return any(exists(f"{folder}/{name}") for name in METADATA)


def refuse_missing(path: Path) -> None:
    """Raise an error if a path is not a file; it states similar names beside it."""
    if isdir(path):
        raise DataError(f"{path} is a folder: give a file")
    if exists(path) and not isfile(path):
        raise DataError(f"{path} is a pipe or device, and input is read more than once: write it to a file")
    if not exists(path):
        raise DataError(f"no such file: {path}{nearest_file(path)}")


def nearest_file(path: Path) -> str:
    """Suggest a similar file name of the same folder for a missing file."""
    if not isdir(path.parent):
        return f"; the folder {path.parent} does not exist either"
    return did_you_mean(path.name, (other.name for other in path.parent.iterdir()))
