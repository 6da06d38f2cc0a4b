"""The pointing game: does an explanation of a class lie where that class is?

Pictures of different classes are put side by side in one grid, and each class is explained in it
(Böhle et al. 2021; the paper's Figure 3: 2 × 2 grids of the most confident pictures, top 15,000).
A hit is a cell that holds more of the top values than any other cell. Unlike a curve, this game
cannot be won by a pattern that raises the probability anywhere in the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from math import isqrt, nan
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ..core.errors import InvalidInput, InvalidType
from ..core.layout import Layout
from ..core.numbers import check_count
from ..core.objective import Objective
from ..tensors.api import explain_many
from ..tensors.inputs import Model
from ..tensors.targets import Target
from .ranking import counts_needed


@dataclass(frozen=True, eq=False, repr=False)
class Grids:
    """Pictures made of pictures, and where everything in them came from."""

    pictures: Tensor
    """(grids, channels, height, width): inputs of the model."""
    classes: Tensor
    """(grids, cells) long: the class in each cell, row by row; all different within a grid."""
    sources: Tensor
    """(grids, cells) long: which of the given images lies in each cell."""
    confidences: Tensor
    """(grids, cells): the model's probability of that class for the image alone."""
    cells: Tensor
    """(height, width) long: the cell of every pixel."""

    @property
    def side(self) -> int:
        """Cells along an edge."""
        return isqrt(self.classes.shape[1])

    @property
    def reused(self) -> int:
        """How many cells show an image that was shown before."""
        return self.sources.numel() - len(set(self.sources.reshape(-1).tolist()))

    def __len__(self) -> int:
        return len(self.pictures)

    def __repr__(self) -> str:
        return (
            f"Grids({len(self)} of {self.side} × {self.side} pictures, {self.reused} cells reused, "
            f"least confidence {float(self.confidences.min()):.3g})"
        )


@dataclass(frozen=True, eq=False, repr=False)
class PointingGame:
    """How often explanations lay in the right cell."""

    shares: Tensor
    """(grids, cells, cells) float64: [g, c, d] is the share of the top values in cell d when the
    class of cell c was explained in grid g."""
    k: int
    """How many values counted as the top."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Method, ranking, seed and what else describes the game."""

    @property
    def right(self) -> Tensor:
        """(grids, cells): the share in the right cell; 1 / cells is chance."""
        return self.shares.diagonal(dim1=1, dim2=2)

    @property
    def hits(self) -> Tensor:
        """(grids, cells) bool: the right cell holds more than every other. A tie is no hit."""
        wrong = self.shares.clone()
        wrong.diagonal(dim1=1, dim2=2).fill_(-1)
        return self.right > wrong.amax(2)

    @property
    def score(self) -> float:
        """The share of (grid, class) pairs that are hits."""
        return float(self.hits.double().mean())

    @property
    def majority(self) -> float:
        """The share of pairs whose right cell holds more than half: stricter than `score`."""
        return float((self.right > 0.5).double().mean())

    @property
    def standard_error(self) -> float:
        """Of the score, over grids, as the pairs of one grid share a picture; NaN for one grid."""
        if len(self.shares) < 2:
            return nan
        each = self.hits.double().mean(1)
        return float(each.std() / len(each) ** 0.5)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        error = self.standard_error
        return {
            "score": self.score, "standard_error": None if error != error else error,
            "majority": self.majority, "share": float(self.right.mean()), "k": self.k,
            "pairs": self.hits.numel(), "shares": self.shares.tolist(),
            "settings": dict(self.settings),
        }  # fmt: skip

    def __repr__(self) -> str:
        return (
            f"PointingGame({self.score:.3f} ± {self.standard_error:.3f} of {self.hits.numel()} "
            f"pairs; {float(self.right.mean()):.3f} of the top {self.k:,} in the right cell)"
        )


