"""What a batch of a table looks like: its parts, its columns and their names.

Features are one tensor, a tuple of tensors or a dict of tensors, rows first; a DataFrame is a
matrix whose columns have names. Every column of a matrix is a column of the table; a vector is a
single one. The first batch decides; every other batch must have the same columns.
"""

from __future__ import annotations

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
    width: int
    """Columns of the table in it."""
    shape: tuple[int, ...]
    """The shape of one row."""
    categorical: bool
    """Whole numbers: ids of categories."""
    own_names: tuple[str, ...] | None = None
    """The names of a DataFrame's columns."""

    @staticmethod
    def of(key: Key, given: Any) -> Part:
        """The part that a tensor, an array or a DataFrame is; several ids of a bag, too."""
        tensor = as_tensor(given, where(key))
        width = tensor.shape[1] if tensor.dim() > 1 else 1
        is_float = tensor.is_floating_point()
        return Part(key, width, tuple(tensor.shape[1:]), not is_float, frame_names(given))

    def names(self, first: int) -> list[str]:
        """Its columns' names, numbered from `first` where they have none."""
        if self.own_names is not None and len(self.own_names) == self.width:
            return list(self.own_names)
        if not isinstance(self.key, str):
            return [str(first + i) for i in range(self.width)]
        if self.width == 1:
            return [self.key]
        return [f"{self.key}[{i}]" for i in range(self.width)]


@dataclass(frozen=True)
class Table:
    """The columns of a table, and how its batches carry them."""

    parts: tuple[Part, ...]
    names: tuple[str, ...]
    places: int = 0
    """Entries of the tuple, those that are None included."""
    check: Callable[[Tensor], None] = field(default=lambda labels: None, compare=False)
    """Refuses labels that the loss cannot take."""

    @staticmethod
    def of(features: Any, bags: Sequence[Key] = ()) -> Table:
        """The table that these features are a batch of; parts in `bags` are single columns."""
        parts = []
        for key, given in _entries(features):
            part = Part.of(key, given)
            if len(part.shape) > 1 and key not in bags:
                raise InvalidInput(
                    f"Expected {where(key)} of shape (rows, columns) (got rows of {part.shape})."
                )
            parts.append(replace(part, width=1) if key in bags else part)
        names: list[str] = []
        for part in parts:
            names += part.names(len(names))
        if not names:
            raise InvalidInput("Expected at least one column (got none).")
        places = len(features) if isinstance(features, tuple | list) else 1
        return Table(tuple(parts), tuple(names), places)

    def named(self, names: Sequence[str] | None) -> Table:
        """The same table, its columns called by the caller's names where there are any."""
        if names is None:
            return self
        if len(names) != self.columns:
            raise InvalidInput(
                f"Expected one name per column (got {len(names)} names for {self.columns} columns)."
            )
        return replace(self, names=tuple(str(name) for name in names))

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
        entries = _entries(batch.features)
        keys = [part.key for part in self.parts]
        if [key for key, _ in entries] != keys:
            raise InvalidInput(
                f"Expected features with the parts {keys}, as in the first batch "
                f"(got {[key for key, _ in entries]})."
            )
        labels = as_tensor(batch.labels, "the label")
        if labels.dim() == 0:
            raise InvalidInput(
                "Expected batches of several rows (got a label without an axis, as of a single "
                "row). Try torch.utils.data.DataLoader(dataset, batch_size=512)."
            )
        has_ids = labels.dim() > 1 and labels.shape[1] > 1 and not labels.is_floating_point()
        if batch.weights is not None and has_ids:
            raise InvalidInput(
                "Expected (features, label, weights) in batches of three (got a label of shape "
                f"{tuple(labels.shape)}). Try ((numeric, categorical), label) for a model of two "
                "inputs."
            )
        tensors, first = [], 0
        for part, (_, given) in zip(self.parts, entries, strict=True):
            tensors.append(self._tensor(part, given, len(labels), first))
            first += part.width
        if len(labels):
            self.check(labels)
        return Rows(tensors, labels, _weights(batch.weights, len(labels)))

    def _tensor(self, part: Part, given: Any, rows: int, first: int) -> Tensor:
        """One part of a batch, checked. first: its first column."""
        name, tensor = where(part.key), as_tensor(given, where(part.key))
        if tensor.shape != (rows, *part.shape):
            raise InvalidInput(
                f"Expected {name} of shape {(rows, *part.shape)}, a row per label (got "
                f"{tuple(tensor.shape)}). Ids of bags are a matrix, padded, without offsets."
            )
        names = frame_names(given)
        if names != part.own_names:
            raise InvalidInput(
                f"Expected {name} with the columns of the first batch, in their order "
                f"(got {listed(names) if names else 'no names'})."
            )
        if part.categorical == tensor.is_floating_point():
            raise InvalidType(
                f"Expected {name} of the same kind in every batch (got {tensor.dtype})."
            )
        # One sum over the batch is all that the usual case costs.
        if not part.categorical and not bool(torch.isfinite(tensor.sum())):
            bad = ~torch.isfinite(tensor.reshape(len(tensor), -1)).all(0)
            columns = [first + i for i in torch.nonzero(bad).flatten().tolist()]
            if columns:
                raise InvalidInput(
                    f"Expected finite numbers (got NaN or infinity in {self.listed(columns)}). "
                    "Try filling what is missing, with the column's mean say, or leave the "
                    "column out."
                )
        return tensor

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
        """The same rows with other values of this column; a bag changes as a whole."""
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


