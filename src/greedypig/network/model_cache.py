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
from collections.abc import Callable, Sequence
from functools import partial
from operator import itemgetter
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn

from .eval_mode import all_modules
from .fingerprint import fingerprint, module_of
from .frozen import Frozen, freeze

T = TypeVar("T")

SAMPLE = 64
"""So many numbers of every tensor are looked at to see whether a fingerprint still holds."""

_ATOMS = frozenset({
    type(None), bool, int, float, complex, str, bytes,
    torch.dtype, torch.device, torch.Size, torch.layout, torch.memory_format,
})  # fmt: skip
"""Values that cannot change."""
_BOXES: dict[type, type] = {tuple: tuple, list: tuple, set: frozenset, frozenset: frozenset}
_DICTS = (dict, OrderedDict)
_OF_EVERY_MODULE = frozenset(vars(nn.Module()))
_HOOKS = sorted(name for name, value in vars(nn.Module()).items() if isinstance(value, _DICTS)
                and name not in ("_parameters", "_buffers", "_modules"))  # fmt: skip
_hooks_of = itemgetter(*_HOOKS)


class _Copy:
    """A private copy of a model."""

    def __init__(self, root: nn.Module) -> None:
        self.root, self.modules = root, all_modules(root)
        self.made: dict[str, Any] = {}
        """What was made of it, which reads its numbers anew at every call."""


class _Kept:
    """What is known of one model, as long as it lives."""

    def __init__(self, model: ReferenceType[nn.Module], description: list[Any]) -> None:
        self.model, self.description = model, description
        self.spare: list[_Copy] = []
        """The empty copy, unless it is lent out."""
        self.numbers: tuple[object, Tensor] | None = None
        self.fingerprint = ""
        self.notes: dict[str, str] = {}
        self.alone = False
        """Is the model known to reach no modules but its own?"""


# By the model's id, with a weak reference whose callback is C code alone: a Ctrl-C that lands in
# a callback written in Python is lost.
_kept: dict[int, _Kept] = {}


class Loan:
    """A frozen stand-in for a model, for the time of one call."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self._copy: _Copy | None = None
        module = module_of(model)
        self.modules: list[nn.Module] = []
        """The model's own, where it could be compared."""
        self._entry = None if module is None else _entry_of(module, self.modules)
        if self._entry is not None:
            try:
                self._copy = self._entry.spare.pop()
            except IndexError:
                pass
            else:
                _fill(self._copy.modules, self.modules)
        if self._copy is None:
            self.plain = freeze(model)
            if self._entry is not None and not self.plain.held and self.plain.module is not None:
                self._copy = _Copy(self.plain.module)
        else:
            shell = self._copy.root
            call = shell if model is module else MethodType(model.__func__, shell)  # type: ignore[attr-defined]
            assert self._entry is not None
            self.plain = Frozen(call, shell, watched=self._entry.alone)

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
            numbers = _look(self.modules)
        except RuntimeError:  # Tensors without storage or version.
            return fingerprint(self.model)
        known = entry.numbers
        name = str(getattr(self.model, "__qualname__", type(self.model).__qualname__))
        if known is None or known[0] != numbers[0] or not torch.equal(known[1], numbers[1]):
            entry.numbers, entry.fingerprint = None, fingerprint(module)
            entry.numbers = numbers
        return f"{name} {entry.fingerprint.rpartition(' ')[2]}"

    def note(self, name: str, find: Callable[[], str]) -> str:
        """What was found once, for as long as every attribute of the model is as it was; of a
        model that cannot be compared nothing is known."""
        if self._entry is None:
            return ""
        if name not in self._entry.notes:
            self._entry.notes[name] = find()
        return self._entry.notes[name]

    def made(self, name: str, make: Callable[[], T]) -> T:
        """What was made of the private copy; kept with it, so it must not keep its numbers."""
        if self._copy is None:
            return make()
        if name not in self._copy.made:
            self._copy.made[name] = make()
        return self._copy.made[name]  # type: ignore[no-any-return]

    def end(self, *, inert: bool = False) -> None:
        """Give the copy back, if the model has left nothing on it; an inert one leaves nothing."""
        lent, self._copy = self._copy, None
        entry = self._entry
        if entry is not None:
            entry.alone = self.plain.watched and not self.plain.held
        if lent is None or entry is None or entry.spare:
            return
        if inert or _as_it_was(lent, entry.description):
            _empty(lent.modules)
            entry.spare.append(lent)


