"""A result over the pixels of a picture, and what its order says.

Everything comes from an `Attribution` alone, so figures and pages can be drawn from a saved file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.numbers import check_between
from ..core.stopping import StopReason

COLOURS = {"black": 0, "white": 255}
"""Gray level of the baselines that are a colour; any other is drawn as mid-gray."""


@dataclass(frozen=True)
class Picture:
    """A result over the pixels of a picture."""

    pixels: NDArray[np.uint8] | None
    """(h, w, 3) as the network sees it; None where the file does not hold it."""
    baseline: NDArray[np.uint8]
    """(h, w, 3): what an absent value looks like."""
    ranks: NDArray[np.int64]
    """(channels, h, w): position in the order of the first feature that holds the value."""
    importance: NDArray[np.float64]
    """(h, w) from 0 to 1: `rise_left` of the first feature that holds a part of the pixel."""

    @staticmethod
    def of(a: Attribution) -> Picture | None:
        """The picture of a result; None for a row, a sequence or a plain set function."""
        pixels, baseline = _image(a, "picture"), _image(a, "baseline")
        size = _size(a, pixels)
        if size is None:
            return None
        flat = a.features.first_rank(a.order).cpu().numpy()
        shape = a.layout.shapes[0]
        ranks = flat.reshape(-1, *size)
        if shape[-2:] != size:
            ranks = np.moveaxis(flat.reshape(shape), -1, 0)

        if baseline is None:
            level = COLOURS.get(a.about.baseline, 127)
            baseline = np.full((*size, 3), level, np.uint8)
        elif baseline.shape[:2] != size:
            raise InvalidInput(
                f"Expected a baseline of {size[0]} × {size[1]} pixels "
                f"(got {baseline.shape[0]} × {baseline.shape[1]})."
            )
        return Picture(pixels, baseline, ranks, np.asarray(rise_left(a)[ranks].max(0)))

    @property
    def first(self) -> NDArray[np.int64]:
        """(h, w): the position at which a pixel was first selected, in any channel."""
        return np.asarray(self.ranks.min(0))

    def share(self, k: int) -> float:
        """Share of the values that the top k features hold."""
        return float((self.ranks < k).mean())

    def kept(self, k: int) -> NDArray[np.uint8]:
        """(h, w, 3): the picture with the values of the top k features, the rest at the baseline.

        With other than one or three channels a pixel is mixed by the share of its channels kept.
        """
        return self._mixed(self.ranks < k)

    def without(self, k: int) -> NDArray[np.uint8]:
        """(h, w, 3): the picture with the values of the top k features at the baseline."""
        return self._mixed(self.ranks >= k)

    def _mixed(self, mask: NDArray[np.bool_]) -> NDArray[np.uint8]:
        present = mask.astype(np.float64)
        if len(present) not in (1, 3):
            present = present.mean(0, keepdims=True)
        weight = np.moveaxis(np.broadcast_to(present, (3, *present.shape[1:])), 0, -1)
        whole = np.full_like(self.baseline, 255) if self.pixels is None else self.pixels
        mixed = weight * whole + (1 - weight) * self.baseline
        return np.round(mixed).astype(np.uint8)


def rise_left(a: Attribution) -> NDArray[np.float64]:
    """(features,) by position in the order: how much of the rise in G was left at its selection.

    1 for the first, and 0 from where G rises no more:
    rise_left_i = 1 − (sum of the gains before i) / (sum of all gains). A round's gain is
    G(S_r) − max(G(S_0), …, G(S_{r−1})), or 0 where that is below 0. It is shared among the round's
    features in proportion to their scores, those below 0 counting as 0, or to the absolute scores
    if it is these that rank them; equal scores have equal values. Where G was not measured, or
    never rises, a round's gain is the sum of its scores. A feature that was never
    selected, or had a score of 0, has 0.
    """
    taken = a.order[: a.selected]
    scores = a.feature_scores[taken].double().cpu().numpy()
    sizes = np.abs(scores)
    gains = np.diff(np.maximum.accumulate(a.values.cpu().numpy()))
    measured = bool(np.isfinite(gains).all()) and gains.sum() > 0
    begin = 0
    for picks, gain in zip(a.picks, gains, strict=True):
        part = slice(begin, begin + picks)
        if (np.diff(scores[part]) <= 0).all():  # Not ranked by absolute score.
            sizes[part] = scores[part].clip(0)
        total = sizes[part].sum()
        if measured:
            sizes[part] = gain * (sizes[part] / total if total > 0 else 1 / picks)
        begin += picks
    left = np.zeros(a.features.count + 1)
    left[: a.selected] = np.cumsum(sizes[::-1])[::-1] / (sizes.sum() or 1.0)
    return np.asarray(left[a.shared_positions()[a.order].cpu().numpy()])


def order_last(a: Attribution, first: NDArray[np.int64]) -> int:
    """The last position that a map of the order shows; at least 2, so that a scale has two ends.

    first: (h, w) positions at which pixels were first selected, counted from 0. The colours of an
    order are spread by the square root of the position, as early picks cover few pixels.
    """
    return max(int(first[first < a.selected].max(initial=0)) + 1, 2)


SHARES = tuple(
    percent / 100 for percent in (0, 0.5, 1, 2, 3, 5, 7, 10, 15, 20, 30, 40, 50, 65, 80, 100)
)
"""The shares of a picture at which methods are compared."""


def compared_pictures(results: Sequence[Attribution]) -> dict[str, Tensor]:
    """What the page of a comparison draws its pictures from, as the attachment "methods".

    (methods, channels, h, w) uint8: the index in SHARES of the smallest share that holds the value,
    of features that fit into the share whole. Empty where the results are not of one picture.
    """
    pictures = [Picture.of(a) for a in results]
    ranks = [picture.ranks for picture in pictures if picture is not None]
    alike = len({each.shape for each in ranks}) == 1 and len(ranks) == len(pictures)
    if not alike or ranks[0].shape[0] not in (1, 3):
        return {}
    slack = 0.5 / ranks[0].size
    stops = []
    for each in ranks:
        held = np.cumsum(np.bincount(each.reshape(-1))) / each.size
        stops.append(np.searchsorted(np.array(SHARES) + slack, held).clip(1, len(SHARES) - 1)[each])
    return {"methods": torch.from_numpy(np.stack(stops).astype(np.uint8))}


def order_ticks(last: int) -> list[int]:
    """The first position, the last, and round ones between them that have room on the scale."""
    steps = [round(float(f"{last * share:.1g}")) for share in (0.04, 0.25)]
    return sorted({1, *(step for step in steps if step > 1), last})


def features_within(a: Attribution, share: float) -> int:
    """The most features that together hold no more than this share of the values.

    Single values are rounded to the nearest, as in curves: 10 % of 150,528 are 15,053.
    """
    check_between("a share", share, 0, 1)
    ranks = torch.sort(a.features.first_rank(a.order)).values
    slack = 0.5 if a.features.kind == "elements" else 1e-6
    room = int(share * a.features.n + slack)
    if room >= a.features.n:
        return a.features.count
    return int(ranks[room])


def unranked(a: Attribution) -> str | None:
    """Why a run that ended before its first round has no order, in a sentence; else None."""
    if a.selected or a.gradients_used:
        return None
    if a.stop is StopReason.VALUE:
        return "No feature was needed: the baseline alone reaches the value asked for."
    if a.stop is StopReason.SECONDS:
        return "The time limit ended before the first round."
    return f"No round was done: {a.stop}."


def strengths(a: Attribution, count: int) -> tuple[list[float], list[int], str]:
    """For the first features: a bar's length, its round (0: none), and what the length means."""
    ends = np.cumsum(a.picks)
    rounds = [int(np.searchsorted(ends, i, side="right")) + 1 for i in range(count)]
    rounds = [r if i < a.selected else 0 for i, r in enumerate(rounds)]
    steps = np.diff(a.values.cpu().numpy())
    singly = count <= len(a.picks) and all(p == 1 for p in a.picks[:count])
    if singly and np.isfinite(steps[:count]).all():
        return steps[:count].tolist(), rounds, "gain in G when it was added"
    scores = a.feature_scores[a.order[:count]].double().cpu().numpy()
    last = a.last_scores[a.order[:count]].double().cpu().numpy()
    lengths = [float(s if r else z) for s, z, r in zip(scores, last, rounds, strict=True)]
    meaning = "score in the round that selected it (compare within a round only)"
    if len(a.picks) == 1 and count <= a.selected:
        meaning = "score"
    return [x if isfinite(x) else 0.0 for x in lengths], rounds, meaning


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
    return np.asarray(tensor.cpu().numpy())


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
    if len(shape) not in a.about.picture_axes or (len(shape) == 3 and shape[0] not in (1, 3)):
        return None
    return shape[-2], shape[-1]
