"""Describe sources of sentence pairs, and resolve paths, globs and Hub ids to them."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from os.path import exists, isdir, isfile  # unlike Path's, do not raise for long names
from pathlib import Path

from hf_xsent.data.languages import CODE, find_language, language_of_tag, matching_tags
from hf_xsent.data.readers.columns import Columns
from hf_xsent.data.readers.compression import strip_compression
from hf_xsent.data.words.splitting import SPLITTERS
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.files import is_hub_id, is_local

_SUFFIX_FORMATS = {
    ".tsv": "tsv", ".txt": "tsv", ".tab": "tsv", ".tmx": "tmx", ".po": "po", ".pot": "po", ".mo": "mo", ".gmo": "mo",
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".parquet": "parquet",
}  # fmt: skip

PathOrName = str | PathLike[str]


@dataclass(frozen=True)
class BitextSource:
    """A file, pair of files, folder or data set with sentence pairs of one source language.

    ``path`` is a file, a Moses pair (two files joined by a comma, or their common prefix), a folder, or a data set on
    the Hub as ``owner/name``, ``owner/name:config`` or ``owner/name:config@revision``. A column is a number from 0
    or a name, nested ones with dots (``translation.de``). ``links`` is a file of word links such as ``0-0 1-2``:
    positions, counted from 0, of words (`split_words`), or of whitespace tokens with ``link_words="spaces"``.
    """

    language: str
    path: str
    target_language: str = "en"
    source_column: int | str | None = None
    target_column: int | str | None = None
    split: str = "train"
    links: str | None = None
    link_words: str = "script"

    def __post_init__(self) -> None:
        find_language(self.language)
        find_language(self.target_language)


def source_format(source: BitextSource) -> str:
    """Return the format of a source by its file name; raise a `DataError` if it is unknown."""
    path = Path(source.path)
    if isdir(path):
        return "datasets"
    if isfile(path):
        if (by_name := format_of_name(path.name)) is None:
            raise DataError(
                f"{path}: unknown format; rename it to .tsv, .tmx, .po, .jsonl or .parquet, "
                "or give both files of a Moses pair, joined by a comma"
            )
        return by_name
    if moses_files(source):
        return "moses"
    if format_of_name(source.path) or not is_hub_id(source.path):
        raise DataError(f"no such file or folder: {source.path}{_nearest_file(path)}")
    return "datasets"


def format_of_name(name: str) -> str | None:
    """Return the format of a file's suffix, None if the suffix has none."""
    return _SUFFIX_FORMATS.get(Path(strip_compression(name)).suffix.lower())


def moses_files(source: BitextSource) -> tuple[Path, Path] | None:
    """Return the two files of a Moses pair, joined by a comma or by their prefix, None if there are none."""
    if (files := _files_of_prefix(source)) is not None:
        return files
    first, comma, second = (part.strip() for part in source.path.partition(","))
    return (Path(first), Path(second)) if comma else None


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
        pair = moses_files(source)
        if pair is None:
            raise DataError(f"no Moses pair {source.path}.{source.language}, {source.path}.{source.target_language}; "
                            "give both file names, joined by a comma")  # fmt: skip
        files = list(pair)
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
            raise DataError(f"no such file: {path}{_nearest_file(path)}")
    return files


def is_saved_dataset(folder: str) -> bool:
    """Return whether ``save_to_disk`` of datasets wrote this folder."""
    names = ("dataset_info.json", "dataset_dict.json", "state.json")
    return any((Path(folder) / name).exists() for name in names)


def _nearest_file(path: Path) -> str:
    """Suggest a similar file name of the same folder for a missing file."""
    if not isdir(path.parent):
        return f"; the folder {path.parent} does not exist either"
    return did_you_mean(path.name, (other.name for other in path.parent.iterdir()))


Bitexts = PathOrName | Mapping[str, PathOrName | Sequence[PathOrName]] | Sequence["PathOrName | BitextSource"]


