"""Measure search in a collection: queries, documents in one pool, and relevance judgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise
from os import PathLike
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from hf_xsent.data.benchmarks.collection import NOT_STATED, Collection, load_collection
from hf_xsent.errors import shortened
from hf_xsent.evaluation.task import Encode, EvaluationTask, Outcomes, Scores, encoder_of
from hf_xsent.evaluation.translation_retrieval import unit
from hf_xsent.logs import Progress
from hf_xsent.mining.top_k import GROUP, TopK

_NEAREST, _DEPTH = 10, 100  # candidates of nDCG, MRR and the own language; candidates of recall
_FARTHEST = -2.0  # in place of a cosine
_PASSAGES_AT_ONCE, _QUERIES_AT_ONCE = 1 << 15, 256


@dataclass(frozen=True)
class RetrievalTask(EvaluationTask):
    """Retrieval: each query searches a collection, in which the documents of all languages are one pool."""

    sets: Sequence[Collection]

    name: ClassVar[str] = "retrieval"
    measures_any_data: ClassVar[bool] = True
    title: ClassVar[str] = "Retrieval"
    protocol: ClassVar[str] = (
        "by cosine, in one pool of all documents, each by its nearest passage; equal cosines are in the order of the "
        "file. nDCG@10 with the scores of the judgements as gains, as in trec_eval; recall of more documents than it "
        "counts; own language: share of the query's language among the ten nearest documents. By the query's "
        "language, and the mean over languages"
    )
    headings: ClassVar[Mapping[str, str]] = {
        "pairs": "queries",
        "ndcg": f"nDCG@{_NEAREST}",
        "mrr": f"MRR@{_NEAREST}",
        "recall_10": f"recall@{_NEAREST}",
        "recall": f"recall@{_DEPTH}",
        "own": "own language",
    }
    main_metric: ClassVar[str] = "ndcg"
    figures: ClassVar[Mapping[str, str]] = {
        "search in the collection: nDCG@10": "ndcg",
        "… recall@100": "recall",
        "… own language among the 10 nearest (low)": "own",
    }
    charts: ClassVar[Sequence[str]] = ("ndcg", "own")
    folders: ClassVar[tuple[str, ...]] = ("retrieval", "beir")
    read = staticmethod(load_collection)

    @classmethod
    def find(cls, folder: str | PathLike[str]) -> str | None:
        """Return the folder itself if it has queries."""
        return str(folder) if Path(folder, "queries.jsonl").is_file() else super().find(folder)

    def inputs(self) -> Iterator[tuple[str, str]]:
        """Iterate over queries and documents, which get their prompts."""
        for collection in self.sets:
            yield from (("query", text) for text in collection.queries)
            yield from (("document", text) for text in collection.passages)

    def score(self, encode: Encode) -> Scores:
        """Measure the queries of each language."""
        (collection,) = self.sets
        read = encoder_of(encode, "document")
        queries, count = encoder_of(encode, "query")(collection.queries), len(collection.document_languages)
        nearest = nearest_documents(queries, collection.passages, collection.document_of, read, min(_DEPTH, count))
        columns = [retrieval_scores(nearest, collection.relevant)]
        columns[0][:, [False, False, count <= _NEAREST, count <= _DEPTH]] = np.nan  # the recall of all is always 1
        codes, of_documents = np.array(collection.query_languages), np.array(collection.document_languages)
        if NOT_STATED not in {*collection.query_languages, *collection.document_languages}:
            columns.append((of_documents[nearest[:, :_NEAREST]] == codes[:, None]).mean(1, keepdims=True))
        rows = np.concatenate(columns, axis=1)
        of_language = {code: codes == code for code in dict.fromkeys(collection.query_languages)}
        found = first_right(nearest, collection.relevant)
        found = np.concatenate([found, nearest_passages(queries, found[:, :2], collection, read)], axis=1)
        zero = ~queries.any(1)  # these have no cosine, and find nothing
        rows[zero] *= 0  # not measured stays NaN
        found[zero, 0], found[zero, 2] = -1, 0
        rows_of, found_of = ({code: all_[at] for code, at in of_language.items()} for all_ in (rows, found))
        return self.scored(rows_of, found=found_of)

    @property
    def notes(self) -> list[str]:
        """Say why the share of the query's language is not measured, and which documents are empty."""
        (collection,) = self.sets
        ids = collection.document_ids
        texts = {place for place, text in zip(collection.document_of, collection.passages, strict=True) if text}
        empty = [name for place, name in enumerate(ids) if place not in texts]
        cure = "remove them, since an empty text may be found first"
        empty_ones = (
            f"{self.name}: {len(empty)} of {len(ids)} documents have no text ({shortened(', '.join(empty))}): {cure}"
        )
        codes = {"documents": collection.document_languages, "queries": collection.query_languages}
        without = {kind: of_kind.count(NOT_STATED) for kind, of_kind in codes.items()}
        parts = " and ".join(f"{count} of {len(codes[kind])} {kind}" for kind, count in without.items() if count)
        missing = f"{self.name}: own language is not measured: {parts} have no field language"
        return [missing] * bool(parts) + [empty_ones] * bool(empty)

    def items(self, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
        """Yield each query with the right document that was found first, its rank, and the document before all."""
        (collection,) = self.sets
        of_language: dict[str, list[int]] = {}
        for place, code in enumerate(collection.query_languages):
            of_language.setdefault(code, []).append(place)
        for code, places in of_language.items():
            figures = self.metrics(outcomes.rows[code][:, None])
            of_queries = zip(places, outcomes.found[code].tolist(), strict=True)
            for row, (place, (found, right, rank, found_passage, right_passage)) in enumerate(of_queries):
                is_found = found >= 0
                yield {
                    "language": code,
                    "item": collection.query_ids[place],
                    "text": collection.queries[place],
                    "right": collection.passages[right_passage],
                    "found": collection.passages[found_passage] if is_found else None,
                    "correct": rank == 1,
                    "rank": rank or None,
                    "right_id": collection.document_ids[right],
                    "found_id": collection.document_ids[found] if is_found else None,
                    "found_language": collection.document_languages[found] if is_found else None,
                    "own_language": is_found and collection.document_languages[found] == code != NOT_STATED,
                    **{name: float(column[row]) for name, column in figures.items()},
                }

    def texts(self, test_set: Collection) -> Iterable[str]:
        """Return everything in a collection that determines its scores: all but the ids."""
        return super().texts(replace(test_set, query_ids=[], document_ids=[]))

    @staticmethod
    def metrics(rows: np.ndarray) -> Mapping[str, Any]:
        """Average the columns except those that are NaN; without languages, the last one is missing."""
        columns = zip(
            ("ndcg", "mrr", "recall_10", "recall", "own"), np.moveaxis(100 * rows.mean(-2), -1, 0), strict=False
        )
        return {name: column for name, column in columns if not np.isnan(column).all()}


def nearest_documents(
    queries: np.ndarray,
    passages: Sequence[str],
    document_of: Sequence[int],
    encode: Callable[[Sequence[str]], np.ndarray],
    k: int,
) -> np.ndarray:
    """Return the k nearest documents of each query, nearest first, each by its nearest passage.

    Documents of the same passages are searched once, and are in the order of the file; a zero vector is the farthest.
    Passages are encoded in blocks of whole documents; only the vectors of a block are in memory.
    """
    texts_of, copies = dict[int, list[str]](), dict[tuple[str, ...], list[int]]()
    for document, passage in zip(document_of, passages, strict=True):
        texts_of.setdefault(document, []).append(passage)
    for document in sorted(texts_of):
        copies.setdefault(tuple(texts_of[document]), []).append(document)
    different, documents = [*chain(*copies)], [*copies.values()]
    starts = np.cumsum([0, *map(len, copies)])  # of the passages of each, and their number
    queries, best = unit(queries), TopK(len(queries), min(k, len(copies)), "cpu")
    blocks = np.unique(starts[:-1] // _PASSAGES_AT_ONCE, return_index=True)[1].tolist()  # the first document of each
    for first, end in Progress([*pairwise([*blocks, len(copies)])], desc="searching", unit=" blocks", delay=2):
        vectors = unit(encode(different[starts[first] : starts[end]]))
        zero = ~vectors.any(1)
        for query in range(0, len(queries), _QUERIES_AT_ONCE):
            cosines = queries[query : query + _QUERIES_AT_ONCE] @ vectors.T
            cosines[:, zero] = _FARTHEST
            if len(vectors) > end - first:
                cosines = np.maximum.reduceat(cosines, starts[first:end] - starts[first], axis=1)
            tile = np.pad(cosines, [(0, 0), (0, -(end - first) % GROUP)], constant_values=-np.inf)
            best.update(query, first, torch.from_numpy(tile))
    nearest = best.result().indices.tolist()
    return np.array([[*islice(chain(*(documents[place] for place in row)), k)] for row in nearest])


def first_right(nearest: np.ndarray, relevant: Sequence[Mapping[int, float]]) -> np.ndarray:
    """Return for each query the nearest document, the nearest relevant one, and its rank.

    If none is among the nearest, it is one with the highest judgement, and the rank is 0.

    >>> first_right(np.array([[7, 3, 5], [7, 3, 5]]), [{3: 1.0, 9: 2.0}, {8: 1.0, 9: 2.0}]).tolist()
    [[7, 3, 2], [7, 9, 0]]
    """
    rows = []
    for documents, judged in zip(nearest.tolist(), relevant, strict=True):
        rank = next((rank for rank, document in enumerate(documents, 1) if document in judged), 0)
        right = documents[rank - 1] if rank else max(judged, key=lambda document: judged[document])
        rows.append([documents[0], right, rank])
    return np.array(rows)


def nearest_passages(
    queries: np.ndarray, documents: np.ndarray, collection: Collection, encode: Callable[[Sequence[str]], np.ndarray]
) -> np.ndarray:
    """Return the nearest passage of each of some documents (queries × N), of which those with several are encoded."""
    needed, rows_of = {*documents.ravel().tolist()}, dict[int, list[int]]()
    for row, document in enumerate(collection.document_of):
        if document in needed:
            rows_of.setdefault(document, []).append(row)
    several = [row for rows in rows_of.values() if len(rows) > 1 for row in rows]
    vectors = unit(encode([collection.passages[row] for row in several])) if several else np.empty(0)
    places = {row: place for place, row in enumerate(several)}
    nearest = np.empty(documents.shape, dtype=np.int64)
    for (query, column), document in np.ndenumerate(documents):
        rows = rows_of[int(document)]
        best = 0
        if len(rows) > 1:
            own = vectors[[places[row] for row in rows]]
            best = int(np.where(own.any(1), own @ queries[query], _FARTHEST).argmax())
        nearest[query, column] = rows[best]
    return nearest


def retrieval_scores(nearest: np.ndarray, relevant: Sequence[Mapping[int, float]]) -> np.ndarray:
    """Return nDCG@10, MRR@10, recall@10 and @100 of each query, from its nearest documents and the relevant ones.

    >>> retrieval_scores(np.array([[7, 3, 5]]), [{3: 1.0, 9: 1.0}]).round(3).tolist()  # 0.631 / (1 + 0.631), 1/2, 1/2
    [[0.387, 0.5, 0.5, 0.5]]
    """
    scores = np.zeros((len(relevant), 4))
    discounts = 1 / np.log2(np.arange(2, _NEAREST + 2))
    for row, (documents, judged) in enumerate(zip(nearest.tolist(), relevant, strict=True)):
        gains = np.array([judged.get(document, 0.0) for document in documents])
        near, ideal = gains[:_NEAREST], np.array(sorted(judged.values(), reverse=True)[:_NEAREST])
        scores[row] = (
            near @ discounts[: len(near)] / (ideal @ discounts[: len(ideal)]),
            (1 / (1 + np.flatnonzero(near)[:1])).sum(),
            np.count_nonzero(near) / len(judged),
            np.count_nonzero(gains) / len(judged),
        )
    return scores
