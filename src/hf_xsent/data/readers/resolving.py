"""Resolve paths, globs, Hub ids and pairs in memory to sources by language."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike, fspath
from os.path import exists
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import CODE, STRICT_CODE, code_at_end
from hf_xsent.data.readers.columns import Columns, check_columns
from hf_xsent.data.readers.compression import strip_compression
from hf_xsent.data.readers.in_memory import is_in_memory, write_pairs
from hf_xsent.data.readers.sources import BitextSource, format_of_name, nearest_file, source_files
from hf_xsent.errors import DataError


def default_cache_dir() -> Path:
    """Return the default cache folder, which is inside ``HF_HOME``."""
    from huggingface_hub.constants import HF_HOME

    return Path(HF_HOME) / "hf_xsent" / "bitext"


def resolve_sources(
    data: Any,
    *,
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    split: str = "train",
    cache_dir: str | PathLike[str] | None = None,
) -> dict[str, list[BitextSource]]:
    """Resolve ``data`` to sources by language, in the order given; check that files exist and codes are known.

    The arguments are those of `load_bitext`. Pairs in memory are written to files below ``cache_dir``.
    """
    check_columns(columns)
    per_file = columns if isinstance(columns, Mapping) else {}
    template = BitextSource("und", "", target_language, None if isinstance(columns, Mapping) else columns, split)
    resolved: dict[str, list[BitextSource]] = {}
    unused, unnamed = set(per_file), []
    for source, named in _named_sources(data, template, Path(cache_dir or default_cache_dir()) / "in_memory"):
        source_files(source)
        unnamed += [source.path] if source.language == "und" and not named else []
        key = next((key for key in (source.path, Path(source.path).name, source.language) if key in per_file), None)
        if key is not None:
            unused.discard(key)
            source = replace(source, columns=per_file[key])  # noqa: PLW2901
        resolved.setdefault(source.language, []).append(source)
    if not resolved:
        raise DataError("no bitext given; give a path, or language=path")
    if len(unnamed) > 1:
        first, second = unnamed[:2]
        raise DataError(
            f"{first} and {second} have no language code in their names, and would be mixed as one language: name the "
            f"language of each, such as de={first} tr={second}, or write und= before each to mix them"
        )
    for key in unused:
        raise DataError(f"columns are given for {key!r}, which is neither a language nor a file of the data; "
                        f"use one of {', '.join(resolved)}, or a file name")  # fmt: skip
    return resolved


def _named_sources(data: Any, template: BitextSource, folder: Path) -> Iterator[tuple[BitextSource, bool]]:
    """Yield each source, and whether its language is given; write pairs in memory to files in ``folder``."""
    code_of = partial(language_of_name, target_language=template.target_language)
    by_language = isinstance(data, Mapping) and (not is_in_memory(data) or all(map(code_of, data)))
    named = [(code_of(name) or name, items) for name, items in data.items()] if by_language else [(None, data)]
    for language, item in ((language, item) for language, items in named for item in _items(items)):
        if isinstance(item, BitextSource):
            yield (item if item.columns is not None else replace(item, columns=template.columns)), True
        elif is_in_memory(item):
            yield from ((source, True) for source in write_pairs(item, folder, template, language))
        elif language is None and (parts := re.fullmatch(rf"({CODE})=(.+)", fspath(item))):
            yield from _expand(parts[2], template, code_of(parts[1]) or parts[1])
        else:
            yield from _expand(fspath(item), template, language)


def _items(data: Any) -> Iterable[Any]:
    if isinstance(data, str | PathLike | BitextSource):
        return [data]
    if not isinstance(data, Iterable):
        raise DataError(f"bitext is a path, language=path, or pairs in memory, not {data!r}")
    return [data] if is_in_memory(data) else data


def language_of_name(path: str, target_language: str) -> str | None:
    """Return the language code that ends a path before its suffix, besides the target's; None without one.

    >>> [language_of_name(name, "en") for name in ("de.tsv", "a/talks.en-pt_BR.tsv.gz", "owner/name:de-en", "news.tsv")]
    ['de', 'pt_BR', 'de', None]
    """
    return code_at_end(_end_of_name(path), target_language)


def _end_of_name(path: str) -> str:
    """Return the last part of a name before its suffix, such as en-de of talks.en-de.tsv.gz."""
    name = strip_compression(Path(path if exists(path) else path.partition(",")[0]).name)
    stem = name.rpartition(".")[0] if format_of_name(name) else name.partition("@")[0]
    return re.split("[.:]", stem)[-1]


def _expand(path: str, template: BitextSource, language: str | None) -> Iterator[tuple[BitextSource, bool]]:
    """Yield the sources of one path; expand ``~``, wildcards and ``{language}`` (any code without a language)."""
    path = str(Path(path).expanduser()) if path.startswith("~") else path
    if "{language}" in path and language in (None, "und"):
        for code, name in _expand_languages(path):
            yield replace(template, language=code, path=name), True
        return
    path = path.replace("{language}", language or "")
    has_wildcard = re.search(r"[*?\[]", path) and not exists(path)
    if not (names := sorted(glob.glob(path, recursive=True)) if has_wildcard else [path]):
        raise DataError(f"no file matches {path}{nearest_file(Path(path))}")
    for name in names:
        end, target = _end_of_name(name), template.target_language
        code = language or code_at_end(end, target) or "und"
        # en-de, but not de and de-en: the sentences may stand in this order, too
        if language is None and end.endswith((f"-{code}", f"_{code}")) and format_of_name(name) in ("tsv", "csv"):
            raise DataError(
                f"{name}: which column has {code}? Its name has {target} first; write {code}={name}, and if {target} "
                f"is the first of columns without names, also --columns {code}=1,0"
            )
        yield replace(template, language=code, path=name), language is not None


def _expand_languages(path: str) -> list[tuple[str, str]]:
    """Return code and name of each file that matches a path such as ``train/{language}-en.tsv.xz`` with any code."""
    patterns = [_language_pattern(path, code) for code in (STRICT_CODE, CODE)]
    names = sorted(glob.glob(path.replace("{language}", "*"), recursive=True))
    matches = [re.fullmatch(patterns[0], name) or re.fullmatch(patterns[1], name) for name in names]
    if not any(matches):
        joined = "; it cannot be used in two joined paths: name the language, as in de=" + path if "," in path else ""
        raise DataError(f"no file matches {path}, where {{language}} is a code such as de{joined}")
    return [(match["language"], match[0]) for match in matches if match]


def _language_pattern(path: str, code: str) -> str:
    """Return the regular expression of a glob; a ``*`` beside ``{language}`` matches no letter of the code."""
    pattern, place = re.escape(path), re.escape("{language}")
    pattern = pattern.replace(rf"\*{place}", rf"\*(?<![A-Za-z0-9]){place}")
    pattern = pattern.replace(rf"{place}\*", rf"{place}(?![A-Za-z0-9])\*")
    pattern = pattern.replace(place, f"(?P<language>{code})", 1).replace(place, "(?P=language)")
    return pattern.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*?").replace(r"\?", "[^/]")
