"""Align files of documents and write the pairs to one file; an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np

from hf_xsent.data.cache import load_array
from hf_xsent.data.identification import contradicting_language, identify_language
from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.compression import is_jsonl
from hf_xsent.data.readers.formats import OnError
from hf_xsent.documents.alignment import align_sides, logger
from hf_xsent.documents.reading import SPLITS, read_document
from hf_xsent.documents.spans import EncodedDocument
from hf_xsent.documents.splitting import Document
from hf_xsent.errors import DataError, did_you_mean
from hf_xsent.files import check_writable, digest, file_digest, write_arrays
from hf_xsent.logs import Progress
from hf_xsent.mining.output import one_line, write_lines, write_table
from hf_xsent.mining.shards import ProcessRunner, Runner
from hf_xsent.models.encode_interface import SupportsEncode
from hf_xsent.stored_lines import read_with_checksum, write_with_checksum

COLUMNS = ("score", "document", "source_numbers", "target_numbers", "source", "target")
_TEXTS_PER_FILE = 4096
_VERSION = 2  # of the files in the work folder


@dataclass(frozen=True)
class DocumentSettings:
    """How to read documents, the minimum score of pairs, and what to do with a document that cannot be aligned."""

    split: str = "lines"
    languages: tuple[str, str] | None = None
    threshold: float | None = None
    on_error: OnError = "raise"  # or skip

    def __post_init__(self) -> None:
        """Raise an error for unknown languages and choices."""
        if self.on_error not in ("raise", "skip"):
            raise DataError(f"on_error must be 'raise' or 'skip', not {self.on_error!r}")
        if self.split not in SPLITS:
            raise DataError(
                f"unknown split {self.split!r}: use {' or '.join(SPLITS)}{did_you_mean(self.split, SPLITS)}"
            )
        for language in self.languages or ():
            find_language(language)


@dataclass(frozen=True)
class AlignmentShard:
    """The alignment of two files, written as JSON Lines, or the error for which the pair is skipped."""

    name: str
    source: Path
    target: Path
    settings: DocumentSettings
    identity: dict[str, str]
    work: Path

    @cached_property
    def path(self) -> Path:
        """Return the file of aligned sentences; its name hashes everything that determines it.

        The path is computed once, from the files as they were before alignment. It includes their names, which stored
        errors have.
        """
        names, stated = [str(self.source), str(self.target)], [self.settings.split, self.settings.languages]
        decisive = [_VERSION, self.identity, stated, names, file_digest(self.source), file_digest(self.target)]
        return self.work / "aligned" / f"{digest(decisive)}.lines"

    def is_complete(self) -> bool:
        """Return whether the file exists and is not damaged."""
        return read_with_checksum(self.path) is not None

    def run(self, model: SupportsEncode | None) -> None:
        """Read, encode, align, write."""
        assert model is not None
        try:
            rows = self._align(model)
        except DataError as error:
            if self.settings.on_error == "raise":
                raise
            rows = [json.dumps({"error": str(error)}, ensure_ascii=False)]
        if replace(self).path != self.path:
            raise DataError(f"{self.source} or {self.target} changed while they were aligned: run the command again")
        write_with_checksum(self.path, rows)

    def _align(self, model: SupportsEncode) -> list[str]:
        """Return a line of JSON for each pair."""
        files, languages = (self.source, self.target), self.settings.languages or (None, None)
        documents = [read_document(*one) for one in zip(files, [self.settings.split] * 2, languages, strict=True)]
        _check_languages(files, documents, self.settings.languages)
        source, target = (
            EncodedDocument.from_sentences(
                document.sentences, self._encode(model, document.sentences), document.paragraphs
            )
            for document in documents
        )
        texts, names = (documents[0].sentences, documents[1].sentences), (str(self.source), str(self.target))
        aligned = align_sides(source, target, partial(self._encode, model), texts, names)
        rows = []
        for spans in aligned:
            if spans.score is None:
                continue
            row: dict[str, Any] = {"score": spans.score, "document": self.name}
            numbered = zip(("source", "target"), documents, (spans.source, spans.target), strict=True)
            for side, document, numbers in numbered:
                row[f"{side}_numbers"] = [document.numbers[number] for number in numbers]
                row[side] = " ".join(document.sentences[number] for number in numbers)
            rows.append(json.dumps(row, ensure_ascii=False))
        return rows

    def _encode(self, model: SupportsEncode, texts: Sequence[str]) -> np.ndarray:
        """Encode the texts that are not cached in the work folder yet."""
        parts = []
        starts = range(0, len(texts), _TEXTS_PER_FILE)
        for start in Progress(starts, desc="encoding", unit=" batches", delay=2, leave=False):
            some = texts[start : start + _TEXTS_PER_FILE]
            path = self.work / "vectors" / f"{digest([self.identity, some])}.npy"
            if (found := load_array(path, len(some), "float32")) is None:
                if path.exists():
                    logger.warning("%s is damaged: it is computed again", path)
                write_arrays(path, np.asarray(model.encode(some), np.float32))
                found = np.load(path, mmap_mode="r")
            parts.append(found)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def align_document_files(
    documents: Sequence[tuple[str, Path, Path]],
    output: str | Path,
    model: SupportsEncode,
    identity: dict[str, str],
    work: str | Path,
    settings: DocumentSettings | None = None,
    runner: Runner | None = None,
) -> int | None:
    """Align documents from `pair_documents`, and write the pairs of all to one TSV (``COLUMNS``) or JSONL file.

    Its numbers count lines, or the sentences of running text, from 1. ``work`` caches embeddings and alignments, so
    that an interrupted run resumes. Only rank 0 writes the output and returns the number of pairs.
    """
    settings, runner = settings or DocumentSettings(), runner or ProcessRunner()
    files = [file for _, *both in documents for file in both]
    check_writable(output, files)
    check_writable(Path(work) / "aligned" / "part", files)
    for file in files if len(documents) > 1 and settings.on_error == "raise" else ():
        read_document(file, settings.split)  # report bad files before encoding
    shards = [AlignmentShard(name, one, other, settings, identity, Path(work)) for name, one, other in documents]
    runner(shards, "aligning", model)
    if isinstance(runner, ProcessRunner) and runner.rank:
        return None
    rows = _rows(shards, settings)
    if is_jsonl(Path(output).name):
        return write_lines(output, (json.dumps(row, ensure_ascii=False) for row in rows))
    return write_table(output, COLUMNS, ([_cell(row[column]) for column in COLUMNS] for row in rows))


def _rows(shards: Sequence[AlignmentShard], settings: DocumentSettings) -> Iterator[dict[str, Any]]:
    skipped = []
    for shard in shards:
        for line in read_with_checksum(shard.path) or []:
            row: dict[str, Any] = json.loads(line) | {"document": shard.name}
            if "error" in row:
                skipped.append(f"{shard.name}: {row['error']}")
            elif settings.threshold is None or row["score"] >= settings.threshold:
                yield row
    if skipped and (settings.on_error == "raise" or len(skipped) == len(shards)):
        raise DataError(skipped[0])
    for one in skipped:
        logger.warning("skipped %s", one)
    if skipped:
        logger.warning("%d of %d documents were skipped", len(skipped), len(shards))


def _cell(value: Any) -> str:
    """Format line or sentence numbers (as 4 or 4-6), a score, or a text."""
    if isinstance(value, list):
        return str(value[0]) if len(value) == 1 else f"{value[0]}-{value[-1]}"
    return f"{value:.6f}" if isinstance(value, float) else one_line(value)


def _check_languages(files: Sequence[Path], documents: Sequence[Document], languages: tuple[str, str] | None) -> None:
    """Warn if a document seems not to be in the stated language or, if none is stated, both seem to be in the same."""
    if languages is None:
        first, second = (identify_language(document.sentences) for document in documents)
        if first is not None and first == second:
            logger.warning("%s and %s both seem to be %s: check the files", *files, find_language(first).name)
        return
    for file, document, language in zip(files, documents, languages, strict=True):
        if (code := contradicting_language(document.sentences, language)) is not None:
            names = find_language(code).name, find_language(language).name
            logger.warning("%s seems to be %s, not %s: check the file and --languages", file, *names)
