from __future__ import annotations

import tracemalloc
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from hf_xsent.mining import neighbours
from hf_xsent.mining.neighbours import block_sizes, nearest_both_ways, nearest_one_way


class _Peak(TorchDispatchMode):
    """The most bytes that tensors held at once, counted by their storages."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self._known: set[int] = set()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = operation(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage())
        return made

    def _count(self, storage: Any) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._known:
            return
        self._known.add(key)
        self.now += size
        self.peak = max(self.peak, self.now)
        weakref.finalize(storage, self._free, key, size)

    def _free(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def _vectors(seed: int, count: int, width: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("sizes_", "width", "k"),
    [((40, 4000), 32, 4), ((4000, 40), 32, 4), ((500, 700), 1024, 4), ((600, 500), 16, 40)],
)
def test_what_is_held_at_once_stays_within_the_memory_given(
    sizes_: tuple[int, int], width: int, k: int, dtype: torch.dtype
) -> None:
    source, target = (_vectors(seed, count, width) for seed, count in enumerate(sizes_))
    results = 12 * k * sum(sizes_)
    budget = 5
    for equal in (False, True):
        if equal:
            target[:] = target[0]  # every candidate is as good as the others: the most that a tile can have
        tracemalloc.start()
        with _Peak() as peak:
            nearest_both_ways(source, target, k, memory_mib=budget, dtype=dtype)
        arrays = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak.peak > block_sizes(budget, width, k)[0] ** 2, "something was counted"
        assert max(peak.peak, arrays) <= (budget << 20) + 3 * results, (peak.peak, arrays)


def _clustered(count: int, spread: float, seed: int) -> np.ndarray:
    centres = _vectors(7, 5, 24)
    return centres[np.arange(count) % 5] + spread * _vectors(seed, count, 24)


@pytest.mark.parametrize("spread", [0.05, 0.3, 3.0])
def test_bfloat16_products_find_the_same_neighbours(spread: float) -> None:
    """Also where cosines lie so close together that bfloat16 cannot tell them apart."""
    source, target = _clustered(400, spread, 1), _clustered(300, spread, 2)
    for exact, nearest in zip(
        nearest_both_ways(source, target), nearest_both_ways(source, target, dtype=torch.bfloat16), strict=True
    ):
        assert torch.equal(exact.indices, nearest.indices)
        torch.testing.assert_close(exact.cosines, nearest.cosines, rtol=0, atol=1e-6)


def test_bfloat16_finds_a_candidate_all_of_whose_components_are_rounded_down() -> None:
    """The cosine of the nearest candidate loses 0.0076, so that another one, 0.0007 further away, seems nearer."""
    component = 0.0625 * (1 + 2**-8) * (1 - 1e-6)  # just below the middle of two bfloat16 numbers
    last = (1 - 254 * component**2) ** 0.5
    source, target = (np.zeros((count, 512), np.float32) for count in (4096, 8192))
    for seed, side in enumerate((source, target)):
        side[:, 384:500] = _vectors(seed, len(side), 116)
    source[0] = 0
    source[0, :254], source[0, 511] = component, last
    target[[3, 5000]] = 0
    target[3], target[3, 509] = 0.9835 * source[0], (1 - 0.9835**2) ** 0.5
    target[5000, :250], target[5000, 300:304], target[5000, 510] = component, component, last
    for dtype in (torch.float32, torch.bfloat16):
        nearest, _ = nearest_both_ways(source, target, k=1, dtype=dtype)
        assert nearest.indices[0].item() == 5000
        assert nearest.cosines[0].item() == pytest.approx(250 * component**2, abs=1e-4)


@pytest.mark.parametrize("width", [3, 24, 254, 384])
def test_the_error_of_a_rounded_cosine_is_below_its_bound(width: int) -> None:
    constant = torch.full((1, width), width**-0.5)
    random = torch.from_numpy(_vectors(1, 200, width)).float()
    sides = [torch.cat((constant, random / random.norm(dim=1, keepdim=True))) for _ in range(2)]
    rounded = [side.bfloat16() for side in sides]
    error = (rounded[0] @ rounded[1].T).double().clamp(max=1) - sides[0].double() @ sides[1].double().T
    bound = neighbours.cosine_error(*zip(sides, rounded, strict=True))
    assert error.abs().max() <= bound < 0.02
    assert neighbours.cosine_error(*zip(sides, sides, strict=True)) == 0


def test_only_candidates_near_the_best_are_computed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    multiply = neighbours._multiply
    monkeypatch.setattr(neighbours, "_multiply", lambda a, *rest: shapes.append(a.dtype) or multiply(a, *rest))
    nearest_both_ways(_vectors(0, 4096, 24), _vectors(1, 4096, 24), dtype=torch.bfloat16)
    assert torch.float32 not in shapes
    nearest_both_ways(_clustered(4096, 0.01, 1), _clustered(4096, 0.01, 2), dtype=torch.bfloat16)
    assert torch.float32 in shapes, "most cosines are too close to each other: whole tiles are computed again"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_of_equal_cosines_the_lower_index_wins(dtype: torch.dtype) -> None:
    """Corners of a cube have cosines that both precisions represent exactly, most of them many times."""
    source, target = (np.sign(_vectors(seed, count, 4)) for seed, count in ((0, 70), (1, 200)))
    of_source, of_target = nearest_both_ways(source, target, 7, memory_mib=0, dtype=dtype)
    cosines = torch.from_numpy(source @ target.T / 4)
    for nearest, whole in ((of_source, cosines), (of_target, cosines.T)):
        expected = whole.sort(dim=1, descending=True, stable=True)
        assert torch.equal(nearest.cosines, expected.values[:, :7])
        assert torch.equal(nearest.indices, expected.indices[:, :7])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_faster_and_less_exact_products_change_nothing(dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = _vectors(0, 300, 512), _vectors(1, 400, 512)
    expected = nearest_both_ways(source, target, dtype=dtype)[0]
    cuda, multiply, reductions = torch.backends.cuda.matmul, neighbours._multiply, []

    def watched(*arguments: Any) -> torch.Tensor:
        reductions.append(cuda.allow_bf16_reduced_precision_reduction)
        assert getattr(cuda, "fp32_precision", "ieee") == "ieee"
        return multiply(*arguments)

    monkeypatch.setattr(neighbours, "_multiply", watched)
    torch.set_float32_matmul_precision("medium")
    try:
        nearest = nearest_both_ways(source, target, dtype=dtype)[0]
        assert torch.get_float32_matmul_precision() == "medium", "the caller's setting comes back"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not any(reductions) and cuda.allow_bf16_reduced_precision_reduction
    assert torch.equal(nearest.indices, expected.indices) and torch.equal(nearest.cosines, expected.cosines)


def test_one_way_is_half_of_both_ways() -> None:
    source, target = _vectors(0, 100, 8), _vectors(1, 5000, 8)
    both, _ = nearest_both_ways(source, target)
    forward = nearest_one_way(source, target)
    assert torch.equal(both.indices, forward.indices)
    assert torch.equal(nearest_one_way(source[:1], target, k=200).indices[0, :4], both.indices[0])
