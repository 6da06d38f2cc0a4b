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

NUMBERS = "fiub"
"""NumPy's kinds of numbers."""


@dataclass(frozen=True)
class Part:
    """One tensor of the features."""

    key: str | int | None
    """Its key in the dict, its place in the tuple, None where features are a single tensor."""
    width: int
    """Columns of the table in it."""
    shape: tuple[int, ...]
    """The shape of one row."""
    categorical: bool
    """Whole numbers: ids of categories."""
    own_names: tuple[str, ...] | None = None
    """The names of a DataFrame's columns."""


class Batch(NamedTuple):
    """Rows as the caller gave them."""

    features: Any
    """A tensor, a DataFrame, a tuple or a dict of tensors; rows first."""
    labels: Any
    weights: Any = None
    """What each row counts for; None where all count alike."""


@dataclass(frozen=True, eq=False)
class Rows:
    """The rows of a batch, checked."""

    features: Any
    """The parts, a list of tensors; or what `Network.encode` has made of them."""
    labels: Tensor
    weights: Tensor | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def to(self, device: torch.device) -> Rows:
        """The same on a device."""
        weights = None if self.weights is None else self.weights.to(device)
        return Rows([part.to(device) for part in self.features], self.labels.to(device), weights)

    def counts(self) -> Tensor:
        """(rows,) float64: what each row counts for."""
        weights = self.labels.new_ones(len(self)) if self.weights is None else self.weights
        return weights.double()

    @property
    def weight(self) -> float:
        """The sum of the rows' weights."""
        return float(len(self)) if self.weights is None else float(self.counts().sum())

    def pieces(self, size: int) -> Iterator[Rows]:
        """So many rows at a time."""
        for first in range(0, len(self), size):
            here = slice(first, first + size)
            weights = None if self.weights is None else self.weights[here]
            whole = isinstance(self.features, Tensor)
            features = self.features[here] if whole else [part[here] for part in self.features]
            yield Rows(features, self.labels[here], weights)


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
    def of(features: Any, bags: Sequence[Any] = ()) -> Table:
        """The table that these features are a batch of; parts in `bags` are single columns."""
        parts = []
        for (key, tensor), names in zip(_entries(features), _frames(features), strict=True):
            width = 1 if key in bags else int(torch.Size(tensor.shape[1:2]).numel())
            if tensor.dim() > 2 and key not in bags:
                raise InvalidInput(
                    f"Expected {_where(key)} of shape (rows, columns) (got {tuple(tensor.shape)})."
                )
            parts.append(Part(key, width, tuple(tensor.shape[1:]), not _float(tensor), names))
        columns = sum(part.width for part in parts)
        if columns == 0:
            raise InvalidInput("Expected at least one column (got none).")
        places = len(features) if isinstance(features, tuple | list) else 0
        return Table(tuple(parts), tuple(_names(parts)), places)

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
        return sum(part.width for part in self.parts)

    @property
    def categorical(self) -> list[bool]:
        """For each column: are these ids of categories?"""
        return [part.categorical for part in self.parts for _ in range(part.width)]

    def read(self, batch: Batch) -> Rows:
        """The parts, labels and weights of one batch, checked against this table."""
        features = batch.features
        tensors = _entries(features)
        if [key for key, _ in tensors] != [part.key for part in self.parts]:
            raise InvalidInput(
                f"Expected features with the parts {[part.key for part in self.parts]}, as in the "
                f"first batch (got {[key for key, _ in tensors]})."
            )
        answers = as_tensor(batch.labels, "the label")
        if answers.dim() == 0:
            raise InvalidInput(
                "Expected batches of several rows (got a label without an axis, as of a single "
                "row). Try torch.utils.data.DataLoader(dataset, batch_size=512)."
            )
        rows = answers.shape[0]
        ids = answers.dim() > 1 and answers.shape[1] > 1 and not _float(answers)
        if batch.weights is not None and ids:
            raise InvalidInput(
                "Expected (features, label, weights) in batches of three (got a label of shape "
                f"{tuple(answers.shape)}). Try ((numeric, categorical), label) for a model of two "
                "inputs."
            )
        first = 0
        of_frames = _frames(features)
        for part, (key, tensor), names in zip(self.parts, tensors, of_frames, strict=True):
            if tensor.shape != (rows, *part.shape):
                flat = part.categorical and not part.shape
                hint = " Try ids of bags as a matrix, padded, and no offsets." if flat else ""
                raise InvalidInput(
                    f"Expected {_where(key)} of shape {(rows, *part.shape)}, a row per label "
                    f"(got {tuple(tensor.shape)}).{hint}"
                )
            if names != part.own_names:
                raise InvalidInput(
                    f"Expected {_where(key)} with the columns of the first batch, in their order "
                    f"(got {listed(names) if names else 'no names'})."
                )
            if part.categorical != (not _float(tensor)):
                raise InvalidType(
                    f"Expected {_where(key)} of the same kind in every batch (got {tensor.dtype})."
                )
            if not part.categorical:
                self._check_finite(tensor, first)
            first += part.width
        if rows:
            self.check(answers)
        return Rows([tensor for _, tensor in tensors], answers, _weights(batch.weights, rows))

    def call(self, model: Callable[..., Any], parts: Sequence[Tensor], **more: Any) -> Any:
        """The model's answer to these parts, handed over as the caller's batches hold them."""
        keys = [part.key for part in self.parts]
        if isinstance(keys[0], str):
            return model(**dict(zip(map(str, keys), parts, strict=True)), **more)
        arguments: list[Tensor | None] = [None] * max(self.places, 1)
        for key, part in zip(keys, parts, strict=True):
            arguments[int(key or 0)] = part
        return model(*arguments, **more)

    def split(self, x: Tensor) -> list[Tensor]:
        """A matrix (rows, columns) as parts of their own shapes."""
        pieces = torch.split(x, [part.width for part in self.parts], dim=1)
        return [
            piece.reshape(len(x), *part.shape)
            for part, piece in zip(self.parts, pieces, strict=True)
        ]

    def changed(
        self, parts: list[Tensor], column: int, change: Callable[[Tensor], Tensor]
    ) -> list[Tensor]:
        """The same rows with other values of this column; a bag changes as a whole."""
        for at, of in enumerate(self.parts):
            if column < of.width:
                part = parts[at].clone()
                if part.dim() == 1 or (of.width == 1 and part.shape[1] > 1):
                    part = change(part)
                else:
                    part[:, column] = change(part[:, column])
                return [*parts[:at], part, *parts[at + 1 :]]
            column -= of.width
        raise AssertionError("unreachable: every column is in a part")

    def listed(self, columns: Sequence[int]) -> str:
        """Columns by name, for people."""
        return quoted([self.names[c] for c in columns])

    def _check_finite(self, tensor: Tensor, first: int) -> None:
        # One sum over the batch is all that the usual case costs.
        if bool(torch.isfinite(tensor.sum())):
            return
        bad = ~torch.isfinite(tensor.reshape(len(tensor), -1))
        columns = torch.nonzero(bad.any(0)).squeeze(1)
        if not len(columns):
            return  # Finite numbers whose sum overflowed.
        empty = torch.nonzero(bad.all(0)).squeeze(1)
        which = self.listed([first + int(c) for c in columns])
        if len(empty) and len(tensor) > 1:
            which += f"; nothing else in {self.listed([first + int(c) for c in empty])}"
        raise InvalidInput(
            f"Expected finite numbers (got NaN or infinity in {which}). Try filling what is "
            "missing, with the column's mean say, or leave the column out."
        )


