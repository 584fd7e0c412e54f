"""Read the sentences of test sets, so that cleaning removes training pairs that have one of them."""

from __future__ import annotations

from collections.abc import Sequence
from glob import glob
from itertools import chain
from pathlib import Path

import numpy as np

from hf_xsent.data.cleaning.repeats import hash_texts
from hf_xsent.data.readers.compression import lines
from hf_xsent.data.readers.sources import format_of_name
from hf_xsent.errors import DataError


def excluded_files(paths: Sequence[str]) -> list[Path]:
    """Expand files, folders and globs to files; raise a `DataError` if one matches no file."""
    files: set[Path] = set()
    for pattern in paths:
        matches = map(Path, glob(pattern, recursive=True))
        inside = chain.from_iterable(match.rglob("*") if match.is_dir() else [match] for match in matches)
        matching = {path for path in inside if path.is_file()}
        if not matching:
            raise DataError(f"cleaning rule exclude: no file matches {pattern}")
        files |= matching
    for file in files:
        if format_of_name(file.name) not in (None, "tsv"):
            raise DataError(f"{file}: the cleaning rule exclude reads plain text and TSV: convert the file")
    return sorted(files)


class ExcludedSentences:
    """Hashes of sentences, one per line or tab-separated field of the files; case and whitespace do not matter."""

    def __init__(self, files: Sequence[Path]) -> None:
        hashes = {
            hash_texts(field)
            for file in files
            for _, line in lines(file)
            for field in {line, *line.split("\t")}
            if field.strip()
        }
        self._hashes = np.sort(np.fromiter(hashes, np.uint64, len(hashes)))

    def __len__(self) -> int:
        return len(self._hashes)

    def __contains__(self, sentence: str) -> bool:
        value = np.uint64(hash_texts(sentence))
        place = int(np.searchsorted(self._hashes, value))
        return place < len(self) and bool(self._hashes[place] == value)
