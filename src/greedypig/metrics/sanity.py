"""Does an explanation depend on the model at all, and does it depend on the seed?

`randomisation_check` is the cascading test of Adebayo et al. 2018: the network's layers are made
random one after the other from the output down, and the explanation should change with them. One
that stays depends on the input only, not on the model. `stability` asks the opposite: only the seed
changes, and the explanation should stay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from statistics import fmean
from typing import Any

import torch
from torch import Tensor, nn

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from ..core.numbers import check_count
from ..network.frozen import twin_of
from ..tensors.api import explain
from .ranking import unit_order

TOP = 0.1
"""The share of the features that counts as the top where k is not given."""
MOST_DEPTHS = 10
"""How many explanations a randomisation check makes by default, at most."""


@dataclass(frozen=True, repr=False)
class RandomisationCheck:
    """How similar the explanations of ever more random networks are to the original one."""

    layers: tuple[str, ...]
    """The lowest random layer each time; all layers above it were random, too."""
    rank_correlation: tuple[float, ...]
    """Spearman's, between the ranks of all features: 1 for the same order, 0 for unrelated ones."""
    overlap: tuple[float, ...]
    """The share of the original's top k features that are among the top k."""
    chance: float
    """The overlap of unrelated orders: k over the number of features."""
    k: int
    """How many features count as the top."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """Method, seed and target."""

    def __repr__(self) -> str:
        return (
            f"RandomisationCheck(rank correlation {self.rank_correlation[0]:.3f} with "
            f"{self.layers[0]!r} random → {self.rank_correlation[-1]:.3f} with all; top-{self.k:,} "
            f"overlap {self.overlap[-1]:.3f}, chance {self.chance:.3f})"
        )


@dataclass(frozen=True, repr=False)
class Stability:
    """How similar explanations are to each other that differ in their seed alone."""

    rank_correlation: float
    """Spearman's between the ranks of all features, mean over pairs of seeds."""
    overlap: float
    """The share of the top k features that two seeds have in common, mean over pairs."""
    chance: float
    """The overlap of unrelated orders: k over the number of features."""
    k: int
    """How many features count as the top."""
    seeds: tuple[int, ...]
    """The seeds that were compared."""
    attributions: tuple[Attribution, ...]
    """The explanations, one per seed."""

    def __repr__(self) -> str:
        return (
            f"Stability(rank correlation {self.rank_correlation:.3f}, top-{self.k:,} overlap "
            f"{self.overlap:.3f}, chance {self.chance:.3f}, over {len(self.seeds)} seeds)"
        )


def randomisation_check(
    model: nn.Module,
    x: Any,
    *,
    target: int | None = None,
    method: Any = None,
    depths: int | None = None,
    k: int | None = None,
    ranking: str | None = None,
    seed: int = 0,
    options: Mapping[str, Any] | None = None,
) -> RandomisationCheck:
    """Explain the class again with the layers made random from the output down, on a copy.

    Every weight tensor is permuted in itself, which keeps its distribution.

    method: as in `gp.explain`. options: further arguments of it.
    depths: how many explanations, the layers spread evenly over them, the last with all of them
        random; None takes at most 10.
    k: how many features count as the top; None takes a tenth.
    ranking: as for curves: None ranks one-shot scores by absolute value.
    """
    arguments = dict(options or {})
    copy = _private_copy(model)
    layers = _layers(copy)
    count = min(len(layers), MOST_DEPTHS) if depths is None else depths
    check_count("depths", count, len(layers))
    first = explain(model, x, target=target, method=method, seed=seed, **arguments)
    target = first.settings["target"] if first.settings["objective"] != "callable" else None
    if first.settings["outputs"] == "values":  # The direction is part of the question.
        arguments["objective"] = first.settings["objective"]
    top = _top(k, first)
    rows = []
    for name in _randomised(layers, count, seed):
        again = explain(copy, x, target=target, method=method, seed=seed, **arguments)
        overlap = top_overlap(first, again, top, ranking)
        rows.append((name, rank_correlation(first, again, ranking), overlap))
    names, correlations, overlaps = zip(*rows, strict=True)
    settings = {"method": first.settings["method"], "seed": seed, "target": target}
    chance = top / first.features.units
    return RandomisationCheck(names, correlations, overlaps, chance, top, settings)


