"""A device that is simulated on the CPU: what mixes its tensors with those of the CPU raises an error, as a GPU does.

Its name is ``meta``, which torch knows without having it. Values are real, so a computation runs to its end; kernels
of CUDA, streams and memory are not simulated.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest import mock

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

_aten = torch.ops.aten
_MOVES = {_aten.copy_.default, _aten._to_copy.default}
_INDEXES = {_aten.index.Tensor, _aten.index_put.default, _aten.index_put_.default, _aten._index_put_impl_.default}


class OnDevice(Tensor):
    """A tensor of the simulated device; ``on_cpu`` has its values."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> OnDevice:
        """Wrap a tensor of the CPU."""
        made = Tensor._make_wrapper_subclass(
            cls,
            on_cpu.shape,
            strides=on_cpu.stride(),
            storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
            device="meta",
        )
        made.on_cpu = on_cpu
        return made

    def tolist(self) -> Any:
        """Return the values as numbers."""
        return self.on_cpu.tolist()

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @classmethod
    def __torch_dispatch__(
        cls, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run an operation outside of the mode."""
        return _run(function, args, kwargs or {})


class _Operations(TorchDispatchMode):
    def __torch_dispatch__(
        self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return _run(function, args, kwargs or {})


class _Constants(TorchFunctionMode):
    """``torch.tensor`` fills its result before an operation is seen."""

    def __torch_function__(
        self, function: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if function is Tensor.new_tensor and isinstance(args[0], OnDevice):
            return OnDevice(args[0].on_cpu.new_tensor(*args[1:], **kwargs))
        if function is torch.tensor and torch.device(kwargs.get("device") or "cpu").type == "meta":
            return OnDevice(function(*args, **{**kwargs, "device": "cpu"}))
        return function(*args, **kwargs)


@contextmanager
def simulated_device() -> Iterator[None]:
    """Let tensors be made on the device; autocast, which needs a real device, is off."""
    autocast = torch.autocast

    def without(device_type: str, **settings: Any) -> Any:
        return nullcontext() if device_type == "meta" else autocast(device_type, **settings)

    is_on = torch.is_autocast_enabled

    def elsewhere(device_type: str) -> bool:
        return device_type != "meta" and is_on(device_type)

    elsewhere_only = mock.patch("torch.is_autocast_enabled", elsewhere)
    with mock.patch("torch.autocast", without), elsewhere_only, _Operations(), _Constants():
        yield


def _run(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operation on the values; its results are where its arguments are, or where it is told to put them."""
    tensors = [each for each in tree_flatten((args, kwargs))[0] if isinstance(each, Tensor)]
    is_here = any(isinstance(each, OnDevice) for each in tensors)
    if is_here and function not in _MOVES:
        indices = tree_flatten(args[1])[0] if function in _INDEXES else []
        for each in tensors:
            if not isinstance(each, OnDevice) and each.dim() and not any(each is index for index in indices):
                shapes = [(tuple(each.shape), str(each.device)) for each in tensors]
                raise RuntimeError(f"{function} has tensors on two devices: {shapes}")
    device = kwargs.get("device")
    if device is not None:
        is_here = torch.device(device).type == "meta"
        kwargs = {**kwargs, "device": "cpu"}
    values = tree_map(lambda each: each.on_cpu if isinstance(each, OnDevice) else each, (args, kwargs))
    if function is _aten.copy_.default:
        is_here = isinstance(args[0], OnDevice)
    result = function(*values[0], **values[1])
    if not is_here:
        return result
    written = {id(each.on_cpu): each for each in tensors if isinstance(each, OnDevice)}  # in place

    def wrapped(each: Any) -> Any:
        if not isinstance(each, Tensor):
            return each
        return written[id(each)] if id(each) in written else OnDevice(each)

    return tree_map(wrapped, result)


def on_device(value: Any) -> Any:
    """Move tensors of the CPU, and all weights and buffers of a model, to the device."""
    if isinstance(value, nn.Module):
        for module in value.modules():
            for name, weight in module._parameters.items():
                if weight is not None:
                    module._parameters[name] = nn.Parameter(OnDevice(weight.detach()), weight.requires_grad)
            for name, buffer in module._buffers.items():
                if buffer is not None:
                    module._buffers[name] = OnDevice(buffer)
        return value
    return tree_map(lambda each: OnDevice(each) if isinstance(each, Tensor) else each, value)
