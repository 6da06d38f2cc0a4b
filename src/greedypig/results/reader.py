"""Records from files, checked field by field: a file may come from a stranger."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import nan
from sys import float_info
from typing import Any

from ..core.errors import InvalidInput

LARGEST = float_info.max


class Reader:
    """One record; a field that is null counts as missing."""

    def __init__(self, record: Any, where: str) -> None:
        if not isinstance(record, Mapping):
            raise InvalidInput(f"Expected {where} as a mapping (got {record!r:.60}).")
        self.record, self.where = record, where

    def __iter__(self) -> Iterator[str]:
        return iter(self.record)

    def number(self, name: str) -> float:
        """A finite number."""
        return as_number(self.record.get(name), f"{name} in {self.where}")

    def number_if_any(self, name: str) -> float | None:
        """A finite number; None where it is missing."""
        return None if self.record.get(name) is None else self.number(name)

    def count(self, name: str, least: int = 1, most: float = float("inf")) -> int:
        """A whole number."""
        return as_count(self.record.get(name), f"{name} in {self.where}", least, most)

    def text(self, name: str) -> str:
        """Text; empty where it is missing."""
        value = self.record.get(name)
        return "" if value is None else as_text(value, f"{name} in {self.where}")

    def items(self, name: str) -> Sequence[Any]:
        """A list; empty where it is missing."""
        value = self.record.get(name)
        if value is None:
            return ()
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise InvalidInput(f"Expected {name} in {self.where} as a list (got {value!r:.60}).")
        return value

    def numbers(self, name: str, *, gaps: bool = False) -> list[float]:
        """A list of finite numbers; with gaps=True null stands for NaN."""
        what = f"{name} in {self.where}"
        if self.record.get(name) is None:
            raise InvalidInput(f"Expected {what} as a list of numbers (got none).")
        return [nan if gaps and v is None else as_number(v, what) for v in self.items(name)]

    def texts(self, name: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(as_text(value, f"{name} in {self.where}") for value in self.items(name))

    def part(self, name: str) -> Reader:
        """The record inside this one; empty where it is missing."""
        value = self.record.get(name)
        return Reader({} if value is None else value, f"{name} in {self.where}")

    def parts(self, name: str) -> dict[str, Reader]:
        """The records inside that record, by name."""
        record = self.part(name).record
        return {
            str(k): Reader(v, f"{k!r:.40} of {name} in {self.where}") for k, v in record.items()
        }


def as_number(value: Any, what: str) -> float:
    """A finite number."""
    if type(value) not in (int, float) or not abs(value) <= LARGEST:
        raise InvalidInput(f"Expected {what} as a finite number (got {value!r:.60}).")
    return float(value)


def as_count(value: Any, what: str, least: int = 1, most: float = float("inf")) -> int:
    """A whole number from least to most."""
    if type(value) is not int or not least <= value <= most:
        bound = f"≥ {least}" if most == float("inf") else f"from {least} to {most}"
        raise InvalidInput(f"Expected {what} as a whole number {bound} (got {value!r:.60}).")
    return value


def as_text(value: Any, what: str) -> str:
    """Text."""
    if not isinstance(value, str):
        raise InvalidInput(f"Expected {what} as text (got {value!r:.60}).")
    return value
