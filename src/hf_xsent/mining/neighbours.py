"""Search exact nearest neighbours of both sides in one pass: each tile of cosines serves rows and columns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from hf_xsent.errors import DataError
from hf_xsent.mining.top_k import GROUP, Neighbours, TopK
from hf_xsent.mining.vectors import ShardedVectors

Vectors = np.ndarray | Tensor | ShardedVectors
_LARGEST_TILE = 4096
_TILES_IN_STRIP = 8
_SPARE = 16  # candidates beyond k where cosines are rounded
# The largest error of a bfloat16 cosine: rounding moves either unit vector by at most 0.002, and the cosine by 2^-9.
_BFLOAT16_ERROR = 0.006


def nearest_both_ways(
    source: Vectors,
    target: Vectors,
    k: int = 4,
    memory_mib: int = 256,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    allow_fewer: bool = False,
) -> tuple[Neighbours, Neighbours]:
    """Return the exact neighbours of each source among targets, and of each target among sources.

    Vectors may be memory maps of any size and of any length but zero. Cosines and vectors take at most ``memory_mib``
    (but no less than 32 sentences a side need), and the neighbours of each sentence 12 k bytes. ``allow_fewer`` returns
    all candidates of a side that has fewer than k.

    A ``dtype`` of bfloat16 finds the same neighbours (up to float32 rounding), faster where the processor supports it
    (``bfloat16_gain``): it scores k + 16 candidates again in float32, and compares a sentence with all where the last
    candidate is too close to the k-th.
    """
    check_vectors(source, target, 1 if allow_fewer else k)
    candidates = k if dtype is torch.float32 else k + _SPARE
    rows = TopK(len(source), min(candidates, len(target)), device)
    columns = TopK(len(target), min(candidates, len(source)), device)
    _compare(source, target, rows, columns, memory_mib, device, dtype)
    of_source, of_target = rows.result(), columns.result()
    if dtype is not torch.float32:
        of_source = _refine(of_source, source, target, min(k, len(target)), memory_mib, device)
        of_target = _refine(of_target, target, source, min(k, len(source)), memory_mib, device)
    return of_source, of_target


def nearest_one_way(
    queries: Vectors, candidates: Vectors, k: int = 4, memory_mib: int = 256, device: str | torch.device = "cpu"
) -> Neighbours:
    """Return the exact neighbours of each query among the candidates."""
    check_vectors(queries, candidates, k, both_ways=False)
    best = TopK(len(queries), k, device)
    _compare(queries, candidates, best, None, memory_mib, device, torch.float32)
    return best.result()


def bfloat16_gain(width: int, device: str | torch.device = "cpu") -> float:
    """Measure how many times faster than float32 this machine multiplies bfloat16; below 1 without the instructions."""
    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        block = torch.ones(1024, width, device=device, dtype=dtype)
        times = []
        for _ in range(4):  # the first is a warm-up
            started = time.perf_counter()
            float((block @ block.T)[0, 0])  # waits for the device
            times.append(time.perf_counter() - started)
        seconds.append(min(times[1:]))
    return seconds[0] / seconds[1]


def exact_cosines(
    numbers: Tensor, queries: Vectors, candidates: Vectors, memory_mib: int = 256, device: str | torch.device = "cpu"
) -> Neighbours:
    """Compute the float32 cosines of these neighbours and sort them, nearest first."""
    numbers = numbers.sort(1).values
    cosines = torch.empty(numbers.shape)
    step = max(1, _vectors_per_block(memory_mib, queries.shape[1]) // numbers.shape[1])
    for start in range(0, len(numbers), step):
        block = numbers[start : start + step]
        found = unit_vectors(candidates[block.flatten().numpy()], device).view(*block.shape, -1)
        units = unit_vectors(queries[start : start + step], device)
        cosines[start : start + step] = (found @ units[:, :, None]).squeeze(2).cpu()
    cosines, order = cosines.sort(dim=1, descending=True, stable=True)
    return Neighbours(cosines, numbers.gather(1, order))


def _vectors_per_block(memory_mib: int, width: int) -> int:
    return max(32, (memory_mib << 20) // (16 * width))


def _refine(
    rounded: Neighbours, queries: Vectors, candidates: Vectors, k: int, memory_mib: int, device: str | torch.device
) -> Neighbours:
    """Return the k nearest by float32 cosines; compare with all where a neighbour may be missing."""
    scored = exact_cosines(rounded.numbers, queries, candidates, memory_mib, device)
    cosines, numbers = scored.cosines[:, :k].contiguous(), scored.numbers[:, :k].contiguous()
    if rounded.numbers.shape[1] < len(candidates):
        doubtful = (cosines[:, -1] < rounded.cosines[:, -1] + _BFLOAT16_ERROR).nonzero().squeeze(1)
        for rows in doubtful.split(_vectors_per_block(memory_mib, queries.shape[1])) if len(doubtful) else ():
            exact = nearest_one_way(queries[rows.numpy()], candidates, k, memory_mib // 2, device)
            cosines[rows], numbers[rows] = exact.cosines, exact.numbers
    return Neighbours(cosines, numbers)


def _compare(
    source: Vectors,
    target: Vectors,
    rows: TopK,
    columns: TopK | None,
    memory_mib: int,
    device: str | torch.device,
    dtype: torch.dtype,
) -> None:
    """Multiply strip by strip and, within two strips, tile by tile."""
    tile, strip = block_sizes(memory_mib, source.shape[1], rows.k)
    buffer = torch.empty(tile * tile, device=device, dtype=dtype)
    total = len(source) * len(target)
    with tqdm(total=total, desc="comparing", unit=" cosines", unit_scale=True, delay=2, disable=None) as bar:
        for left, sources in _strips(source, strip, device, dtype):
            for right, targets in _strips(target, strip, device, dtype):
                for i in range(0, len(sources), tile):
                    for j in range(0, len(targets), tile):
                        a, b = sources[i : i + tile], targets[j : j + tile]
                        cosines = _multiply(a, b, buffer)
                        maxima = cosines[: len(a)].unflatten(1, (-1, GROUP)).amax(2)
                        rows.update(left + i, right + j, cosines[: len(a)], maxima)
                        if columns is not None:
                            # Transpose after taking the maxima: the reverse order takes 10 times as long.
                            maxima = cosines[:, : len(b)].unflatten(0, (-1, GROUP)).amax(1).T
                            columns.update(right + j, left + i, cosines[:, : len(b)].T, maxima)
                    bar.update(len(a) * len(targets))


def _multiply(a: Tensor, b: Tensor, buffer: Tensor) -> Tensor:
    """Return all cosines of two tiles' vectors in the buffer, padded to complete groups with ``-inf``."""
    height, width = (-(-len(side) // GROUP) * GROUP for side in (a, b))
    cosines = buffer[: height * width].view(height, width)
    torch.mm(a, b.T, out=cosines[: len(a), : len(b)])
    cosines[len(a) :] = -torch.inf
    cosines[:, len(b) :] = -torch.inf
    return cosines


def _strips(
    vectors: Vectors, strip: int, device: str | torch.device, dtype: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    """Iterate over strips of unit vectors, each with the number of its first."""
    for start in range(0, len(vectors), strip):
        yield start, unit_vectors(vectors[start : start + strip], device, start).to(dtype)


def unit_vectors(vectors: np.ndarray | Tensor, device: str | torch.device = "cpu", first_number: int = 0) -> Tensor:
    """Return a float32 copy of unit length."""
    copy = vectors.clone() if isinstance(vectors, Tensor) else torch.from_numpy(np.array(vectors, dtype=np.float32))
    copy = copy.to(device, torch.float32)
    lengths = torch.linalg.vector_norm(copy, dim=1, keepdim=True)
    wrong = (~(lengths.isfinite() & (lengths > 0))).nonzero()
    if len(wrong):
        raise DataError(f"vector {first_number + int(wrong[0, 0])} is zero or not finite: remove that sentence")
    return copy.div_(lengths)


def block_sizes(memory_mib: int, width: int, k: int) -> tuple[int, int]:
    """Return how many vectors a side of a tile and of a strip may have, so that all fits into the memory."""
    budget, tile = memory_mib << 20, GROUP
    while tile < _LARGEST_TILE and _tile_bytes(2 * tile, k) + _strip_bytes(2 * tile, width) <= budget:
        tile *= 2
    left = budget - _tile_bytes(tile, k)
    return tile, tile * min(_TILES_IN_STRIP, max(1, left // _strip_bytes(tile, width)))


def _tile_bytes(tile: int, k: int) -> int:
    """Count the cosines, as much again for the hits among them, and the merge buffers of each sentence."""
    return 8 * tile**2 + 96 * k * tile + (1 << 20)


def _strip_bytes(strip: int, width: int) -> int:
    """Count two strips, a third that is read meanwhile, and its raw copy, some in two precisions."""
    return 4 * 6 * strip * width


def check_vectors(source: Any, target: Any, k: int, both_ways: bool = True) -> None:
    """Refuse shapes that cannot be searched."""
    for name, vectors in (("source", source), ("target", target)):
        if vectors.ndim != 2 or not len(vectors):
            raise DataError(f"the {name} vectors have shape {tuple(vectors.shape)}: mining takes N × width, N above 0")
    if source.shape[1] != target.shape[1]:
        raise DataError(
            f"source vectors are {source.shape[1]} wide and target vectors {target.shape[1]}: "
            "encode both with one model"
        )
    if k < 1:
        raise DataError(f"k is {k}: margins need at least 1 neighbour")
    smallest = min(len(source), len(target)) if both_ways else len(target)
    if k > smallest:
        raise DataError(f"k is {k}, but a side has only {smallest} sentences: lower k")
