"""Search neighbours with a faiss index: faster than the exact search on large sets, but approximate."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from hf_xsent.errors import DataError, MissingExtraError
from hf_xsent.logs import Progress
from hf_xsent.mining.neighbours import Vectors, check_vectors, exact_cosines, nearest_one_way, unit_vectors
from hf_xsent.mining.top_k import Neighbours

logger = logging.getLogger(__name__)

_TRAINING_ROWS = 200_000
_ROWS_PER_BLOCK = 1 << 16
_SAMPLE = 1000  # sources that measure the recall
_LOW_RECALL = 0.95


def nearest_by_index(
    source: Vectors, target: Vectors, k: int, index: str, probes: int = 32
) -> tuple[Neighbours, Neighbours, float]:
    """Return the neighbours of both sides, and their recall on a sample of the sources.

    ``index`` is a faiss factory string such as ``IVF4096,Flat``, ``IVF4096,PQ48`` or ``HNSW32``; of an IVF index,
    ``probes`` cells are searched per query. Cosines are exact, but a margin is approximate if a neighbour was
    missed, since its denominator is a mean over neighbours.
    """
    check_vectors(source, target, k)
    of_source = _search(_build(target, index, probes), source, target, k)
    of_target = _search(_build(source, index, probes), target, source, k)
    rows = np.linspace(0, len(source) - 1, min(_SAMPLE, len(source)), dtype=np.int64)
    exact = nearest_one_way(source[rows], target, k)
    is_found = (exact.indices[:, :, None] == of_source.indices[rows][:, None, :]).any(2)
    recall = float(is_found.float().mean())
    logger.info("the index %s finds %.1f%% of the %d nearest neighbours", index, 100 * recall, k)
    if recall < _LOW_RECALL:
        logger.warning(
            "recall of the index %s is %.1f%%: use more probes (IVF) or an index without PQ", index, 100 * recall
        )
    return of_source, of_target, recall


def import_faiss() -> Any:
    """Import faiss; raise an error with the command that installs it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError('an index needs faiss: run pip install "hf-xsent[mining]"') from error
    return faiss


def _build(vectors: Vectors, factory: str, probes: int) -> Any:
    faiss = import_faiss()
    rows = np.linspace(0, len(vectors) - 1, min(_TRAINING_ROWS, len(vectors)), dtype=np.int64)
    try:
        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(unit_vectors(vectors[rows]).numpy())
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rpartition(": ")[2].rstrip(".")
        raise DataError(
            f"faiss cannot make the index {factory!r} of {len(vectors)} vectors ({reason}): use a factory string such "
            "as IVF1024,Flat or HNSW32, and fewer cells (IVF) or bits (PQ) for few sentences"
        ) from error
    for start in _blocks(vectors, "building the index"):
        index.add(unit_vectors(vectors[start : start + _ROWS_PER_BLOCK]).numpy())
    if faiss.try_extract_index_ivf(index) is not None:
        faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
    return index


def _search(index: Any, queries: Vectors, candidates: Vectors, k: int) -> Neighbours:
    """Search the index; for queries that find fewer than k candidates in it, search all vectors.

    Return exact cosines, also if the index compresses vectors.
    """
    indices = np.empty((len(queries), k), dtype=np.int64)
    for start in _blocks(queries, "searching the index"):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        _, indices[rows] = index.search(unit_vectors(queries[rows]).numpy(), k)
    short = np.flatnonzero((indices < 0).any(1))
    if len(short):
        indices[short] = nearest_one_way(queries[short], candidates, k).indices.numpy()
    return exact_cosines(torch.from_numpy(indices), queries, candidates)


def _blocks(vectors: Vectors, description: str) -> Iterable[int]:
    """Iterate over the first row of each block, with a progress bar."""
    return Progress(range(0, len(vectors), _ROWS_PER_BLOCK), description, unit=" blocks", delay=2)
