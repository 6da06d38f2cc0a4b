"""A network for tables: numbers as they are, categories through embeddings, three hidden layers.

The paper's network for click data (768, 256 and 128 hidden units, as in Yasuda et al. 2023). Every
column has a gate between its input and the first layer, so that a set of columns can be switched
off without retraining. The first layer is linear in the gates; `inputs`, `first` and `rest` are
the parts before it, the layer itself, and the parts after it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType

__all__ = ["TabularMLP"]

EMBEDDING_SCALE = 0.1
"""Standard deviation of a fresh embedding: small beside a standardised number."""


class TabularMLP(nn.Module):
    """numeric (rows, p) floats and categorical (rows, q) ids → logits (rows, outputs).

    numeric: how many number columns, standardised by the caller.
    vocabularies: for each category column, how many ids 0 … size − 1 have an embedding of
        their own. Any other id (rare, unseen, a raw 64-bit hash, −1 for missing) is hashed into
        one of the column's `buckets` shared embeddings, which start at zero: before any training
        an unseen category says nothing.
    gaps: number columns with missing values, by their place. A missing value is given as exactly 0;
        the first layer then sees a second input of this column, its missing indicator, 1 where
        the value is missing and 0 elsewhere. Both have the column's gate.
    hidden, embedding, outputs: widths of the layers, of an embedding, and of the answer.
    seed: of the initial weights; the global random state is not touched.

    Columns are counted numbers first, then categories: n_columns = p + q.
    """

    offsets: Tensor
    sizes: Tensor
    column_of: Tensor
    """(inputs,) long: the column that each input of the first layer belongs to."""

    def __init__(
        self,
        numeric: int = 13,
        vocabularies: Sequence[int] = (),
        hidden: Sequence[int] = (768, 256, 128),
        embedding: int = 8,
        outputs: int = 1,
        *,
        gaps: Sequence[int] = (),
        buckets: int = 4,
        seed: int = 0,
    ) -> None:
        super().__init__()
        sizes, self.gaps = [int(size) for size in vocabularies], tuple(map(int, gaps))
        _check(numeric, sizes, self.gaps, [*hidden, embedding, outputs, buckets])
        self.numeric, self.categorical = int(numeric), len(sizes)
        self.embedding, self.outputs, self.buckets = int(embedding), int(outputs), int(buckets)
        self.vocabularies, self.hidden = tuple(sizes), tuple(map(int, hidden))
        self.n_columns = self.numeric + self.categorical
        rows = torch.tensor([size + buckets for size in sizes], dtype=torch.long)
        self.register_buffer("sizes", torch.tensor(sizes, dtype=torch.long), persistent=False)
        self.register_buffer("offsets", rows.cumsum(0) - rows, persistent=False)
        owners = [*range(self.numeric), *self.gaps]
        for column in range(self.numeric, self.n_columns):
            owners += [column] * self.embedding
        self.register_buffer("column_of", torch.tensor(owners), persistent=False)
        # One table for all columns: one look-up per batch, whatever the number of columns.
        empty = torch.empty(int(rows.sum()), self.embedding)
        self.table = nn.Embedding(len(empty), self.embedding, _weight=empty) if sizes else None
        widths = [len(owners), *self.hidden, self.outputs]
        # Without a draw from the global generator, which is not ours to turn.
        skip_init: Any = nn.utils.skip_init
        linear = [skip_init(nn.Linear, a, b) for a, b in pairwise(widths)]
        self.first = linear[0]
        self.rest = nn.Sequential(*(m for layer in linear[1:] for m in (nn.ReLU(), layer)))
        self.reset(seed)

    def reset(self, seed: int = 0) -> None:
        """Fresh weights: Glorot's uniform for the layers, small normal for the embeddings.

        He's are larger, most of all in a first layer of few columns: a small table then has too few
        steps to make up for the large initial outputs.
        """
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for layer in (self.first, *(m for m in self.rest if isinstance(m, nn.Linear))):
                bound = (6 / (layer.in_features + layer.out_features)) ** 0.5
                # Drawn on the CPU, so that a seed means the same network on every device.
                drawn = torch.rand(layer.weight.shape, generator=generator) * 2 - 1
                layer.weight.copy_(drawn * bound)
                layer.bias.zero_()
            if self.table is not None:
                drawn = torch.randn(self.table.weight.shape, generator=generator)
                self.table.weight.copy_(drawn.mul_(EMBEDDING_SCALE))
                for begin, size in zip(self.offsets.tolist(), self.vocabularies, strict=True):
                    self.table.weight[begin + size : begin + size + self.buckets].zero_()

    def start_at(self, shares: Sequence[float]) -> None:
        """Set the output's bias so that an input of zeros is predicted as these shares of the
        classes: the log-odds of the second class for one output, else their logarithms."""
        p = torch.tensor(shares, dtype=torch.float64).clamp(min=1e-6)
        logits = p.log() if self.outputs > 1 else (p[1:] / (p.sum() - p[1:])).log()
        if len(logits) != self.outputs:
            raise InvalidInput(f"Expected shares of {max(self.outputs, 2)} classes (got {len(p)}).")
        last = self.rest[-1] if len(self.rest) else self.first
        with torch.no_grad():
            last.bias.copy_(logits)  # type: ignore[operator]

    def forward(
        self,
        numeric: Tensor | None,
        categorical: Tensor | None = None,
        gates: Tensor | None = None,
    ) -> Tensor:
        """Logits (rows, outputs).

        gates (n_columns,) or (rows, n_columns): 1 leaves a column as it is, 0 replaces it by
        zeros: the standardised mean, the empty embedding.
        """
        x = self.inputs(numeric, categorical)
        if gates is not None:
            x = x * gates.to(x)[..., self.column_of]
        return self.rest(self.first(x))  # type: ignore[no-any-return]

    def inputs(self, numeric: Tensor | None, categorical: Tensor | None = None) -> Tensor:
        """What the first layer sees, (rows, inputs): the numbers, the missing indicators, then each
        category's vector."""
        parts = []
        if self.numeric:
            numbers, dtype = _matrix(numeric, self.numeric, "numeric"), self.first.weight.dtype
            parts.append(numbers.to(dtype))
            if self.gaps:
                parts.append((numbers[:, self.gaps] == 0).to(dtype))
        if self.table is not None:
            ids = _matrix(categorical, self.categorical, "categorical")
            parts.append(self.table(self.places(ids)).flatten(1))
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def places(self, categorical: Tensor) -> Tensor:
        """(rows, q) ids → rows of the table; ids outside a vocabulary go to its buckets."""
        if categorical.is_floating_point():
            raise InvalidType(f"Expected category ids as whole numbers (got {categorical.dtype}).")
        ids = categorical.long()
        known = (ids >= 0) & (ids < self.sizes)
        if not bool(known.all()):
            ids = torch.where(known, ids, self.sizes + _hash(ids) % self.buckets)
        return ids + self.offsets