def _weights(given: Any, rows: int) -> Tensor | None:
    if given is None:
        return None
    weights = as_tensor(given, "the weights")
    if weights.shape == (rows, 1):
        weights = weights.squeeze(1)
    if weights.shape != (rows,):
        raise InvalidInput(
            f"Expected a weight for each of the {rows} rows, third in a batch "
            f"(got shape {tuple(weights.shape)})."
        )
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise InvalidInput("Expected finite weights ≥ 0 (got others).")
    return weights


def _entries(features: Any) -> list[tuple[str | int | None, Tensor]]:
    """Keys and tensors of the features; a None in a tuple is a part that is not there."""
    if isinstance(features, Mapping):  # A DataFrame is none.
        return [(str(k), as_tensor(v, f"the column {k!r}")) for k, v in features.items()]
    if isinstance(features, tuple | list):
        return [(i, as_tensor(v, _where(i))) for i, v in enumerate(features) if v is not None]
    return [(None, as_tensor(features, "features"))]


def _frames(features: Any) -> list[tuple[str, ...] | None]:
    """For each of the entries the names of its columns, where it is a DataFrame."""
    if isinstance(features, Mapping):
        return [frame_names(v) for v in features.values()]
    if isinstance(features, tuple | list):
        return [frame_names(v) for v in features if v is not None]
    return [frame_names(features)]


