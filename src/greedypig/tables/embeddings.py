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

Ids = tuple[Tensor, ...]
"""The ids of a look-up; of a bag with the offsets that it was given."""
Hook = Callable[[nn.Module, Ids, Tensor], "Tensor | None"]


@dataclass(frozen=True)
class LookUp:
    """One look-up of an embedding during a call of the model."""

    name: str
    width: int
    """Numbers of a vector."""
    columns: tuple[int, ...]
    """The column behind each id of a row; a bag that sums several ids has one column."""


@dataclass(frozen=True, eq=False)
class _Call:
    """One call of an embedding, with its ids."""

    name: str
    ids: Ids
    width: int
    bag: bool

    @property
    def places(self) -> int:
        """Ids of a row that may come from columns of their own; a bag is a single one."""
        return 1 if self.bag else self.ids[0][:1].numel()

    def changed(self, now: _Call) -> list[bool]:
        """For each place: has the id changed?"""
        if self.bag:
            pairs = zip(self.ids, now.ids, strict=False)
            same = len(self.ids) == len(now.ids) and all(torch.equal(a, b) for a, b in pairs)
            return [not same]
        moved: Tensor = self.ids[0] != now.ids[0]
        return moved.reshape(len(moved), -1).any(0).tolist()


def embeddings(module: nn.Module) -> dict[str, nn.Module]:
    """The module's embeddings by name."""
    kinds = nn.Embedding | nn.EmbeddingBag
    return {name: m for name, m in module.named_modules() if isinstance(m, kinds)}


def find_lookups(
    model: Callable[..., Any], module: nn.Module, table: Table, parts: list[Tensor]
) -> tuple[list[LookUp], list[str | int | None]]:
    """The look-ups of one call with the columns behind them; and the parts that are bags."""
    parts = [part[:PROBE] for part in parts]
    modules = embeddings(module)
    calls = _calls(model, modules, table, parts)
    sources: list[list[set[int]]] = [[set() for _ in range(call.places)] for call in calls]
    for column in (c for c, category in enumerate(table.categorical) if category):
        try:
            others = table.changed(parts, column, _other_ids)
            now = _calls(model, modules, table, others, any_id=True)
        except (IndexError, RuntimeError):
            now = calls
        changed = [before.changed(after) for before, after in zip(calls, now, strict=True)]
        if not any(map(any, changed)):
            raise InvalidInput(
                f"Expected every category column to be looked up in an nn.Embedding (got none "
                f"for {table.listed([column])}). Try floating point for what is no category, or a "
                "model with forward(numeric, categorical, gates=…)."
            )
        for source, places in zip(sources, changed, strict=True):
            for columns, has_changed in zip(source, places, strict=True):
                if has_changed:
                    columns.add(column)
    return _with_columns(table, calls, sources)


def _other_ids(ids: Tensor) -> Tensor:
    """The ids of the rows before; where all rows have the same id, a neighbour of it."""
    if bool((ids == ids[0]).all()):
        return ids + 1 if int(ids[0]) < 1 else ids - 1
    return ids.roll(1)


def _with_columns(
    table: Table, calls: list[_Call], sources: list[list[set[int]]]
) -> tuple[list[LookUp], list[str | int | None]]:
    """Every look-up's columns, once bags have become single columns."""
    part_of = [p for p, part in enumerate(table.parts) for _ in range(part.width)]
    bags: set[int] = set()
    for call, source in zip(calls, sources, strict=True):
        if call.bag and len(source[0]) > 1:
            bags |= {part_of[column] for column in source[0]}
    renumbered, at = {}, 0
    for column, part in enumerate(part_of):
        inside = part in bags and column > 0 and part_of[column - 1] == part
        at -= inside
        renumbered[column] = at
        at += 1
    lookups = []
    for call, source in zip(calls, sources, strict=True):
        columns = [{renumbered[c] for c in place} for place in source]
        if any(len(place) != 1 for place in columns):
            raise InvalidInput(
                f"Expected each look-up of the embedding {call.name!r} to read one column (got "
                f"{sorted({len(p) for p in columns})}). "
                "Try a model with forward(numeric, categorical, gates=…)."
            )
        lookups.append(LookUp(call.name, call.width, tuple(place.pop() for place in columns)))
    return lookups, [table.parts[p].key for p in sorted(bags)]


def _calls(
    model: Callable[..., Any],
    modules: dict[str, nn.Module],
    table: Table,
    parts: list[Tensor],
    *,
    any_id: bool = False,
) -> list[_Call]:
    """The calls of the embeddings, in their order.

    any_id: ids that an embedding does not have are noted, and another vector stands for them.
    """
    names = {id(module): name for name, module in modules.items()}
    rows, calls, asked = len(parts[0]), [], list[Ids]()

    def keep(module: nn.Module, ids: Ids, output: Tensor) -> None:
        name, bag = names[id(module)], isinstance(module, nn.EmbeddingBag)
        ids = asked[-1] if any_id else ids
        # Flat ids with offsets have the rows of the table only once they are looked up.
        shaped = output if bag else ids[0]
        if len(shaped) != rows or len(output) != rows:
            raise InvalidInput(
                f"Expected the embedding {name!r} to look up ids with one row per row of the table "
                f"(got shape {tuple(shaped.shape)} for {rows} rows)."
            )
        calls.append(_Call(name, tuple(i.clone() for i in ids), output.shape[-1], bag))

    with torch.no_grad(), hooked(modules, keep), ExitStack() as more:
        if any_id:
            more.enter_context(_within_range(modules, asked))
        table.call(model, parts)
    return calls


@contextmanager
def _within_range(modules: dict[str, nn.Module], asked: list[Ids]) -> Iterator[None]:
    """Note the ids that are asked for, and look up the nearest that exist.

    A column with one category has an embedding of one row: any change of it is out of range.
    """

    def before(module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        asked.append(_ids(args, given))
        inside = asked[-1][0].clamp(0, module.num_embeddings - 1)
        return ((inside, *args[1:]), given) if args else (args, {**given, "input": inside})

    with ExitStack() as handles:
        for module in modules.values():
            handle = module.register_forward_pre_hook(before, with_kwargs=True)
            handles.callback(handle.remove)
        yield


@contextmanager
def hooked(modules: dict[str, nn.Module], hook: Hook) -> Iterator[None]:
    """Call `hook(module, ids, output)` after each look-up; what it returns replaces the output."""

    def after(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any], out: Tensor) -> Any:
        return hook(module, _ids(args, given), out)

    with ExitStack() as handles:
        for module in modules.values():
            handles.callback(module.register_forward_hook(after, with_kwargs=True).remove)
        yield


def _ids(args: tuple[Any, ...], given: dict[str, Any]) -> Ids:
    """The ids, and where each bag of them begins."""
    tensors = [*args[:2], *(given[name] for name in ("input", "offsets") if name in given)]
    return tuple(each for each in tensors if isinstance(each, Tensor))
