"""What is selected at once: single values, disjoint groups of them, or overlapping windows.

A mask has one entry per value of the input; a feature is a set of values that are switched on
together, and its score is the sum of its values' scores. Values that are already on count for
nothing, so a window that overlaps a selected one competes with its new values only. Problems lie
side by side on the first axis (b).
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
from .numbers import whole


class Features:
    """n values bound into `units` features, with optional names, one per feature."""

    kind: str
    side_by_side = True
    """May several problems share rounds, as each takes the same number of features?"""

    def __init__(self, n: int, units: int, names: Sequence[str] | None = None) -> None:
        if n < 0:
            raise InvalidInput(f"Expected a number of values ≥ 0 (got {n}).")
        if names is not None and len(names) != units:
            raise InvalidInput(
                f"Expected one name per feature (got {len(names)} names for {units} features)."
            )
        self.n = n
        self.units = units
        self.names = None if names is None else tuple(str(name) for name in names)

    @property
    def cover(self) -> int:
        """How many features it takes, at the least, to hold every value."""
        return self.units

    def name(self, unit: int) -> str:
        """The feature's name, or its index where it has none."""
        return str(unit) if self.names is None else self.names[unit]

    def sum(self, scores: Tensor) -> Tensor:
        """(b, n) scores of values → (b, units): Σ over each feature's values."""
        raise NotImplementedError

    def mask(self, taken: Tensor) -> Tensor:
        """(b, units) bool → (b, n) bool: the values of the features taken."""
        raise NotImplementedError

    def goal(self, taken: Tensor, z: int) -> Tensor | None:
        """(b, n) bool: where the path of a round of z picks ends; None for all values."""
        return None

    def is_complete(self, taken: Tensor) -> bool:
        """Is every value on, these features having been taken?"""
        return bool(taken.all())

    def first_rank(self, order: Tensor) -> Tensor:
        """(units,) order → (n,) long: the position of the first feature that holds the value."""
        raise NotImplementedError

    def pick(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """(b, n) scores of values → the z best features (b, z), fewer if fewer are left, and
        their scores (b, z)."""
        return self.pick_units(self.sum(scores), taken, z)

    def pick_units(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The same by scores (b, units) of whole features."""
        best = best_first(scores, taken, min(z, int((~taken[0]).sum())))
        return best, scores.gather(1, best)

    def state(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        """Plain settings and tensors from which `restore` builds the same object."""
        return {"kind": self.kind, "n": self.n, "names": self.names}, {}


class Elements(Features):
    """Every value is a feature of its own."""

    kind = "elements"

    def __init__(self, n: int, names: Sequence[str] | None = None) -> None:
        super().__init__(n, n, names)

    def sum(self, scores: Tensor) -> Tensor:
        return scores

    def mask(self, taken: Tensor) -> Tensor:
        return taken

    def first_rank(self, order: Tensor) -> Tensor:
        return _inverse(order)


class Groups(Features):
    """Disjoint features: ids (n,) gives the feature, 0 … units−1, of every value."""

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

    def sum(self, scores: Tensor) -> Tensor:
        return scores.new_zeros(len(scores), self.units).index_add_(1, self._ids(scores), scores)

    def mask(self, taken: Tensor) -> Tensor:
        return taken[:, self._ids(taken)]

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
    """Overlapping boxes of `size` values along `axes` of `shape`, and all of the other axes.

    Windows start at every `stride`-th position; the last one is moved back to end at the edge.
    They are numbered row-major by start.
    """

    kind = "windows"
    side_by_side = False

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
                f"Expected stride ≤ the window size {size}, else some values belong to no "
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
        """∏ ⌈length / size⌉: of the values `size` apart no window holds two."""
        return prod(-(-self.shape[axis] // self.size) for axis in self.axes)

    @cached_property
    def corners(self) -> list[tuple[int, ...]]:
        """The start of every window along `axes`."""
        return list(product(*self.starts))

    def sum(self, scores: Tensor) -> Tensor:
        return torch.stack([self._slide(self._flat(s), self.starts).reshape(-1) for s in scores])

    def mask(self, taken: Tensor) -> Tensor:
        out = torch.zeros(len(taken), *self.shape, dtype=torch.bool, device=taken.device)
        for problem, unit in torch.nonzero(taken).tolist():
            out[problem][self._region(unit)] = True
        return out.flatten(1)

    def is_complete(self, taken: Tensor) -> bool:
        return bool(self.mask(taken).all())

    def _flat(self, elements: Tensor) -> Tensor:
        """Values summed over the axes along which no window slides."""
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

    def pick(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """One window at a time: what a pick covers is worth nothing to the next.

        After a pick only the windows that overlap it are summed again. One problem (b = 1).
        """
        off = ~self.mask(taken)[0]
        box, free = self._flat(torch.where(off, scores[0], 0)), self._flat(off.double())
        sums, room = self._slide(box, self.starts), self._slide(free, self.starts)
        blocked = taken[0].view(sums.shape) | (room < 0.5)
        left = int((~blocked).sum())
        chosen: list[int] = []
        own: list[Tensor] = []
        while len(chosen) < z and left:
            flat = sums.masked_fill(blocked, -torch.inf).reshape(-1)
            best = int(torch.nonzero(flat == flat.max())[0])
            chosen.append(best)
            own.append(flat[best])
            region, part, near, starts = self._around(best)
            box[region] = 0
            free[region] = 0
            sums[near] = self._slide(box[part], starts)
            before = int((~blocked[near]).sum())
            blocked[near] |= self._slide(free[part], starts) < 0.5
            left -= before - int((~blocked[near]).sum())
        picked = torch.tensor([chosen], dtype=torch.long, device=scores.device)
        return picked, torch.stack(own).unsqueeze(0) if own else scores.new_empty(1, 0)

    def pick_units(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """By falling score, without the windows that earlier picks have covered (b = 1)."""
        mask = self.mask(taken).view(self.shape).clone()
        chosen: list[int] = []
        for unit in best_first(scores, taken, int((~taken).sum()))[0].tolist():
            if len(chosen) == z:
                break
            region = self._region(unit)
            if not bool(mask[region].all()):
                mask[region] = True
                chosen.append(unit)
        picked = torch.tensor([chosen], dtype=torch.long, device=scores.device)
        return picked, scores.gather(1, picked)

    def _around(self, unit: int) -> tuple[Any, Any, Any, list[list[int]]]:
        """A window's values, and the values, indices and starts of all that overlap it."""
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


def best_first(scores: Tensor, taken: Tensor, z: int) -> Tensor:
    """(b, units) → (b, z): the z best that are free by falling score, ties by lowest index.

    A full stable sort costs more than a small network's gradient, so of many only what reaches
    the z-th score is sorted; `topk` promises nothing about ties.
    """
    free = scores.masked_fill(taken, -torch.inf)
    if z == 0 or 4 * z >= free.shape[1] or free.shape[1] <= 4096:
        return torch.sort(free, dim=1, descending=True, stable=True).indices[:, :z]
    rows = []
    for row in free:
        candidates = torch.nonzero(row >= torch.topk(row, z, sorted=False).values.min()).squeeze(1)
        rows.append(candidates[torch.sort(row[candidates], descending=True, stable=True).indices])
    return torch.stack([row[:z] for row in rows])


def _inverse(order: Tensor) -> Tensor:
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(order.numel(), device=order.device)
    return ranks
