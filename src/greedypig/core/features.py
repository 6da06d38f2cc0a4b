"""What is selected at once: single values, disjoint groups of them, or overlapping windows.

A mask has one entry per value of the input; a feature is a set of values that are switched on
together, and its score is the sum of its values' scores. Values that are already on count for
nothing, so a window that overlaps a selected one competes with its new values only. Problems lie
side by side on the first axis (b).
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from itertools import product
from math import prod

import torch
from torch import Tensor

from .errors import InvalidInput, InvalidType
from .numbers import check_count


class Features:
    """n values bound into `count` features, with optional names, one per feature."""

    kind: str
    side_by_side = True
    """May several problems share rounds, as each takes the same number of features?"""

    def __init__(self, n: int, count: int, names: Sequence[str] | None = None) -> None:
        self.n, self.count = n, count
        self.names: tuple[str, ...] | None = None
        if names is not None:
            self.names = self.named(names).names

    @property
    def cover(self) -> int:
        """How many features it takes, at the least, to hold every value."""
        return self.count

    def named(self, names: Sequence[str]) -> Features:
        """The same features with these names."""
        if len(names) != self.count:
            raise InvalidInput(
                f"Expected one name per feature (got {len(names)} names for {self.count} "
                "features).",
                argument="names",
            )
        other = copy(self)
        other.names = tuple(map(str, names))
        return other

    def sum(self, scores: Tensor) -> Tensor:
        """(b, n) scores of values → (b, features): Σ over each feature's values."""
        raise NotImplementedError

    def mask(self, taken: Tensor) -> Tensor:
        """(b, features) bool → (b, n) bool: the values of the features taken."""
        raise NotImplementedError

    def spread(self, scores: Tensor) -> Tensor:
        """(b, features) scores of whole features → (b, n), each at the feature's first value: `sum`
        gives them back unless features overlap."""
        owners = self.first_rank(torch.arange(self.count, device=scores.device))
        places = torch.full((self.count,), self.n, device=scores.device)
        places = places.scatter_reduce(0, owners, torch.arange(self.n).to(owners), "amin")
        values = scores.new_zeros(len(scores), self.n + 1)
        return values.scatter(1, places.expand_as(scores), scores)[:, : self.n]

    def goal(self, taken: Tensor, z: int) -> Tensor | None:
        """(b, n) bool: where the path of a round of z picks ends; None for all values."""
        return None

    def is_complete(self, taken: Tensor) -> bool:
        """Is every value on, these features having been taken?"""
        return bool(taken.all())

    def first_rank(self, order: Tensor) -> Tensor:
        """(features,) order → (n,) long: the position of the first feature that holds the value."""
        raise NotImplementedError

    def pick(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """(b, n) scores of values → the z best features (b, z), fewer if fewer are left, and
        their scores (b, z)."""
        return self.pick_features(self.sum(scores), taken, z)

    def pick_features(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """The same by scores (b, features) of whole features."""
        best = best_first(scores, taken, z)
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
    """Disjoint features: ids (n,) gives the feature, from 0 without gaps, of every value."""

    kind = "groups"

    def __init__(self, ids: Tensor, names: Sequence[str] | None = None) -> None:
        ids = torch.as_tensor(ids)
        if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
            raise InvalidType(f"Expected integer group ids (got {ids.dtype}).")
        ids = ids.detach().reshape(-1).to(torch.long)
        if ids.numel() == 0:
            raise InvalidInput("Expected at least one group id (got an empty tensor).")
        count = int(ids.max()) + 1
        # More ids than values leave gaps; counting them first would take memory without bound.
        counts = torch.bincount(ids.clamp(0, ids.numel()), minlength=min(count, ids.numel() + 1))
        if int(ids.min()) < 0 or not bool((counts > 0).all()):
            missing = torch.nonzero(counts == 0).squeeze(1).tolist()
            what = f"no value has id {missing[0]}" if missing else f"min id {int(ids.min())}"
            raise InvalidInput(
                f"Expected group ids 0 … {count - 1} without gaps (got {what}). "
                "Try torch.unique(ids, return_inverse=True)[1]."
            )
        super().__init__(ids.numel(), count, names)
        self.ids = ids

    def sum(self, scores: Tensor) -> Tensor:
        return scores.new_zeros(len(scores), self.count).index_add_(1, self._ids(scores), scores)

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
        self.size, self.stride = check_count("window size", size), check_count("stride", stride)
        rank = len(self.shape)
        wanted = tuple(range(max(rank - 2, 0), rank)) if axes is None else tuple(axes)
        self.axes = tuple(sorted({a % rank for a in wanted if -rank <= a < rank}))
        if not wanted or len(self.axes) != len(wanted):
            raise InvalidInput(
                f"Expected axes of {self.shape}, at least one and every one once (got {wanted})."
            )
        if self.stride > self.size:
            raise InvalidInput(
                f"Expected stride ≤ the window size {size}, else some values belong to no "
                f"window (got stride {stride})."
            )
        lengths = [self.shape[axis] for axis in self.axes]
        for axis in self.axes:
            if self.size > self.shape[axis]:
                raise InvalidInput(
                    f"Expected windows no larger than axis {axis} of {self.shape} (got {size})."
                )
        lasts = [length - self.size for length in lengths]
        self.starts = [sorted({*range(0, last + 1, self.stride), last}) for last in lasts]
        self.corners = list(product(*self.starts))
        """The start of every window along `axes`."""
        super().__init__(prod(self.shape), len(self.corners), names)
        # Places are the values along `axes`; those along the other axes belong together.
        places = torch.arange(prod(lengths)).view(lengths)
        others = [n if axis in self.axes else 1 for axis, n in enumerate(self.shape)]
        self._place = places.view(others).expand(self.shape).reshape(-1)
        self._first = places[tuple(torch.tensor(self.corners).T)]
        self._offsets = places[(slice(self.size),) * len(lengths)].reshape(-1)
        self._lengths = lengths

    @property
    def cover(self) -> int:
        """∏ ⌈length / size⌉: of the values `size` apart no window holds two."""
        return prod(-(-length // self.size) for length in self._lengths)

    def _places(self, windows: Tensor) -> Tensor:
        """(m,) long → (m, places of a window)."""
        first, offsets = self._first.to(windows.device), self._offsets.to(windows.device)
        return first[windows].unsqueeze(1) + offsets

    def _by_place(self, values: Tensor) -> Tensor:
        """(b, n) → (b, places): sums over the axes along which no window slides."""
        sums = values.new_zeros(len(values), prod(self._lengths))
        return sums.index_add_(1, self._place.to(values.device), values)

    def _slide(self, places: Tensor) -> Tensor:
        """(b, places) → (b, windows): sums over the windows."""
        box = places.view(-1, *self._lengths)
        for dim, starts in enumerate(self.starts, 1):
            box = box.unfold(dim, self.size, 1).sum(-1)
            box = box.index_select(dim, torch.tensor(starts, device=box.device))
        return box.flatten(1)

    def sum(self, scores: Tensor) -> Tensor:
        return self._slide(self._by_place(scores))

    def mask(self, taken: Tensor) -> Tensor:
        on = taken.new_zeros(len(taken), prod(self._lengths))
        problems, windows = torch.nonzero(taken).unbind(1)
        on[problems.unsqueeze(1), self._places(windows)] = True
        return on[:, self._place.to(taken.device)]

    def is_complete(self, taken: Tensor) -> bool:
        return bool(self.mask(taken).all())

    def first_rank(self, order: Tensor) -> Tensor:
        ranks = torch.full((prod(self._lengths),), self.count, device=order.device)
        count = len(self._offsets)
        every = torch.arange(self.count, device=order.device)
        for part in torch.split(every, max(1, 2**21 // count)):
            places = self._places(order[part]).reshape(-1)
            ranks.scatter_reduce_(0, places, part.repeat_interleave(count), "amin")
        return ranks[self._place.to(order.device)]

    def pick(self, scores: Tensor, taken: Tensor, z: int) -> tuple[Tensor, Tensor]:
        """One window at a time (b = 1): what a pick covers is worth nothing to the next."""
        off = ~self.mask(taken)
        places = self._by_place(torch.cat([torch.where(off, scores, 0), off.to(scores)]))
        chosen, own = [taken.new_zeros(0, dtype=torch.long)], [scores[0, :0]]
        for _ in range(z):
            sums, room = self._slide(places)
            ranked = sums.masked_fill(room < 0.5, -torch.inf)
            best = torch.nonzero(ranked == ranked.max())[0]
            if not bool(room[best] > 0.5):
                break
            chosen.append(best)
            own.append(ranked[best])
            places[:, self._places(best)] = 0
        return torch.cat(chosen).unsqueeze(0), torch.cat(own).unsqueeze(0)

    def state(self) -> tuple[dict[str, object], dict[str, Tensor]]:
        settings, _ = super().state()
        settings.update(
            shape=list(self.shape), size=self.size, axes=list(self.axes), stride=self.stride
        )
        return settings, {}


def best_first(scores: Tensor, taken: Tensor, z: int) -> Tensor:
    """(b, features) → (b, z): the z best that are free by falling score, ties by lowest index.

    `topk` promises nothing about ties. A full stable sort costs more than a small network's
    gradient, so only where there are ties, what reaches the z-th score is sorted.
    """
    free = scores.masked_fill(taken, -torch.inf)
    values, best = torch.topk(free, min(z + 1, free.shape[1]))
    if bool((values[:, 1:] < values[:, :-1]).all()):
        return best[:, :z]
    rows = []
    for row, least in zip(free, values[:, z - 1], strict=True):
        candidates = torch.nonzero(row >= least).squeeze(1)
        order = torch.sort(row[candidates], descending=True, stable=True).indices
        rows.append(candidates[order[:z]])
    return torch.stack(rows)


def _inverse(order: Tensor) -> Tensor:
    ranks = torch.empty_like(order)
    ranks[order] = torch.arange(order.numel(), device=order.device)
    return ranks
