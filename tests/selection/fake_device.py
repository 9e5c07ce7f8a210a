"""A device that is not there: its tensors compute on the CPU, and refuse to meet those of another device.

    with fake_device() as device:                     # torch.device("meta"), which needs no driver
        Pool(features, quality, device=device)

Every tensor of the device is a `Far` around one on the CPU. As with CUDA, an operation takes tensors of one device
alone (but numbers of no dimensions), an index may lie on the CPU where what is indexed does not, though not the other
way round, a generator draws on its own device, and NumPy is given none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

FAR = torch.device("meta")
INDEXED = {"aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default", "aten._index_put_impl_.default"}
COPIES = {"aten.copy_.default", "aten._to_copy.default"}


COMPOSED = {torch.matmul, torch.Tensor.matmul, torch.Tensor.__matmul__, torch.quantile, torch.Tensor.quantile}


class Mixed(RuntimeError):
    """What CUDA says where tensors of two devices meet."""


class Far(torch.Tensor):
    """A tensor that passes for one on the device."""

    near: torch.Tensor

    @staticmethod
    def __new__(cls, near: torch.Tensor) -> Far:
        made = torch.Tensor._make_wrapper_subclass(
            cls, near.shape, strides=near.stride(), storage_offset=near.storage_offset(), dtype=near.dtype, device=FAR
        )
        made.near = near
        return made

    def __repr__(self) -> str:
        return f"Far({self.near!r})"

    def numpy(self, **_: Any) -> np.ndarray:
        raise Mixed("cannot convert a tensor of the device to numpy; use .cpu() first")

    def __array__(self, *_: Any, **__: Any) -> np.ndarray:
        raise Mixed("cannot convert a tensor of the device to numpy; use .cpu() first")

    def tolist(self) -> Any:
        return self.near.tolist()

    def new_tensor(self, data: Any, *, dtype: torch.dtype | None = None, **_: Any) -> torch.Tensor:
        return torch.tensor(data, dtype=dtype or self.dtype, device=FAR)

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


def run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, asked = str(operation), kwargs.get("device")
    tensors = [value for value in flat((*args, *kwargs.values())) if isinstance(value, torch.Tensor)]
    far = [value for value in tensors if isinstance(value, Far)]
    if any(value.device == FAR and not isinstance(value, Far) for value in tensors):
        raise Mixed(f"{name}: a list of indices becomes a tensor that the fake device cannot read; give it a tensor")
    if not far and (asked is None or torch.device(asked) != FAR):
        return operation(*args, **kwargs)
    first_far = bool(args) and isinstance(args[0], Far)
    if far and name not in COPIES:
        checked = tensors
        if name in INDEXED:
            if not first_far:
                raise Mixed(f"{name}: indices should be either on cpu or on the same device as the indexed tensor")
            checked = [args[0], *(value for value in args[2:3] if isinstance(value, torch.Tensor))]
        for value in checked:
            if not isinstance(value, Far) and value.dim() > 0:
                raise Mixed(f"{name}: expected all tensors to be on the same device, found the device and the cpu")
    on = first_far if name in INDEXED or name == "aten.copy_.default" else bool(far)
    if asked is not None:
        on = torch.device(asked) == FAR
        kwargs = {**kwargs, "device": torch.device("cpu")}
    found = operation(*[nearer(value) for value in args], **{key: nearer(value) for key, value in kwargs.items()})
    if name.rpartition(".")[0].endswith("_") and first_far:  # in place
        assert args[0].shape == args[0].near.shape, f"{name} gives a tensor of the device another shape"
        return args[0]
    if isinstance(found, torch.Tensor):
        return Far(found) if on else found
    return tree_map(lambda value: Far(value) if on and isinstance(value, torch.Tensor) else value, found)


def flat(values: Any) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list | tuple):
            yield from flat(value)
        else:
            yield value


def nearer(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(nearer(each) for each in value)
    return value.near if isinstance(value, Far) else value


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


_generators: dict[int, torch.Generator] = {}  # the device's own, kept so that no other takes the number


class Generator(torch.Generator):
    """One on the CPU, remembered where the device's was asked for."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        made = torch._C.Generator()
        if torch.device(device) == FAR:
            _generators[id(made)] = made
        return made


class Calls(TorchFunctionMode):
    """What cannot be seen, or not be done, once an operation is dispatched.

    Random numbers are drawn by a generator of the device they are for.
    """

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (generator := kwargs.get("generator")) is not None:
            far = isinstance(args[0], Far) if args else False
            if kwargs.get("device") is not None:
                far = torch.device(kwargs["device"]) == FAR
            if (id(generator) in _generators) != far:
                raise Mixed("the generator is of another device than what it draws")
        if function in (torch.tensor, torch.as_tensor) and kwargs.get("device") is not None:
            device = torch.device(kwargs.pop("device"))
            return function(*args, **kwargs).to(device)
        if function in COMPOSED and any(isinstance(value, Far) for value in args):  # else it squeezes in place
            if not all(isinstance(value, Far) for value in args if isinstance(value, torch.Tensor)):
                raise Mixed("expected all tensors to be on the same device, found the device and the cpu")
            return Far(function(*map(nearer, args), **kwargs))
        return function(*args, **kwargs)


@contextmanager
def fake_device() -> Iterator[torch.device]:
    """The device, while inside."""
    with Mode(), Calls(), mock.patch("torch.Generator", Generator):
        yield FAR
    _generators.clear()
