"""Records of files as dataclasses, checked by their types: a file may come from a stranger.

A dataclass is the schema: `read` takes every field from the record by its name, or by the key that
the class's KEYS give it, and checks it against the field's type. Null counts as missing. A field
`extra` takes the keys that belong to no other field. `plain` writes the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from itertools import repeat
from sys import float_info
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from .errors import InvalidInput

T = TypeVar("T")
NAMES = {float: "a finite number", int: "a whole number", str: "text", bool: "true or false"}


def read(kind: type[T], value: Any, where: str) -> T:
    """`value`, as JSON holds it, as an object of type `kind`; `where` names it in errors."""
    checked: T = _read(kind, value, where)
    return checked


def plain(value: Any) -> Any:
    """A value as JSON holds it."""
    if hasattr(value, "record"):
        return value.record()
    if is_dataclass(value):
        return plain_fields(value)
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, tuple | list) else value


def plain_fields(value: Any, *, defaults: bool = False) -> dict[str, Any]:
    """The fields of a dataclass by their keys. defaults: also those with their default value."""
    keys = getattr(value, "KEYS", {})
    parts = [(part, getattr(value, part.name)) for part in fields(value)]
    return {
        keys.get(part.name, part.name): plain(item)
        for part, item in parts
        if defaults or not _is_default(part, item)
    }


def _is_default(part: Field[Any], value: Any) -> bool:
    factory: Any = part.default_factory
    default = part.default if factory is MISSING else factory()
    return type(value) is type(default) and bool(value == default)


def _read(kind: Any, value: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):  # Only "… or None".
        return None if value is None else _read(inner[0], value, where)
    if origin is tuple:
        return _items(inner, value, where)
    if origin is not None:
        return _mapping(inner, value, where)
    if hasattr(kind, "from_dict"):
        return kind.from_dict(value, where)
    if is_dataclass(kind):
        return _record(kind, value, where)
    # JSON holds whole numbers of any size; a float that is as large is infinite.
    if kind is float and type(value) in (int, float) and abs(value) <= float_info.max:
        return float(value)
    if kind is not float and type(value) is kind:
        return value
    raise InvalidInput(f"Expected {where} as {NAMES[kind]} (got {value!r:.60}).")


def _record(kind: Any, value: Any, where: str) -> Any:
    record = _mapping((str, Any), value, where)
    types, keys = get_type_hints(kind), getattr(kind, "KEYS", {})
    parts: dict[str, Any] = {}
    for part in fields(kind):
        if part.name == "extra":
            continue
        key = keys.get(part.name, part.name)
        optional = part.default is not MISSING or part.default_factory is not MISSING
        given = [record.pop(name, None) for name in dict.fromkeys((part.name, key))]
        item = next((one for one in given if one is not None), None)
        if item is not None or not optional:
            parts[part.name] = _read(types[part.name], item, f"{key} in {where}")
    if "extra" in types:
        parts["extra"] = record
    return kind(**parts)


def _items(kinds: tuple[Any, ...], value: Any, where: str) -> tuple[Any, ...]:
    several = kinds[-1] is Ellipsis
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise InvalidInput(f"Expected {where} as a list (got {value!r:.60}).")
    if not several and len(value) != len(kinds):
        raise InvalidInput(f"Expected {len(kinds)} items for {where} (got {value!r:.60}).")
    pairs = zip(repeat(kinds[0]) if several else kinds, value, strict=False)
    return tuple(_read(kind, item, where) for kind, item in pairs)


def _mapping(kinds: tuple[Any, ...], value: Any, where: str) -> dict[Any, Any]:
    """Keys of JSON are text, also where they are numbers."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"Expected {where} as a mapping (got {value!r:.60}).")
    kind, item_kind = kinds
    if item_kind is Any:
        return dict(value)
    try:
        keys = {key: kind(key) for key, item in value.items() if item is not None}
    except ValueError as error:
        raise InvalidInput(f"Expected keys such as '0.05' in {where} (got: {error}).") from error
    return {
        number: _read(item_kind, value[key], f"{key!r:.40} of {where}")
        for key, number in keys.items()
    }
