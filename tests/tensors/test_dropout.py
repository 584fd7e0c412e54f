from __future__ import annotations

import pytest
import torch
from torch import nn

from hf_xsent.tensors.dropout import FastDropout, use_fast_dropout


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("probability", [0.0, 0.1, 0.5, 1.0])
def test_dropout_drops_the_share_and_scales_the_rest(probability: float, dtype: torch.dtype) -> None:
    x = torch.ones(401, 999, dtype=dtype, requires_grad=True)
    dropped = FastDropout(probability)(x)
    assert (dropped == 0).float().mean().item() == pytest.approx(probability, abs=0.005)
    if probability < 1:
        error = 1e-4 if dtype == torch.float32 else 0.01
        assert dropped.max().item() == pytest.approx(1 / (1 - probability), rel=error)
        assert dropped.float().mean().item() == pytest.approx(1, abs=0.01)
    dropped.sum().backward()
    torch.testing.assert_close(x.grad, dropped.detach())


def test_dropout_is_drawn_from_the_seed_and_differs_between_calls() -> None:
    x, dropout = torch.ones(3, 50), FastDropout(0.5)
    torch.manual_seed(7)
    first, second = dropout(x), dropout(x)
    torch.manual_seed(7)
    assert torch.equal(dropout(x), first) and not torch.equal(first, second)
    assert dropout.eval()(x) is x


def test_models_get_the_fast_dropout_under_their_own_names() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.3), nn.Dropout(0.1, inplace=True), nn.AlphaDropout(0.2))
    use_fast_dropout(model)
    assert [type(module) for module in model] == [nn.Linear, FastDropout, nn.Dropout, nn.AlphaDropout]
    assert model[1].p == 0.3 and list(model.state_dict()) == ["0.weight", "0.bias"]
