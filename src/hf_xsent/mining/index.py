"""Search neighbours by a faiss index: faster for large sets than the exact search, but approximate."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from tqdm import tqdm

from hf_xsent.errors import DataError, MissingExtraError
from hf_xsent.mining.neighbours import (
    Vectors,
    check_vectors,
    exact_cosines,
    nearest_one_way,
    unit_vectors,
)
from hf_xsent.mining.top_k import Neighbours

logger = logging.getLogger(__name__)

_TRAINING_ROWS = 200_000
_ROWS_PER_BLOCK = 1 << 16
LOW_RECALL = 0.95
_QUANTIZER = re.compile(r"PQ\d+(?:x(\d+))?")  # number of codes and, unless 8, bits per code


def nearest_by_index(
    source: Vectors, target: Vectors, k: int, index: str, probes: int = 32, sample: int = 1000
) -> tuple[Neighbours, Neighbours, float]:
    """Return the neighbours of both sides, and their recall on ``sample`` sources.

    ``index`` is a faiss factory string such as ``IVF4096,Flat``, ``IVF4096,PQ48`` or ``HNSW32``; ``probes`` cells are
    searched. Missing neighbours also distort margins, whose denominator is a mean over neighbours.
    """
    check_vectors(source, target, k)
    of_source = _search(_build(target, index, probes), source, target, k)
    of_target = _search(_build(source, index, probes), target, source, k)
    rows = np.linspace(0, len(source) - 1, min(sample, len(source)), dtype=np.int64)
    exact = nearest_one_way(source[rows], target, k)
    found = (exact.numbers[:, :, None] == of_source.numbers[rows][:, None, :]).any(2)
    recall = float(found.float().mean())
    level = logging.WARNING if recall < LOW_RECALL else logging.INFO
    logger.log(level, "%s with %d probes finds %.1f%% of the %d nearest", index, probes, 100 * recall, k)
    return of_source, of_target, recall


def import_faiss() -> Any:
    """Import the library, or say how to install it."""
    try:
        import faiss
    except ImportError as error:
        raise MissingExtraError('an index needs faiss: run pip install "hf-xsent[mining]"') from error
    return faiss


def check_index(factory: str, width: int, count: int) -> Any:
    """Return an empty index for ``count`` vectors; refuse a factory string that does not suit them."""
    faiss = import_faiss()
    try:
        index = faiss.index_factory(width, factory, faiss.METRIC_INNER_PRODUCT)
    except RuntimeError as error:
        raise DataError(f"faiss knows no index {factory!r}: use one such as IVF1024,Flat or HNSW32") from error
    training_rows = min(_TRAINING_ROWS, count)
    cells = getattr(faiss.try_extract_index_ivf(index), "nlist", 0)
    if cells > training_rows:
        raise DataError(f"{factory} has {cells} cells for {count} vectors: use fewer cells")
    codes = max((1 << int(bits or 8) for bits in _QUANTIZER.findall(factory)), default=0)
    if codes > training_rows:
        raise DataError(
            f"{factory} learns {codes} codes a part, for which {count} vectors are too few: "
            "use one without PQ or with fewer bits, as PQ8x4"
        )
    return index


def index_memory(factory: str, width: int, count: int) -> int:
    """Estimate the bytes of an index of ``count`` vectors and of its training rows."""
    index = check_index(factory, width, count)
    holder = import_faiss().try_extract_index_ivf(index) or index
    bytes_per_vector = int(getattr(holder, "code_size", 4 * width)) + 8  # and its number
    return count * bytes_per_vector + (0 if index.is_trained else 4 * width * min(_TRAINING_ROWS, count))


def _build(vectors: Vectors, factory: str, probes: int) -> Any:
    faiss, index = import_faiss(), check_index(factory, vectors.shape[1], len(vectors))
    if not index.is_trained:
        rows = np.linspace(0, len(vectors) - 1, min(_TRAINING_ROWS, len(vectors)), dtype=np.int64)
        index.train(unit_vectors(vectors[rows]).numpy())
    for start in _blocks(vectors, "building the index"):
        index.add(unit_vectors(vectors[start : start + _ROWS_PER_BLOCK], first_number=start).numpy())
    if faiss.try_extract_index_ivf(index) is not None:
        faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
    return index


def _search(index: Any, queries: Vectors, candidates: Vectors, k: int) -> Neighbours:
    """Search the index, or exactly where its cells held fewer than k vectors; compute cosines from the vectors."""
    numbers = np.empty((len(queries), k), dtype=np.int64)
    for start in _blocks(queries, "searching the index"):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        _, numbers[rows] = index.search(unit_vectors(queries[rows]).numpy(), k)
    short = np.flatnonzero((numbers < 0).any(1))
    if len(short):
        numbers[short] = nearest_one_way(queries[short], candidates, k).numbers.numpy()
    return exact_cosines(torch.from_numpy(numbers), queries, candidates)


def _blocks(vectors: Vectors, description: str) -> Iterable[int]:
    """Iterate over the first row of each block."""
    return tqdm(range(0, len(vectors), _ROWS_PER_BLOCK), description, unit="block", delay=2, disable=None)
