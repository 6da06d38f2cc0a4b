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
from math import isqrt, nan
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn.functional import adaptive_avg_pool2d

from ..core.errors import InvalidInput
from ..core.layout import Layout
from ..core.numbers import check_count
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
    shared: dict[str, Any] = {"seed": seed, "batch_size": batch_size, "outputs": outputs}
    boards = make_grids(model, images, targets, grids=grids, side=side, **shared)
    check_count("k", k, boards.pictures[0].numel())
    given = shared | dict(options or {})
    cells = boards.classes.shape[1]
    each = (picture for picture in boards.pictures for _ in range(cells))
    classes = boards.classes.reshape(-1).tolist()
    attributions = explain_many(model, each, target=classes, method=method, **given)
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
    if min(pictures.shape[-2:]) < side:
        raise InvalidInput(
            f"Expected images of at least {side} × {side} pixels (got {tuple(pictures.shape)})."
        )
    classes, confidences = _confidences(model, pictures, targets, outputs, batch_size)
    best = _most_confident(classes, confidences, grids, side**2)
    kinds = len(set(classes[best].tolist()))
    if kinds < side**2:
        raise InvalidInput(
            f"Expected images of at least {side**2} classes for grids of {side} × {side} "
            f"(got {kinds})."
        )
    sources = _dealt(best, classes, grids, side**2, seed)
    cells = _cells(pictures.shape[-2], pictures.shape[-1], side)
    stitched = torch.stack([_stitched(pictures[row], cells) for row in sources])
    return Grids(stitched, classes[sources], sources, confidences[sources], cells)


def _pictures(images: Any) -> Tensor:
    each = list(images)
    fits = all(isinstance(i, Tensor) and i.is_floating_point() and i.dim() == 3 for i in each)
    if not each or not fits or len({i.shape for i in each}) > 1:
        raise InvalidInput(
            "Expected floating-point images (count, channels, height, width), or a list of such "
            f"pictures of one shape (got {[tuple(getattr(i, 'shape', ())) for i in each[:2]]})."
        )
    return torch.stack(each).detach()


def _confidences(
    model: Callable[..., Any], pictures: Tensor, targets: Any, outputs: str | None, batch_size: Any
) -> tuple[Tensor, Tensor]:
    """(count,) classes, the given or the predicted ones, and (count,) their probabilities."""
    if targets is not None and len(targets) != len(pictures):
        raise InvalidInput(
            f"Expected one target per image (got {len(targets)} for {len(pictures)} images)."
        )
    with torch.inference_mode(False), torch.no_grad():
        network = Model(model, Target(None, outputs, class_given=True))
        example = network.example(pictures[0])
        size = 32 if batch_size == "auto" else batch_size
        batches = [pictures[i : i + size].flatten(1) for i in range(0, len(pictures), size)]
        logits = torch.cat([network.logits(batch.clone(), example) for batch in batches])
    confidences = torch.softmax(logits.double(), 1).cpu()
    classes = confidences.argmax(1) if targets is None else torch.as_tensor(targets).cpu()
    most = confidences.shape[1] - 1
    if classes.is_floating_point() or int(classes.min()) < 0 or int(classes.max()) > most:
        raise InvalidInput(f"Expected targets to be classes from 0 to {most} (got others).")
    return classes.long(), confidences.gather(1, classes.long().unsqueeze(1)).squeeze(1)


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


def _cells(height: int, width: int, side: int) -> Tensor:
    """(height, width) long: the cell of every pixel, row by row; sizes differ by at most 1."""
    rows, columns = (
        ((torch.arange(length) + 1) * side - 1) // length for length in (height, width)
    )
    return rows.unsqueeze(1) * side + columns


def _stitched(images: Tensor, cells: Tensor) -> Tensor:
    """(side², channels, h, w) → one picture (channels, h, w): the mean of what a pixel covers."""
    picture = torch.empty_like(images[0])
    for cell, image in enumerate(images):
        inside = cells == cell
        size = (int(inside.any(1).sum()), int(inside.any(0).sum()))
        picture[:, inside] = adaptive_avg_pool2d(image, size).flatten(1)
    return picture