def _as_it_was(copy: _Copy, description: list[Any]) -> bool:
    modules: list[nn.Module] = []
    found = description_of(copy.root, modules, frozen=True)
    return found == description and modules == copy.modules


def _entry_of(module: nn.Module, modules: list[nn.Module]) -> _Kept | None:
    """What is kept of the model as it is now; None if it cannot be told from what it was.

    Its modules are put into `modules`.
    """
    description = description_of(module, modules)
    if description is None:
        return None
    entry = _kept.get(id(module))
    if entry is None or entry.model() is not module or entry.description != description:
        entry = _Kept(ref(module, partial(_kept.pop, id(module))), description)
        _kept[id(module)] = entry
    return entry


def description_of(
    root: nn.Module, modules: list[nn.Module], *, frozen: bool = False
) -> list[Any] | None:
    """Classes, names and attributes of all modules, to compare; None if there are odd ones.

    The modules themselves are put into `modules`, in the order of `all_modules`.
    """
    out: list[Any] = []
    classes: set[type] = set()
    modules += all_modules(root)
    places = {id(m): i for i, m in enumerate(modules)}
    try:
        for module in modules:
            kind = type(module)
            if kind not in classes:
                _check_class(kind)
                classes.add(kind)
            own = module.__dict__
            if frozen and own["training"]:
                return None
            parameters, buffers = own["_parameters"], own["_buffers"]
            out += (kind, *map(_kind_of_parameter, parameters.values()), *parameters)
            out += ("_buffers", *map(_kind_of_buffer, buffers.values()), *buffers, "_modules")
            for path, child in own["_modules"].items():
                out += (path, None if child is None else places[id(child)])
            # What every module has is looked at without a loop in Python: deep networks have
            # thousands of such attributes, nearly all of them empty places for hooks.
            out.append(own["_is_full_backward_hook"])
            names = own.keys() - _OF_EVERY_MODULE
            if own["_non_persistent_buffers_set"]:
                names.add("_non_persistent_buffers_set")
            if any(_hooks_of(own)):
                names.update(name for name in _HOOKS if own[name])
            for name in names:
                value = own[name]
                out += (name, type(value), value if type(value) in _ATOMS else _plain(value))
    except (_Odd, KeyError):  # Modules without what nn.Module gives them are odd too.
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


def _fill(shell: Sequence[nn.Module], model: Sequence[nn.Module]) -> None:
    """Aliases of the model's parameters and copies of its buffers, each once however shared."""
    made: dict[int, Tensor] = {}
    with torch.no_grad():
        for own, theirs in zip(shell, model, strict=True):
            parameters = own._parameters
            for name, p in theirs._parameters.items():
                if p is not None:
                    if id(p) not in made:
                        made[id(p)] = nn.Parameter(p, requires_grad=False)
                    parameters[name] = made[id(p)]  # type: ignore[assignment]
            for name, b in theirs._buffers.items():
                if b is not None:
                    if id(b) not in made:
                        made[id(b)] = b.detach().clone()
                    own._buffers[name] = made[id(b)]


def _empty(shell: Sequence[nn.Module]) -> None:
    for own in shell:
        for tensors in (own._parameters, own._buffers):
            for name in tensors:
                tensors[name] = None


def _look(modules: Sequence[nn.Module]) -> tuple[object, Tensor]:
    """Where every tensor is, how often it was written on, and a sample of its numbers."""
    places: list[object] = []
    samples: list[Tensor] = []
    with torch.no_grad():
        for m in modules:
            for tensors in (m._parameters, m._buffers):
                for t in tensors.values():
                    if t is not None:
                        count = t.numel()
                        places += (t.data_ptr(), t._version, t.shape, t.stride(), t.dtype)
                        if count > SAMPLE or t.dim() != 1:
                            step = -(-count // SAMPLE) or 1
                            t = t.as_strided((-(-count // step),), (step,))
                        samples.append(t)
        sample = torch.cat(samples) if samples else torch.empty(0)
    return places, sample
