"""Search the exact nearest neighbours of both sides in one pass over all cosines.

Vectors are read in strips of consecutive rows. A strip of sources and a strip of targets are compared tile by tile: a
tile is a block of their cosines, and updates the neighbours of its rows (sources) and of its columns (targets).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from hf_xsent.errors import DataError
from hf_xsent.logs import Progress
from hf_xsent.mining.top_k import GROUP, Neighbours, TopK
from hf_xsent.mining.vectors import ShardedVectors
from hf_xsent.models.precision import bfloat16_gain, choose_device
from hf_xsent.settings.convert import converting

logger = logging.getLogger(__name__)
Vectors = np.ndarray | Tensor | ShardedVectors
_MEMORY_MIB = 256
_LARGEST_TILE = 4096
_TILES_IN_STRIP = 8
# Use bfloat16 if its products are this many times as fast: the gain must pay for recomputing, in float32, the cosines
# near the k-th best.
_WORTHWHILE_GAIN = 1.5


@contextmanager
def _exact_products() -> Iterator[None]:
    """Within the block, compute float32 products in float32, and sum bfloat16 products in float32.

    Settings of torch for speed, of which one is the default on GPUs, round more than ``cosine_error`` allows for.
    """
    backends: Any = torch.backends
    cuda = backends.cuda.matmul
    settings: list[tuple[Any, str, Any]] = [(cuda, "allow_bf16_reduced_precision_reduction", False)]
    if hasattr(cuda, "fp32_precision"):  # torch 2.9
        settings += [(backend, "fp32_precision", "ieee") for backend in (cuda, backends.mkldnn.matmul)]
    else:
        settings.append((cuda, "allow_tf32", False))
    with ExitStack() as restoring:
        for owner, name, value in settings:
            restoring.callback(setattr, owner, name, getattr(owner, name))
            setattr(owner, name, value)
        yield


@converting
def nearest_both_ways(
    source: Vectors,
    target: Vectors,
    k: int = 4,
    memory_mib: int = _MEMORY_MIB,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    allow_fewer: bool = False,
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of each source among targets, and of each target among sources.

    Vectors may be memory-mapped and have any norm except zero. Blocks of cosines and vectors take at most
    ``memory_mib``, or the memory of the smallest tile, 32 × 32, if that is more; the result takes 12 × k bytes per
    sentence. With ``allow_fewer``, a sentence with fewer than k candidates gets all of them.

    With bfloat16 as ``dtype`` the neighbours are the same up to float32 rounding: cosines that may be among the k best
    are computed again in float32. It is faster if the processor supports it (``search_precision``).
    """
    check_vectors(source, target, 1 if allow_fewer else k)
    if dtype not in (torch.float32, torch.bfloat16):
        raise DataError(f"dtype is {dtype!r}: use torch.float32 or torch.bfloat16")
    device = choose_device(device)
    rows = TopK(len(source), min(k, len(target)), device)
    columns = TopK(len(target), min(k, len(source)), device)
    _compare(source, target, rows, columns, memory_mib, device, dtype)
    return rows.result(), columns.result()


def nearest_one_way(
    queries: Vectors, candidates: Vectors, k: int = 4, device: str | torch.device = "cpu"
) -> Neighbours:
    """Return the exact neighbours of each query among the candidates."""
    check_vectors(queries, candidates, k, both_ways=False)
    best = TopK(len(queries), k, device)
    _compare(queries, candidates, best, None, _MEMORY_MIB, device, torch.float32)
    return best.result()


@cache
@_exact_products()
def search_precision(device: str | torch.device = "cpu") -> str:
    """Measure once the precision in which this device searches faster; neighbours are equal up to float32 rounding."""
    rows = 1024 if torch.device(device).type == "cpu" else 16_384  # on a GPU, the launch would dominate a small product
    blocks = {dtype: torch.ones(rows, 512, device=device, dtype=dtype) for dtype in (torch.float32, torch.bfloat16)}
    gain = bfloat16_gain(lambda dtype: blocks[dtype] @ blocks[dtype].T, device)
    if gain < _WORTHWHILE_GAIN:
        return "float32"
    logger.info(
        "bfloat16 products are %.1f times as fast as float32: searching in bfloat16, rescoring in float32", gain
    )
    return "bfloat16"


