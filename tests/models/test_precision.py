"""Precisions are dtypes by name; auto is bfloat16 where the device computes it in hardware."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

from hf_xsent import SentenceEmbedder
from hf_xsent.errors import HfXsentError
from hf_xsent.models import precision
from hf_xsent.models.opening import identify_embeddings
from hf_xsent.models.precision import compute_dtype


@pytest.mark.parametrize(("in_hardware", "dtype"), [(True, torch.bfloat16), (False, torch.float32)])
def test_auto_is_bfloat16_where_the_processor_has_it_and_says_so(
    in_hardware: bool, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(precision, "cpu_has_bfloat16", lambda: in_hardware)
    with caplog.at_level(logging.INFO, "hf_xsent"):
        assert compute_dtype("auto", "cpu") is dtype
    assert len(caplog.messages) == 1 and str(dtype).removeprefix("torch.") in caplog.messages[0]


def test_named_precisions_are_dtypes_and_unknown_ones_an_error() -> None:
    assert compute_dtype("float32", "cpu") is torch.float32
    assert compute_dtype("float16", "cpu") is torch.float16
    assert compute_dtype(torch.float64, "cpu") is torch.float64
    with pytest.raises(HfXsentError, match="unknown precision 'int8': use one of float32, auto"):
        compute_dtype("int8", "cpu")


def test_embeddings_of_another_precision_have_another_identity(encoder_folders: dict[str, Path]) -> None:
    folder = str(encoder_folders["bert"])
    identities = [
        identify_embeddings(folder, SentenceEmbedder.from_pretrained(folder, precision=one, device="cpu"))
        for one in ("float32", "bfloat16")
    ]
    assert identities[1] == identities[0] | {"precision": "bfloat16"}
