"""How a flat vector of n values folds back into the caller's tensor, tuple or dict of tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from typing import Any, TypeAlias

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType

Tree: TypeAlias = "Tensor | tuple[Tensor, ...] | dict[str, Tensor]"
"""One tensor, or several by position or by name."""


def check_plain(what: str, tensor: Tensor) -> None:
    """Refuse a tensor whose numbers do not lie there one by one; what: "input 'x'"."""
    if tensor.is_nested or tensor.layout != torch.strided or tensor.is_meta:
        kind = "device meta" if tensor.is_meta else str(tensor.layout)
        raise InvalidType(
            f"Expected {what} as a dense tensor with numbers in it "
            f"(got {'a nested one' if tensor.is_nested else kind}). Try .to_dense() on it."
        )


@dataclass(frozen=True)
class Layout:
    """Names and shapes of the tensors whose values are laid end to end.

    kind is "tensor", "tuple" or "dict"; names are the dict's keys, else the positions.
    """

    kind: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @staticmethod
    def vector(n: int) -> Layout:
        """The layout of a plain vector of n values."""
        return Layout("tensor", ("x",), ((n,),))

    @staticmethod
    def of(tree: Any) -> Layout:
        """The layout of a tensor, a tuple or list of tensors, or a dict of tensors."""
        if isinstance(tree, Tensor):
            kind, tensors = "tensor", {"x": tree}
        elif isinstance(tree, Mapping):
            kind, tensors = "dict", {str(name): each for name, each in tree.items()}
        elif isinstance(tree, Sequence) and not isinstance(tree, str):
            kind, tensors = "tuple", {str(i): each for i, each in enumerate(tree)}
        else:
            raise InvalidType(
                f"Expected a tensor, or a tuple or dict of tensors (got {type(tree).__name__}). "
                "Try torch.as_tensor(x, dtype=torch.float32)."
            )
        if not tensors:
            raise InvalidInput("Expected at least one input tensor (got none).")
        for name, tensor in tensors.items():
            if not isinstance(tensor, Tensor):
                raise InvalidType(
                    f"Expected input {name!r} to be a tensor (got {type(tensor).__name__}). "
                    "Try torch.tensor(x), or fixed= for arguments that are not explained."
                )
            check_plain(f"input {name!r}", tensor)
        return Layout(kind, tuple(tensors), tuple(tuple(t.shape) for t in tensors.values()))

    @property
    def sizes(self) -> tuple[int, ...]:
        """Values in each tensor."""
        return tuple(prod(shape) for shape in self.shapes)

    @property
    def n(self) -> int:
        """Values in all."""
        return sum(self.sizes)

    def tensors(self, tree: Any) -> list[Tensor]:
        """The tensors of a tree of this layout, in order."""
        if isinstance(tree, Tensor):
            return [tree]
        return list(tree.values()) if isinstance(tree, Mapping) else list(tree)

    def flatten(self, tree: Any) -> Tensor:
        """(n,): all values end to end, in row-major order whatever the memory format."""
        return torch.cat([t.reshape(-1) for t in self.tensors(tree)])

    def unflatten(self, flat: Tensor) -> Tree:
        """The tree whose `flatten` is `flat`."""
        return self.pack([p[0] for p in self.split(flat.unsqueeze(0))])

    def split(self, rows: Tensor) -> list[Tensor]:
        """(m, n) → one tensor (m, *shape) per input."""
        if len(self.shapes) == 1:
            return [rows.view(rows.shape[0], *self.shapes[0])]
        # Slices, as views by torch.split may not be written on in place.
        ends = accumulate(self.sizes)
        parts = [rows[:, end - size : end] for end, size in zip(ends, self.sizes, strict=True)]
        return [p.reshape(rows.shape[0], *s) for p, s in zip(parts, self.shapes, strict=True)]

    def place(self, value: int) -> str:
        """Where a value lies, as one would index it: x[0, 3, 4], item[2]."""
        for which, (shape, size) in enumerate(zip(self.shapes, self.sizes, strict=True)):
            if value < size:
                index = []
                for length in reversed(shape or (1,)):
                    value, along = divmod(value, length)
                    index.append(str(along))
                return f"{self._label(which)}[{', '.join(reversed(index))}]"
            value -= size
        return str(value)

    def boxes(self, ids: Tensor, count: int) -> list[tuple[str, bool]]:
        """For each of `count` groups of the values of a lone input, ids (n,): the smallest box
        around it, and whether it holds no others: x[2, :] for a token, x[:, 0:16, 16:32] for a
        square. Values with id −1 belong to no group."""
        shape = self.shapes[0]
        values = torch.nonzero(ids >= 0).squeeze(1)
        ids, places = ids[values], torch.stack(torch.unravel_index(values, shape))
        owners, zeros = ids.expand_as(places), places.new_zeros(len(shape), count)
        first = zeros.scatter_reduce(1, owners, places, "amin", include_self=False)
        last = zeros.scatter_reduce(1, owners, places, "amax", include_self=False)
        exact = (last - first + 1).prod(0) == torch.bincount(ids, minlength=count)
        boxes = []
        for begin, end, alone in zip(
            first.T.tolist(), last.T.tolist(), exact.tolist(), strict=True
        ):
            parts = []
            for low, high, length in zip(begin, end, shape, strict=True):
                part = ":" if high - low + 1 == length else f"{low}:{high + 1}"
                parts.append(str(low) if low == high and length > 1 else part)
            boxes.append((f"{self._label(0)}[{', '.join(parts)}]", alone))
        return boxes

    def _label(self, which: int) -> str:
        """What an input is called in a text: its name, x where it is alone, x0, x1 … in a tuple."""
        name = self.names[which]
        return f"x{name}" if name.isdigit() else name

    def pack(self, tensors: Sequence[Tensor]) -> Tree:
        """The caller's own container around these tensors."""
        if self.kind == "tensor":
            return tensors[0]
        if self.kind == "tuple":
            return tuple(tensors)
        return dict(zip(self.names, tensors, strict=True))
