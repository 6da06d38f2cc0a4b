"""What a batch of a table looks like: its parts, its columns and their names.

Features are one tensor, a tuple of tensors or a dict of tensors, rows first; a DataFrame is a
matrix whose columns have names. Every column of a matrix is a column of the table; a vector is a
single one. The first batch decides; every other batch must have the same columns.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType, listed, quoted

Key = str | int | None
"""A part's key in the dict, its place in the tuple, or None where features are one tensor."""


class Batch(NamedTuple):
    """Rows as the caller gave them."""

    features: Any
    """A tensor, a DataFrame, a tuple or a dict of tensors; rows first."""
    labels: Any
    weights: Any = None
    """What each row counts for; None where all count alike."""


def as_batch(given: Any) -> Batch:
    """(features, label) or (features, label, weights) as a batch."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        got = f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
        raise InvalidInput(
            "Expected batches of two, (features, label), or of three, (features, label, weights) "
            f"(got {got}). Try ((numeric, categorical), label) for a model of several inputs."
        )
    return Batch(*given)


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch, checked."""

    features: list[Tensor]
    """The parts; or what `Network.encoded` has made of them."""
    labels: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def changed(self, change: Callable[[Tensor], Tensor]) -> Rows:
        """The same change of every tensor."""
        weights = None if self.weights is None else change(self.weights)
        return Rows([change(part) for part in self.features], change(self.labels), weights)

    def counts(self) -> Tensor:
        """(rows,) float64: what each row counts for."""
        weights = self.labels.new_ones(len(self)) if self.weights is None else self.weights
        return weights.double()

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(self.counts().sum())

    def pieces(self, size: int) -> Iterator[Rows]:
        """So many rows at a time."""
        for first in range(0, len(self), size):
            here = slice(first, first + size)
            yield self.changed(lambda tensor, here=here: tensor[here])  # type: ignore[misc]


@dataclass(frozen=True)
class Part:
    """One tensor of the features."""

    key: Key
    shape: tuple[int, ...]
    """The shape of one row."""
    categorical: bool
    """Whole numbers: ids of categories."""
    own_names: tuple[str, ...] | None = None
    """The names of a DataFrame's columns."""

    @property
    def width(self) -> int:
        """Columns of the table in it."""
        return self.shape[0] if self.shape else 1

    def names(self, first: int) -> list[str]:
        """Its columns' names, numbered from `first` where they have none."""
        if self.own_names is not None:
            return list(self.own_names)
        if isinstance(self.key, str):
            single = self.width == 1
            return [self.key] if single else [f"{self.key}[{i}]" for i in range(self.width)]
        return [str(first + i) for i in range(self.width)]

    def __str__(self) -> str:
        kind = "ids" if self.categorical else "numbers"
        of = f" {listed(self.own_names)}" if self.own_names else ""
        return f"{_where(self.key)}: {kind} of shape {('rows', *self.shape)}{of}".replace("'", "")


