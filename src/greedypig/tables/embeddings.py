"""Gates for models that have none: on the outputs of their embeddings, by forward hooks.

Which column feeds which embedding is found by trying: change one column of a few rows, and see
whose ids change. Hooks are there only while the model is called and are gone after it, whatever
happens in between.

The model is called for every point of a path, and looks up its embeddings each time: a bag may
weight them by numbers that are gated too, and all look-ups but the first are 1.4 % of the time of
five points (26 embeddings of 8 before the paper's network). `TabularMLP` and models that show
`inputs`, `first` and `rest` are looked up once for a batch.
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
from .losses import Loss
from .networks import Encoded

PROBE = 64
"""Rows that are looked at to see which column goes where."""

Asked = tuple[Tensor, ...]
"""The ids of a look-up; of a bag with the offsets that it was given."""
Hook = Callable[[nn.Module, Asked, Tensor], "Tensor | None"]


@dataclass(frozen=True, eq=False)
class LookUp:
    """What an embedding was asked for in one call of the model."""

    name: str
    asked: Asked
    width: int
    """Of its vectors."""
    bag: bool

    @property
    def places(self) -> int:
        """Ids of a row that may come from columns of their own; a bag is a single one."""
        return 1 if self.bag else self.asked[0][:1].numel()

    def changed(self, now: LookUp) -> list[bool]:
        """For each place: is another id asked for?"""
        if self.bag:
            pairs = zip(self.asked, now.asked, strict=False)
            return [len(self.asked) != len(now.asked) or not all(map(_same, pairs))]
        rows = len(self.asked[0])
        moved: Tensor = self.asked[0] != now.asked[0]
        return moved.reshape(rows, -1).any(0).tolist()


def _same(pair: tuple[Tensor, Tensor]) -> bool:
    return torch.equal(*pair)


@dataclass(frozen=True)
class Use:
    """One look-up of an embedding during a call of the model."""

    name: str
    width: int
    columns: tuple[int, ...]
    """The column behind each id of a row; a bag that sums up several ids has one column."""


class EmbeddingNetwork(Encoded):
    """Numbers are gated where they enter, categories where their embeddings come out."""

    def __init__(
        self, model: Callable[..., Any], module: nn.Module, table: Table, loss: Loss,
        uses: list[Use], like: Tensor,
    ) -> None:  # fmt: skip
        self.model, self.uses = model, uses
        self.found = _embeddings(module)
        owners = [c for c, categorical in enumerate(table.categorical) if not categorical]
        self.widths = [len(owners)]
        for use in uses:
            owners += [column for column in use.columns for _ in range(use.width)]
            self.widths.append(len(use.columns) * use.width)
        super().__init__(table, loss, torch.tensor(owners), like)

    def numbers(self, parts: list[Tensor]) -> Tensor:
        """The numbers, then what every embedding gave, in the order of the look-ups."""
        rows, outputs = len(parts[0]), []

        def keep(_: nn.Module, asked: Asked, output: Tensor) -> None:
            outputs.append(output.detach().reshape(rows, -1))

        with torch.no_grad(), hooked(self.found, keep):
            self.table.call(self.model, parts)
        floats = [
            part.reshape(rows, -1)
            for part, of in zip(parts, self.table.parts, strict=True) if not of.categorical
        ]  # fmt: skip
        return torch.cat([each.to(self.dtype) for each in floats + outputs], dim=1)

    def look_at(self, parts: list[Tensor]) -> None:
        """See whether numbers weigh what the embeddings give: then it is not theirs to expect."""
        rolled = [
            part if of.categorical else part.roll(1, 0)
            for part, of in zip(parts, self.table.parts, strict=True)
        ]
        own = self.widths[0]
        if not torch.equal(self.numbers(parts)[:, own:], self.numbers(rolled)[:, own:]):
            self.refusal = "a model whose numbers weigh its embeddings"

    def encode(self, parts: list[Tensor]) -> Any:
        """The parts; and their numbers where those of some tell what to expect of others."""
        return parts if self.expected is None else (parts, self.numbers(parts))

    def known(self, features: Any) -> Tensor:
        """Found when the batch was encoded."""
        return features[1]  # type: ignore[no-any-return]

    def at(self, features: Any, numbers: Tensor) -> Any:
        """The model's answer with these in the place of its numbers and embeddings."""
        return self._mixed(features[0], torch.zeros_like(numbers), numbers)

    def outputs(self, features: Any, gates: Tensor) -> Any:
        """The model's answer while its numbers and embeddings are gated."""
        if self.expected is not None:
            return self.at(features, self.gated(self.known(features), gates))
        return self._mixed(features, gates.to(self.dtype)[..., self.column_of], self.baseline)

    def _mixed(self, parts: list[Tensor], spread: Tensor, absent: Tensor) -> Any:
        """The model's answer at absent + spread · (what it sees by itself − absent)."""
        own, *lookups = torch.split(spread, self.widths, dim=-1)
        rest, *rests = torch.split(absent, self.widths, dim=-1)
        following = iter(zip(self.uses, lookups, rests, strict=True))

        def gate(module: nn.Module, asked: Asked, output: Tensor) -> Tensor:
            use, gates_here, rest_here = next(following, (None, own, rest))
            if use is None or self.found.get(use.name) is not module:
                raise InvalidInput(
                    "Expected the same embeddings to be looked up in every batch (got others). "
                    "Try a model with forward(numeric, categorical, gates=…)."
                )
            flat = output.reshape(len(output), -1)
            return torch.lerp(rest_here, flat, gates_here).reshape(output.shape)

        parts = self._gated_numbers(parts, own, rest)
        with hooked(self.found, gate):
            return self.table.call(self.model, parts)

    def _gated_numbers(self, parts: list[Tensor], gates: Tensor, rest: Tensor) -> list[Tensor]:
        gated, lo = [], 0
        for part, of in zip(parts, self.table.parts, strict=True):
            if of.categorical:
                gated.append(part)
                continue
            here = slice(lo, lo + of.width)
            flat = part.reshape(len(part), -1).to(self.dtype)
            lo += of.width
            gated.append(torch.lerp(rest[..., here], flat, gates[..., here]).reshape(part.shape))
        return gated