def _names(parts: Sequence[Part]) -> list[str]:
    names: list[str] = []
    for part in parts:
        if part.own_names is not None and len(part.own_names) == part.width:
            own = list(part.own_names)
        elif isinstance(part.key, str):
            own = (
                [part.key]
                if not part.shape or part.width == 1
                else [f"{part.key}[{i}]" for i in range(part.width)]
            )
        else:
            own = [str(len(names) + i) for i in range(part.width)]
        names += own
    return names


def _where(key: str | int | None) -> str:
    if key is None:
        return "features"
    return f"the column {key!r}" if isinstance(key, str) else f"input {key}"


def _float(tensor: Tensor) -> bool:
    return tensor.is_floating_point()


def as_batch(given: Any) -> Batch:
    """(features, label) or (features, label, weights) as a batch."""
    if not isinstance(given, tuple | list) or len(given) not in (2, 3):
        got = f"{len(given)} parts" if isinstance(given, tuple | list) else type(given).__name__
        raise InvalidInput(
            f"Expected batches of two, (features, label), or of three, (features, label, weights) "
            f"(got {got}). Try ((numeric, categorical), label) for a model of several inputs."
        )
    return Batch(*given)


def as_tensor(given: Any, name: str) -> Tensor:
    """Numbers of any make as a tensor; a DataFrame as a matrix (rows, columns)."""
    if isinstance(given, Tensor):
        return given.detach()
    if is_frame(given):
        return _tensor(_matrix(given), name)
    if not hasattr(given, "__array__"):
        raise InvalidType(
            f"Expected {name} to be a tensor, an array or a DataFrame (got {type(given).__name__})."
        )
    return _tensor(np.asarray(given), name)


def is_frame(given: Any) -> bool:
    """A DataFrame of pandas or polars, by its looks: neither package is needed here."""
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def frame_names(given: Any) -> tuple[str, ...] | None:
    """The names of a DataFrame's columns; None for all else."""
    return tuple(str(name) for name in given.columns) if is_frame(given) else None


def _matrix(frame: Any) -> Any:
    # By columns: a DataFrame of numbers and flags as one array is an array of objects.
    pairs = frame.items() if hasattr(frame, "items") else zip(frame.columns, frame, strict=True)
    arrays = [(name, np.asarray(column)) for name, column in pairs]
    odd = [(name, column) for name, column in arrays if column.dtype.kind not in NUMBERS]
    if odd:
        got = listed([f"{name!r} of {column.dtype}" for name, column in odd], 3)
        raise InvalidType(
            f"Expected a DataFrame of numbers (got {got}). Try numbers in every row, and "
            "whole-number ids for categories, in a DataFrame of their own."
        )
    columns = [column for _, column in arrays]
    return np.column_stack(columns) if columns else np.empty((len(frame), 0))


def _tensor(array: Any, name: str) -> Tensor:
    if array.dtype.kind not in NUMBERS:
        raise InvalidType(
            f"Expected {name} to hold numbers (got {array.dtype}). "
            "Try whole-number ids for categories."
        )
    # Torch takes no backward strides, and warns of what it may not write on.
    plain = array.flags.writeable and all(step >= 0 for step in array.strides)
    try:
        return torch.as_tensor(array if plain else array.copy())
    except TypeError:  # float128, uint16 in older versions
        return torch.as_tensor(array.astype(np.float64 if array.dtype.kind == "f" else np.int64))
