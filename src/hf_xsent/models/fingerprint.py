"""Fingerprint the weights of a loaded model, so that cached features are not used for another one."""

from __future__ import annotations

from torch import nn

from hf_xsent.files import digest


def fingerprint_weights(module: nn.Module) -> str:
    """Return a hash of the weights of a loaded model, the same in every precision that represents them."""
    return digest([(name, weight.float().cpu().numpy().tobytes()) for name, weight in module.state_dict().items()])