def pointing_game(
    model: Callable[..., Any],
    images: Any,
    targets: Sequence[int] | Tensor | None = None,
    *,
    method: Any = None,
    k: int = 15_000,
    grids: int = 25,
    side: int = 2,
    ranking: str | None = None,
    outputs: str | None = None,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
    options: Mapping[str, Any] | None = None,
) -> PointingGame:
    """Make grids of the most confident images, explain every class in each, and count hits.

    images: inputs of the model, (count, channels, height, width) or a list of such pictures.
    targets: their classes; None takes the model's predictions.
    method: as in `gp.explain_many`. options: further arguments of it, {"features": gp.grid(16)}.
    k: how many values count as the top; of larger features as many whole ones as k has room for.
    ranking: None ranks greedy methods by order of selection and one-shot ones by signed score, as
        evidence against a class lies with its rivals.
    grids, side, seed: how many grids of side × side images, and their random order (`make_grids`).
    """
    boards = make_grids(
        model, images, targets, grids=grids, side=side, outputs=outputs, seed=seed,
        batch_size=batch_size,
    )  # fmt: skip
    check_count("k", k, boards.pictures[0].numel())
    given = {"seed": seed, "batch_size": batch_size, "outputs": outputs} | dict(options or {})
    for name in ("method", "target"):
        if name in given:
            raise InvalidInput(f"Expected no {name!r} among the options, which the game sets.")
    cells = boards.classes.shape[1]
    attributions = explain_many(
        model, (picture for picture in boards.pictures for _ in range(cells)),
        target=boards.classes.reshape(-1).tolist(), method=method, **given,
    )  # fmt: skip
    game = pointing_score(boards, attributions, k=k, ranking=ranking)
    return replace(game, settings={**game.settings, "grids": grids, "seed": seed})


def pointing_score(
    grids: Grids, attributions: Iterable[Any], *, k: int = 15_000, ranking: str | None = None
) -> PointingGame:
    """The game's result for given explanations.

    attributions: for every grid in order, one for each of its cells in order: Attributions,
    permutations of the values, or scores shaped like the picture.
    """
    layout = Layout.of(grids.pictures[0])
    check_count("k", k, layout.n)
    count, cells = grids.classes.shape
    channels = grids.pictures.shape[1]
    where = grids.cells.expand(channels, -1, -1).reshape(-1)
    shares: list[Tensor] = []
    settings: dict[str, Any] = {"reused": grids.reused, "side": grids.side}
    for a in attributions:
        needed, settings["ranking"] = counts_needed(a, layout, ranking, one_shot="signed")
        settings["method"] = getattr(a, "settings", {}).get("method")
        top = (needed <= k).cpu()
        inside = torch.bincount(where[top], minlength=cells).double()
        if not int(inside.sum()):
            raise InvalidInput(
                f"Expected k to have room for at least one feature (got k={k}, less than the "
                "values of the first feature)."
            )
        shares.append(inside / inside.sum())
    if len(shares) != count * cells:
        raise InvalidInput(
            f"Expected one attribution for each of {cells} classes in {count} grids, "
            f"{count * cells} in all (got {len(shares)})."
        )
    return PointingGame(torch.stack(shares).view(count, cells, cells), k, settings)


def make_grids(
    model: Callable[..., Any],
    images: Any,
    targets: Sequence[int] | Tensor | None = None,
    *,
    grids: int = 25,
    side: int = 2,
    outputs: str | None = None,
    seed: int = 0,
    batch_size: int | Literal["auto"] = "auto",
) -> Grids:
    """Grids of the images with the highest confidence, each shrunk to a cell by averaging.

    The grids · side² most confident images, of a class at most one per grid, are distributed at
    random by `seed`, no class twice in a grid. Where there are too few, some are used again:
    `reused` says how many cells.
    """
    check_count("grids", grids)
    check_count("side", side)
    pictures = _pictures(images)
    classes, confidences = _confidences(model, pictures, targets, outputs, batch_size)
    cells = side * side
    best = _most_confident(classes, confidences, grids, cells)
    kinds = len(set(classes[best].tolist()))
    if kinds < cells:
        raise InvalidInput(
            f"Expected images of at least {cells} classes for grids of {side} × {side} "
            f"(got {kinds})."
        )
    sources = _dealt(best, classes, grids, cells, seed)
    places = _cells(pictures.shape[-2], pictures.shape[-1], side)
    stitched = torch.stack([_stitched(pictures[row], side) for row in sources])
    return Grids(stitched, classes[sources], sources, confidences[sources], places)


def _pictures(images: Any) -> Tensor:
    each = list(images)
    if not each or not all(isinstance(i, Tensor) for i in each):
        raise InvalidType("Expected images to be tensors (channels, height, width).")
    shapes = {tuple(i.shape) for i in each}
    if len(shapes) > 1:
        raise InvalidInput(f"Expected images of one shape (got {sorted(shapes)}).")
    stacked = torch.stack(each).detach()
    if stacked.dim() != 4 or not stacked.is_floating_point():
        raise InvalidInput(
            "Expected floating-point images (count, channels, height, width) "
            f"(got {stacked.dtype} {tuple(stacked.shape)})."
        )
    return stacked


