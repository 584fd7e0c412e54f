"""Read a collection, queries and relevance judgements in the files of BEIR (arXiv:2104.08663)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hf_xsent.data.identification import contradicting_language
from hf_xsent.data.languages import find_language
from hf_xsent.data.readers.columns import language_value
from hf_xsent.data.readers.compression import compressed_or_not, json_lines, lines
from hf_xsent.data.readers.hub import select_names
from hf_xsent.data.readers.in_memory import is_in_memory, records_of, write_records
from hf_xsent.data.readers.sources import IN_MEMORY, nearest_file
from hf_xsent.errors import DataError, shortened
from hf_xsent.files import digest, file_digest, make_folder, move_into_place

logger = logging.getLogger(__name__)

NOT_STATED = "und"
_FIRST_TEXTS = 100  # of each language, to identify it
_COLUMNS = ("query-id", "corpus-id")
_KINDS: dict[str, Any] = {"_id": str | int, "text": str, "title": str | None}
_FIELDS = (*_COLUMNS, "score")
_FILES = "corpus.jsonl, queries.jsonl, and qrels/test.tsv or qrels.tsv"


@dataclass(frozen=True)
class Collection:
    """The passages of documents, and judged queries; documents and queries have languages (``und``: not stated)."""

    passages: list[str]
    document_of: list[int]  # of each passage: the place of its document
    document_languages: list[str]
    queries: list[str]
    query_languages: list[str]
    relevant: list[dict[int, float]]  # of each query: documents by their places, and scores above 0
    query_ids: list[str]
    document_ids: list[str]


def load_collection(source: str | PathLike[str], languages: Iterable[str] | None = None) -> list[Collection]:
    """Load a folder with ``corpus.jsonl``, ``queries.jsonl``, and ``qrels/test.tsv`` or ``qrels.tsv``.

    A document has ``_id``, ``text`` and perhaps ``title``, a query ``_id`` and ``text``; both perhaps ``language`` or
    ``lang``.
    Records of the corpus with one ``_id`` are passages of one document, which is as near as its nearest passage.
    Judgements are lines of query id, document id and score, with or without a header, or in TREC's four columns.
    Queries without a relevant document are omitted. ``languages`` are those of the queries to keep.
    """
    folder = Path(source)
    what: Any = "the collection" if folder.parent.name == IN_MEMORY else folder  # what messages call it
    corpus = [*_records(_find(folder, "corpus.jsonl"))]
    documents = dict[str, str]()
    for _, name, _, code in corpus:
        documents.setdefault(name, code)  # the language of the first passage
    queries = dict[str, tuple[str, str]]()
    for place, name, text, code in _records(_find(folder, "queries.jsonl")):
        if name in queries:
            raise DataError(f"{place}: the _id {name!r} is that of an earlier line: give each query its own")
        queries[name] = text, code
    files = ["qrels.jsonl"] if folder.parent.name == IN_MEMORY else ["qrels/test.tsv", "qrels.tsv"]
    judged = _read_judgements(_find(folder, *files), queries, documents)
    measured = {name: queries[name] for name in queries if judged.get(name)}
    if not measured:
        raise DataError(f"{what}: no query has a relevant document: judgements need scores above 0")
    if omitted := len(queries) - len(measured):
        logger.info("%s: %d of %d queries have no relevant document and are omitted", what, omitted, len(queries))
    codes = None if languages is None else [find_language(code).code for code in languages]
    chosen = select_names(what, dict.fromkeys(code for _, code in measured.values()), codes)
    measured = {name: query for name, query in measured.items() if query[1] in chosen}
    places = {name: place for place, name in enumerate(documents)}
    relevant = [{places[document]: score for document, score in judged[name].items()} for name in measured]
    questions, question_codes = ([*side] for side in zip(*measured.values(), strict=True))
    _check_languages(what, "documents", ((text, code) for _, _, text, code in corpus))
    _check_languages(what, "queries", queries.values())
    passages, document_of = [text for _, _, text, _ in corpus], [places[name] for _, name, _, _ in corpus]
    codes_of_documents, ids = [*documents.values()], ([*measured], [*documents])
    return [Collection(passages, document_of, codes_of_documents, questions, question_codes, relevant, *ids)]


def _check_languages(what: Any, kind: str, texts: Iterable[tuple[str, str]]) -> None:
    """Warn of texts that are clearly in another language than is stated."""
    first = dict[str, list[str]]()
    for text, code in texts:
        if len(of_code := first.setdefault(code, [])) < _FIRST_TEXTS:
            of_code.append(text)
    for code, of_code in first.items():
        if (other := contradicting_language(of_code, code)) is not None:
            names = find_language(code).name, find_language(other).name
            logger.warning("%s: the %s in %s seem to be %s: check their field language", what, kind, *names)


def store_collection(collection: Mapping[str, Any], cache_dir: str | PathLike[str]) -> Path:
    """Write a collection in memory to a folder in the cache, whose name is a hash of its content.

    It has ``corpus`` and ``queries``, each with its records or with texts by id, and ``qrels``: by the id of a query
    its document or documents, or their scores by id; or records with ``query-id``, ``corpus-id`` and perhaps ``score``.
    """
    root = Path(cache_dir, IN_MEMORY)
    make_folder(root)
    with TemporaryDirectory(dir=root) as temporary:
        files = _write(collection, Path(temporary, "collection"))
        folder = root / digest([file_digest(file) for file in files])
        if not folder.is_dir():
            move_into_place(files[0].parent, folder)
    return folder


def _write(collection: Mapping[str, Any], folder: Path) -> list[Path]:
    """Write a collection in memory to files, and return them."""
    folder.mkdir()
    collection = {"qrels" if name == "relevant_docs" else name: part for name, part in collection.items()}
    if {*collection} != {"corpus", "queries", "qrels"}:
        raise DataError(f"a collection in memory has corpus, queries and qrels, not {', '.join(collection)}")
    for name in ("corpus", "queries"):
        records = collection[name]
        if isinstance(records, str | PathLike):
            raise DataError(f"{name} is a path: give records, or in place of the collection the folder of its files")
        if isinstance(records, Mapping) and not is_in_memory(records):
            records = [
                {"_id": key, **(value if isinstance(value, Mapping) else {"text": value})}
                for key, value in records.items()
            ]
        write_records(records, folder / f"{name}.jsonl")
    rows = (dict(zip(_FIELDS, map(str, row), strict=True)) for row in _judgements(collection["qrels"]))
    write_records(rows, folder / "qrels.jsonl")
    return [folder / f"{name}.jsonl" for name in ("corpus", "queries", "qrels")]


def _judgements(qrels: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield query, document and score of judgements in memory: a mapping, or records with the columns of BEIR."""
    if isinstance(qrels, Mapping) and not is_in_memory(qrels):
        for query, documents in qrels.items():
            ids = [documents] if isinstance(documents, str) or not isinstance(documents, Iterable) else documents
            ids = sorted(ids, key=str) if isinstance(ids, Set) else ids  # whose order differs between processes
            scores = ids if isinstance(ids, Mapping) else dict.fromkeys(ids, 1)
            yield from ((query, document, score) for document, score in scores.items())
        return
    forms = (
        "qrels is a mapping from the id of a query to those of its documents, or records with "
        f"{' and '.join(_COLUMNS)}, and perhaps score"
    )
    if not is_in_memory(qrels):
        raise DataError(f"{forms}, not {shortened(qrels)}")
    for record in records_of(qrels, "test", "the qrels, record"):
        if not {*_COLUMNS} <= {*record}:
            raise DataError(f"{forms}, not {shortened(', '.join(record))}")
        query, document = (record[name] for name in _COLUMNS)
        yield query, document, record.get("score", 1)


