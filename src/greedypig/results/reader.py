"""Records of files as dataclasses, checked field by field: a file may come from a stranger.

A dataclass is the schema: `read` takes every field from the record by its name, or by the key that
the class's KEYS give it, and checks it against the field's type. Null counts as missing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache
from math import inf
from sys import float_info
from types import UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from ..core.errors import InvalidInput

T = TypeVar("T")
MOST = float_info.max


@dataclass(frozen=True)
class Within:
    """The bounds of a number, both included."""

    low: float
    high: float = inf


Count = Annotated[int, Within(0)]
Positive = Annotated[int, Within(1)]
Probability = Annotated[float, Within(-1e-6, 1 + 1e-6)]
"""From 0 to 1, up to rounding."""


def read(kind: type[T], value: Any, where: str) -> T:
    """`value`, as JSON holds it, as an object of type `kind`; `where` names it in errors."""
    checked: T = _read(kind, value, where)
    return checked


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bounded(_read(inner[0], value, where), inner[1], where)
    if origin in (Union, UnionType):  # Only "… or None".
        return None if value in (None, "") else _read(inner[0], value, where)
    if origin is tuple:
        return _items(inner, value, where)
    if origin is not None and issubclass(origin, Mapping):
        record = _mapping(value, where)
        if inner[1] is Any:
            return dict(record)
        return {
            _key(inner[0], key, where): _read(inner[1], item, f"{key!r:.40} of {where}")
            for key, item in record.items()
            if item is not None
        }
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value, where)
    if is_dataclass(kind):
        return _record(kind, _mapping(value, where), where)
    return _scalar(kind, value, where)


def _record(kind: Any, record: Mapping[str, Any], where: str) -> Any:
    types, keys = _types(kind), getattr(kind, "KEYS", {})
    parts = {}
    for part in fields(kind):
        key = keys.get(part.name, part.name)
        optional = part.default is not MISSING or part.default_factory is not MISSING
        if record.get(key) is not None or not optional:
            parts[part.name] = _read(types[part.name], record.get(key), f"{key} in {where}")
    return kind(**parts)


@cache
def _types(kind: Any) -> dict[str, Any]:
    return get_type_hints(kind, include_extras=True)


def _items(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"Expected {where} as a list (got {value!r:.60}).")
    if kinds[-1] is Ellipsis:
        return tuple(_read(kinds[0], item, where) for item in value)
    if len(value) != len(kinds):
        raise InvalidInput(f"Expected {len(kinds)} items for {where} (got {value!r:.60}).")
    return tuple(_read(kind, item, where) for kind, item in zip(kinds, value, strict=True))


def _key(kind: Any, key: str, where: str) -> Any:
    """Keys of JSON are text; whole numbers, and shares from 0 to 1, are written in digits."""
    if kind is str:
        return key
    digits = r"\d{1,9}" if kind is int else r"(?=\.?\d)[01]?\.?\d{0,20}"
    if not re.fullmatch(digits, key) or (kind is float and float(key) > 1):
        raise InvalidInput(f"Expected keys such as '0.05' in {where} (got {key!r:.40}).")
    return kind(key)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"Expected {where} as a mapping (got {value!r:.60}).")
    return value


def _bounded(number: Any, bounds: Within, where: str) -> Any:
    if not bounds.low <= number <= bounds.high:
        span = f"≥ {bounds.low:g}" if bounds.high == inf else f"{bounds.low:g} to {bounds.high:g}"
        raise InvalidInput(f"Expected {where} in the range {span} (got {number!r:.60}).")
    return number


def _scalar(kind: Any, value: Any, where: str) -> Any:
    if kind is float and type(value) in (int, float) and abs(value) <= MOST:
        return float(value)
    if kind is not float and type(value) is kind:
        return value
    name = {float: "a finite number", int: "a whole number", str: "text"}[kind]
    raise InvalidInput(f"Expected {where} as {name} (got {value!r:.60}).")
