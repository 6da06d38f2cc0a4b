"""Which column feeds which embedding of a model, and hooks on the embeddings' outputs.

One column of a few rows is changed, and the ids that are looked up are compared. Hooks exist only
during a call of the model; they are removed after it, also after an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput
from .columns import Table

PROBE = 64
"""Rows that are tried to find which column goes where."""
INSTEAD = "Try a model with forward(numeric, categorical, gates=…)."


@dataclass(frozen=True)
class LookUp:
    """One look-up of an embedding during a call of the model."""

    module: nn.Module
    columns: tuple[int, ...]
    """The column behind each id of a row."""

    @property
    def joins(self) -> bool:
        """Is it a bag that sums the ids of several columns?"""
        return isinstance(self.module, nn.EmbeddingBag) and len(self.columns) > 1

    @property
    def owners(self) -> list[int]:
        """The column behind each number of its output."""
        width = int(self.module.embedding_dim)  # type: ignore[arg-type]
        return [column for column in self.columns for _ in range(width)]


def embeddings(modules: list[nn.Module]) -> list[nn.Module]:
    """All embeddings inside these modules."""
    kinds = nn.Embedding | nn.EmbeddingBag
    return [m for root in modules for m in root.modules() if isinstance(m, kinds)]


@contextmanager
def replaced(
    modules: list[nn.Module], replace: Callable[[nn.Module, Tensor], Tensor | None]
) -> Iterator[None]:
    """Call `replace(module, output)` after each look-up; a tensor takes the output's place."""
    with ExitStack() as handles:
        for module in modules:
            handle = module.register_forward_hook(lambda m, _, output: replace(m, output))
            handles.callback(handle.remove)
        yield


def find_lookups(
    model: Callable[..., Any], modules: list[nn.Module], table: Table, parts: list[Tensor]
) -> list[LookUp]:
    """The look-ups of one call, each with the columns behind it.

    A bag that sums the ids of several columns has them all: they must become a single column.
    """
    parts = [part[:PROBE] for part in parts]
    before = _ids(model, modules, table, parts)
    sources = [[set[int]() for _ in places] for _, places in before]
    for column in (c for c, categorical in enumerate(table.categorical) if categorical):
        other = table.changed(parts, column, _other_ids)
        is_read = False
        for source, (_, old), (_, new) in zip(
            sources, before, _ids(model, modules, table, other), strict=True
        ):
            for columns, a, b in zip(source, old, new, strict=True):
                if not torch.equal(a, b):
                    columns.add(column)
                    is_read = True
        if not is_read:
            raise InvalidInput(
                "Expected every category column to be looked up in an nn.Embedding (got none for "
                f"{table.listed([column])}). Try floating point for what is no category. {INSTEAD}"
            )
    lookups = []
    for (module, _), source in zip(before, sources, strict=True):
        numbers = {len(columns) for columns in source}
        if numbers != {1} and not (isinstance(module, nn.EmbeddingBag) and source[0]):
            raise InvalidInput(
                "Expected each look-up of an embedding to read one column (got "
                f"{sorted(numbers)}). {INSTEAD}"
            )
        lookups.append(LookUp(module, tuple(c for columns in source for c in sorted(columns))))
    return lookups


def _other_ids(ids: Tensor) -> Tensor:
    """The ids of the rows before; where all rows have the same id, a neighbour of it."""
    return ids + 1 if bool((ids == ids[0]).all()) else ids.roll(1, 0)


def _ids(
    model: Callable[..., Any], modules: list[nn.Module], table: Table, parts: list[Tensor]
) -> list[tuple[nn.Module, list[Tensor]]]:
    """The look-ups of one call in their order: the ids in each place of a row, (rows,) each.

    A bag is a single place, with its ids and offsets. Ids that an embedding does not have are
    noted, and its last one is looked up.
    """
    calls: list[tuple[nn.Module, list[Tensor]]] = []
    rows = len(parts[0])

    def note(module: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        ids = args[0] if args else more["input"]
        if isinstance(module, nn.EmbeddingBag):
            tensors = [t for t in (*args, *more.values()) if isinstance(t, Tensor)]
            places = [torch.cat([t.flatten().double() for t in tensors])]
        else:
            places = list(ids.reshape(rows, -1).T.clone()) if len(ids) == rows else []
        calls.append((module, places))
        within = ids.clamp(0, module.num_embeddings - 1)
        return ((within, *args[1:]), more) if args else (args, {**more, "input": within})

    def check(_: nn.Module, output: Tensor) -> None:
        if len(output) != rows:
            raise InvalidInput(
                "Expected embeddings to look up ids with one row per row of the table (got "
                f"{len(output)} for {rows} rows). {INSTEAD}"
            )

    with torch.no_grad(), ExitStack() as handles, replaced(modules, check):
        for module in modules:
            handle = module.register_forward_pre_hook(note, with_kwargs=True)
            handles.callback(handle.remove)
        table.call(model, parts)
    return calls
