"""Precisions are dtypes by name; auto is the faster one of float32 and bfloat16, as measured."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from hf_xsent.errors import HfXsentError
from hf_xsent.models import precision
from hf_xsent.models.encoder import Encoder
from hf_xsent.models.precision import compute_dtype


@pytest.mark.parametrize(("seconds", "dtype"), [((0.02, 0.001), torch.bfloat16), ((0.001, 0.02), torch.float32)])
def test_auto_is_the_faster_precision_and_says_so(
    seconds: tuple[float, float], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Both outcomes, with a layer that takes these times in float32 and bfloat16."""
    computed = []

    def layer(*_: Any) -> Any:
        def compute(dtype: torch.dtype) -> torch.Tensor:
            computed.append(dtype)
            end = time.process_time() + seconds[dtype is torch.bfloat16]
            while time.process_time() < end:
                pass
            return torch.ones(1)

        return compute

    monkeypatch.setattr(precision, "_layer", layer)
    precision.bfloat16_is_faster.cache_clear()
    with caplog.at_level(logging.INFO, "hf_xsent"):
        assert compute_dtype("auto", "cpu", 48) is dtype
        assert compute_dtype("auto", "cpu", 48) is dtype
    precision.bfloat16_is_faster.cache_clear()
    assert len(caplog.messages) == 1 and f"encoding in {str(dtype).removeprefix('torch.')}" in caplog.messages[0]
    assert len(computed) == 6, "measured once per process"


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("width", [32, 100, 128])
def test_the_measured_layer_computes_in_both_precisions(width: int, training: bool) -> None:
    compute = precision._layer(torch.device("cpu"), width, training)
    full, half = (compute(dtype) for dtype in (torch.float32, torch.bfloat16))
    assert (full.dtype, half.dtype) == (torch.float32, torch.bfloat16) and full.requires_grad == training
    torch.testing.assert_close(half.float(), full.float(), atol=0.1, rtol=0.1)


def test_measuring_leaves_the_random_numbers_of_the_program_alone() -> None:
    state = torch.get_rng_state()
    precision.bfloat16_is_faster("cpu", 32, training=True)
    assert torch.equal(torch.get_rng_state(), state)


def test_named_precisions_are_dtypes_and_unknown_ones_an_error() -> None:
    assert compute_dtype("float32", "cpu") is torch.float32
    assert compute_dtype("float16", "cpu") is torch.float16
    assert compute_dtype(torch.float64, "cpu") is torch.float64
    with pytest.raises(HfXsentError, match="unknown precision 'int8': use one of float32, auto"):
        compute_dtype("int8", "cpu")


def test_embeddings_of_another_precision_have_another_identity(encoder_folders: dict[str, Path]) -> None:
    folder = str(encoder_folders["bert"])
    identities = [Encoder(folder, precision=one, device="cpu").identity for one in ("float32", "bfloat16")]
    assert identities[1] == identities[0] | {"precision": "bfloat16"}