def _place(path: Path, number: int) -> str:
    """Return what messages call a line of a file (of 0, the file), or a record of a collection that was in memory."""
    if not _is_in_memory(path):
        return f"{path}:{number}" if number else str(path)
    return f"the {path.stem}, record {number}" if number else f"the {path.stem}"


def _is_in_memory(path: Path) -> bool:
    """Return whether a file is of a collection that was in memory."""
    return path.parent.parent.name == IN_MEMORY


def _find(folder: Path, *names: str) -> Path:
    """Return the first of these files that exists, compressed or not."""
    for path in (compressed_or_not(folder / name) for name in names):
        if path.is_file():
            return path
    if not folder.is_dir():
        if folder.is_file():
            raise DataError(f"{folder} is a file: give the folder, which has {_FILES}")
        raise DataError(f"no such folder: {folder}{nearest_file(folder)}")
    raise DataError(f"{folder} has no file {' or '.join(names)}: give a folder with {_FILES}, in the format of BEIR")


def _records(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield file and line, id, text with the title before it, and language of each record."""
    number = 0
    for number, record in json_lines(path):
        place, values = _place(path, number), record if isinstance(record, dict) else {}
        for key, kind in _KINDS.items():
            if isinstance(values.get(key), kind):
                continue
            if key not in values:
                raise DataError(f"{place}: no field {key}: rename the one that has it (it has {', '.join(values)})")
            raise DataError(f"{place}: {key} is {shortened(values[key])}, not a text: fill it, or remove the record")
        name, text, title = (values.get(key) for key in _KINDS)
        own = language_value(values)
        code = _language(place, own if own and own == own else NOT_STATED)  # not NaN
        yield place, str(name), f"{title or ''} {text}".strip(), code
    if not number:
        raise DataError(f"{_place(path, 0)} is empty")


def _language(place: str, code: Any) -> str:
    try:
        return find_language(str(code)).code
    except DataError as error:
        raise DataError(f"{place}: {error}") from error


def _read_judgements(path: Path, queries: Iterable[str], documents: Iterable[str]) -> dict[str, dict[str, float]]:
    """Read the relevant documents of each query with their scores; a score of 0 or below is not relevant."""
    judged, in_memory = dict[str, dict[str, float]](), _is_in_memory(path)
    rows: Iterator[tuple[int, Any]] = json_lines(path) if in_memory else lines(path)
    for number, line in rows:
        cells = [*map(str, line.values())] if in_memory else line.split("\t") if "\t" in line else line.split()
        try:
            query, *_, document, cell = cells  # TREC has another column
            if not isfinite(score := float(cell)):
                raise ValueError(cell)
        except ValueError as error:
            if not cells or (number == 1 and not in_memory and cells[0] not in queries):  # a header
                continue
            what = "judgements must be " + ", ".join(_FIELDS) if in_memory else "lines must be " + "<TAB>".join(_FIELDS)
            raise DataError(f"{_place(path, number)}: {what} (a finite number), not {shortened(line)}") from error
        place = f"the qrels of {query!r}" if in_memory else f"{path}:{number}"
        for name, known, file in ((query, queries, "queries"), (document, documents, "corpus")):
            if name not in known:
                where = f"the {file}" if in_memory else f"{file}.jsonl"
                cure = "add its record, or remove the judgement"
                if query in documents and document in queries:
                    cure = "the ids of query and document are exchanged"
                raise DataError(f"{place}: no _id {name!r} in {where}: {cure}")
        if document in (of_query := judged.setdefault(query, {})):
            raise DataError(f"{place}: query {query!r} and document {document!r} are judged a second time")
        if score > 0:
            of_query[document] = score
    return judged