def find_uses(
    model: Callable[..., Any], module: nn.Module, table: Table, parts: list[Tensor]
) -> tuple[list[Use], list[str | int | None]]:
    """The look-ups of one call with the columns behind them; and the parts that are bags."""
    parts = [part[:PROBE] for part in parts]
    found = _embeddings(module)
    seen = _look_ups(model, found, table, parts)
    sources: list[list[set[int]]] = [[set() for _ in range(one.places)] for one in seen]
    first = 0
    for at, of in enumerate(table.parts):
        for column in range(of.width if of.categorical else 0):
            changed = _changed(model, found, table, parts, at, column, seen)
            if not any(any(row) for row in changed):
                raise InvalidInput(
                    f"Expected every category column to be looked up in an nn.Embedding (got none "
                    f"for {table.listed([first + column])}). Try floating point for what is no "
                    "category, or a model with forward(numeric, categorical, gates=…)."
                )
            for source, moved in zip(sources, changed, strict=True):
                for place, has in zip(source, moved, strict=True):
                    if has:
                        place.add(first + column)
        first += of.width
    return _named(found, table, seen, sources)


def _named(
    found: dict[str, nn.Module], table: Table,
    seen: list[LookUp], sources: list[list[set[int]]],
) -> tuple[list[Use], list[str | int | None]]:  # fmt: skip
    """Every look-up's columns, once bags have become single columns."""
    part_of = [p for p, part in enumerate(table.parts) for _ in range(part.width)]
    bags: set[int] = set()
    for one, source in zip(seen, sources, strict=True):
        if one.bag and len(source[0]) > 1:
            bags |= {part_of[column] for column in source[0]}
    renumbered, at = {}, 0
    for column, part in enumerate(part_of):
        inside = part in bags and column > 0 and part_of[column - 1] == part
        at -= inside
        renumbered[column] = at
        at += 1
    uses = []
    for one, source in zip(seen, sources, strict=True):
        columns = [{renumbered[c] for c in place} for place in source]
        if any(len(place) != 1 for place in columns):
            raise InvalidInput(
                f"Expected each look-up of the embedding {one.name!r} to read one column (got "
                f"{sorted({len(p) for p in columns})}). "
                "Try a model with forward(numeric, categorical, gates=…)."
            )
        uses.append(Use(one.name, one.width, tuple(place.pop() for place in columns)))
    return uses, [table.parts[p].key for p in sorted(bags)]


