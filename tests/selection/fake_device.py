"""A device that is not there: its tensors compute on the CPU, and refuse to meet those of another device.

    with fake_device() as device:                     # torch.device("meta"), which needs no driver
        Pool(features, quality, device=device)

Every tensor of the device is a `Far` around one on the CPU. As with CUDA, an operation takes tensors of one device
alone (but numbers of no dimensions), an index may lie on the CPU where what is indexed does not, though not the other way
round, a generator draws on its own device, and NumPy is given none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

FAR = torch.device("meta")
INDEXED = {"aten.index.Tensor", "aten.index_put.default", "aten.index_put_.default", "aten._index_put_impl_.default"}
COPIES = {"aten.copy_.default", "aten._to_copy.default"}


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

    @classmethod
    def __torch_dispatch__(cls, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


def run(operation: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    name, asked = str(operation), kwargs.get("device")
    tensors = [value for value in tree_flatten((args, kwargs))[0] if isinstance(value, torch.Tensor)]
    far = [value for value in tensors if isinstance(value, Far)]
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
    generator = kwargs.get("generator")
    on = first_far if name in INDEXED or name == "aten.copy_.default" else bool(far)
    if asked is not None:
        on = torch.device(asked) == FAR
        kwargs = {**kwargs, "device": torch.device("cpu")}
    if generator is not None and (id(generator) in _generators) != on:
        raise Mixed(f"{name}: the generator is of another device than what it draws")
    plain, named = tree_map(lambda value: value.near if isinstance(value, Far) else value, (args, kwargs))
    found = operation(*plain, **named)
    if name.rpartition(".")[0].endswith("_") and first_far:  # in place
        return args[0]
    return tree_map(lambda value: Far(value) if on and isinstance(value, torch.Tensor) else value, found)


class Mode(TorchDispatchMode):
    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(operation, args, kwargs or {})


_generators: dict[int, torch.Generator] = {}


class Generator(torch.Generator):
    """One of the device's too."""

    def __new__(cls, device: Any = "cpu") -> torch.Generator:
        made = torch._C.Generator()
        if torch.device(device) == FAR:
            _generators[id(made)] = made
        return made


@contextmanager
def fake_device() -> Iterator[torch.device]:
    """The device, while inside."""
    with Mode(), mock.patch("torch.Generator", Generator):
        yield FAR
    _generators.clear()
