"""What a feature looks like when it is absent: baselines by number, tensor, callable or name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput, InvalidType, did_you_mean
from ..core.layout import Layout, check_plain
from ..core.registry import BASELINES, ROWS, serving

COLOURS = {"gray": 0.5, "black": 0.0, "white": 1.0}
NAMES = serving(BASELINES, ROWS)
BLUR_SHARE = 0.1
"""Standard deviation of the "blur" baseline, as a share of the picture's longer side."""


def resolve(baseline: Any, x: Any, layout: Layout, model: Any) -> list[Tensor]:
    """The baselines as flat vectors (n,), one per baseline asked for.

    A list is several baselines at once, whose objectives are averaged. None is the model's own
    gray where it knows one, else zero.
    """
    if isinstance(baseline, list):
        if not baseline:
            raise InvalidInput(
                "Expected at least one baseline (got an empty list).", argument="baseline"
            )
        return [_one(b, x, layout, model) for b in baseline]
    return [_one(baseline, x, layout, model)]


def describe(baseline: Any) -> Any:
    """A baseline for the record: itself if plain data, else what kind of thing it was."""
    if baseline is None or isinstance(baseline, str | int | float):
        return baseline
    if isinstance(baseline, list):
        return [describe(b) for b in baseline]
    return "tensor" if hasattr(baseline, "__array__") else type(baseline).__name__


def recorded(description: Any) -> bool:
    """Does what `describe` recorded say all there is to say about the baseline?"""
    if isinstance(description, list):
        return all(recorded(d) for d in description)
    return not isinstance(description, str) or description in NAMES


def _one(baseline: Any, x: Any, layout: Layout, model: Any) -> Tensor:
    tensors = layout.tensors(x)
    if baseline is None:
        baseline = "zero" if _own_colours(model) is None else "gray"
    if callable(baseline):
        baseline = baseline(x)
    lone = len(tensors) == 1 and not isinstance(baseline, tuple | Mapping)
    if layout.kind == "tensor" or lone or isinstance(baseline, int | float | str):
        pieces = [baseline] * len(tensors)
    elif isinstance(baseline, Mapping):
        if layout.kind != "dict" or sorted(baseline) != sorted(layout.names):
            raise InvalidInput(
                f"Expected a baseline for each of the inputs {', '.join(layout.names)} "
                f"(got {', '.join(map(str, baseline))})."
            )
        pieces = [baseline[name] for name in layout.names]
    elif isinstance(baseline, tuple) and len(baseline) == len(tensors):
        pieces = list(baseline)
    else:
        raise InvalidInput(
            f"Expected one baseline per input, {len(tensors)} in all, as a tuple or dict "
            f"(got {type(baseline).__name__})."
        )
    parts = [
        _tensor(piece, tensor, name, model).reshape(-1)
        for piece, tensor, name in zip(pieces, tensors, layout.names, strict=True)
    ]
    return torch.cat(parts)


def _tensor(piece: Any, x: Tensor, name: str, model: Any) -> Tensor:
    if isinstance(piece, str):
        piece = named(piece, x, model)
    elif isinstance(piece, int | float) and not isinstance(piece, bool):
        piece = torch.tensor(float(piece), dtype=x.dtype)
    elif not isinstance(piece, Tensor) and hasattr(piece, "__array__"):
        piece = torch.as_tensor(piece)  # NumPy's arrays and numbers.
    if not isinstance(piece, Tensor):
        raise InvalidType(
            f"Expected the baseline of input {name!r} to be a number, tensor, callable or one of "
            f"{', '.join(NAMES)} (got {type(piece).__name__})."
        )
    check_plain(f"the baseline of input {name!r}", piece)
    piece = piece.detach().to(x)
    try:
        full = torch.broadcast_to(piece, x.shape)
    except RuntimeError:
        batch = piece.dim() == x.dim() + 1 and piece.shape[0] == 1
        hint = " Try baseline[0]: it still has a batch axis." if batch else channels_first(x.shape)
        raise InvalidInput(
            f"Expected a baseline that broadcasts to input {name!r} of shape {tuple(x.shape)} "
            f"(got {tuple(piece.shape)}).{hint}"
        ) from None
    if not bool(torch.isfinite(full).all()):
        raise InvalidInput(f"Expected a finite baseline for input {name!r} (got NaN or infinity).")
    return full


