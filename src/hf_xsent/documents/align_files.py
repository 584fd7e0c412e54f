"""Align files of documents and write the pairs to one file; an interrupted run resumes."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hf_xsent.data.output import check_output, write_records
from hf_xsent.documents.alignment import MAX_LENGTH, align_sides, logger
from hf_xsent.documents.reading import pair_documents, read_document, refuse_inside
from hf_xsent.documents.settings import AlignDocumentsSettings
from hf_xsent.documents.spans import EncodedDocument
from hf_xsent.errors import DataError
from hf_xsent.files import digest
from hf_xsent.logs import collecting_warnings
from hf_xsent.models.encoder import Encoder, open_encoder
from hf_xsent.runs.engines import engine, is_first_process
from hf_xsent.runs.identity import identify_files
from hf_xsent.runs.store import Store
from hf_xsent.settings.command import command

DocumentPair = tuple[str, Path, Path]  # name, source, target
COLUMNS = ("score", "document", "source_numbers", "target_numbers", "source", "target")
_VERSION = 3  # increase it when alignments change


@dataclass(frozen=True)
class AlignedDocuments:
    """The number of sentence pairs, and the file that has them."""

    pairs: int
    output: str

    def __str__(self) -> str:
        return f"{self.pairs:,} pairs are in {self.output}"


@command(AlignDocumentsSettings)
def align_document_files(settings: AlignDocumentsSettings) -> AlignedDocuments | None:
    """Align documents with their translations, and write the sentence pairs (``COLUMNS``) to a file.

    ``source`` and ``target`` are files, folders (equal names) or globs (equal matches of ``*``); ``split="text"``
    splits running text into sentences. ``on_error="skip"`` skips documents that cannot be read or aligned, with a
    warning. For lists of sentences use ``align_documents``. Of several processes, only the first writes the output and
    returns the number of pairs.

    ```python
    from hf_xsent import align_document_files

    aligned = align_document_files("book.de.txt", "book.fr.txt", "pairs.tsv", "runs/mine", split="text")
    ```
    """
    for name, file in (("output", settings.output), ("work", settings.work_folder / "aligned" / "0.json")):
        refuse_inside(f"--{name}", file, (settings.source, settings.target))
    pairs = pair_documents(settings.source, settings.target, settings.on_error)
    check_output(settings.output, [file for _, *files in pairs for file in files])
    fill, encoder = engine(settings), open_encoder(settings, MAX_LENGTH, searches=False)
    decisive = [_VERSION, encoder.identity, settings.split, settings.languages]
    documents: dict[str, DocumentPair] = {}
    for name, *files in pairs:
        # The key includes the names of the files, which stored errors have.
        try:
            content = identify_files(files)
        except OSError as error:  # which the job reports, too
            content = str(error)
        key = digest([*decisive, list(map(str, files)), content])
        documents[f"{key}.json"] = (name, files[0], files[1])
    store = Store(settings.work_folder / "aligned")
    cached = documents.keys() - store.missing(documents)
    fill(store, list(documents), AlignmentJob(encoder, settings, documents), "aligning")
    if not is_first_process():
        return None
    count = write_records(settings.output, COLUMNS, _records(store, documents, settings, cached))
    return AlignedDocuments(count, settings.output)


@dataclass(frozen=True)
class AlignmentJob:
    """Align documents, and write the pairs and warnings of each as JSON Lines, or the error that skips it."""

    encoder: Encoder
    settings: AlignDocumentsSettings
    documents: Mapping[str, DocumentPair]

    def __call__(self, name: str, path: Path) -> None:
        """Read, encode, align, write."""
        document = self.documents[name]
        with collecting_warnings() as warnings:
            try:
                rows = self._align(document)
            except DataError as error:
                if self.settings.on_error == "raise":
                    raise
                rows = [{"error": str(error)}]
        rows += [{"warning": warning} for warning in warnings]
        path.write_text(json.dumps(rows, ensure_ascii=False), "utf-8")

    def _align(self, pair: DocumentPair) -> list[dict[str, Any]]:
        """Return a row for each pair of sentences."""
        name, *files = pair
        languages = self.settings.languages or (None, None)
        documents = [
            read_document(file, self.settings.split, code) for file, code in zip(files, languages, strict=True)
        ]
        texts, encode = (documents[0].sentences, documents[1].sentences), self.encoder.encode
        source, target = (
            EncodedDocument.from_sentences(document.sentences, encode(document.sentences), document.paragraphs)
            for document in documents
        )
        rows = []
        for spans in align_sides(source, target, encode, texts, (str(files[0]), str(files[1]))):
            if spans.score is None:
                continue
            row: dict[str, Any] = {"score": spans.score, "document": name}
            for side, document, numbers in zip(
                ("source", "target"), documents, (spans.source, spans.target), strict=True
            ):
                row[f"{side}_numbers"] = [document.numbers[number] for number in numbers]
                row[side] = " ".join(document.sentences[number] for number in numbers)
            rows.append(row)
        return rows


def _records(
    store: Store, documents: Mapping[str, DocumentPair], settings: AlignDocumentsSettings, cached: Collection[str]
) -> Iterator[dict[str, Any]]:
    """Yield the pairs of all documents; report those that were skipped, and repeat the warnings of those cached."""
    skipped = []
    for key, (name, *_) in documents.items():
        for row in store.read(key, _read_rows):
            if "error" in row:
                skipped.append(f"{name}: {row['error']}")
            elif "warning" in row:
                if key in cached:
                    logger.warning("%s", row["warning"])
            elif settings.threshold is None or row["score"] >= settings.threshold:
                yield row | {"document": name}
    if skipped and (settings.on_error == "raise" or len(skipped) == len(documents)):
        raise DataError(skipped[0])
    for reason in skipped:
        logger.warning("skipped %s", reason)
    if skipped:
        logger.warning("%d of %d documents were skipped", len(skipped), len(documents))


def _read_rows(path: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))
    return rows
