"""The pointing game: does an explanation of a class lie where that class is?

Pictures of different classes are put side by side in one grid, and each class is explained in it
(Böhle et al. 2021; the paper's Figure 3: 2 × 2 grids of the most confident pictures, top 15,000).
A hit is a cell that holds more of the top values than any other cell. Unlike a curve, this game
cannot be won by a pattern that raises the probability anywhere in the picture.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import Any, TypedDict, Unpack

import torch
from torch import Tensor
from torch.nn.functional import avg_pool2d

from .. import types
from ..core.errors import InvalidInput
from ..core.layout import Layout
from ..core.numbers import check_count
from ..core.stopping import Stop
from ..tensors.api import explain_many
from ..tensors.inputs import Model
from ..tensors.targets import Target
from .ranking import counts_needed

CELLS = 4
"""Cells of a grid: 2 × 2."""
BATCH = 32
"""Images whose confidence is measured at once."""


@dataclass(frozen=True, eq=False, repr=False)
class Grids:
    """Pictures made of pictures, and where everything in them came from."""

    pictures: Tensor
    """(grids, channels, height, width): inputs of the model."""
    classes: Tensor
    """(grids, 4) long: the class in each cell, row by row; all different within a grid."""
    sources: Tensor
    """(grids, 4) long: which of the given images lies in each cell."""
    confidences: Tensor
    """(grids, 4): the model's probability of that class for the image alone."""
    cells: Tensor
    """(height, width) long: the cell of every pixel."""

    @property
    def reused(self) -> int:
        """How many cells show an image that was shown before."""
        return self.sources.numel() - len(set(self.sources.reshape(-1).tolist()))

    def __len__(self) -> int:
        return len(self.pictures)


@dataclass(frozen=True, eq=False, repr=False)
class PointingGame:
    """How often explanations lay in the right cell."""

    shares: Tensor
    """(grids, 4, 4) float64: [g, c, d] is the share of the top values in cell d when the
    class of cell c was explained in grid g."""
    k: int
    """How many values counted as the top."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The method and the ranking."""

    @property
    def right(self) -> Tensor:
        """(grids, 4): the share in the right cell; 1/4 is chance."""
        return self.shares.diagonal(dim1=1, dim2=2)

    @property
    def hits(self) -> Tensor:
        """(grids, 4) bool: the right cell holds more than every other. A tie is no hit."""
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


class Explaining(TypedDict, total=False):
    """Further arguments of `gp.explain_many`."""

    outputs: str | None
    objective: types.ObjectiveLike
    baseline: types.Baseline
    features: types.FeaturesLike
    stop: Stop | None
    batch_size: types.BatchSize


def pointing_game(
    model: types.Model,
    images: Tensor | Sequence[Tensor],
    targets: Sequence[int] | Tensor | None = None,
    *,
    method: types.MethodLike | None = None,
    k: int = 15_000,
    grids: int = 25,
    ranking: str | None = None,
    seed: int = 0,
    **options: Unpack[Explaining],
) -> PointingGame:
    """Make grids of the most confident images, explain every class in each, and count hits.

    images: inputs of the model, (count, channels, height, width) or a list of such pictures.
    targets: their classes; None takes the model's predictions.
    method: as in `gp.explain_many`. options: further arguments of it, such as features.
    k: how many values count as the top; of larger features as many whole ones as k has room for.
    ranking: None ranks greedy methods by order of selection and one-shot ones by signed score, as
        evidence against a class lies with its rivals.
    grids, seed: how many grids of 2 × 2 images, and their random order (`make_grids`).
    """
    outputs = options.get("outputs")
    boards = make_grids(model, images, targets, grids=grids, outputs=outputs, seed=seed)
    pictures = (picture for picture in boards.pictures for _ in range(CELLS))
    classes = boards.classes.flatten().tolist()
    attributions = explain_many(
        model, pictures, target=classes, method=method, seed=seed, **options
    )
    return pointing_score(boards, attributions, k=k, ranking=ranking)