def _changed(
    model: Callable[..., Any], found: dict[str, nn.Module], table: Table, parts: list[Tensor],
    at: int, column: int, seen: list[LookUp],
) -> list[list[bool]]:  # fmt: skip
    """For every look-up and every id of its rows: does it change with this column?"""
    touched = parts[at].clone()
    values = touched if touched.dim() == 1 else touched[:, column]
    if bool((values == values[0]).all()):
        values += 1 if int(values[0]) < 1 else -1
    else:
        values.copy_(values.roll(1))
    try:
        changed = [*parts[:at], touched, *parts[at + 1 :]]
        again = _look_ups(model, found, table, changed, any_id=True)
    except (IndexError, RuntimeError):
        return [[False] * one.places for one in seen]
    return [one.changed(now) for one, now in zip(seen, again, strict=True)]


def _look_ups(
    model: Callable[..., Any], found: dict[str, nn.Module], table: Table, parts: list[Tensor],
    *, any_id: bool = False,
) -> list[LookUp]:  # fmt: skip
    """What embeddings are asked for, in the order of the look-ups.

    any_id: ids that an embedding does not have are seen, and another vector stands for them.
    """
    names = {id(module): name for name, module in found.items()}
    rows, seen, wanted = len(parts[0]), [], list[Asked]()

    def keep(module: nn.Module, asked: Asked, output: Tensor) -> None:
        name, bag = names[id(module)], isinstance(module, nn.EmbeddingBag)
        asked = wanted[-1] if any_id else asked
        # Flat ids with offsets have the rows of the table only once they are looked up.
        ids = output if bag else asked[0]
        if len(ids) != rows or len(output) != rows:
            raise InvalidInput(
                f"Expected the embedding {name!r} to look up ids with one row per row of the table "
                f"(got shape {tuple(ids.shape)} for {rows} rows)."
            )
        held = tuple(tensor.clone() for tensor in asked)
        seen.append(LookUp(name, held, output.shape[-1], bag))

    with torch.no_grad(), hooked(found, keep), ExitStack() as more:
        if any_id:
            more.enter_context(_forgiving(found, wanted))
        table.call(model, parts)
    return seen


@contextmanager
def _forgiving(found: dict[str, nn.Module], wanted: list[Asked]) -> Iterator[None]:
    """Note the ids that are asked for, and look up the nearest that there are.

    A column with one category has an embedding of one row: any change of it is out of range.
    """

    def before(module: Any, args: tuple[Any, ...], given: dict[str, Any]) -> Any:
        wanted.append(_asked(args, given))
        ids = wanted[-1][0]
        inside = ids.clamp(0, module.num_embeddings - 1)
        return ((inside, *args[1:]), given) if args else (args, {**given, "input": inside})

    handles = []
    try:
        for module in found.values():
            handles.append(module.register_forward_pre_hook(before, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def hooked(found: dict[str, nn.Module], hook: Hook) -> Iterator[None]:
    """Call `hook(module, asked, output)` after each look-up; its answer replaces the output."""

    def after(module: nn.Module, args: tuple[Any, ...], given: dict[str, Any], out: Tensor) -> Any:
        return hook(module, _asked(args, given), out)

    handles = []
    try:
        for module in found.values():
            handles.append(module.register_forward_hook(after, with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _asked(args: tuple[Any, ...], given: dict[str, Any]) -> Asked:
    """The ids, and where each bag of them begins."""
    known = [*args[:2], *(given[name] for name in ("input", "offsets") if name in given)]
    return tuple(each for each in known if isinstance(each, Tensor))


def _embeddings(module: nn.Module) -> dict[str, nn.Module]:
    return {
        name: m
        for name, m in module.named_modules()
        if isinstance(m, nn.Embedding | nn.EmbeddingBag)
    }
