"""Read documents and pair the files of two folders or globs."""

from __future__ import annotations

import glob
import re
from pathlib import Path

from hf_xsent.data.identification import identify_language
from hf_xsent.data.readers.compression import check_line_ends, read_bytes, strip_compression
from hf_xsent.documents.splitting import Document, split_lines, split_text
from hf_xsent.errors import DataError, nearest

SPLITS = ("lines", "text")
_LARGEST_FILE = 1 << 28  # bytes


def read_document(path: Path, split: str = "lines", language: str | None = None) -> Document:
    """Read a UTF-8 text file, plain or compressed: one sentence per line, or running text (``split="text"``).

    Running text is split by the rules of its language, which is identified if it is not given.
    """
    if split not in SPLITS:
        raise DataError(f"unknown split {split!r}: use {' or '.join(SPLITS)}")
    if not path.is_file():
        raise DataError(f"no such file: {path}")
    content = read_bytes(path, _LARGEST_FILE)
    if b"\0" in content:
        raise DataError(f"{path} is a binary file: convert it to plain text in UTF-8 first")
    check_line_ends(path, content)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{line}: not UTF-8; convert the file with iconv -t UTF-8") from error
    if split == "text":
        document = split_text(text, language or identify_language([text]) or "und")
    else:
        document = split_lines(text)
    if not document.sentences:
        raise DataError(f"{path} is empty: a document to align needs at least one sentence")
    return document


def pair_documents(source: str, target: str) -> list[tuple[str, Path, Path]]:
    """Pair two files, files of the same names in two folders, or files of two globs whose ``*`` match the same text."""
    if not _is_several(source) and not _is_several(target):
        for path in (source, target):
            if not Path(path).is_file():
                raise DataError(f"no such file: {path}")
        return [(Path(source).name, Path(source), Path(target))]
    sides = [_named_files(one) for one in (source, target)]
    common = [name for name in sides[0] if name in sides[1]]
    alone = [side[name] for side, other in (sides, sides[::-1]) for name in side if name not in other]
    if not common or alone:
        others = [name for side in sides for name in side if name in common or not common]
        example = alone[0] if alone else source
        raise DataError(
            f"{example} has no file to align with: {source} and {target} must have files of the same names"
            f"{nearest(example.name if isinstance(example, Path) else example, others)}"
        )
    return [(name, sides[0][name], sides[1][name]) for name in common]


def _is_several(path: str) -> bool:
    return Path(path).is_dir() or ("*" in path and not Path(path).is_file())


def _named_files(path: str) -> dict[str, Path]:
    """Name the files of a folder by their path in it, those of a glob by the text that its wildcards match."""
    if Path(path).is_dir():
        found = sorted(one for one in Path(path).rglob("*") if one.is_file() and not one.name.startswith("."))
        return {strip_compression(one.relative_to(path).as_posix()): one for one in found}
    pattern = re.compile("([^/]*)".join(map(re.escape, path.split("*"))))
    names: dict[str, Path] = {}
    for match in map(pattern.fullmatch, sorted(glob.glob(path))):
        if match is not None:
            names["/".join(match.groups())] = Path(match.group())
    if not names:
        raise DataError(f"no file matches {path}")
    return names
