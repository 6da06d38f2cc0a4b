"""What is made of a model once and kept between calls: an empty private copy, and its fingerprint.

A copy of the module tree costs more than explaining a row by a small network, and a digest of all
weights more than a pass through a large embedding table. Only what cannot go stale is kept. The
copy is kept without its numbers: for every call its parameters are aliases of the model's, and
its buffers copies, made anew. It serves again only while every attribute of the model, and every
one of its own, is as it was; a model with hooks, or with attributes that cannot be compared,
is copied anew for each call.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from .fingerprint import fingerprint, module_of
from .frozen import Frozen, freeze

SAMPLE = 64
"""So many numbers of every tensor are looked at to see whether a fingerprint still holds."""

_ATOMS = frozenset({
    type(None), bool, int, float, complex, str, bytes,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
})  # fmt: skip
"""Values that cannot change."""
_BOXES: dict[type, type] = {tuple: tuple, list: tuple, set: frozenset, frozenset: frozenset}
_DICTS = (dict, OrderedDict)


class _Kept:
    """What is known of one model, as long as it lives."""

    def __init__(self, model: ReferenceType[nn.Module], description: list[Any]) -> None:
        self.model, self.description = model, description
        self.spare: list[nn.Module] = []
        """The empty copy, unless it is lent out."""
        self.numbers: tuple[object, Tensor] | None = None
        self.fingerprint = ""


# By the model's id, with a weak reference whose callback is C code alone: a Ctrl-C that lands in
# a callback written in Python is lost.
_kept: dict[int, _Kept] = {}


class Loan:
    """A frozen stand-in for a model, for the time of one call."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self._entry = _entry_of(model)
        self._shell: nn.Module | None = None
        module = module_of(model)
        if self._entry is not None and module is not None:
            try:
                self._shell = self._entry.spare.pop()
            except IndexError:
                pass
            else:
                _fill(self._shell, module)
        if self._shell is None:
            self.plain = freeze(model)
            if self._entry is not None and not self.plain.held:
                self._shell = self.plain.module
        else:
            call = self._shell if model is module else MethodType(model.__func__, self._shell)  # type: ignore[attr-defined]
            self.plain = Frozen(call, self._shell)

    def fingerprint(self, *, exact: bool) -> str:
        """The model's fingerprint; unless it must be exact, the one of an earlier call may do.

        It does if attributes and tensors are the same, no tensor was written on as far as torch
        knows, and a sample of its numbers has not changed. So only an edit behind torch's back
        (`.data`, NumPy) of a few numbers of a large tensor goes unnoticed.
        """
        entry, module = self._entry, module_of(self.model)
        if exact or entry is None or module is None:
            return fingerprint(self.model)
        try:
            numbers = _look(module)
        except RuntimeError:  # Tensors without storage or version.
            return fingerprint(self.model)
        known = entry.numbers
        name = str(getattr(self.model, "__qualname__", type(self.model).__qualname__))
        if known is None or known[0] != numbers[0] or not torch.equal(known[1], numbers[1]):
            entry.numbers, entry.fingerprint = None, fingerprint(module)
            entry.numbers = numbers
        return f"{name} {entry.fingerprint.rpartition(' ')[2]}"

    def end(self) -> None:
        """Give the copy back, if the model has left nothing on it."""
        shell, self._shell = self._shell, None
        entry = self._entry
        if shell is None or entry is None or entry.spare:
            return
        if _description(shell, frozen=True) == entry.description:
            _empty(shell)
            entry.spare.append(shell)


def _entry_of(model: Callable[..., Any]) -> _Kept | None:
    """What is kept of the model as it is now; None if it cannot be told from what it was."""
    module = module_of(model)
    if module is None:
        return None
    description = _description(module)
    if description is None:
        return None
    entry = _kept.get(id(module))
    if entry is None or entry.model() is not module or entry.description != description:
        entry = _Kept(ref(module, partial(_kept.pop, id(module))), description)
        _kept[id(module)] = entry
    return entry