@_exact_products()
def exact_cosines(indices: Tensor, queries: Vectors, candidates: Vectors) -> Neighbours:
    """Compute the float32 cosines of these neighbours and sort them, nearest first."""
    indices = indices.sort(1).values
    cosines = torch.empty(indices.shape)
    step = max(1, (_MEMORY_MIB << 20) // (16 * queries.shape[1] * indices.shape[1]))
    for start in range(0, len(indices), step):
        block = indices[start : start + step]
        wanted = block.flatten().numpy()
        nearest = unit_vectors(candidates, wanted).view(*block.shape, -1)
        units = unit_vectors(queries, slice(start, start + step))
        cosines[start : start + step] = (nearest @ units[:, :, None]).squeeze(2)
    cosines, order = cosines.sort(dim=1, descending=True, stable=True)
    return Neighbours(cosines, indices.gather(1, order))


@_exact_products()
def _compare(
    source: Vectors,
    target: Vectors,
    rows: TopK,
    columns: TopK | None,
    memory_mib: int,
    device: str | torch.device,
    dtype: torch.dtype,
) -> None:
    """Compute all cosines tile by tile, and update the neighbours of ``rows`` and of ``columns``."""
    tile, strip = block_sizes(memory_mib, source.shape[1], rows.k)
    buffer = torch.empty(tile * tile, device=device, dtype=dtype)
    total = len(source) * len(target)
    with Progress(total=total, desc="comparing", unit=" cosines", unit_scale=True, delay=2) as bar:
        for left, sources in _strips(source, strip, device):
            rounded_sources = sources.to(dtype)
            for right, targets in _strips(target, strip, device):
                rounded_targets = targets.to(dtype)
                error = cosine_error((sources, rounded_sources), (targets, rounded_targets))
                for i in range(0, len(sources), tile):
                    for j in range(0, len(targets), tile):
                        block = slice(i, i + tile), slice(j, j + tile)
                        vectors = sources[block[0]], targets[block[1]]
                        cosines = _multiply(rounded_sources[block[0]], rounded_targets[block[1]], buffer)
                        _update(rows, left + i, right + j, cosines[: len(vectors[0])], vectors, error)
                        if columns is not None:
                            _update(columns, right + j, left + i, cosines[:, : len(vectors[1])].T, vectors[::-1], error)
                    bar.update(len(sources[i : i + tile]) * len(targets))


def cosine_error(*sides: tuple[Tensor, Tensor]) -> float:
    """Return an upper bound on the error of a cosine that is computed from rounded unit vectors.

    |a'·b' - a·b| ≤ |a' - a| |b'| + |b' - b| |a| for the rounded vectors a' and b'. Rounding a dot product below 1 to
    bfloat16 adds at most 2^-9, and summing its d terms in float32 at most d 2^-23. The bound also holds for larger dot
    products if they are then set to 1, since no cosine is above 1.
    """
    if all(rounded.dtype is torch.float32 for _, rounded in sides):
        return 0.0
    first, second = (float((rounded - exact).norm(dim=1).max()) for exact, rounded in sides)
    return first * (1 + second) + second + 2**-9 + sides[0][0].shape[1] * 2**-23


def _update(
    best: TopK, start: int, first_index: int, tile: Tensor, vectors: tuple[Tensor, Tensor], error: float
) -> None:
    """Update the neighbours of a tile's rows from cosines with a rounding error of at most ``error``.

    If too many candidates would have to be confirmed one by one in float32, compute the whole tile in float32.
    """
    sentences, candidates = vectors
    piece = max(1, tile.numel() // (4 * candidates.shape[1]))

    def exact(rows: Tensor, columns: Tensor) -> Tensor:
        """Compute cosines in float32, in pieces, to bound the memory of copied vectors."""
        pieces = zip(rows.split(piece), columns.split(piece), strict=True)
        return torch.cat([sentences[row].mul_(candidates[column]).sum(1) for row, column in pieces])

    if not best.update(start, first_index, tile, error, exact if error else None):
        best.update(start, first_index, _multiply(sentences, candidates)[: len(sentences)])


def _multiply(a: Tensor, b: Tensor, buffer: Tensor | None = None) -> Tensor:
    """Return the cosines of all vectors of a and b, padded to complete groups with ``-inf``."""
    height, width = (-(-len(side) // GROUP) * GROUP for side in (a, b))
    buffer = a.new_empty(height * width) if buffer is None else buffer
    cosines = buffer[: height * width].view(height, width)
    torch.mm(a, b.T, out=cosines[: len(a), : len(b)])
    cosines[len(a) :] = -torch.inf
    cosines[:, len(b) :] = -torch.inf
    return cosines


def _strips(vectors: Vectors, strip: int, device: str | torch.device) -> Iterator[tuple[int, Tensor]]:
    """Yield strips of unit vectors, each with the row of its first vector."""
    for start in range(0, len(vectors), strip):
        yield start, unit_vectors(vectors, slice(start, start + strip), device)


def unit_vectors(
    vectors: Vectors, rows: slice | np.ndarray = slice(None), device: str | torch.device = "cpu"
) -> Tensor:
    """Return a float32 copy of some rows with norm 1."""
    part = vectors[rows]
    copy = part.clone() if isinstance(part, Tensor) else torch.from_numpy(np.array(part, dtype=np.float32))
    copy = copy.detach().to(device, torch.float32)
    norms = torch.linalg.vector_norm(copy, dim=1, keepdim=True)
    usable = norms.isfinite() & (norms > 0)
    if not usable.all():
        row = np.arange(len(vectors))[rows][int(usable.int().argmin())]
        raise DataError(f"row {row} (from 0) of {len(vectors)} vectors is zero or not finite: remove its sentence")
    return copy.div_(norms)


def block_sizes(memory_mib: int, width: int, k: int) -> tuple[int, int]:
    """Return the height of a (square) tile and of a strip, in vectors, so that all blocks fit into ``memory_mib``."""
    budget, tile = memory_mib << 20, GROUP
    while tile < _LARGEST_TILE and _tile_bytes(2 * tile, k) + _strip_bytes(2 * tile, width) <= budget:
        tile *= 2
    left = budget - _tile_bytes(tile, k)
    return tile, tile * min(_TILES_IN_STRIP, max(1, left // _strip_bytes(tile, width)))


def _tile_bytes(tile: int, k: int) -> int:
    """Return the bytes of a tile: its cosines, the groups that `TopK.update` copies out of it, and merge buffers."""
    return 8 * tile**2 + 96 * k * tile + (1 << 20)


def _strip_bytes(strip: int, width: int) -> int:
    """Return the bytes of the strips in memory at once: at most six float32 strips, copies for conversion included."""
    return 4 * 6 * strip * width


def check_vectors(source: Any, target: Any, k: int, both_ways: bool = True) -> None:
    """Raise a `DataError` if the vectors cannot be searched for k neighbours."""
    for name, vectors in (("source", source), ("target", target)):
        shape = getattr(vectors, "shape", None)
        if shape is None or len(shape) != 2 or not shape[0]:
            found = f"are a {type(vectors).__name__}" if shape is None else f"have shape {tuple(shape)}"
            raise DataError(
                f"the {name} vectors {found}: give a matrix with one row per sentence, as encode of a model returns"
            )
    if source.shape[1] != target.shape[1]:
        raise DataError(
            f"source vectors have {source.shape[1]} dimensions and target vectors {target.shape[1]}: "
            "encode both with one model"
        )
    if k < 1:
        raise DataError(f"k is {k}: margins need at least 1 neighbour")
    smallest = min(len(source), len(target)) if both_ways else len(target)
    if k > smallest:
        raise DataError(f"k is {k}, but a side has only {smallest} sentences: reduce k")
