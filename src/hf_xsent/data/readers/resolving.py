"""Resolve paths, globs, Hub ids and pairs in memory to sources by language."""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from hf_xsent.data.languages import CODE, STRICT_CODE, code_at_end, language_of_tag, subtags_of
from hf_xsent.data.readers.columns import Columns, check_columns, parse_columns
from hf_xsent.data.readers.formats import ORDERS, by_language
from hf_xsent.data.readers.in_memory import stored_pairs, target_language_of
from hf_xsent.data.readers.sources import BitextSource, end_of_name, expand_folder, is_name, joined, nearest_file
from hf_xsent.errors import DataError, shortened
from hf_xsent.settings.secrets import refuse_secrets


def resolve_sources(
    data: Any,
    *,
    target_language: str = "en",
    columns: Columns | Mapping[str, Columns] | None = None,
    split: str = "train",
    cache_dir: str | PathLike[str] | None = None,
    others: bool = False,
) -> dict[str, list[BitextSource]]:
    """Resolve ``data`` to sources by language, in the order given; check that files exist and codes are known.

    The arguments are those of `load_bitext`. Pairs in memory are written to files below ``cache_dir``. With ``others``,
    the columns are also those of other data, and are checked there.
    """
    target_language = target_language_of(data, target_language)
    if isinstance(columns, list | tuple) and any("=" in str(name) for name in columns):  # as in recipes and flags
        columns = parse_columns([*map(str, columns)])
    template = BitextSource("und", "", target_language, None, split, stated=False)
    sources = [*_sources(stored_pairs(data, split, cache_dir), template, columns)]
    resolved: dict[str, list[BitextSource]] = {}
    for source in sources if others else state_columns(sources, columns):
        _ = source.files  # raises an error if one is missing
        resolved.setdefault(source.language, []).append(source)
    if not resolved:
        raise DataError("no bitext given; give a path, or language=path")
    _refuse_mixtures(resolved)
    return resolved


def state_columns(
    sources: Iterable[BitextSource], columns: Columns | Mapping[str, Columns] | None, others: bool = False
) -> list[BitextSource]:
    """Return sources with these columns, or those that a mapping states by path, name or language.

    Other sources keep the columns that they have, else have those that the mapping states without a name. The mapping
    may have ``others`` than those of the sources, or they are refused, and so are columns that only files of formats
    without columns would have.
    """
    check_columns(columns)
    stated, unused = [], {*columns} - {""} if isinstance(columns, Mapping) else set()
    of_keys: dict[str, list[BitextSource]] = {}
    for source in sources:
        key, own = _columns_of(source, columns)
        stated.append(replace(source, columns=own))
        unused.discard(key)
        of_keys.setdefault(key, []).append(stated[-1])
    for key, (first, *rest) in of_keys.items():
        if (key or first.columns) and all(source.format in ORDERS for source in (first, *rest)):
            raise DataError(f"{first.name} has no columns to choose from: drop columns, or {ORDERS[first.format]}")
    for key in () if others else unused:
        codes = ", ".join(dict.fromkeys(source.language for source in stated))
        raise DataError(f"columns are given for {key!r}, which is neither a language nor a file of the data; "
                        f"use one of {codes}, or a file name")  # fmt: skip
    return stated


def _columns_of(source: BitextSource, columns: Columns | Mapping[str, Columns] | None) -> tuple[str, Columns | None]:
    """Return the path, name or language by which columns are stated for a source, empty for others; and its columns."""
    every, per_file = (columns.get(""), columns) if isinstance(columns, Mapping) else (columns, {})
    key = next((key for key in (source.path, Path(source.path).name, source.language) if key in per_file), "")
    return key, per_file[key] if key else source.columns or every


def _refuse_mixtures(resolved: Mapping[str, Sequence[BitextSource]]) -> None:
    """Raise an error for two codes of one language, and for several files whose languages are not known."""
    undetermined = sorted(resolved.get("und", ()), key=lambda source: source.stated)
    if len(undetermined) > 1 and not undetermined[0].stated:
        first, second = (source.path for source in undetermined[:2])
        raise DataError(
            f"{first} and {second} have no language code in their names, and would be mixed as one language: name the "
            f"language of each, such as de={first} tr={second}, or write und= before each to mix them"
        )
    refuse_two_codes(resolved)


def refuse_two_codes(languages: Iterable[str]) -> None:
    """Raise an error for two codes of one language."""
    codes: dict[tuple[str, ...], str] = {}
    for code in languages:
        if (other := codes.setdefault(subtags_of(code), code)) != code:
            raise DataError(f"{other} and {code} are codes of one language: give all its pairs with one of them")