def stability(
    model: Callable[..., Any],
    x: Any,
    *,
    seeds: int | Sequence[int] = 5,
    target: int | None = None,
    method: Any = None,
    k: int | None = None,
    ranking: str | None = None,
    options: Mapping[str, Any] | None = None,
) -> Stability:
    """Explain the same output with several seeds, and compare the explanations pairwise.

    seeds: how many (0, 1, …) or which. Methods without randomness are perfectly stable. The other
    arguments are those of `randomisation_check`.
    """
    which = tuple(range(seeds)) if isinstance(seeds, int) else tuple(seeds)
    if len(which) < 2 or len(set(which)) < len(which):
        raise InvalidInput(f"Expected at least two different seeds (got {seeds!r}).")
    attributions = tuple(
        explain(model, x, target=target, method=method, seed=seed, **options or {})
        for seed in which
    )
    top = _top(k, attributions[0])
    pairs = list(combinations(attributions, 2))
    correlation = fmean(rank_correlation(a, b, ranking) for a, b in pairs)
    overlap = fmean(top_overlap(a, b, top, ranking) for a, b in pairs)
    chance = top / attributions[0].features.units
    return Stability(correlation, overlap, chance, top, which, attributions)


def rank_correlation(a: Attribution, b: Attribution, ranking: str | None = None) -> float:
    """Spearman's correlation of two orders of the same features: 1 − 6 · Σ d² / (u³ − u)."""
    ranks = [order.argsort().double() for order in _orders(a, b, ranking)]
    units = len(ranks[0])
    if units == 1:
        return 1.0
    return 1 - 6 * float((ranks[0] - ranks[1]).square().sum()) / (units**3 - units)


def top_overlap(a: Attribution, b: Attribution, k: int, ranking: str | None = None) -> float:
    """The share of the top k features that two explanations have in common."""
    first, second = _orders(a, b, ranking)
    check_count("k", k, len(first))
    return len(set(first[:k].tolist()) & set(second[:k].tolist())) / k


def _orders(a: Attribution, b: Attribution, ranking: str | None) -> tuple[Tensor, Tensor]:
    if a.features.units != b.features.units or a.features.n != b.features.n:
        raise InvalidInput(
            f"Expected explanations of the same features (got {a.features.units} and "
            f"{b.features.units})."
        )
    return unit_order(a, ranking).cpu(), unit_order(b, ranking).cpu()


def _top(k: int | None, a: Attribution) -> int:
    units = a.features.units
    if k is None:
        return max(1, round(TOP * units))
    check_count("k", k, units)
    return k


def _private_copy(model: Any) -> nn.Module:
    """A copy that shares no weight with the model."""
    if not isinstance(model, nn.Module):
        raise InvalidType(
            "Expected an nn.Module, whose layers can be made random on a copy "
            f"(got {type(model).__name__})."
        )
    with torch.inference_mode(False):
        copy = twin_of(model)
        for parameter in copy.parameters():
            parameter.data = parameter.detach().clone()
    return copy


def _layers(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules that own weights, from the output down: in the reverse order of their definition."""
    layers = [
        (name or type(module).__name__, module)
        for name, module in model.named_modules()
        if next(module.parameters(recurse=False), None) is not None
    ]
    if not layers:
        raise InvalidInput("Expected a model with weights to make random (got none).")
    return layers[::-1]


def _randomised(layers: list[tuple[str, nn.Module]], depths: int, seed: int) -> Iterator[str]:
    """Make more and more layers random, and name the lowest at each of `depths` stops."""
    generator = torch.Generator().manual_seed(seed)
    stops = {-(-len(layers) * stop // depths) for stop in range(1, depths + 1)}
    for i, (name, module) in enumerate(layers, 1):
        for parameter in module.parameters(recurse=False):
            order = torch.randperm(parameter.numel(), generator=generator).to(parameter.device)
            parameter.data = parameter.detach().reshape(-1)[order].view(parameter.shape)
        if i in stops:
            yield name
