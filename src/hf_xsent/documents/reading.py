"""Read documents and pair the files of two folders or globs."""

from __future__ import annotations

import glob
import logging
import os
import re
from collections.abc import Iterable
from pathlib import Path

from hf_xsent.data.identification import contradicting_language, identify_language
from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.compression import lines, strip_compression
from hf_xsent.data.readers.sources import refuse_missing, refuse_table
from hf_xsent.documents.splitting import Document, split_lines, split_text
from hf_xsent.errors import DataError, OutputError

logger = logging.getLogger(__name__)

_MATCHED = {"**/": "((?:[^/]+/)*)", "*": "([^/]*)"}  # "**/" matches any number of folders


def read_document(path: Path, split: str = "lines", language: str | None = None) -> Document:
    """Read a UTF-8 text file, plain or compressed: one sentence per line, or running text (``split="text"``).

    Running text is split by the rules of its language, which is identified if it is not given.
    """
    texts = [line for _, line in lines(path)]
    refuse_table(path, texts)
    text = "\n".join(texts)
    if split == "text":
        if language is not None and (other := contradicting_language(texts, language)) is not None:
            names = [find_language(code).name for code in (other, language)]
            logger.warning("%s seems to be %s, not %s: check --languages", path, *names)
        document = split_text(text, language or identify_language([text]) or "und")
    else:
        document = split_lines(text)
    if not document.sentences:
        raise DataError(f"{path} is empty: a document to align needs at least one sentence")
    return document


def pair_documents(source: str, target: str, on_error: str = "raise") -> list[tuple[str, Path, Path]]:
    """Pair two files, files of the same names in two folders, or files of two globs whose ``*`` match the same text.

    A file without a counterpart, or that is its own, is an error, or is skipped with a warning (``on_error="skip"``).
    """
    if _is_several(source) or _is_several(target):
        pairs = _pair_names(source, target, on_error)
    else:
        for path in (source, target):
            refuse_missing(Path(path))
        pairs = [(Path(source).name, Path(source), Path(target))]
    same = [pair for pair in pairs if pair[1].samefile(pair[2])]
    if same and (len(same) == len(pairs) or on_error == "raise"):
        raise DataError(f"{same[0][1]} is both source and target: give the file of its translation")
    for _, document, _ in same:
        logger.warning("skipped %s: it is both source and target", document)
    return [pair for pair in pairs if pair not in same]


def _pair_names(source: str, target: str, on_error: str) -> list[tuple[str, Path, Path]]:
    sides = [_named_files(path) for path in (source, target)]
    common = [name for name in sides[0] if name in sides[1]]
    alone = [side[name] for side, other in (sides, sides[::-1]) for name in side if name not in other]
    if alone and (not common or on_error == "raise"):
        raise DataError(
            f"{alone[0]} has no file to align with: the files of {source} and {target} must have the same names in two "
            "folders, or the same text in place of * in two globs"
        )
    for path in alone:
        logger.warning("skipped %s: it has no file to align with", path)
    return [(name, sides[0][name], sides[1][name]) for name in common]


def _is_several(path: str) -> bool:
    return Path(path).is_dir() or ("*" in path and not Path(path).is_file())


def refuse_inside(name: str, written: str | Path, documents: Iterable[str]) -> None:
    """Raise an error if a file that is written would be among the documents of a folder or glob."""
    for path in filter(_is_several, documents):
        pattern = _pattern(os.path.abspath(f"{path}/**/*" if Path(path).is_dir() else path))
        if pattern.fullmatch(os.path.abspath(written)):
            raise OutputError(f"{name} would be read as a document of {path}: choose a place outside")


def _named_files(path: str) -> dict[str, Path]:
    """Name the files of a folder by their path in it, those of a glob by the text that its wildcards match."""
    if Path(path).is_dir():
        inside = sorted(file for file in Path(path).rglob("*") if file.is_file() and not file.name.startswith("."))
        return _by_name((strip_compression(file.relative_to(path).as_posix()), file) for file in inside)
    pattern = _pattern(path)
    files = glob.glob("".join(part if part in _MATCHED else glob.escape(part) for part in _parts(path)), recursive=True)
    matches = [match for file in sorted(files) if (match := pattern.fullmatch(file)) and Path(file).is_file()]
    texts = [filter(None, (group.strip("/") for group in match.groups())) for match in matches]
    names = _by_name(("/".join(words), Path(match[0])) for words, match in zip(texts, matches, strict=True))
    if not names:
        raise DataError(f"no file matches {path}")
    return names


def _parts(path: str) -> list[str]:
    """Split a glob at its wildcards; a last ``**`` matches files, too."""
    return re.split(r"(\*\*/|\*)", re.sub(r"(?<![^/])\*\*$", "**/*", re.sub("//+", "/", path)))


def _pattern(path: str) -> re.Pattern[str]:
    """Return the regular expression of a glob, with a group for each wildcard."""
    return re.compile("".join(_MATCHED.get(part) or re.escape(part) for part in _parts(path)))


def _by_name(named: Iterable[tuple[str, Path]]) -> dict[str, Path]:
    """Map names to files; raise an error if two files have one name."""
    files: dict[str, Path] = {}
    for name, file in named:
        if name in files:
            raise DataError(f"{files[name]} and {file} are both the document {name!r}: rename or remove one")
        files[name] = file
    return files
