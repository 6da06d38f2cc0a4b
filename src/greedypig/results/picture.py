"""A result over the pixels of a picture, and the names of its features.

Everything comes from an `Attribution` alone, so figures and pages can be drawn from a saved file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.features import Windows
from ..core.naming import unit_texts
from ..core.stopping import StopReason
from .curve import Curve
from .photo_notes import Notes

GROUPS = ("pixel", "square", "region")
"""What groups may be called by a result's note "unit"."""
COLOURS = {"black": 0, "white": 255}
"""Gray level of the baselines that are a colour; any other is shown as mid-gray."""
WIDE = 100
"""From how many on an order of selection is shown on a log scale."""
SMALL = 0.005
"""The share of the places that is too small to see differences in."""
ROOM = 0.2
"""The share of a scale that a tick's text takes at least."""
DARK, LIGHT = 64, 192
"""Gray levels under the legend of a map that the photo shines through."""


@dataclass(frozen=True)
class Picture:
    """A result over the places of a picture."""

    pixels: NDArray[np.uint8] | None
    """(h, w, 3) as the network sees it; None where the file does not hold it."""
    baseline: NDArray[np.uint8]
    """(h, w, 3): what an absent number looks like."""
    ranks: NDArray[np.int64]
    """(channels, h, w): position in the order of the first unit that holds the number."""
    shared: NDArray[np.int64]
    """(channels, h, w): the same, but equal for equal scores of a round, and the last position for
    what was never selected or had a score of 0."""
    units: int

    @staticmethod
    def of(a: Attribution) -> Picture | None:
        """The picture of a result; None for a row, a sequence or a plain set function."""
        pixels, baseline = _image(a, "picture"), _image(a, "baseline")
        size = _size(a, pixels)
        if size is None:
            return None
        flat = a.features.first_rank(a.order).cpu().numpy()
        shape = a.layout.shapes[0]
        positions = a.shared_positions()[a.order].cpu().numpy()[flat]

        def placed(ranks: NDArray[np.int64]) -> NDArray[np.int64]:
            ranks = ranks.reshape(shape)
            return ranks.reshape(-1, *size) if shape[-2:] == size else np.moveaxis(ranks, -1, 0)

        if baseline is None:
            level = COLOURS.get(str(a.about.get("baseline")), 127)
            baseline = np.full((*size, 3), level, np.uint8)
        elif baseline.shape[:2] != size:
            raise InvalidInput(
                f"Expected a baseline of {size[0]} × {size[1]} places "
                f"(got {baseline.shape[0]} × {baseline.shape[1]})."
            )
        shared = placed(np.minimum(positions, flat.max()))
        return Picture(pixels, baseline, placed(flat), shared, a.features.units)

    @property
    def first(self) -> NDArray[np.int64]:
        """(h, w): the position at which a place was first selected, in any channel."""
        found: NDArray[np.int64] = self.ranks.min(0)
        return found

    @property
    def importance(self) -> NDArray[np.float64]:
        """(h, w): 1 for what was taken first, falling evenly to 0 for the last; channels' mean.

        importance = 1 − (numbers taken earlier) / (numbers − numbers taken last). For single
        numbers and equal groups that is `Attribution.importance()`; of overlapping windows, where
        few are needed to cover everything, it still spans the whole scale.
        """
        counts = np.bincount(self.ranks.reshape(-1), minlength=self.units)
        earlier = np.cumsum(counts) - counts
        most = max(int(earlier[self.ranks.max()]), 1)
        found: NDArray[np.float64] = 1 - earlier[self.shared].mean(0) / most
        return found

    def share(self, k: int) -> float:
        """Share of the numbers that the top k units hold."""
        return float((self.ranks < k).mean())

    def kept(self, k: int) -> NDArray[np.uint8]:
        """(h, w, 3): the picture with the numbers of the top k units, the rest at the baseline.

        With other than one or three channels a place is mixed by the share of its channels kept.
        """
        return self._mixed(self.ranks < k)

    def without(self, k: int) -> NDArray[np.uint8]:
        """(h, w, 3): the picture with the numbers of the top k units at the baseline."""
        return self._mixed(self.ranks >= k)

    def _mixed(self, there: NDArray[np.bool_]) -> NDArray[np.uint8]:
        present = there.astype(np.float64)
        if len(present) not in (1, 3):
            present = present.mean(0, keepdims=True)
        weight = np.moveaxis(np.broadcast_to(present, (3, *present.shape[1:])), 0, -1)
        whole = np.full_like(self.baseline, 255) if self.pixels is None else self.pixels
        mixed = weight * whole + (1 - weight) * self.baseline
        return np.round(mixed).astype(np.uint8)


