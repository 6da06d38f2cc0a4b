"""What is selected as one unit: single elements, disjoint groups, or overlapping windows.

The mask always has one entry per element; a unit is a set of elements that are switched on
together and whose score is the sum of its elements' scores. Elements that are already on count
for nothing, so a window that overlaps a chosen one competes with its new elements only.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType
from .schedule import whole
from .select import top_z


class Features:
    """n elements bound into `units` units, with optional names, one per unit."""

    kind: str

    def __init__(self, n: int, units: int, names: Sequence[str] | None = None) -> None:
        if n < 0:
            raise InvalidInput(f"Expected a number of elements ≥ 0 (got {n}).")
        if names is not None and len(names) != units:
            raise InvalidInput(
                f"Expected one name per unit (got {len(names)} names for {units} units)."
            )
        self.n = n
        self.units = units
        self.names = None if names is None else tuple(str(name) for name in names)

    @property
    def cover(self) -> int:
        """How many units it takes, at the least, to hold every element."""
        return self.units

    def name(self, unit: int) -> str:
        """The unit's name, or its index where it has none."""
        return str(unit) if self.names is None else self.names[unit]

    def sum(self, elements: Tensor) -> Tensor:
        """(n,) scores of elements → (units,) scores of units: Σ over each unit's elements."""
        raise NotImplementedError

    def members(self, units: Tensor) -> Tensor:
        """(n,) bool: the elements of these units."""
        raise NotImplementedError

    def ahead(self, taken: Tensor, z: int) -> Tensor | None:
        """(n,) bool: where the path of a round of z picks ends; None for all elements."""
        return None

    def switch_on(self, mask: Tensor, units: Tensor) -> None:
        """Set the mask of these units' elements to 1, in place."""
        mask[self.members(units)] = 1

    def all_on(self, mask: Tensor, taken: int) -> bool:
        """Is everything on, `taken` units having been taken?"""
        return taken == self.units

    def first_rank(self, order: Tensor) -> Tensor:
        """(n,) long: the position in `order` of the first unit that holds the element."""
        raise NotImplementedError

    def blocked(self, mask: Tensor, taken: Tensor) -> Tensor:
        """(units,) bool: units taken, or that would switch nothing on."""
        return taken

    def pick(self, elements: Tensor, mask: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The z best units by summed score (fewer if fewer are left), and those scores."""
        return top_z(self.sum(elements), taken, z)

    def pick_units(self, scores: Tensor, mask: Tensor, taken: Tensor, z: int) -> Tensor:
        """The z best units by scores (units,) of their own."""
        return top_z(scores, taken, z)[0]

    def state(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Plain settings and tensors from which `restore` builds the same object."""
        return {"kind": self.kind, "n": self.n, "names": self.names}, {}


class Elements(Features):
    """Every element is a unit of its own."""

    kind = "elements"

    def __init__(self, n: int, names: Sequence[str] | None = None) -> None:
        super().__init__(n, n, names)

    def sum(self, elements: Tensor) -> Tensor:
        return elements

    def pick(self, elements: Tensor, mask: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        # What the mask has on is taken, and scores 0.
        return top_z(elements, mask, z)

    def members(self, units: Tensor) -> Tensor:
        out = torch.zeros(self.n, dtype=torch.bool, device=units.device)
        out[units] = True
        return out

    def switch_on(self, mask: Tensor, units: Tensor) -> None:
        mask.index_fill_(0, units, 1)

    def first_rank(self, order: Tensor) -> Tensor:
        return _inverse(order)


class Groups(Features):
    """Disjoint units: ids (n,) gives the unit, 0 … units−1, of every element."""

    kind = "groups"

    def __init__(self, ids: Tensor, names: Sequence[str] | None = None) -> None:
        ids = torch.as_tensor(ids)
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InvalidType(f"Expected integer group ids (got {ids.dtype}).")
        ids = ids.detach().reshape(-1).to(torch.long)
        if ids.numel() == 0:
            raise InvalidInput("Expected at least one group id (got an empty tensor).")
        units = int(ids.max()) + 1
        # More ids than elements leave gaps; counting them first would take memory without bound.
        counts = torch.bincount(ids.clamp(0, ids.numel()), minlength=min(units, ids.numel() + 1))
        if int(ids.min()) < 0 or not bool((counts > 0).all()):
            missing = torch.nonzero(counts == 0).squeeze(1).tolist()
            what = f"no element has id {missing[0]}" if missing else f"min id {int(ids.min())}"
            raise InvalidInput(
                f"Expected group ids 0 … {units - 1} without gaps (got {what}). "
                "Try torch.unique(ids, return_inverse=True)[1]."
            )
        super().__init__(ids.numel(), units, names)
        self.ids = ids

    def sum(self, elements: Tensor) -> Tensor:
        return elements.new_zeros(self.units).index_add_(0, self._ids(elements), elements)

    def members(self, units: Tensor) -> Tensor:
        flags = torch.zeros(self.units, dtype=torch.bool, device=units.device)
        flags[units] = True
        return flags[self._ids(units)]

    def first_rank(self, order: Tensor) -> Tensor:
        return _inverse(order)[self._ids(order)]

    def state(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        settings, _ = super().state()
        return settings, {"ids": self.ids}

    def _ids(self, like: Tensor) -> Tensor:
        if self.ids.device != like.device:
            self.ids = self.ids.to(like.device)
        return self.ids


class Windows(Features):
    """Overlapping boxes of `size` elements along `axes` of `shape`, and all of the other axes.

    Windows start at every `stride`-th position; the last one is moved back to end at the edge.
    Units are numbered row-major by start.
    """

    kind = "windows"

    def __init__(
        self,
        shape: Sequence[int],
        size: int,
        *,
        axes: Sequence[int] | None = None,
        stride: int = 1,
        names: Sequence[str] | None = None,
    ) -> None:
        self.shape = tuple(shape)
        rank = len(self.shape)
        wanted = tuple(range(max(rank - 2, 0), rank)) if axes is None else tuple(axes)
        if not wanted or not all(-rank <= a < rank for a in wanted):
            raise InvalidInput(f"Expected axes of {self.shape}, at least one (got {wanted}).")
        self.axes = tuple(sorted({a % rank for a in wanted}))
        if len(self.axes) != len(wanted):
            raise InvalidInput(f"Expected every axis once (got {wanted}).")
        size, stride = whole(size), whole(stride)
        self.size, self.stride = size, stride
        for name, number in (("window size", size), ("stride", stride)):
            if type(number) is not int or number < 1:
                raise InvalidInput(f"Expected {name} to be a whole number ≥ 1 (got {number!r}).")
        if stride > size:
            raise InvalidInput(
                f"Expected stride ≤ the window size {size}, else some elements belong to no "
                f"window (got stride {stride})."
            )
        for axis in self.axes:
            if size > self.shape[axis]:
                raise InvalidInput(
                    f"Expected windows no larger than axis {axis} of {self.shape} (got {size})."
                )
        starts = []
        for axis in self.axes:
            last = self.shape[axis] - size
            starts.append(sorted({*range(0, last + 1, stride), last}))
        self.starts = starts
        super().__init__(prod(self.shape), prod(len(s) for s in starts), names)

    @property
    def cover(self) -> int:
        """∏ ⌈length / size⌉: of the elements `size` apart no window holds two."""
        return prod(-(-self.shape[axis] // self.size) for axis in self.axes)

    @cached_property
    def corners(self) -> list[tuple[int, ...]]:
        """The start of every window along `axes`."""
        return list(product(*self.starts))

    def sum(self, elements: Tensor) -> Tensor:
        return self._slide(self._flat(elements), self.starts).reshape(-1)

    def _flat(self, elements: Tensor) -> Tensor:
        """Elements summed over the axes along which no window slides."""
        box = elements.reshape(self.shape)
        others = [a for a in range(len(self.shape)) if a not in self.axes]
        return box.sum(others) if others else box

    def _slide(self, box: Tensor, starts: list[list[int]]) -> Tensor:
        """Sums over the windows of `box` that begin at `starts` along each of its axes."""
        for dim, places in enumerate(starts):
            box = box.unfold(dim, self.size, 1).sum(-1)
            if len(places) != box.shape[dim]:
                box = box.index_select(dim, torch.tensor(places, device=box.device))
        return box

    def members(self, units: Tensor) -> Tensor:
        out = torch.zeros(self.shape, dtype=torch.bool, device=units.device)
        for unit in units.tolist():
            out[self._region(unit)] = True
        return out.reshape(-1)

    def all_on(self, mask: Tensor, taken: int) -> bool:
        return bool((mask != 0).all())

    def first_rank(self, order: Tensor) -> Tensor:
        far = self.units
        sizes = [self.shape[a] for a in self.axes]
        ranks = torch.full(sizes, far, dtype=torch.long, device=order.device)
        grid = torch.meshgrid(
            *(torch.tensor(s, device=order.device) for s in self.starts), indexing="ij"
        )
        ranks[tuple(g.reshape(-1) for g in grid)] = _inverse(order)
        for dim, length in enumerate(sizes):
            pad = list(sizes)
            pad[dim] = self.size - 1
            before = torch.full(pad, far, dtype=torch.long, device=order.device)
            ranks = torch.cat([before, ranks], dim).unfold(dim, self.size, 1).amin(-1)
            ranks = ranks.narrow(dim, 0, length)
        view = [self.shape[a] if a in self.axes else 1 for a in range(len(self.shape))]
        return ranks.reshape(view).expand(self.shape).reshape(-1)

    def blocked(self, mask: Tensor, taken: Tensor) -> Tensor:
        return taken | (self.sum((mask == 0).to(torch.float64)) < 0.5)

    def pick(self, elements: Tensor, mask: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """One window at a time: what a pick covers is worth nothing to the next.

        After a pick only the windows that overlap it are summed again.
        """
        off = mask == 0
        box, free = self._flat(torch.where(off, elements, 0)), self._flat(off.double())
        sums, room = self._slide(box, self.starts), self._slide(free, self.starts)
        blocked = taken.view(sums.shape) | (room < 0.5)
        left = int((~blocked).sum())
        chosen: list[Tensor] = []
        scores: list[Tensor] = []
        while len(chosen) < z and left:
            best, score = top_z(sums.reshape(-1), blocked.reshape(-1), 1)
            chosen.append(best)
            scores.append(score)
            region, part, near, starts = self._around(int(best))
            box[region] = 0
            free[region] = 0
            sums[near] = self._slide(box[part], starts)
            before = int((~blocked[near]).sum())
            blocked[near] |= self._slide(free[part], starts) < 0.5
            left -= before - int((~blocked[near]).sum())
        if not chosen:
            return torch.empty(0, dtype=torch.long, device=mask.device), elements.new_empty(0)
        return torch.cat(chosen), torch.cat(scores)

    def _around(self, unit: int) -> tuple[Any, Any, Any, list[list[int]]]:
        """A window's elements, and the elements, indices and starts of all that overlap it."""
        region, part, near, starts = [], [], [], []
        for start, places in zip(self.corners[unit], self.starts, strict=True):
            first = bisect_left(places, start - self.size + 1)
            last = bisect_right(places, start + self.size - 1)
            begin, end = places[first], places[last - 1] + self.size
            region.append(slice(start, start + self.size))
            part.append(slice(begin, end))
            near.append(slice(first, last))
            starts.append([p - begin for p in places[first:last]])
        return tuple(region), tuple(part), tuple(near), starts

    def pick_units(self, scores: Tensor, mask: Tensor, taken: Tensor, z: int) -> Tensor:
        """By falling score, passing over windows that earlier picks have covered."""
        mask = mask.clone().view(self.shape)
        free = torch.nonzero(~taken).squeeze(1)
        chosen: list[int] = []
        for unit in free[torch.sort(scores[free], descending=True, stable=True).indices].tolist():
            if len(chosen) == z:
                break
            region = self._region(unit)
            if bool((mask[region] == 0).any()):
                mask[region] = 1
                chosen.append(unit)
        return torch.tensor(chosen, dtype=torch.long, device=scores.device)

    def state(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        settings, _ = super().state()
        settings.update(
            shape=list(self.shape), size=self.size, axes=list(self.axes), stride=self.stride
        )
        return settings, {}

    def _region(self, unit: int) -> tuple[slice, ...]:
        region = [slice(None)] * len(self.shape)
        for axis, start in zip(self.axes, self.corners[unit], strict=True):
            region[axis] = slice(start, start + self.size)
        return tuple(region)


def _inverse(order: Tensor) -> Tensor:
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(order.numel(), device=order.device)
    return ranks
