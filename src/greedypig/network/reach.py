"""What a callable can reach, found without calling it: closures, defaults, attributes, globals.

The modules among it are put into eval mode for a call (`frozen`), and with everything else they
tell one callable from another (`fingerprint`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch
from torch import Tensor, nn

PLAIN = (
    str,
    bytes,
    int,
    float,
    complex,
    type(None),
    type,
    Tensor,
    ModuleType,
    BuiltinFunctionType,
    torch.dtype,
    torch.device,
)
"""What leads nowhere."""
MOST, LONG = 20_000, 1_000
"""Objects that are searched for modules, and items of a container that is searched."""


def module_of(model: Callable[..., Any]) -> nn.Module | None:
    """The module that is called, or whose method is called, if there is one."""
    owner = model if isinstance(model, nn.Module) else getattr(model, "__self__", None)
    return owner if isinstance(owner, nn.Module) else None


def all_modules(root: nn.Module) -> list[nn.Module]:
    """Every module once, in an order that a copy shares; `modules()` of torch is far slower."""
    modules, seen, todo = [], {id(root)}, [root]
    while todo:
        module = todo.pop()
        modules.append(module)
        for child in module._modules.values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                todo.append(child)
    return modules


def modules_behind(root: Any) -> list[nn.Module]:
    """The modules that a call of `root` may run; those inside another one are left out."""
    modules = reachable(root)
    inside = {id(child) for m in modules.values() for child in m._modules.values()}
    return [m for key, m in modules.items() if key not in inside]


def reachable(root: Any) -> dict[int, nn.Module]:
    """All modules that `root` leads to, by id."""
    modules: dict[int, nn.Module] = {}
    visited: dict[int, Any] = {}  # Held, so that no id is used twice.
    todo = [root]
    while todo and len(visited) < MOST:
        item = todo.pop()
        if id(item) in visited or isinstance(item, PLAIN):
            continue
        visited[id(item)] = item
        if isinstance(item, nn.Module):
            modules[id(item)] = item
        parts = parts_of(item)
        if len(parts) <= LONG:
            todo += reversed(parts)
        if not isinstance(item, FunctionType) and not _is_installed(type(item).__module__):
            todo += [v for v in vars(type(item)).values() if not isinstance(v, PLAIN)]
    return modules


def parts_of(value: Any) -> list[Any]:
    """What a value is made of, as far as a call of it may use it."""
    if isinstance(value, FunctionType):
        own = [] if _is_installed(value.__module__) else _globals_of(value)
        closed = [c.cell_contents for c in value.__closure__ or () if _is_filled(c)]
        return [value.__defaults__, value.__kwdefaults__, *closed, *own, vars(value)]
    if isinstance(value, MethodType):
        return [value.__func__, value.__self__]
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return list(value)
    if isinstance(value, torch.jit.ScriptModule):
        return list(value._modules.values())
    of_torch = type(value).__module__.partition(".")[0] == "torch"
    if isinstance(value, nn.Module):  # Most of its many dicts are empty.
        return [v for v in vars(value).values() if not (isinstance(v, dict) and not v)]
    return [vars(value)] if hasattr(value, "__dict__") and not of_torch else []


def _globals_of(function: FunctionType) -> list[Any]:
    """The globals that a function and those inside it name."""
    names: dict[str, None] = {}
    todo = [function.__code__]
    while todo:
        code = todo.pop()
        names |= dict.fromkeys(code.co_names)
        todo += [c for c in code.co_consts if isinstance(c, CodeType)]
    return [function.__globals__[n] for n in names if n in function.__globals__]


def _is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


@lru_cache(maxsize=1024)
def _is_installed(module: str | None) -> bool:
    """Is it code of Python or of an installed package, whose globals hold no caller's model?"""
    if module in (None, "builtins", "__main__"):
        return module == "builtins"
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    return file is not None and ("site-packages" in file or file.startswith(sys.base_prefix))
