"""The nearest neighbours of both sides in one pass: each tile of cosines serves rows and columns."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from hf_xsent.errors import DataError
from hf_xsent.mining.best import GROUP, BestSoFar, Neighbours
from hf_xsent.mining.vectors import ShardedVectors

Vectors = np.ndarray | Tensor | ShardedVectors
_LARGEST_TILE = 4096
_TILES_IN_STRIP = 8
_SPARE = 16  # candidates beyond k that are kept where cosines are rough
# How far a bfloat16 cosine may be off: what is rounded off two unit vectors is at most 0.002 long each, and rounding
# a cosine itself moves it by 2^-9.
_ROUGHNESS = 0.006


def nearest_both_ways(
    source: Vectors,
    target: Vectors,
    k: int = 4,
    memory_mib: int = 256,
    device: str | torch.device = "cpu",
    dtype: torch.dtype = torch.float32,
    show_progress: bool = False,
) -> tuple[Neighbours, Neighbours]:
    """Exact neighbours of each source among targets, and of each target among sources.

    Vectors may be memory maps of any size and need no unit length; at most ``memory_mib`` of cosines and vectors are
    held at once (but no less than 32 sentences a side need), beside 12 k bytes for the neighbours of each sentence.

    With bfloat16 as ``dtype`` of the products, k + 16 candidates are kept, their cosines computed again in float32, and
    sentences of which the last candidate is too close to the k-th neighbour compared with all in float32: the same
    neighbours, up to float32's own rounding, sooner where a processor multiplies bfloat16 faster (``bfloat16_gain``).
    """
    check_vectors(source, target, k)
    return nearest_among(source, target, k, memory_mib, device, dtype, show_progress)


def nearest_among(
    source: Vectors,
    target: Vectors,
    k: int,
    memory_mib: int,
    device: str | torch.device,
    dtype: torch.dtype,
    show_progress: bool,
) -> tuple[Neighbours, Neighbours]:
    """The same for a part of a side, which may hold fewer than k: then all of it."""
    kept = k if dtype is torch.float32 else k + _SPARE
    rows = BestSoFar(len(source), min(kept, len(target)), device)
    columns = BestSoFar(len(target), min(kept, len(source)), device)
    _compare(source, target, rows, columns, memory_mib, device, dtype, show_progress)
    of_source, of_target = rows.result(), columns.result()
    if dtype is not torch.float32:
        of_source = _refine(of_source, source, target, min(k, len(target)), memory_mib, device)
        of_target = _refine(of_target, target, source, min(k, len(source)), memory_mib, device)
    return of_source, of_target


def nearest_one_way(
    asking: Vectors, answering: Vectors, k: int = 4, memory_mib: int = 256, device: str | torch.device = "cpu"
) -> Neighbours:
    """Exact neighbours of each vector among the others."""
    check_vectors(asking, answering, k, both_ways=False)
    best = BestSoFar(len(asking), k, device)
    _compare(asking, answering, best, None, memory_mib, device, torch.float32, show_progress=False)
    return best.result()


def bfloat16_gain(width: int, device: str | torch.device = "cpu") -> float:
    """How many times faster than float32 this machine multiplies bfloat16; below 1 where it lacks the instructions."""
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


def take_rows(vectors: Vectors, numbers: np.ndarray) -> np.ndarray | Tensor:
    """Single vectors, by their numbers."""
    return vectors.rows(numbers) if isinstance(vectors, ShardedVectors) else vectors[numbers]


def exact_cosines(
    numbers: Tensor, asking: Vectors, answering: Vectors, memory_mib: int = 256, device: str | torch.device = "cpu"
) -> Neighbours:
    """The same neighbours with their float32 cosines, nearest first."""
    numbers = numbers.sort(1).values
    cosines = torch.empty(numbers.shape)
    step = max(1, _vectors_at_once(memory_mib, asking.shape[1]) // numbers.shape[1])
    for start in range(0, len(numbers), step):
        some = numbers[start : start + step]
        others = unit_vectors(take_rows(answering, some.flatten().numpy()), device).view(*some.shape, -1)
        ours = unit_vectors(asking[start : start + step], device)
        cosines[start : start + step] = (others @ ours[:, :, None]).squeeze(2).cpu()
    cosines, order = cosines.sort(dim=1, descending=True, stable=True)
    return Neighbours(cosines, numbers.gather(1, order))


def _vectors_at_once(memory_mib: int, width: int) -> int:
    return max(32, (memory_mib << 20) // (16 * width))


def _refine(
    rough: Neighbours, asking: Vectors, answering: Vectors, k: int, memory_mib: int, device: str | torch.device
) -> Neighbours:
    """The k nearest by float32 cosines; where a neighbour may be missing among the candidates, compare with all."""
    candidates = exact_cosines(rough.numbers, asking, answering, memory_mib, device)
    cosines, numbers = candidates.cosines[:, :k].contiguous(), candidates.numbers[:, :k].contiguous()
    if rough.numbers.shape[1] < len(answering):
        doubtful = (cosines[:, -1] < rough.cosines[:, -1] + _ROUGHNESS).nonzero().squeeze(1)
        for some in doubtful.split(_vectors_at_once(memory_mib, asking.shape[1])) if len(doubtful) else ():
            exact = nearest_one_way(take_rows(asking, some.numpy()), answering, k, memory_mib // 2, device)
            cosines[some], numbers[some] = exact.cosines, exact.numbers
    return Neighbours(cosines, numbers)


def _compare(
    source: Vectors,
    target: Vectors,
    rows: BestSoFar,
    columns: BestSoFar | None,
    memory_mib: int,
    device: str | torch.device,
    dtype: torch.dtype,
    show_progress: bool,
) -> None:
    """Multiply strip by strip and, within two strips, tile by tile."""
    tile, strip = sizes(memory_mib, source.shape[1], rows.k)
    buffer = torch.empty(tile * tile, device=device, dtype=dtype)
    total = len(source) * len(target)
    hidden = None if show_progress else True
    with tqdm(total=total, desc="comparing", unit=" cosines", unit_scale=True, delay=2, disable=hidden) as bar:
        for left, some in _strips(source, strip, device, dtype):
            for right, others in _strips(target, strip, device, dtype):
                for i in range(0, len(some), tile):
                    for j in range(0, len(others), tile):
                        part, other = some[i : i + tile], others[j : j + tile]
                        cosines = _multiply(part, other, buffer)
                        maxima = cosines[: len(part)].unflatten(1, (-1, GROUP)).amax(2)
                        rows.update(left + i, right + j, cosines[: len(part)], maxima)
                        if columns is not None:
                            # The maxima are turned once they are few: the reverse order takes 10 times as long.
                            maxima = cosines[:, : len(other)].unflatten(0, (-1, GROUP)).amax(1).T
                            columns.update(right + j, left + i, cosines[:, : len(other)].T, maxima)
                    bar.update(len(part) * len(others))


def _multiply(some: Tensor, others: Tensor, buffer: Tensor) -> Tensor:
    """All cosines of two tiles' vectors in the buffer, filled up to whole groups with ``-inf``."""
    height, width = (-(-len(side) // GROUP) * GROUP for side in (some, others))
    cosines = buffer[: height * width].view(height, width)
    torch.mm(some, others.T, out=cosines[: len(some), : len(others)])
    cosines[len(some) :] = -torch.inf
    cosines[:, len(others) :] = -torch.inf
    return cosines


def _strips(
    vectors: Vectors, strip: int, device: str | torch.device, dtype: torch.dtype
) -> Iterator[tuple[int, Tensor]]:
    """Unit vectors, so many at once, with the number of the first."""
    for start in range(0, len(vectors), strip):
        yield start, unit_vectors(vectors[start : start + strip], device, start).to(dtype)


def unit_vectors(vectors: np.ndarray | Tensor, device: str | torch.device = "cpu", first_number: int = 0) -> Tensor:
    """A float32 copy of unit length."""
    copy = vectors.clone() if isinstance(vectors, Tensor) else torch.from_numpy(np.array(vectors, dtype=np.float32))
    copy = copy.to(device, torch.float32)
    lengths = torch.linalg.vector_norm(copy, dim=1, keepdim=True)
    wrong = (~(lengths.isfinite() & (lengths > 0))).nonzero()
    if len(wrong):
        raise DataError(f"vector {first_number + int(wrong[0, 0])} is zero or not finite: leave that sentence out")
    return copy.div_(lengths)


def sizes(memory_mib: int, width: int, k: int) -> tuple[int, int]:
    """How many vectors of either side a tile and a strip take, so that what is held at once stays in memory."""
    budget, tile = memory_mib << 20, GROUP
    while tile < _LARGEST_TILE and _tile_bytes(2 * tile, k) + _strip_bytes(2 * tile, width) <= budget:
        tile *= 2
    left = budget - _tile_bytes(tile, k)
    return tile, tile * min(_TILES_IN_STRIP, max(1, left // _strip_bytes(tile, width)))


def _tile_bytes(tile: int, k: int) -> int:
    """The cosines, as much again for what is found in them, and what is merged of each sentence."""
    return 8 * tile**2 + 96 * k * tile + (1 << 20)


def _strip_bytes(strip: int, width: int) -> int:
    """Two strips, a third that is read while its forerunner is there, and its raw copy; some in two precisions."""
    return 4 * 6 * strip * width


def check_vectors(source: Any, target: Any, k: int, both_ways: bool = True) -> None:
    """What cannot be mined is told at once."""
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
