"""Add the bias of linear layers within the matrix product, on CPUs in bfloat16 without gradients.

The plain computation: ``F.linear``, which copies the bias into each row of the result before the product.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from hf_xsent.compat import linear_with_bias


class FusedBiases(TorchFunctionMode):
    """Within this context, linear layers in bfloat16 on a CPU add their bias within the product."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Replace ``F.linear`` where the fused operator computes the same."""
        if func is F.linear and not kwargs and len(args) == 3 and _fits(*args):
            return linear_with_bias(*args)
        return func(*args, **(kwargs or {}))


def _fits(inputs: Tensor, weight: Tensor, bias: Tensor | None) -> bool:
    operands = (inputs, weight, bias)
    return not torch.is_grad_enabled() and all(
        isinstance(operand, Tensor) and operand.device.type == "cpu" and operand.dtype is torch.bfloat16
        for operand in operands
    )