def _hash(ids: Tensor) -> Tensor:
    """Non-negative scrambled ids, the same on every machine: the mixing steps of SplitMix64."""
    mixed = ids * -7046029254386353131
    mixed = (mixed ^ ((mixed >> 32) & 0xFFFFFFFF)) * -4658895280553007687
    return (mixed ^ ((mixed >> 29) & 0x7FFFFFFFF)) & 0x7FFFFFFFFFFFFFFF


def _matrix(given: Tensor | None, width: int, name: str) -> Tensor:
    if given is None or given.dim() != 2 or given.shape[1] != width:
        got = "none" if given is None else f"shape {tuple(given.shape)}"
        raise InvalidInput(f"Expected {name} of shape (rows, {width}) (got {got}).")
    return given


def _check(numeric: int, sizes: list[int], gaps: tuple[int, ...], widths: list[int]) -> None:
    if numeric < 0 or numeric + len(sizes) < 1:
        raise InvalidInput(
            f"Expected at least one column (got {numeric} numbers, {len(sizes)} categories)."
        )
    if len(set(gaps)) < len(gaps) or not all(0 <= column < numeric for column in gaps):
        raise InvalidInput(
            f"Expected gaps as different number columns from 0 to {numeric - 1} (got {gaps})."
        )
    if min(sizes, default=0) < 0 or min(map(int, widths)) < 1:
        raise InvalidInput(
            f"Expected vocabularies ≥ 0, and widths, outputs and buckets ≥ 1 (got {sizes}, "
            f"{widths})."
        )
