"""PAIR's performance information curves: the model's answer over a picture's compressed size.

As in Kapishnikov et al. 2019 ("XRAI") and the authors' package saliency, `metrics.pic`: the top
pixels are shown in a picture that is otherwise interpolated from a few random ones, and the x axis
is how much longer its lossless WebP file has become. `pair_sic` follows the softmax of the class,
`pair_aic` whether it is still the first. The paper's own SIC, over the number of features, is
`softmax_information_curve`; the two are not comparable.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from types import ModuleType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from ..core.attribution import Attribution, is_one_shot
from ..core.errors import InvalidInput, MissingPackage
from ..core.layout import Layout
from ..core.lockstep import Undisturbed
from ..core.schedule import check_count
from ..results.curve import Curve
from .ranking import RANKINGS, counts_needed
from .sweep import Network, class_of

__all__ = ["LeftOut", "pair_aic", "pair_sic"]

THRESHOLDS = (0.005, 0.01, 0.02, 0.03, 0.04, 0.05, 0.07, 0.10, 0.13, 0.21, 0.34, 0.5, 0.75)
"""The shares of the pixels that the authors show."""


class LeftOut(InvalidInput):
    """A picture on which PAIR's curves are not defined; studies leave such pictures out."""


def pair_sic(
    model: Callable[..., Any],
    x: Tensor,
    a: Any,
    *,
    target: int | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    ranking: str | None = None,
    random_share: float = 0.01,
    seed: int = 0,
    least: float = 0.8,
    monotone: bool = True,
    points: int = 1000,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """PAIR's softmax information curve of one picture.

    values = (p(shown) − p(blurred)) / (p(full) − p(blurred)), clipped to [0, 1], with p the
    softmax of the class; fractions likewise of the compressed sizes; points + 1 of them, evenly.

    a: an Attribution, scores or a permutation of x's elements, or one number per pixel (h, w).
        A pixel's score is the sum over its channels: of absolute or signed scores, or of
        `importance()` by "order".
    thresholds: shares of the pixels shown. random_share, seed: of the pixels that the blurred
        picture is made of; use one seed for all methods on a picture.
    least: pictures whose class has less probability are left out, as are those that blurring does
        not make smaller or less certain: `LeftOut` is raised.
    monotone: the value never falls, as in the authors' paper.

    x must be an input of a model with `to_pixels` and `from_pixels`, or lie in [0, 1].
    """
    knobs = _Knobs(thresholds, ranking, random_share, seed, least, monotone, points)
    network = Network(model, None, outputs=outputs, batch_size=batch_size, optimize=optimize)
    return _pic("pair-sic", network, x, a, target, knobs)


def pair_aic(
    model: Callable[..., Any],
    x: Tensor,
    a: Any,
    *,
    target: int | None = None,
    thresholds: Sequence[float] = THRESHOLDS,
    ranking: str | None = None,
    random_share: float = 0.01,
    seed: int = 0,
    least: float = 0.8,
    monotone: bool = True,
    points: int = 1000,
    outputs: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    optimize: bool = True,
) -> Curve:
    """PAIR's accuracy information curve: p is 1 where the class comes first, else 0.

    The arguments are those of `pair_sic`.
    """
    knobs = _Knobs(thresholds, ranking, random_share, seed, least, monotone, points)
    network = Network(model, None, outputs=outputs, batch_size=batch_size, optimize=optimize)
    return _pic("pair-aic", network, x, a, target, knobs)


@dataclass(frozen=True)
class _Knobs:
    thresholds: Sequence[float]
    ranking: str | None
    random_share: float
    seed: int
    least: float
    monotone: bool
    points: int

    def __post_init__(self) -> None:
        shares = [float(t) for t in self.thresholds]
        rising = all(low < high for low, high in pairwise(shares))
        if not shares or not rising or not (shares[0] > 0 and shares[-1] < 1):
            raise InvalidInput("Expected thresholds between 0 and 1, rising (got others).")
        if not 0 <= self.random_share < 1:
            raise InvalidInput(
                f"Expected random_share from 0 to below 1 (got {self.random_share!r})."
            )
        check_count("points", self.points)


def _pic(name: str, network: Network, x: Any, a: Any, target: int | None, knobs: _Knobs) -> Curve:
    if not isinstance(x, Tensor) or x.dim() != 3 or x.shape[0] not in (1, 3):
        got = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise InvalidInput(f"Expected a picture (1 or 3, height, width) (got {got}).")
    imaging, interpolation = _packages()
    scores, rule = pixel_scores(a, x, knobs.ranking)
    levels, back = _levels(network.model, x)
    seeds = _random_pixels(levels.shape[0], levels.shape[1], knobs.random_share, knobs.seed)
    masks = [seeds, *(seeds | top_pixels(scores, share) for share in knobs.thresholds)]
    shown = [levels, *(blurred(levels, mask, interpolation) for mask in masks)]
    wanted = class_of(a) if target is None else target
    values, chosen = _ask(network, x, back, shown, wanted, name)
    sizes = [compressed_size(image, imaging) for image in shown]
    fractions, curve = _normalised(sizes, values, knobs)
    settings = {
        "ranking": rule, "target": chosen, "random_share": knobs.random_share,
        "seed": knobs.seed, "monotone": knobs.monotone,
        "thresholds": [float(t) for t in knobs.thresholds],
    }  # fmt: skip
    return Curve(torch.from_numpy(fractions), torch.from_numpy(curve), name, 1.0, settings)


def _packages() -> tuple[Any, ModuleType]:
    try:
        from PIL import Image, features
        from scipy import interpolate
    except ImportError as error:
        raise MissingPackage(
            "Expected Pillow and SciPy for PAIR's curves (got no such modules). "
            'Try pip install "greedypig[images]".'
        ) from error
    if not features.check("webp"):
        raise MissingPackage("Expected a Pillow that writes WebP (got one without it).")
    return Image, interpolate


def pixel_scores(a: Any, x: Tensor, ranking: str | None = None) -> tuple[Tensor, str]:
    """(height, width) float64: one score per pixel, higher is better, and the ranking used."""
    if isinstance(a, Tensor) and a.is_floating_point() and a.shape == x.shape[1:]:
        if ranking not in (None, "absolute", "signed"):
            raise InvalidInput(f"Expected ranking 'absolute' or 'signed' (got {ranking!r}).")
        rule = ranking or "signed"  # One number per pixel is a saliency map already.
        return (a.abs() if rule == "absolute" else a).detach().double().cpu(), rule
    if ranking is not None and ranking not in RANKINGS:
        raise InvalidInput(
            f"Expected ranking to be one of {', '.join(RANKINGS)} (got {ranking!r})."
        )
    needed, rule = counts_needed(a, Layout.of(x), ranking)
    if rule == "order":
        each = -needed.double()
    else:
        each = _element_scores(a).reshape(-1)
        each = each.abs() if rule == "absolute" else each
    return each.double().cpu().view(x.shape).sum(0), rule


def _element_scores(a: Any) -> Tensor:
    if not isinstance(a, Attribution):
        return a.detach()  # type: ignore[no-any-return]
    # What one round scored but did not take has a score as well.
    units = a.last_scores if is_one_shot(a) else a.unit_scores
    return units[a.order[a.features.first_rank(a.order)]]


def top_pixels(scores: Tensor, share: float) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """(height, width) bool: as many pixels as reach the (1 − share)-quantile, ties by index.

    PAIR shows every pixel with score ≥ quantile, which is this number where no scores tie; a map
    of ties would be shown whole.
    """
    n = scores.numel()
    count = n - ceil((n - 1) * (1 - share) - 1e-9)
    best = torch.sort(scores.reshape(-1), descending=True, stable=True).indices[:count]
    mask = np.zeros(n, dtype=bool)
    mask[best.numpy()] = True
    return mask.reshape(tuple(scores.shape))


def blurred(levels: Any, kept: Any, interpolation: Any) -> Any:
    """(h, w, c) uint8: the kept pixels and the corners, linear interpolation in between."""
    kept = kept.copy()
    kept[[0, 0, -1, -1], [0, -1, 0, -1]] = True
    if kept.all():
        return levels
    known, missing = np.argwhere(kept), np.argwhere(~kept)
    # One triangulation serves all channels.
    found = interpolation.LinearNDInterpolator(known, levels[kept].astype(np.float64))(missing)
    found = np.where(np.isnan(found), levels.mean((0, 1)), found)
    out = levels.copy()
    # In float32 first, as the authors do: it decides which way a half is rounded.
    out[~kept] = np.round(found.astype(np.float32)).astype(np.uint8)
    return out


def compressed_size(levels: Any, imaging: Any) -> int:
    """Bytes of the picture as lossless WebP: PAIR's estimate of the information in it."""
    buffer = io.BytesIO()
    picture = imaging.fromarray(levels[:, :, 0] if levels.shape[2] == 1 else levels)
    picture.save(buffer, format="webp", lossless=True, quality=100)
    return len(buffer.getvalue())


def _levels(model: Any, x: Tensor) -> tuple[Any, Callable[[Tensor], Tensor]]:
    """The picture as uint8 (h, w, c), and the way from pixels in [0, 1] to the model's inputs."""
    out, into = getattr(model, "to_pixels", None), getattr(model, "from_pixels", None)
    if callable(out) and callable(into):
        pixels = out(x.detach())
    elif bool((x >= 0).all()) and bool((x <= 1).all()):
        pixels, into = x.detach(), lambda p: p
    else:
        raise InvalidInput(
            "Expected pixels in [0, 1], or a model with to_pixels and from_pixels (got values "
            f"from {float(x.min()):.3g} to {float(x.max()):.3g})."
        )
    levels = (pixels.double() * 255).round().to(torch.uint8).permute(1, 2, 0).cpu().numpy()
    return np.ascontiguousarray(levels), into


def _random_pixels(height: int, width: int, share: float, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(height * width, generator=generator)[: int(height * width * share)]
    mask = np.zeros(height * width, dtype=bool)
    mask[chosen.numpy()] = True
    return mask.reshape(height, width)


def _ask(
    network: Network,
    x: Tensor,
    back: Callable[[Tensor], Tensor],
    shown: list[Any],
    target: int | None,
    name: str,
) -> tuple[list[float], int]:
    """The model's answer to every picture, the full one first, and the class it is about."""
    with Undisturbed():
        rows = [torch.from_numpy(i).permute(2, 0, 1).to(torch.float32) / 255 for i in shown]
        inputs = back(torch.stack(rows)).to(x)
        example, _ = network.example(inputs[0], inputs[1], target, None)
        if example.reference.log_probabilities is None:
            raise InvalidInput("Expected class scores for PAIR's curves (got a single output).")
        flat = inputs.flatten(1).to(example.x)
        logits, _, _ = network.oracle(example.layout).evaluate(
            flat, [(example, len(flat))], gradient=False
        )
    sure = torch.softmax(logits.double(), 1).cpu()
    if name == "pair-aic":
        found = (sure.argmax(1) == example.reference.target).double()
    else:
        found = sure[:, example.reference.target]
    return found.tolist(), example.reference.target


def _normalised(sizes: list[int], values: list[float], knobs: _Knobs) -> tuple[Any, Any]:
    """PAIR's curve from the sizes and values of the full, the blurred and the other pictures."""
    (full_size, blurred_size), (full, empty) = sizes[:2], values[:2]
    if full < knobs.least:
        raise LeftOut(
            f"Expected a value of at least {knobs.least:g} at the full picture (got {full:.3g})."
        )
    if blurred_size >= full_size:
        raise LeftOut("Expected a picture that blurring makes smaller (got one it does not).")
    if empty >= full:
        raise LeftOut(
            f"Expected the blurred picture to be less certain than the full one (got {empty:.3g} "
            f"and {full:.3g})."
        )
    xs = np.clip((np.array(sizes[2:]) - blurred_size) / (full_size - blurred_size), 0, 1)
    ys = np.clip((np.array(values[2:]) - empty) / (full - empty), 0, 1)
    if knobs.monotone:
        ys = np.maximum.accumulate(ys)
    xs, ys = np.append(xs, [0.0, 1.0]), np.append(ys, [0.0, 1.0])
    order = np.argsort(xs, kind="stable")
    grid = np.linspace(0, 1, knobs.points, endpoint=False)
    curve = np.interp(grid, xs[order], ys[order])
    return np.append(grid, 1.0), np.append(curve, 1.0)
