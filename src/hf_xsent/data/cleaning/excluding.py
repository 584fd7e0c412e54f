"""Read the sentences of test sets, so that cleaning removes training pairs that have one of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from glob import glob
from pathlib import Path

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.sources import format_of_name
from hf_xsent.errors import DataError


def excluded_files(paths: Sequence[str]) -> list[Path]:
    """Expand files, folders and globs to files; raise a `DataError` if one matches no file."""
    files: set[Path] = set()
    for pattern in paths:
        matches = [Path(name) for name in glob(pattern, recursive=True)]
        matches += [path for folder in matches if folder.is_dir() for path in folder.rglob("*")]
        if not (inside := {path for path in matches if path.is_file()}):
            raise DataError(f"cleaning rule exclude: no file matches {pattern}")
        files |= inside
    for file in files:
        if format_of_name(file.name) not in (None, "tsv"):
            raise DataError(f"{file}: the cleaning rule exclude reads plain text and TSV: convert the file")
    return sorted(files)


def hash_sentences(files: Iterable[Path]) -> frozenset[int]:
    """Return the hashes of the sentences in files, one per line or tab-separated field."""
    fields = (field for file in files for _, line in lines(file) for field in {line, *line.split("\t")})
    return frozenset(hash_texts(field) for field in fields if field.strip())