@dataclass(frozen=True)
class Columns:
    """The columns of a table, and how its batches carry them."""

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    places: int
    """Entries of the tuple, those that are None included."""
    check: Callable[[Tensor], None] = field(compare=False)
    """Refuses labels that the loss cannot take."""

    @staticmethod
    def of(features: Any, check: Callable[[Tensor], None]) -> Columns:
        """The table that these features are a batch of."""
        parts = [part for part, _ in _parts(features)]
        names: list[str] = []
        for part in parts:
            if len(part.shape) > 1:
                raise InvalidInput(f"Expected features of shape (rows, columns) (got {part}).")
            names += part.names(len(names))
        if not names:
            raise InvalidInput("Expected at least one column (got none).")
        places = len(features) if isinstance(features, tuple | list) else 1
        return Columns(tuple(parts), tuple(names), places, check)

    def named(self, names: Sequence[str] | None) -> Columns:
        """The same table, its columns called by the caller's names where there are any."""
        called = self.names if names is None else tuple(map(str, names))
        if len(called) != self.columns:
            raise InvalidInput(
                f"Expected one name per column (got {len(called)} names for {self.columns} "
                "columns)."
            )
        check_different(called, "the features")
        return replace(self, names=called)

    @property
    def columns(self) -> int:
        """How many there are."""
        return len(self.names)

    @property
    def part_of(self) -> list[Part]:
        """The part that each column is in."""
        return [part for part in self.parts for _ in range(part.width)]

    @property
    def categorical(self) -> list[bool]:
        """For each column: are these ids of categories?"""
        return [part.categorical for part in self.part_of]

    def read(self, batch: Batch) -> Rows:
        """The parts, labels and weights of one batch, checked against this table."""
        labels = as_tensor(batch.labels, "the label")
        if labels.dim() == 0:
            raise InvalidInput(
                "Expected batches of several rows (got a label without an axis, as of a single "
                "row). Try torch.utils.data.DataLoader(dataset, batch_size=512)."
            )
        parts = _parts(batch.features)
        if tuple(part for part, _ in parts) != self.parts:
            raise InvalidInput(
                "Expected every batch to be like the first, with "
                f"{listed([str(part) for part in self.parts])} "
                f"(got {listed([str(part) for part, _ in parts])})."
            )
        tensors = [tensor for _, tensor in parts]
        if wrong := [len(tensor) for tensor in tensors if len(tensor) != len(labels)]:
            raise InvalidInput(f"Expected a row per label, {len(labels)} of them (got {wrong[0]}).")
        self._check_finite(tensors)
        if len(labels):
            self.check(labels)
        return Rows(tensors, labels, _weights(batch.weights, len(labels)))

    def _check_finite(self, tensors: list[Tensor]) -> None:
        # One sum over the batch is all that the usual case costs.
        if all(bool(torch.isfinite(tensor.sum())) for tensor in tensors):
            return
        bad = torch.cat([~torch.isfinite(t.reshape(len(t), -1)).all(0) for t in tensors])
        if bool(bad.any()):
            raise InvalidInput(
                "Expected finite numbers (got NaN or infinity in "
                f"{self.listed(torch.nonzero(bad).flatten().tolist())}). Try filling what is "
                "missing, with the column's mean say, or leave the column out."
            )

    def call(self, model: Callable[..., Any], parts: Sequence[Tensor], **more: Any) -> Any:
        """The model's outputs for these parts, given to it as the caller's batches hold them."""
        keys = [part.key for part in self.parts]
        if isinstance(keys[0], str):
            return model(**dict(zip(map(str, keys), parts, strict=True)), **more)
        arguments: list[Tensor | None] = [None] * self.places
        for key, part in zip(keys, parts, strict=True):
            arguments[int(key or 0)] = part
        return model(*arguments, **more)

    def changed(
        self, parts: list[Tensor], column: int, change: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """The same rows with other values of this column."""
        at = self.parts.index(part := self.part_of[column])
        tensor = parts[at].clone()
        if part.width == 1:
            tensor = change(tensor)
        else:
            place = column - sum(before.width for before in self.parts[:at])
            tensor[:, place] = change(tensor[:, place])
        return [*parts[:at], tensor, *parts[at + 1 :]]

    def listed(self, columns: Sequence[int]) -> str:
        """Columns by name, for people."""
        return quoted([self.names[c] for c in columns])


def _parts(features: Any) -> list[tuple[Part, Tensor]]:
    """The parts of a batch with their tensors; a None in a tuple is a part that is not there."""
    if isinstance(features, Mapping):  # A DataFrame is none.
        given: list[tuple[Key, Any]] = [(str(key), value) for key, value in features.items()]
    elif isinstance(features, tuple | list):
        given = [(i, value) for i, value in enumerate(features) if value is not None]
    else:
        given = [(None, features)]
    parts = []
    for key, value in given:
        tensor = as_tensor(value, _where(key))
        names = tuple(str(name) for name in value.columns) if is_frame(value) else None
        is_float = tensor.is_floating_point()
        parts.append((Part(key, tuple(tensor.shape[1:]), not is_float, names), tensor))
    return parts


def _where(key: Key) -> str:
    """A part, for people."""
    if key is None:
        return "features"
    return f"the column {key!r}" if isinstance(key, str) else f"input {key}"


def _weights(given: Any, rows: int) -> Tensor | None:
    if given is None:
        return None
    weights = as_tensor(given, "the weights")
    if weights.shape not in ((rows,), (rows, 1)):
        raise InvalidInput(
            f"Expected a weight for each of the {rows} rows, third in a batch (got shape "
            f"{tuple(weights.shape)}). Try ((numeric, categorical), label) for two inputs."
        )
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise InvalidInput("Expected finite weights ≥ 0 (got others).")
    return weights.reshape(rows)


def check_different(names: Sequence[str], where: str, more: str = "") -> None:
    """Refuse columns of the same name. more: further advice."""
    if twice := [name for name, count in Counter(names).items() if count > 1]:
        raise InvalidInput(
            f"Expected columns of different names in {where} (got {quoted(twice)} more than once). "
            f"Try renaming them{more}."
        )


def is_frame(given: Any) -> bool:
    """A DataFrame of pandas or polars, by its looks: neither package is needed here."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def as_tensor(given: Any, name: str) -> Tensor:
    """Numbers of any make as a tensor; a DataFrame as a matrix (rows, columns)."""
    if isinstance(given, Tensor):
        return given.detach()
    if not hasattr(given, "__array__"):
        raise InvalidType(
            f"Expected {name} to be a tensor, an array or a DataFrame (got {type(given).__name__})."
        )
    arrays = {name: np.asarray(given)}
    if is_frame(given):
        check_different([str(column) for column in given.columns], name)
        # By columns: a DataFrame of numbers and flags as one array is an array of objects.
        arrays = {str(column): np.asarray(given[column]) for column in given.columns}
    odd = [f"{n!r} of {a.dtype}" for n, a in arrays.items() if a.dtype.kind not in "fiub"]
    if odd:
        raise InvalidType(
            f"Expected {name} to hold numbers (got {listed(odd, 3)}). Try whole-number ids for "
            "categories, in a tensor or DataFrame of their own."
        )
    array = np.column_stack(list(arrays.values())) if is_frame(given) else arrays[name]
    # Torch takes no backward strides, and warns of what it may not write on.
    plain = array.flags.writeable and all(step >= 0 for step in array.strides)
    return torch.as_tensor(array if plain else array.copy())
