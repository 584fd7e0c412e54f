"""Search neighbours with a faiss index: faster than the exact search on large sets, but approximate."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_xsent.errors import DataError, import_extra
from hf_xsent.files import digest, write_arrays
from hf_xsent.logs import Progress
from hf_xsent.mining.neighbours import Vectors, check_vectors, exact_cosines, nearest_one_way, unit_vectors
from hf_xsent.mining.top_k import Neighbours, join_neighbours
from hf_xsent.mining.vectors import VectorStore
from hf_xsent.runs.engines import Fill
from hf_xsent.runs.store import Store

logger = logging.getLogger(__name__)

_TRAINING_ROWS = 200_000
_ROWS_PER_BLOCK = 1 << 16
_SAMPLE = 1000  # sources that measure the recall
_LOW_RECALL = 0.95
_FEWEST_PROBES = 16
_MOST_COSINES = 10**12  # that auto computes: about 4 CPU hours with 384 dimensions


def choose_index(index: str | None, sources: int, targets: int) -> str | None:
    """Return the factory string of an index, None for the exact search; auto decides by the number of cosines."""
    if index != "auto" or sources * targets <= _MOST_COSINES:
        return None if index == "auto" else index
    return f"IVF{2 ** round(math.log2(4 * math.sqrt(min(sources, targets))))},Flat"


def nearest_by_index(
    source: Vectors, target: Vectors, k: int, index: str, probes: int | None = None
) -> tuple[Neighbours, Neighbours, float]:
    """Return the neighbours of both sides, and their recall on a sample of the sources.

    ``index`` is a faiss factory string such as ``IVF4096,Flat``, ``IVF4096,PQ48`` or ``HNSW32``; of an IVF index,
    ``probes`` cells are searched per query (default: as many as give a recall of 95% on the sample). Cosines are exact,
    but a margin is approximate if a neighbour was missed, since its denominator is a mean over neighbours.
    """
    check_vectors(source, target, k)
    of_target = _build(target, index)
    probes, recall = _measure(of_target, source, target, k, probes, index)
    nearest = _search(of_target, source, target, k, probes), _search(_build(source, index), target, source, k, probes)
    return *nearest, recall


def search_by_index(
    work: Path, source: VectorStore, target: VectorStore, k: int, index: str, probes: int | None, fill: Fill
) -> tuple[Neighbours, Neighbours, float]:
    """Return what `nearest_by_index` returns; the work folder stores indexes and neighbours, one file per shard.

    Processes share the work: each index is built once by one of them.
    """
    vectors = source.read(), target.read()
    check_vectors(*vectors, k)
    names = [f"{digest([side.made_from, index])}.faiss" for side in (source, target)]
    built = Store(work / "index")
    fill(built, [*{*names}], BuildingJob(dict(zip(names, (source, target), strict=True)), index), "building indexes")
    paths = [built.path(name) for name in names]
    probes, recall = _measure(_open(paths[1]), *vectors, k, probes, index)
    nearest = []
    for queries, candidates, path in ((source, target, paths[1]), (target, source, paths[0])):
        decisive = [queries.made_from, candidates.made_from, k, index, probes]
        store = Store(work / "neighbours" / digest(decisive))
        names = [f"{Path(name).stem}.npz" for name in queries.names]
        fill(store, names, IndexJob(queries, candidates, path, k, probes), "searching the index")
        nearest.append(join_neighbours([store.read(name, _read) for name in names]))
    return nearest[0], nearest[1], recall


@dataclass(frozen=True)
class BuildingJob:
    """Write the index of a side."""

    sides: Mapping[str, VectorStore]  # by the name of the index
    factory: str

    def __call__(self, name: str, path: Path) -> None:
        """Build and write the index."""
        import_faiss().write_index(_build(self.sides[name].read(), self.factory), str(path))


@dataclass(frozen=True)
class IndexJob:
    """Write the neighbours of one file of vectors, found in an index."""

    queries: VectorStore
    candidates: VectorStore
    index: Path
    k: int
    probes: int

    def __call__(self, name: str, path: Path) -> None:
        """Search and write the neighbours."""
        vectors = self.queries.read([f"{Path(name).stem}.npy"])
        nearest = _search(_open(self.index), vectors, self.candidates.read(), self.k, self.probes)
        write_arrays(path, {"cosines": nearest.cosines.numpy(), "indices": nearest.indices.numpy()})


def import_faiss() -> Any:
    """Import faiss; raise an error with the command that installs it."""
    return import_extra("mining", "an index", "faiss")


@lru_cache(1)
def _open(path: Path) -> Any:
    """Map an index into memory."""
    faiss = import_faiss()
    return faiss.read_index(str(path), faiss.IO_FLAG_MMAP)


def _read(path: Path) -> Neighbours:
    with np.load(path) as file:
        return Neighbours(torch.from_numpy(file["cosines"]), torch.from_numpy(file["indices"]))


def _build(vectors: Vectors, factory: str) -> Any:
    """Train an index on a sample of the vectors, and add all."""
    faiss = import_faiss()
    rows = np.linspace(0, len(vectors) - 1, min(_TRAINING_ROWS, len(vectors)), dtype=np.int64)
    try:
        index = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
        if not index.is_trained:
            index.train(unit_vectors(vectors, rows).numpy())
        for start in _blocks(vectors, "building the index"):
            index.add(unit_vectors(vectors, slice(start, start + _ROWS_PER_BLOCK)).numpy())
    except RuntimeError as error:
        reason = str(error).splitlines()[0].rpartition(": ")[2].rstrip(".")
        raise DataError(
            f"faiss cannot make the index {factory!r} of {len(vectors)} vectors ({reason}): use a factory string such "
            "as IVF1024,Flat or HNSW32, and fewer cells (IVF) or bits (PQ) for few sentences"
        ) from error
    return index


def _measure(
    index: Any, source: Vectors, target: Vectors, k: int, probes: int | None, factory: str
) -> tuple[int, float]:
    """Return the cells to search per query, and the recall of a sample of the sources."""
    rows = np.linspace(0, len(source) - 1, min(_SAMPLE, len(source)), dtype=np.int64)
    queries = source[rows]
    exact = nearest_one_way(queries, target, k)
    cells = _cells(index)
    tried = probes or min(_FEWEST_PROBES, cells)
    while True:
        nearest = _search(index, queries, target, k, tried)
        is_found = (exact.indices[:, :, None] == nearest.indices[:, None, :]).any(2)
        recall = float(is_found.float().mean())
        if probes or recall >= _LOW_RECALL or tried >= cells:
            break
        tried = min(2 * tried, cells)
    logger.info("the index %s finds %.1f%% of the %d nearest neighbours (%d probes)", factory, 100 * recall, k, tried)
    if recall < _LOW_RECALL:
        logger.warning(
            "recall of the index %s is %.1f%%: use more probes (IVF) or an index without PQ", factory, 100 * recall
        )
    return tried, recall


def _cells(index: Any) -> int:
    """Return the number of cells of an IVF index, 1 for others, which have no probes."""
    ivf = import_faiss().try_extract_index_ivf(index)
    return 1 if ivf is None else int(ivf.nlist)


def _search(index: Any, queries: Vectors, candidates: Vectors, k: int, probes: int) -> Neighbours:
    """Search the index; for queries that find fewer than k candidates in it, search all vectors.

    Return exact cosines, also if the index compresses vectors.
    """
    faiss = import_faiss()
    if faiss.try_extract_index_ivf(index) is not None:
        faiss.ParameterSpace().set_index_parameter(index, "nprobe", probes)
    indices = np.empty((len(queries), k), dtype=np.int64)
    for start in _blocks(queries, "searching the index"):
        rows = slice(start, start + _ROWS_PER_BLOCK)
        _, indices[rows] = index.search(unit_vectors(queries, rows).numpy(), k)
    short = np.flatnonzero((indices < 0).any(1))
    if len(short):
        indices[short] = nearest_one_way(queries[short], candidates, k).indices.numpy()
    return exact_cosines(torch.from_numpy(indices), queries, candidates)


def _blocks(vectors: Vectors, description: str) -> Iterable[int]:
    """Iterate over the first row of each block, with a progress bar."""
    return Progress(range(0, len(vectors), _ROWS_PER_BLOCK), description, unit=" blocks", delay=2)