def channels_first(shape: Sequence[int]) -> str:
    """What to try for a picture whose channels are last; empty for any other shape."""
    if len(shape) not in (3, 4) or shape[-1] not in (1, 3, 4) or min(shape[-3:-1]) <= 4:
        return ""
    one = "x" if len(shape) == 3 else "x[0]"
    return f" Try {one}.permute(2, 0, 1): a picture is (channels, height, width)."


def named(name: str, x: Tensor, model: Any = None) -> Tensor:
    """The baseline called `name` for the example x; broadcasts to x's shape."""
    if name not in NAMES:
        raise InvalidInput(
            "Expected ",
            Argument("baseline"),
            f" to be one of {', '.join(NAMES)} (got {name!r}).{did_you_mean(name, NAMES)}",
        )
    if name == "zero":
        return torch.zeros((), dtype=x.dtype)
    if name in COLOURS:
        return _colour(name, x, model)
    if name == "mean":
        return x.mean(dim=tuple(range(1, x.dim())), keepdim=True) if x.dim() > 1 else x.mean()
    if x.dim() not in (2, 3):
        raise InvalidInput(
            "Expected a picture (channels, height, width) for ",
            Argument("baseline", "blur"),
            f" (got shape {tuple(x.shape)}).",
        )
    # Repeated edges keep the border from fading to black, which would look like a feature.
    return gaussian_blur(x, BLUR_SHARE * max(x.shape[-2:]), edge="repeat")


def _colour(name: str, x: Tensor, model: Any) -> Tensor:
    own = _own_colours(model)
    if own is not None:
        return own(name)
    if bool((x >= 0).all()) and bool((x <= 1).all()):
        return torch.tensor(COLOURS[name], dtype=x.dtype)
    raise InvalidInput(
        f"Expected pixels in [0, 1], or a model with a baseline(name) method, to know what "
        f"{name!r} is (got values from {float(x.min()):.3g} to {float(x.max()):.3g}). "
        "Try a number or tensor in the model's own scale."
    )


def _own_colours(model: Any) -> Callable[[str], Tensor] | None:
    """The model's baseline(name) method; a layer that happens to have this name is none."""
    own = getattr(model, "baseline", None)
    return own if callable(own) and not isinstance(own, torch.nn.Module) else None


def gaussian_blur(x: Tensor, sigma: float, *, edge: str = "zero") -> Tensor:
    """Gaussian blur along the last two axes, as two matrix products.

    The kernel is cut at 4 · sigma and normalised; beyond the border there are zeros
    (edge="zero", as in Blur IG) or the border's own values (edge="repeat").
    """
    if sigma == 0:
        return x
    rows = _blur_matrix(x.shape[-2], sigma, edge).to(x)
    columns = _blur_matrix(x.shape[-1], sigma, edge).to(x)
    return rows @ x @ columns.T


def _blur_matrix(length: int, sigma: float, edge: str) -> Tensor:
    radius = int(4 * sigma + 0.5)
    offsets = torch.arange(-radius, radius + 1)
    kernel = torch.exp(-0.5 * (offsets.double() / sigma) ** 2)
    kernel = kernel / kernel.sum()
    index = torch.arange(length).unsqueeze(1) + offsets
    if edge == "zero":
        weights = torch.where((index >= 0) & (index < length), kernel, 0.0)
    else:
        weights = kernel.expand(length, -1)
    matrix = torch.zeros(length, length, dtype=torch.float64)
    return matrix.scatter_add_(1, index.clamp(0, length - 1), weights)
