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
from .batch import Columns

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
    model: Callable[..., Any], modules: list[nn.Module], table: Columns, parts: list[Tensor]
) -> list[LookUp]:
    """The look-ups of one call, each with the columns behind it."""
    parts = [part[:PROBE] for part in parts]
    before = _ids(model, modules, table, parts)
    sources = [[set[int]() for _ in places] for _, places in before]
    for column in (c for c, categorical in enumerate(table.categorical) if categorical):
        after = _ids(model, modules, table, table.changed(parts, column, _other_ids))
        is_read = False
        for source, (_, old), (_, new) in zip(sources, before, after, strict=True):
            for columns, a, b in zip(source, old, new, strict=True):
                if not torch.equal(a, b):
                    columns.add(column)
                    is_read = True
        if not is_read:
            raise InvalidInput(
                "Expected every category column to be looked up in an nn.Embedding (got none for "
                f"{table.listed([column])}). Try floating point for what is no category. {INSTEAD}"
            )
    numbers = {len(columns) for source in sources for columns in source}
    if numbers != {1}:
        raise InvalidInput(
            f"Expected each look-up of an embedding to read one column (got {sorted(numbers)}). "
            f"{INSTEAD}"
        )
    modules_called = [module for module, _ in before]
    return [
        LookUp(module, tuple(column for columns in source for column in columns))
        for module, source in zip(modules_called, sources, strict=True)
    ]


def _other_ids(ids: Tensor) -> Tensor:
    """The ids of the rows before; where all rows have the same id, a neighbour of it."""
    return ids + 1 if bool((ids == ids[0]).all()) else ids.roll(1, 0)


def _ids(
    model: Callable[..., Any], modules: list[nn.Module], table: Columns, parts: list[Tensor]
) -> list[tuple[nn.Module, list[Tensor]]]:
    """The look-ups of one call in their order: the ids in each place of a row, (rows,) each.

    Ids that an embedding does not have are noted, and its last one is looked up.
    """
    calls: list[tuple[nn.Module, list[Tensor]]] = []
    rows = len(parts[0])

    def note(module: Any, args: tuple[Any, ...], more: dict[str, Any]) -> Any:
        ids = args[0] if args else more["input"]
        is_bag = isinstance(module, nn.EmbeddingBag)
        weighted = len(args) > 2 or more.get("per_sample_weights") is not None
        if len(ids) != rows or (is_bag and (ids.numel() != rows or weighted)):
            raise InvalidInput(
                f"Expected embeddings to look up ids with one row per row of the table, bags a "
                f"single id without weights (got ids of shape {tuple(ids.shape)} for {rows} "
                f"rows). {INSTEAD}"
            )
        calls.append((module, list(ids.reshape(rows, -1).T.clone())))
        within = ids.clamp(0, module.num_embeddings - 1)
        return ((within, *args[1:]), more) if args else (args, {**more, "input": within})

    with torch.no_grad(), ExitStack() as handles:
        for module in modules:
            handle = module.register_forward_pre_hook(note, with_kwargs=True)
            handles.callback(handle.remove)
        table.call(model, parts)
    return calls