def _description(root: nn.Module, *, frozen: bool = False) -> list[Any] | None:
    """Classes, names and attributes of all modules, to compare; None if there are odd ones."""
    out: list[Any] = []
    places = {id(root): 0}
    classes: set[type] = set()
    todo = [root]
    try:
        while todo:
            module = todo.pop()
            kind = type(module)
            if kind not in classes:
                _check_class(kind)
                classes.add(kind)
            out.append(kind)
            for name, value in vars(module).items():
                if name == "training":
                    if frozen and value:
                        return None
                elif name == "_parameters":
                    out += (name, *value, *map(_kind_of_parameter, value.values()))
                elif name == "_buffers":
                    out += (name, *value, *map(_kind_of_buffer, value.values()))
                elif name == "_modules":
                    out.append(name)
                    for path, child in value.items():
                        if child is not None and id(child) not in places:
                            places[id(child)] = len(places)
                            todo.append(child)
                        out += (path, None if child is None else places[id(child)])
                elif type(value) in _ATOMS:
                    out += (name, type(value), value)
                elif type(value) not in _DICTS or value:  # Empty ones are the places of hooks.
                    out += (name, _plain(value))
    except _Odd:
        return None
    return out


class _Odd(Exception):
    """Something that cannot be compared, or that a copy shares with its original."""


def _check_class(kind: type) -> None:
    """Modules whose state is not all in vars() cannot be compared."""
    _check_importable(kind)
    if issubclass(kind, torch.jit.ScriptModule) or any(
        "__slots__" in vars(c) for c in kind.__mro__
    ):
        raise _Odd


def _check_importable(thing: Any) -> None:
    """A class or function is shared by a module and its copy. One that closes over the model
    would keep it alive for ever; one that can be imported lives on anyway."""
    found: Any = sys.modules.get(thing.__module__)
    for name in thing.__qualname__.split("."):
        found = getattr(found, name, None)
    if found is not thing:
        raise _Odd


def _kind_of_parameter(value: object) -> bool:
    if value is not None and type(value) is not nn.Parameter:
        raise _Odd
    return value is None


def _kind_of_buffer(value: object) -> bool:
    if value is not None and type(value) is not Tensor:
        raise _Odd
    return value is None


def _plain(value: Any) -> object:
    """A setting in a form that does not change with it."""
    kind = type(value)
    if kind in _ATOMS:
        return kind, value
    if kind in _BOXES:
        return kind, _BOXES[kind](map(_plain, value))
    if kind in _DICTS:
        return kind, tuple((_plain(k), _plain(v)) for k, v in value.items())
    if kind is BuiltinFunctionType and isinstance(value.__self__, type | ModuleType | None):
        return value
    if kind is not FunctionType and not isinstance(value, type):
        raise _Odd
    _check_importable(value)
    return value


def _fill(shell: nn.Module, model: nn.Module) -> None:
    """Aliases of the model's parameters and copies of its buffers, each once however shared."""
    made: dict[int, Tensor] = {}
    with torch.no_grad():
        for own, theirs in zip(_all_modules(shell), _all_modules(model), strict=True):
            for name, p in theirs._parameters.items():
                if p is not None:
                    if id(p) not in made:
                        made[id(p)] = nn.Parameter(p.detach(), requires_grad=False)
                    own._parameters[name] = made[id(p)]  # type: ignore[assignment]
            for name, b in theirs._buffers.items():
                if b is not None:
                    if id(b) not in made:
                        made[id(b)] = b.detach().clone()
                    own._buffers[name] = made[id(b)]


def _empty(shell: nn.Module) -> None:
    for own in _all_modules(shell):
        for tensors in (own._parameters, own._buffers):
            for name in tensors:
                tensors[name] = None


def _all_modules(root: nn.Module) -> Iterator[nn.Module]:
    """Every module once, in an order that a copy shares."""
    seen, todo = {id(root)}, [root]
    while todo:
        module = todo.pop()
        yield module
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)


def _look(module: nn.Module) -> tuple[object, Tensor]:
    """Where every tensor is, how often it was written on, and a sample of its numbers."""
    places: list[object] = []
    samples: list[Tensor] = []
    with torch.no_grad():
        for m in _all_modules(module):
            for tensors in (m._parameters, m._buffers):
                for t in tensors.values():
                    if t is not None:
                        places.append((t.data_ptr(), t._version, t.shape, t.stride(), t.dtype))
                        step = -(-t.numel() // SAMPLE) or 1
                        samples.append(t.as_strided((-(-t.numel() // step),), (step,)))
        sample = torch.cat(samples) if samples else torch.empty(0)
    return places, sample