def _confidences(
    model: Callable[..., Any], pictures: Tensor, targets: Any, outputs: str | None, batch_size: Any
) -> tuple[Tensor, Tensor]:
    """(count,) classes, the given or the predicted ones, and (count,) their probabilities."""
    if targets is not None and len(targets) != len(pictures):
        raise InvalidInput(
            f"Expected one target per image (got {len(targets)} for {len(pictures)} images)."
        )
    with torch.inference_mode(False):
        network = Model(model, Target(None, outputs), batch_size=batch_size)
        example = network.example(pictures[0])
        if not example.reference.classes:
            raise InvalidInput("Expected class scores for the pointing game (got one output).")
        rows: list[Tensor] = []

        def probabilities(points: Tensor, _: Tensor) -> Tensor:
            rows.append(torch.softmax(network.logits(points, example).double(), 1).cpu())
            return points.new_zeros(len(points))  # The rows are what is wanted.

        flat = pictures.flatten(1)
        zero = torch.zeros_like(flat[:1]).unsqueeze(0)
        points = Objective(probabilities, zero, torch.ones_like(zero), batch_size=batch_size)
        points.values(flat.unsqueeze(0))
    confidences = torch.cat(rows)
    classes = confidences.argmax(1) if targets is None else _classes(targets, confidences.shape[1])
    return classes, confidences.gather(1, classes.unsqueeze(1)).squeeze(1)


def _classes(targets: Any, count: int) -> Tensor:
    classes = torch.as_tensor(targets).cpu()
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) >= count:
        raise InvalidInput(f"Expected targets to be classes from 0 to {count - 1} (got others).")
    return classes.long()


def _most_confident(classes: Tensor, confidences: Tensor, grids: int, cells: int) -> Tensor:
    """Up to grids · cells images by falling confidence, of a class no more than there are grids."""
    best: list[int] = []
    counts: Counter[int] = Counter()
    for i in torch.sort(confidences, descending=True, stable=True).indices.tolist():
        kind = int(classes[i])
        counts[kind] += 1
        if counts[kind] <= grids:
            best.append(i)
    return torch.tensor(best[: grids * cells])


def _dealt(best: Tensor, classes: Tensor, grids: int, cells: int, seed: int) -> Tensor:
    """(grids, cells) long: images of different classes for every grid.

    Each grid takes from the classes with most images left, which leaves none over as long as
    that is possible; a new deck is shuffled when what is left has too few classes.
    """
    generator = torch.Generator().manual_seed(seed)
    deck: list[int] = []
    hands: list[list[int]] = []
    while len(hands) < grids:
        while len({int(classes[i]) for i in deck}) < cells:
            deck += best[torch.randperm(len(best), generator=generator)].tolist()
        by_class: dict[int, list[int]] = {}
        for i in deck:
            by_class.setdefault(int(classes[i]), []).append(i)
        # Sorting is stable, and the deck was shuffled: equally large classes come in random order.
        largest = sorted(by_class.values(), key=len, reverse=True)[:cells]
        hand = [cards[0] for cards in largest]
        for i in hand:
            deck.remove(i)
        hands.append([hand[j] for j in torch.randperm(cells, generator=generator).tolist()])
    return torch.tensor(hands)


def _stitched(images: Tensor, side: int) -> Tensor:
    """(side², channels, h, w) → one picture (channels, h, w): the mean of what a pixel covers."""
    sizes = product(_edges(images.shape[-2], side), _edges(images.shape[-1], side))
    cells = [adaptive_avg_pool2d(image, size) for image, size in zip(images, sizes, strict=True)]
    rows = [torch.cat(cells[r : r + side], -1) for r in range(0, len(cells), side)]
    return torch.cat(rows, -2)


def _edges(length: int, side: int) -> list[int]:
    if length < side:
        raise InvalidInput(f"Expected images of at least {side} × {side} pixels (got {length}).")
    return [length * (i + 1) // side - length * i // side for i in range(side)]


def _cells(height: int, width: int, side: int) -> Tensor:
    rows = torch.arange(side).repeat_interleave(torch.tensor(_edges(height, side)))
    columns = torch.arange(side).repeat_interleave(torch.tensor(_edges(width, side)))
    return rows.unsqueeze(1) * side + columns