@dataclass(frozen=True)
class OrderScale:
    """The scale on which an order of selection is coloured: from number 1 to the last selected.

    A position on it is log(shift + number), or the number itself where that is not wide. The shift
    leaves the few numbers that hardly cover a place little of the scale.
    """

    last: int
    wide: bool
    """Does the order span decades?"""
    shift: int
    """Up to about here the log scale is nearly even; 0 where it is a plain one."""

    @staticmethod
    def of(first: NDArray[np.int64], selected: int) -> OrderScale:
        """first: (h, w) positions at which places were first selected, counted from 0."""
        taken = first[first < selected]
        last = int(taken.max()) + 1 if taken.size else 1
        wide = last >= WIDE
        small = int(np.quantile(taken, SMALL)) if wide else 0
        return OrderScale(max(last, 2), wide, small if small >= 10 else 0)

    def stretch(self, numbers: Any) -> Any:
        """Where numbers lie, before that is scaled to 0 … 1."""
        found = np.asanyarray(numbers)  # A masked array stays one.
        return np.log(self.shift + found) if self.wide else found

    def number(self, stretched: Any) -> Any:
        """The inverse of `stretch`."""
        found = np.asanyarray(stretched)
        return np.exp(found) - self.shift if self.wide else found

    @property
    def words(self) -> str:
        """What kind of scale it is."""
        if not self.wide:
            return "even scale"
        bend = int(float(f"{self.shift:.2g}"))
        return f"log scale above about {bend:,}, nearly even below" if bend else "log scale"

    def ticks(self) -> list[int]:
        """The first number, the last, and round ones between that leave each other room."""
        decades = [10**e for e in range(len(str(self.last)))]
        round_ones = (
            [step * size for step in (1, 5, 2) for size in decades] if self.wide
            else [*range(10, self.last, 10), *range(2, self.last)]
        )  # fmt: skip
        whole = np.ptp(self.stretch([1, self.last]))
        ticks = [1, self.last]
        for tick in round_ones:
            gaps = abs(self.stretch(ticks) - self.stretch(tick)) / whole
            if tick < self.last and gaps.min() >= ROOM:
                ticks.append(tick)
        return sorted(ticks)


def shares_alike(a: Attribution, ks: Sequence[int]) -> list[tuple[float, float]]:
    """For each k: the shares, from … up to but without …, at which a curve shows the top k units.

    Curves show the units that fit whole into the share, rounded to the nearest number. So a value
    measured at 10 % is the value of 9 regions although these hold 9.7 %.
    """
    ranks = torch.sort(a.features.first_rank(a.order)).values
    n = a.features.n
    counts = torch.searchsorted(ranks, torch.tensor(ks).to(ranks))
    after = torch.searchsorted(ranks, ranks[counts.clamp(max=n - 1)], right=True)
    after = torch.where(counts < n, after, n + 1)
    return [((c - 0.5) / n, (f - 0.5) / n) for c, f in zip(counts.tolist(), after.tolist(),
                                                            strict=True)]  # fmt: skip


def probability_within(a: Attribution, notes: Notes, share: float) -> tuple[float, bool] | None:
    """(probability with the units that fit into a share; was it measured); None if not known."""
    low, high = shares_alike(a, [units_within(a, share)])[0]
    return notes.probability_at(share, (min(low, share), max(high, share + 1e-9)))


def units_within(a: Attribution, share: float) -> int:
    """The most units that together hold no more than this share of the elements.

    Single elements are counted as curves count them, to the nearest: 10 % of 150,528 are 15,053.
    """
    if isinstance(share, bool) or not isinstance(share, int | float) or not 0 <= share <= 1:
        raise InvalidInput(f"Expected a share from 0 to 1 (got {share!r}). Try 0.1.")
    ranks = torch.sort(a.features.first_rank(a.order)).values
    slack = 0.5 if a.features.kind == "elements" else 1e-6
    room = int(share * a.features.n + slack)
    if room >= a.features.n:
        return a.features.units
    return int(ranks[room])


def unranked(a: Attribution) -> str | None:
    """Why there is no order to show, in a sentence; None where there is one.

    A run that ends before its first round ranks nothing: its order is the units' own.
    """
    if a.selected or a.gradients_used:
        return None
    if a.stop is StopReason.VALUE:
        return "No feature was needed: the baseline alone reaches the value asked for."
    if a.stop is StopReason.SECONDS:
        return "The time limit ended before the first round."
    return f"No round was done: {a.stop}."


def unit_label(a: Attribution, unit: int) -> str:
    """A unit's name; where it has none, its place among the inputs."""
    return unit_labels(a, [unit])[0]