def resolve_sources(
    data: Bitexts,
    *,
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    split: str = "train",
    links: Bitexts | None = None,
    link_words: str = "script",
) -> dict[str, list[BitextSource]]:
    """Resolve ``data`` to sources by language, in the order given; check that files exist and codes are known.

    The arguments are those of `load_bitext`.
    """
    if data is None or isinstance(data, (bool, int, float)):
        raise DataError(f"bitext is a path, language=path, or pairs in memory, not {data!r}")
    if link_words not in SPLITTERS:
        raise DataError(f"unknown link_words {link_words!r}: use {' or '.join(SPLITTERS)}")
    per_file = columns if isinstance(columns, Mapping) else {}
    source_column, target_column = (None, None) if isinstance(columns, Mapping) else columns or (None, None)
    template = BitextSource("und", "", target_language, source_column, target_column, split=split)
    resolved: dict[str, list[BitextSource]] = {}
    unused = set(per_file)
    for source in _named_sources(data, template):
        source_files(source)
        key = next((key for key in (source.path, Path(source.path).name, source.language) if key in per_file), None)
        if key is not None:
            unused.discard(key)
            source = replace(source, source_column=per_file[key][0], target_column=per_file[key][1])  # noqa: PLW2901
        resolved.setdefault(source.language, []).append(source)
    if not resolved:
        raise DataError("no bitext given; give a path, or language=path")
    for key in unused:
        raise DataError(f"columns are given for {key!r}, which is neither a language nor a file of the data; "
                        f"use one of {', '.join(resolved)}, or a file name")  # fmt: skip
    links_of: dict[str, list[str]] = {}
    for source in _named_sources(links or [], BitextSource("und", "")):
        links_of.setdefault(source.language, []).append(source.path)
    for language, paths in links_of.items():
        sources = resolved.get(language, [])
        if len(sources) != len(paths):
            raise DataError(f"{language!r} needs one file of links per file of pairs: got {len(paths)} ({paths[0]}) "
                            f"for {len(sources)}; give links and pairs the same language code")  # fmt: skip
        for path in paths:
            if not isfile(path):
                raise DataError(f"no such file: {path}{_nearest_file(Path(path))}")
        resolved[language] = [
            replace(source, links=path, link_words=link_words) for source, path in zip(sources, paths, strict=True)
        ]
    return resolved


def _named_sources(data: Bitexts, template: BitextSource) -> Iterable[BitextSource]:
    if isinstance(data, Mapping):
        for language, paths in data.items():
            for path in [paths] if isinstance(paths, (str, PathLike)) else paths:
                yield from _expand(fspath(path), replace(template, language=language))
        return
    for item in [data] if isinstance(data, (str, PathLike)) else data:
        if isinstance(item, BitextSource):
            if (item.source_column, item.target_column) == (None, None):
                item = replace(  # noqa: PLW2901
                    item, source_column=template.source_column, target_column=template.target_column
                )
            yield item
            continue
        path = fspath(item)
        named = re.fullmatch(rf"({CODE})=(.+)", path)
        if named:
            yield from _expand(named[2], replace(template, language=named[1]))
        else:
            yield from _expand(path, template)


def _expand(path: str, template: BitextSource) -> Iterable[BitextSource]:
    """Yield the sources of one path; expand ``~``, wildcards and ``{language}`` (any code without a language)."""
    path = str(Path(path).expanduser()) if path.startswith("~") else path
    if "{language}" in path and template.language == "und":
        yield from _expand_languages(path, template)
        return
    path = path.replace("{language}", template.language)
    if not re.search(r"[*?\[]", path) or exists(path):
        yield replace(template, path=path)
        return
    matches = sorted(glob.glob(path, recursive=True))
    if not matches:
        raise DataError(f"no file matches {path}{_nearest_file(Path(path))}")
    yield from (replace(template, path=match) for match in matches)


def _expand_languages(path: str, template: BitextSource) -> Iterable[BitextSource]:
    """Yield a source for each file that matches a path such as ``train/{language}-en.tsv.xz`` with any code."""
    names = sorted(glob.glob(path.replace("{language}", "*"), recursive=True))
    patterns = [_language_pattern(path, wildcard) for wildcard in ("[^/]*", "[^/]*?")]
    files = []
    for name in names:
        codes = {match["language"] for pattern in patterns if (match := re.fullmatch(pattern, name))}
        codes = {code for code in codes if language_of_tag(code)} or codes
        if len(codes) > 1:
            raise DataError(f"{name} matches {path} with the codes {' and '.join(sorted(codes))}: name its language, "
                            "as in de=PATH, or write a pattern that fits only one")  # fmt: skip
        files += [(code, name) for code in codes]
    if not files:
        joined = "; it cannot be used in two joined paths: name the language, as in de=" + path if "," in path else ""
        raise DataError(f"no file matches {path}, where {{language}} is a code such as de{joined}")
    yield from (replace(template, language=language, path=name) for language, name in files)


def _language_pattern(path: str, wildcard: str) -> str:
    """Return the regular expression of a glob; a ``*`` beside ``{language}`` matches no letter of the code."""
    pattern, place = re.escape(path), re.escape("{language}")
    pattern = pattern.replace(rf"\*{place}", rf"\*(?<![A-Za-z0-9]){place}")
    pattern = pattern.replace(rf"{place}\*", rf"{place}(?![A-Za-z0-9])\*")
    pattern = pattern.replace(place, f"(?P<language>{CODE})", 1).replace(place, "(?P=language)")
    return pattern.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", wildcard).replace(r"\?", "[^/]")