def _sources(data: Any, template: BitextSource, columns: Any) -> Iterator[BitextSource]:
    """Yield each source of paths."""
    named = [(str(name), items) for name, items in data.items()] if isinstance(data, Mapping) else [(None, data)]
    for key, item in ((name, item) for name, items in named for item in _items(items, name)):
        refuse_secrets({"data": item.path if isinstance(item, BitextSource) else fspath(item)})
        if isinstance(item, BitextSource):
            yield from (replace(item, path=path) for path in expand_folder(item.path, item.split))
            continue
        name, equals, path = fspath(item).partition("=")
        code = re.fullmatch(CODE, name) or ("/" not in name and code_at_end(name, template.target_language))
        if key is None and equals and code:
            yield from _expand(path, _stating(template, name), columns)
        else:
            yield from _expand(fspath(item), _stating(template, key), columns)


def _stating(template: BitextSource, key: str | None) -> BitextSource:
    """Return the template with the language that a key is, or that ends it, such as talks-en-de."""
    if key is None:
        return template
    return replace(template, language=language_of_name(key, template.target_language) or key, stated=True)


def _items(data: Any, key: str | None) -> Iterable[Any]:
    """Return the paths and sources of a language, or of all."""
    is_nested = key is not None and isinstance(data, Mapping)
    items = [data] if isinstance(data, str) or is_nested or not isinstance(data, Iterable) else [*data]
    for item in items:
        if not isinstance(item, str | PathLike | BitextSource):
            raise DataError(f"bitext is a path, language=path, or pairs in memory, not {shortened(item)}")
    return items


def language_of_name(path: str, target_language: str) -> str | None:
    """Return the language code that ends a path before its suffix, besides the target's; None without one.

    >>> [language_of_name(name, "en") for name in ("de.tsv", "a/talks.en-pt_BR.tsv.gz", "owner/name:de-en", "news.tsv")]
    ['de', 'pt_BR', 'de', None]
    """
    return next(filter(None, (code_at_end(end, target_language) for end in _ends_of_name(path))), None)


def _ends_of_name(path: str) -> list[str]:
    """Return the ends of a name that may have its language, of two joined files both as de-en and each."""
    ends = [end_of_name(part) for part in joined(path)]
    return ["-".join(ends), *ends] if len(ends) == 2 else ends


def _expand(path: str, template: BitextSource, columns: Any) -> Iterator[BitextSource]:
    """Yield the sources of a path; expand ``~``, wildcards, folders, ``{language}`` (any code without a language)."""
    if not path:
        raise DataError(f"the path of the {template.language} pairs is empty: give a file, such as de=pairs.tsv")
    path = ",".join(str(Path(part).expanduser()) if part.startswith("~") else part for part in path.split(","))
    if "{language}" in path and template.language == "und":
        for language, name in _expand_languages(path):
            stated = replace(template, language=language, stated=True)
            for file in expand_folder(name, template.split):
                source = replace(stated, path=file)
                yield replace(source, columns=_columns_of(source, columns)[1])
        return
    path = path.replace("{language}", template.language)
    if not (names := [path] if is_name(path) else sorted(glob.glob(path, recursive=True))):
        raise DataError(f"no file matches {path}{nearest_file(Path(path))}")
    for file, folder in ((file, each) for each in names for file in expand_folder(each, template.split)):
        of_names = (language_of_name(name, template.target_language) for name in (folder, file))
        code = template.language if template.stated else next(filter(None, of_names), None)
        source = replace(template, path=file, language=code or "und", stated=bool(code))
        source = replace(source, columns=_columns_of(source, columns)[1])
        of_hub = source.format == "datasets" and not source.files
        yield from [source] if source.stated or of_hub else by_language(source)


def _expand_languages(path: str) -> list[tuple[str, str]]:
    """Return code and name of each file that matches a path such as ``train/{language}-en.tsv.xz`` with any code."""
    patterns = [_language_pattern(path, code) for code in (STRICT_CODE, CODE)]
    names = sorted(glob.glob(path.replace("[", "[[]").replace("{language}", "*"), recursive=True))
    matches = [re.fullmatch(patterns[0], name) or re.fullmatch(patterns[1], name) for name in names]
    if not any(matches):
        cure = "; it cannot be used in two joined paths: name the language, as in de=" + path if "," in path else ""
        raise DataError(f"no file matches {path}, where {{language}} is a code such as de{cure}")
    found = [(match["language"], match[0]) for match in matches if match]
    for code, name in found:
        if language_of_tag(code) is None:
            raise DataError(f"{name}: {code!r} is not a language code: rename the file, or name those to read")
    return found


def _language_pattern(path: str, code: str) -> str:
    """Return the regular expression of a glob; a ``*`` beside ``{language}`` matches no letter of the code."""
    pattern, place = re.escape(path), re.escape("{language}")
    pattern = pattern.replace(rf"\*{place}", rf"\*(?<![A-Za-z0-9]){place}")
    pattern = pattern.replace(rf"{place}\*", rf"{place}(?![A-Za-z0-9])\*")
    pattern = pattern.replace(place, f"(?P<language>{code})", 1).replace(place, "(?P=language)")
    return pattern.replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*?").replace(r"\?", "[^/]")
