"""Which model, which input: digests that tell whether a result belongs to what is at hand.

Taken at every call, so they must be fast: CRC-32 runs over the numbers at the memory's speed and
SHA-256 binds the sums together.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping
from ctypes import c_char
from functools import lru_cache
from hashlib import sha256
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any
from zlib import crc32

import torch
from torch import Tensor, nn

from .reach import modules_behind, parts_of


def fingerprint(model: Callable[..., Any]) -> str:
    """A digest of what the model computes: its code, and structure, settings and numbers of the
    modules that it leads to."""
    traits = _Traits()
    traits.add(getattr(model, "__code__", None))
    for module in modules_behind(model):
        traits.add(module)
    return traits.digest(model)


def callables(**functions: Any) -> dict[str, str]:
    """For provenance: an identity for each argument that is a callable of the user's own."""
    return {name: identity(f) for name, f in functions.items() if callable(f)}


def identity(function: Any) -> str:
    """A digest of what a callable computes, as far as it shows: its code and the constants,
    defaults, attributes, modules and numbers it closes over or names, a few steps deep."""
    traits = _Traits()
    traits.add(function)
    return traits.digest(function)


class _Traits:
    """What tells a value from others, gathered from all that it leads to."""

    DEPTH = 6

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.numbers: dict[str, Tensor] = {}
        self._open: set[int] = set()

    def add(self, value: Any, depth: int = DEPTH) -> None:
        """Take in a value; what leads back to itself is not followed again."""
        if isinstance(value, str | bytes | int | float | complex | torch.dtype | None):
            self.texts.append(repr(value))
            return
        self.texts.append(type(value).__qualname__)
        if depth == 0 or id(value) in self._open:
            return
        self._open.add(id(value))
        for part in self._parts(value):
            self.add(part, depth - 1)
        self._open.discard(id(value))

    def _parts(self, value: Any) -> list[Any]:
        if isinstance(value, Tensor) or hasattr(value, "__array_interface__"):
            return self._take({"": torch.as_tensor(value)})
        if isinstance(value, nn.Module):
            return [_structure(value), *self._take(_numbers(value))]
        if isinstance(value, type | ModuleType | BuiltinFunctionType):
            return [getattr(value, "__module__", ""), value.__name__]
        if isinstance(value, CodeType):
            return [value.co_code, value.co_names, value.co_consts]
        if isinstance(value, FunctionType):
            return [value.__code__, *parts_of(value)]
        if isinstance(value, set | frozenset):
            return sorted(map(_plain, value))
        return parts_of(value)

    def _take(self, tensors: Mapping[str, Tensor]) -> list[Any]:
        count = len(self.numbers)
        self.numbers |= {f"{count} {name}": tensor for name, tensor in tensors.items()}
        return []

    def digest(self, of: Any) -> str:
        """What was gathered, under the name of what it was gathered from."""
        name = getattr(of, "__qualname__", type(of).__qualname__)
        return f"{name} {digest(self.numbers, ' '.join(self.texts))}"


def _numbers(module: nn.Module) -> dict[str, Tensor]:
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _structure(module: nn.Module) -> str:
    """Every submodule's class and plain attributes: two networks may share all weights."""
    lines = []
    for path, m in module.named_modules():
        if isinstance(m, torch.jit.ScriptModule):
            lines.append(f"{path} {m.original_name}")
            continue
        own = {k: v for k, v in vars(m).items() if k[:1] != "_" and k != "training"}
        known = sorted(f"{k}={_plain(v)}" for k, v in own.items())
        lines.append(f"{path} {type(m).__module__}.{type(m).__qualname__} {' '.join(known)}")
    return "\n".join(lines)


def _plain(value: object) -> str:
    """A setting as text that is the same in every process: no memory addresses."""
    if isinstance(value, str | int | float | torch.dtype | None):
        return repr(value)
    if isinstance(value, tuple | list):
        return f"[{', '.join(map(_plain, value))}]"
    return str(getattr(value, "__qualname__", type(value).__qualname__))


def digest(tensors: Mapping[str, Tensor], text: str = "") -> str:
    """A digest of a text and of tensors by name, shape and numbers."""
    total = sha256(text.encode())
    for name, tensor in tensors.items():
        check = 0
        for part in _dense_parts(tensor.detach()):
            flat = part.reshape(-1).cpu().contiguous()
            # Not by way of NumPy, which forbids its owner to resize it from then on.
            size = flat.numel() * flat.element_size()
            if size:
                check = crc32((c_char * size).from_address(flat.data_ptr()), check)
        total.update(f"{name} {tuple(tensor.shape)} {tensor.dtype} {check:08x};".encode())
    return total.hexdigest()[:32]


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package and of what it is built on, for provenance."""
    from greedypig import __version__

    return {
        "greedypig": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def _dense_parts(tensor: Tensor) -> tuple[Tensor, ...]:
    """The tensor, or what a sparse one is made of."""
    if tensor.layout == torch.sparse_coo:
        return tensor._indices(), tensor._values()
    if tensor.layout in (torch.sparse_csr, torch.sparse_bsr):
        return tensor.crow_indices(), tensor.col_indices(), tensor.values()
    if tensor.layout in (torch.sparse_csc, torch.sparse_bsc):
        return tensor.ccol_indices(), tensor.row_indices(), tensor.values()
    return (tensor,)
