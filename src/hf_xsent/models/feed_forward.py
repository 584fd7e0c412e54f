"""Feed-forward steps that do not keep what the activation function gave, the widest results of a layer.

Each takes the place of a method of Hugging Face's modules and computes the same from the same weights.
"""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor, nn

from hf_xsent.recomputing import recomputed


def lighten_bert(layer: Any) -> None:
    """A layer of BERT or RoBERTa."""
    layer.feed_forward_chunk = MethodType(_bert, layer)


def lighten_modernbert(layer: Any) -> None:
    """A layer of ModernBERT."""
    layer.mlp.forward = MethodType(_modernbert, layer.mlp)


def _bert(layer: Any, states: Tensor) -> Tensor:
    """A layer's ``feed_forward_chunk``."""
    inner, outer = layer.intermediate, layer.output
    narrow = _product(inner.intermediate_act_fn, inner.dense(states), outer.dense)
    result: Tensor = outer.LayerNorm(outer.dropout(narrow) + states)
    return result


def _modernbert(mlp: Any, states: Tensor) -> Tensor:
    """An MLP's ``forward``."""

    def activate(wide: Tensor) -> Tensor:
        shown, gate = wide.chunk(2, -1)
        activations: Tensor = mlp.drop(mlp.act(shown) * gate)
        return activations

    return _product(activate, mlp.Wi(states), mlp.Wo, random=mlp.drop.p > 0)


def _product(activate: Callable[[Tensor], Tensor], wide: Tensor, dense: nn.Module, random: bool = False) -> Tensor:
    """``dense(activate(wide))``, keeping ``wide`` alone.

    An adapter, or what a sharding library or a probe hooks into, must run once only: there the activations are kept.
    """

    def narrow(wide: Tensor) -> Tensor:
        states: Tensor = dense(activate(wide))
        return states

    if type(dense) is not nn.Linear or dense._forward_pre_hooks or dense._forward_hooks:
        return narrow(wide)
    return recomputed(narrow, wide, random=random)
