"""Small set functions that carry their own answers, derived by hand.

Each problem is a differentiable g on [0,1]ⁿ in float64 together with the value of its best set
of k features, `best(k) = max over |S| = k of g(1_S)`, from a formula or, where there is none, by
plain enumeration of sets that shares no code with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import NamedTuple

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.objective import Objective
from greedypig.core.rounds import Round
from greedypig.core.run import Run


@dataclass(frozen=True, eq=False)
class Known:
    """g with its optimum."""

    g: Callable[[Tensor], Tensor]
    n: int
    best: Callable[[int], float]
    """k ↦ max over sets of exactly k features of g(1_S)."""

    def objective(self, *, dtype: torch.dtype = torch.float64, **knobs: object) -> Objective:
        return gp.objective(self.g, self.n, dtype=dtype, **knobs)

    def value(self, features: Sequence[int]) -> float:
        """G(S) = g(1_S), by calling g."""
        return float(self.g(indicator(self.n, features).unsqueeze(0)))

    def quality(self, order: Sequence[int] | Tensor, k: int) -> float:
        """G of the first k of `order` over the best of that size (the paper's Definition 4.1)."""
        return self.value([int(i) for i in order[:k]]) / self.best(k)


def indicator(n: int, features: Sequence[int]) -> Tensor:
    """1_S in float64."""
    mask = torch.zeros(n, dtype=torch.float64)
    mask[list(features)] = 1
    return mask


def floats(numbers: object) -> Tensor:
    return torch.as_tensor(numbers, dtype=torch.float64)


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(seed: int, *shape: int) -> Tensor:
    """Standard normal numbers from a seed of their own."""
    return torch.randn(*shape, generator=generator(seed), dtype=torch.float64)


def uniform(seed: int, *shape: int) -> Tensor:
    return torch.rand(*shape, generator=generator(seed), dtype=torch.float64)


def modular(weights: Sequence[float] | Tensor) -> Known:
    """g(w) = Σ weights_i · w_i. The best k are the k largest weights."""
    c = floats(weights)
    ranked = sorted(c.tolist(), reverse=True)
    return Known(lambda w: w @ c.to(w), len(c), lambda k: sum(ranked[:k]))


def copies(worth: Sequence[float], counts: Sequence[int]) -> Known:
    """g(w) = Σ_f worth_f · max of w over the counts_f copies of feature f, worth_f > 0.

    A second copy adds nothing, so the best k are one copy each of the k worthiest features.
    """
    edges = [sum(counts[:f]) for f in range(len(counts) + 1)]
    ranked = sorted(worth, reverse=True)

    def g(w: Tensor) -> Tensor:
        parts = [
            value * w[:, a:b].amax(1)
            for value, a, b in zip(worth, edges[:-1], edges[1:], strict=True)
        ]
        return torch.stack(parts).sum(0)

    return Known(g, edges[-1], lambda k: sum(ranked[:k]))


def xor(bonus: float) -> Known:
    """g(w) = w₀ + w₁ − 2·w₀·w₁ + bonus·w₂: XOR's multilinear extension, and an honest feature.

    For 0 < bonus < 1: best(1) = 1 ({0}), best(2) = 1 + bonus ({0, 2}), best(3) = bonus.
    """
    best = {0: 0.0, 1: 1.0, 2: 1.0 + bonus, 3: bonus}

    def g(w: Tensor) -> Tensor:
        return w[:, 0] + w[:, 1] - 2 * w[:, 0] * w[:, 1] + bonus * w[:, 2]

    return Known(g, 3, best.__getitem__)


def saturating(rates: Sequence[float] | Tensor) -> Known:
    """g(w) = 1 − exp(−Σ rates_i · w_i), rates_i > 0: increasing in the sum, so top-k is best."""
    c = floats(rates)
    ranked = sorted(c.tolist(), reverse=True)
    return Known(
        lambda w: 1 - torch.exp(-(w @ c.to(w))),
        len(c),
        lambda k: float(1 - torch.exp(-floats(sum(ranked[:k])))),
    )


def quadratic(linear: Tensor, hessian: Tensor) -> Known:
    """g(w) = linearᵀw + ½·wᵀ·hessian·w with a symmetric Hessian; best by enumeration."""

    def g(w: Tensor) -> Tensor:
        return w @ linear.to(w) + 0.5 * torch.einsum("mi,ij,mj->m", w, hessian.to(w), w)

    return _enumerated(g, len(linear))


def linear_regression(a: Tensor, b: Tensor) -> Known:
    """g(w) = −‖A(x⊙w) − b‖² with x = A⁺b, the paper's post-hoc regression; best by enumeration."""
    x = torch.linalg.pinv(a) @ b

    def g(w: Tensor) -> Tensor:
        return -((w * x.to(w)) @ a.T.to(w) - b.to(w)).square().sum(1)

    return _enumerated(g, a.shape[1])


def coverage(sets: Sequence[set[int]], worth: Sequence[float]) -> Known:
    """G(S) = Σ worth of the items that some set in S covers; monotone and submodular.

    g is the multilinear extension: Σ_e worth_e · (1 − Π over sets i that hold e of (1 − w_i)).
    """
    holds = torch.zeros(len(sets), len(worth), dtype=torch.float64)
    for i, items in enumerate(sets):
        holds[i, sorted(items)] = 1
    w_items = floats(worth)

    def g(w: Tensor) -> Tensor:
        missed = (1 - w.unsqueeze(2) * holds.to(w)).prod(1)
        return (1 - missed) @ w_items.to(w)

    @cache
    def best(k: int) -> float:
        return max(sum(worth[e] for e in set().union(*chosen)) for chosen in combinations(sets, k))

    return Known(g, len(sets), best)


def random_coverage(
    seed: int, n: int, items: int, size: int, *, copied: int = 1, whole: bool = False
) -> Known:
    """n sets of `size` random items each; every distinct set comes `copied` times.

    whole=True gives the items whole worths, so that gains are exact and ties are ties.
    """
    rng = generator(seed)
    distinct = [
        set(torch.randperm(items, generator=rng)[:size].tolist()) for _ in range(n // copied)
    ]
    worth = torch.rand(items, generator=rng, dtype=torch.float64) + 0.1
    if whole:
        worth = (20 * worth).ceil()
    return coverage([s for s in distinct for _ in range(copied)], worth.tolist())


def random_weakly_submodular(seed: int, n: int) -> Known:
    """A random coverage function plus small rewards for pairs: monotone, not submodular.

    g(w) = coverage(w) + Σ_{i<j} reward_ij · w_i · w_j with reward_ij ≥ 0.
    """
    base = random_coverage(seed, n, items=2 * n, size=4)
    reward = torch.triu(uniform(seed + 1, n, n), diagonal=1) * 0.3

    def g(w: Tensor) -> Tensor:
        return base.g(w) + torch.einsum("mi,ij,mj->m", w, reward.to(w), w)

    return _enumerated(g, n)


@dataclass(frozen=True, eq=False)
class Net:
    """g(w) = outᵀ·tanh(inner·w + bias): smooth, and with its gradient written down."""

    inner: Tensor
    bias: Tensor
    out: Tensor

    @property
    def n(self) -> int:
        return self.inner.shape[1]

    def g(self, w: Tensor) -> Tensor:
        return torch.tanh(w @ self.inner.T.to(w) + self.bias.to(w)) @ self.out.to(w)

    def gradient(self, w: Tensor) -> Tensor:
        """innerᵀ·(out ⊙ (1 − tanh²(inner·w + bias))), for one w (n,)."""
        return self.inner.T @ (self.out * (1 - torch.tanh(self.inner @ w + self.bias) ** 2))

    def objective(self, *, dtype: torch.dtype = torch.float64, **knobs: object) -> Objective:
        return gp.objective(self.g, self.n, dtype=dtype, **knobs)


def net(seed: int, n: int, hidden: int = 6) -> Net:
    """A random smooth g of n features."""
    return Net(normal(seed, hidden, n), normal(seed + 1, hidden), normal(seed + 2, hidden))


def _enumerated(g: Callable[[Tensor], Tensor], n: int) -> Known:
    @cache
    def best(k: int) -> float:
        masks = torch.stack([indicator(n, s) for s in combinations(range(n), k)])
        return float(g(masks).max())

    return Known(g, n, best)


def round_at(objective: Objective, mask: Tensor | None = None, **fields: object) -> Round:
    """A round over single values in which `mask` (b, n), by default nothing, is selected."""
    mask = torch.zeros(objective.b, objective.n) if mask is None else mask
    return Round(mask.to(objective.end), gp.Elements(objective.n), mask.bool(), **fields)


class RoundDone(NamedTuple):
    """What one round of a run did."""

    index: int
    chosen: Tensor
    scores: Tensor
    total: float
    value: float
    """G(S) after the round."""


def history(run: Run) -> list[RoundDone]:
    """The rounds of a run of one problem, carried out to its end."""
    states = list(run)
    values = run.results()[0].values.tolist()
    done = len(values) - 1 - len(states)
    rounds = []
    for index, state in enumerate(states, start=done):
        chosen = state.order[0, -state.picks[-1] :]
        total = state.totals[-1][0]
        rounds.append(RoundDone(index, chosen, state.scores[0, chosen], total, values[index + 1]))
    return rounds
