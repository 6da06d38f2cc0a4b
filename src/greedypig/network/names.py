"""What a model calls itself and its outputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def class_names(model: Callable[..., Any], count: int) -> list[str]:
    """The names of the model's outputs; "output 3" where it has none for every output."""
    names = getattr(model, "classes", None)
    if isinstance(names, Sequence) and not isinstance(names, str) and len(names) == count:
        return [str(name) for name in names]
    return [f"output {i}" for i in range(count)]


def model_name(model: Callable[..., Any]) -> str:
    """The name that the model gives itself, else that of its class or function; "" of a lambda."""
    name = getattr(model, "name", None) or getattr(model, "__name__", None) or type(model).__name__
    return name if isinstance(name, str) and name != "<lambda>" else ""