def _weights(given: Any, rows: int) -> Tensor | None:
    if given is None:
        return None
    weights = as_tensor(given, "the weights")
    if weights.shape not in ((rows,), (rows, 1)):
        raise InvalidInput(
            f"Expected a weight for each of the {rows} rows, third in a batch "
            f"(got shape {tuple(weights.shape)})."
        )
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise InvalidInput("Expected finite weights ≥ 0 (got others).")
    return weights.reshape(rows)


def _entries(features: Any) -> list[tuple[Key, Any]]:
    """Keys and tensors of the features; a None in a tuple is a part that is not there."""
    if isinstance(features, Mapping):  # A DataFrame is none.
        return [(str(key), value) for key, value in features.items()]
    if isinstance(features, tuple | list):
        return [(i, value) for i, value in enumerate(features) if value is not None]
    return [(None, features)]


def where(key: Key) -> str:
    """A part, for people."""
    if key is None:
        return "features"
    return f"the column {key!r}" if isinstance(key, str) else f"input {key}"


def is_frame(given: Any) -> bool:
    """A DataFrame of pandas or polars, by its looks: neither package is needed here."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def frame_names(given: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns; None for all else."""
    return tuple(str(name) for name in given.columns) if is_frame(given) else None


def as_tensor(given: Any, name: str) -> Tensor:
    """Numbers of any make as a tensor; a DataFrame as a matrix (rows, columns)."""
    if isinstance(given, Tensor):
        return given.detach()
    if not hasattr(given, "__array__"):
        raise InvalidType(
            f"Expected {name} to be a tensor, an array or a DataFrame (got {type(given).__name__})."
        )
    if is_frame(given):
        # By columns: a DataFrame of numbers and flags as one array is an array of objects.
        arrays = {str(column): np.asarray(given[column]) for column in given.columns}
        array = np.column_stack(list(arrays.values())) if arrays else np.empty((len(given), 0))
    else:
        array = np.asarray(given)
        arrays = {name: array}
    odd = [f"{n!r} of {a.dtype}" for n, a in arrays.items() if a.dtype.kind not in "fiub"]
    if odd:
        raise InvalidType(
            f"Expected {name} to hold numbers (got {listed(odd, 3)}). Try whole-number ids for "
            "categories, in a tensor or DataFrame of their own."
        )
    # Torch takes no backward strides, and warns of what it may not write on.
    plain = array.flags.writeable and all(step >= 0 for step in array.strides)
    try:
        return torch.as_tensor(array if plain else array.copy())
    except TypeError:  # float128, uint16 in older versions
        return torch.as_tensor(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