def pointing_score(
    grids: Grids,
    attributions: Iterable[types.Ranking],
    *,
    k: int = 15_000,
    ranking: str | None = None,
) -> PointingGame:
    """The game's result for given explanations.

    attributions: for every grid in order, one for each of its cells in order: Attributions,
    permutations of the values, or scores shaped like the picture.
    """
    layout = Layout.of(grids.pictures[0])
    check_count("k", k, layout.n)
    where = grids.cells.expand(grids.pictures.shape[1:]).flatten()
    shares: list[Tensor] = []
    settings: dict[str, Any] = {}
    for a in attributions:
        needed, settings["ranking"] = counts_needed(a, layout, ranking, one_shot="signed")
        settings["method"] = getattr(a, "settings", {}).get("method")
        inside = torch.bincount(where[(needed <= k).cpu()], minlength=CELLS).double()
        if not int(inside.sum()):
            raise InvalidInput(
                f"Expected k to have room for at least one feature (got k={k}, less than the "
                "values of the first feature)."
            )
        shares.append(inside / inside.sum())
    if len(shares) != CELLS * len(grids):
        raise InvalidInput(
            f"Expected one attribution for each of {CELLS} classes in {len(grids)} grids, "
            f"{CELLS * len(grids)} in all (got {len(shares)})."
        )
    return PointingGame(torch.stack(shares).view(-1, CELLS, CELLS), k, settings)


def make_grids(
    model: types.Model,
    images: Tensor | Sequence[Tensor],
    targets: Sequence[int] | Tensor | None = None,
    *,
    grids: int = 25,
    outputs: str | None = None,
    seed: int = 0,
) -> Grids:
    """Grids of the images with the highest confidence, each shrunk to a cell by averaging.

    The grids · 4 most confident images, of a class at most one per grid, are distributed at
    random by `seed`, no class twice in a grid. Where there are too few, some are used again:
    `reused` says how many cells.
    """
    check_count("grids", grids)
    pictures = list(images)
    shapes = {tuple(getattr(image, "shape", ())) for image in pictures}
    if len(shapes) != 1 or len(next(iter(shapes))) != 3:
        raise InvalidInput(
            "Expected floating-point images (count, channels, height, width), or a list of such "
            f"pictures of one shape (got {sorted(shapes)[:2]})."
        )
    stack = torch.stack(pictures).detach()
    with torch.inference_mode(False), torch.no_grad():
        network = Model(model, Target(None, outputs, class_given=True))
        example = network.example(stack[0])
        batches = torch.split(stack.flatten(1), BATCH)
        logits = torch.cat([network.logits(batch, example) for batch in batches])
    probabilities = torch.softmax(logits.double(), 1).cpu()
    classes = probabilities.argmax(1) if targets is None else torch.as_tensor(targets).cpu()
    fits = classes.shape == (len(stack),) and not classes.is_floating_point()
    if not fits or bool(((classes < 0) | (classes >= probabilities.shape[1])).any()):
        raise InvalidInput(
            f"Expected one target per image, {len(stack)} classes from 0 to "
            f"{probabilities.shape[1] - 1} (got {classes.dtype} of shape {tuple(classes.shape)})."
        )
    classes = classes.long()
    confidences = probabilities.gather(1, classes.unsqueeze(1)).squeeze(1)
    sources = _dealt(classes, confidences, grids, seed)
    top_left, top_right, low_left, low_right = stack[sources].unbind(1)
    top, low = torch.cat([top_left, top_right], 3), torch.cat([low_left, low_right], 3)
    shrunk = avg_pool2d(torch.cat([top, low], 2), 2)
    rows, columns = ((2 * torch.arange(size) + 1) // size for size in stack.shape[2:])
    where = 2 * rows.unsqueeze(1) + columns
    return Grids(shrunk, classes[sources], sources, confidences[sources], where)


def _dealt(classes: Tensor, confidences: Tensor, grids: int, seed: int) -> Tensor:
    """(grids, 4) long: images of different classes for every grid.

    Each grid takes from the classes with most images left, which leaves none over as long as
    that is possible; a new deck is shuffled when what is left has too few classes.
    """
    kinds = classes.tolist()
    counts: Counter[int] = Counter()
    best: list[int] = []
    for i in confidences.sort(descending=True, stable=True).indices.tolist():
        counts[kinds[i]] += 1
        if counts[kinds[i]] <= grids and len(best) < grids * CELLS:
            best.append(i)
    different = len({kinds[i] for i in best})
    if different < CELLS:
        raise InvalidInput(
            f"Expected images of at least {CELLS} classes for grids of {CELLS} (got {different})."
        )
    generator = torch.Generator().manual_seed(seed)
    deck: list[int] = []
    hands: list[list[int]] = []
    while len(hands) < grids:
        while len({kinds[i] for i in deck}) < CELLS:
            deck += [best[j] for j in torch.randperm(len(best), generator=generator).tolist()]
        # Sorting is stable, and the deck was shuffled: equally large classes come in random order.
        crowd = [kind for kind, _ in Counter(kinds[i] for i in deck).most_common(CELLS)]
        hand = [next(i for i in deck if kinds[i] == kind) for kind in crowd]
        for i in hand:
            deck.remove(i)
        hands.append([hand[j] for j in torch.randperm(CELLS, generator=generator).tolist()])
    return torch.tensor(hands)