def unit_labels(a: Attribution, units: Sequence[int]) -> list[str]:
    """Names of units; where they have none, their places among the inputs."""
    features = a.features
    if features.names is not None:
        return [features.names[u] for u in units]
    if features.kind == "elements":
        return [a.layout.place(u) for u in units]
    if isinstance(features, Windows):
        corners = (", ".join(map(str, features.corners[u])) for u in units)
        return [f"window at ({corner})" for corner in corners]
    texts = unit_texts(features, a.layout, units)
    # Of a group that is no box the number says as much as the box around it, and is shorter.
    return [f"{unit_word(a, 1)} {text.partition(' in ')[0]}" for text in texts]


def unit_word(a: Attribution, count: int = 2) -> str:
    """What a unit is called in a sentence."""
    words = {"elements": "number", "groups": "group", "windows": "window"}
    if a.features.kind == "elements" and (a.features.names or a.about.get("kind") != "image"):
        words["elements"] = "column" if a.about.get("kind") == "table" else "feature"
    if a.about.get("unit") in GROUPS:
        words["groups"] = a.about["unit"]
    word = words.get(a.features.kind, "unit")
    if str(a.about.get("kind") or "").startswith("graph"):
        word = "edge"
    return word if count == 1 else f"{word}s"


def rounds_line(a: Attribution) -> Curve | None:
    """G(S) after each round over the share of values selected; None if never measured."""
    ranks = torch.sort(a.features.first_rank(a.order)).values
    ends = torch.tensor([0, *a.picks]).cumsum(0)
    counts = torch.searchsorted(ranks, ends.to(ranks)).tolist()
    points = {
        count / a.features.n: value
        for count, value in zip(counts, a.values.tolist(), strict=True)
        if isfinite(value)
    }
    if isfinite(a.full_value):
        points.setdefault(1.0, a.full_value)
    if len(points) < 2:
        return None
    off = Notes.of(a).removing
    return Curve.from_points(points.items(), "G(S) after each round", off=off)


def strengths(a: Attribution, count: int) -> tuple[list[float], list[int], str]:
    """For the first units: a bar's length, its round (0: none), and what the length means."""
    ends = np.cumsum(a.picks)
    rounds = [int(np.searchsorted(ends, i, side="right")) + 1 for i in range(count)]
    rounds = [r if i < a.selected else 0 for i, r in enumerate(rounds)]
    steps = np.diff(a.values.cpu().numpy())
    singly = count <= len(a.picks) and all(p == 1 for p in a.picks[:count])
    if singly and np.isfinite(steps[:count]).all():
        return steps[:count].tolist(), rounds, "gain in G when it was added"
    scores = a.unit_scores[a.order[:count]].double().cpu().numpy()
    last = a.last_scores[a.order[:count]].double().cpu().numpy()
    found = [float(s if r else z) for s, z, r in zip(scores, last, rounds, strict=True)]
    cut = [x if isfinite(x) else 0.0 for x in found]
    one = len(a.picks) == 1 and count <= a.selected
    return (
        cut,
        rounds,
        "score" if one else "score in the round that took it (compare within a round only)",
    )


def _image(a: Attribution, name: str) -> NDArray[np.uint8] | None:
    tensor = a.attachments.get(name)
    if tensor is None:
        return None
    if tensor.dtype != torch.uint8 or tensor.ndim != 3 or tensor.shape[2] != 3:
        raise InvalidInput(
            f"Expected {name} as uint8 (height, width, 3) "
            f"(got {tensor.dtype} {tuple(tensor.shape)}). "
            "Try (pixels * 255).round().byte().permute(1, 2, 0)."
        )
    found: NDArray[np.uint8] = tensor.cpu().numpy()
    return found


def _size(a: Attribution, pixels: NDArray[np.uint8] | None) -> tuple[int, int] | None:
    """Height and width, if the explained input is a picture."""
    if len(a.layout.shapes) != 1:
        return None
    shape = a.layout.shapes[0]
    if pixels is not None:
        height, width = pixels.shape[:2]
        last = len(shape) in (2, 3) and shape[-2:] == (height, width)
        first = len(shape) == 3 and shape[:2] == (height, width)
        if not last and not first:
            raise InvalidInput(
                f"Expected a picture of the input's size {tuple(shape)} (got {height} × {width})."
            )
        return height, width
    kind = a.about.get("kind")
    if len(shape) == 3 and shape[0] in (1, 3) and kind in (None, "image"):
        return shape[1], shape[2]
    return (shape[0], shape[1]) if len(shape) == 2 and kind == "image" else None
