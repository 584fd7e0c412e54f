"""Rows gathered from several processes and their gradients equal those of one process with all rows."""

from __future__ import annotations

import pytest
import torch
from processes import answers_of
from torch import Tensor

from hf_xsent.tensors.gathering import (
    gather_rows,
    mean_over_processes,
    process_count,
    sum_over_processes,
)

SIZES = [3, 1]  # processes may hold different numbers of rows
ROWS = torch.arange(8, dtype=torch.float64).view(4, 2)
WEIGHTS = torch.tensor([[1.0, 2], [3, 4]], dtype=torch.float64)  # what each process multiplies the gathered rows with


def _gather(rank: int) -> dict[str, Tensor | int]:
    own = ROWS.split(SIZES)[rank].clone().requires_grad_()
    gathered, start = gather_rows(own)
    count = sum_over_processes(torch.tensor(len(own)))
    loss = mean_over_processes((gathered * WEIGHTS[rank]).sum(), count)
    loss.backward()
    assert own.grad is not None
    return {"gathered": gathered.detach(), "start": start, "count": int(count), "gradient": own.grad}


def test_all_processes_hold_all_rows_and_gradients_return_to_their_owner() -> None:
    found = answers_of(2, _gather)
    starts = [sum(SIZES[:rank]) for rank in range(2)]
    for rank, one in enumerate(found):
        assert torch.equal(one["gathered"], ROWS)
        assert (one["start"], one["count"]) == (starts[rank], 4)
        expected = WEIGHTS.sum(0) * 2 / 4  # summed over processes; data parallelism divides by their number later
        torch.testing.assert_close(one["gradient"], expected.expand(SIZES[rank], 2))


def test_one_process_gathers_its_own_rows() -> None:
    rows = torch.randn(3, 2)
    gathered, start = gather_rows(rows)
    assert gathered is rows
    assert (start, process_count()) == (0, 1)


@pytest.mark.parametrize(("count", "mean"), [(4, 1.5), (1, 6.0), (0, 6.0)])
def test_a_mean_over_no_rows_stays_finite(count: int, mean: float) -> None:
    assert mean_over_processes(torch.tensor(6.0), torch.tensor(count)).item() == mean
