"""The lemmas as numbers: both sides of each, and how far they are apart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from greedypig.core.methods import IG
from greedypig.core.run import maximize
from greedypig.core.objective import objective

from .lemma_problems import Data, Knobs, any_copy

T = 4
"""Copies besides the column itself."""


@dataclass(frozen=True)
class Identity:
    """One statement, held against numbers."""

    lemma: str
    words: str
    found: float
    """How far apart the two sides are, or what the words say."""
    against: str
    """What it is to be compared with."""


def identities(data: Data, worth: Sequence[float], knobs: Knobs) -> list[Identity]:
    """Feature redundancy on the planted G, PIG and marginal gains on linear regression."""
    return [*redundancy(worth, knobs), *regression(data, knobs)]


def redundancy(worth: Sequence[float], knobs: Knobs) -> list[Identity]:
    """Equal scores for copies; none for the others once one is taken."""
    values = torch.tensor(worth, dtype=torch.float64)
    n = len(worth)

    def g(w: Tensor) -> Tensor:
        return torch.mv(any_copy(w, 0, n), values)

    def after(w: Tensor) -> Tensor:
        taken = torch.zeros_like(w)
        taken[:, 0] = 1
        return g(torch.maximum(w, taken))

    scores = _ig(g, n + T, knobs)
    copies = torch.cat([scores[:1], scores[n:]])
    then = _ig(after, n + T, knobs)[n:]
    return [
        Identity("Feature redundancy", f"IG's scores of {T + 1} equal columns differ by at most",
                 float(copies.max() - copies.min()),
                 f"each is {float(copies.mean()):.3g}, their sum what one alone had"),
        Identity("Feature redundancy", "once one is taken, the others' largest score is",
                 float(then.abs().max()), "0 by the lemma"),
    ]  # fmt: skip


def regression(data: Data, knobs: Knobs) -> list[Identity]:
    """g(w) = −‖A(x ⊙ w) − b‖² at the least-squares x, on the table's own columns."""
    a, b = data.x.double(), data.y.double()
    x = torch.linalg.lstsq(a, b[:, None]).solution[:, 0]

    def g(w: Tensor) -> Tensor:
        off: Tensor = torch.mm(x * w, a.T) - b
        return -off.square().sum(1)

    n = len(x)
    scores, closed = _ig(g, n, knobs), x * (a.T @ b)
    alone = g(torch.eye(n, dtype=a.dtype)) - g(torch.zeros(1, n, dtype=a.dtype))
    # The Hessian is −2 diag(x) AᵀA diag(x) everywhere: what g's mixed terms come to per column.
    hessian = -2 * x[:, None] * (a.T @ a) * x
    mixed = (hessian.sum(1) - hessian.diagonal()).abs() / 2
    gap = (scores - alone).abs()
    return [
        Identity("Linear regression", "∫∇g(t·1) dt and x ⊙ Aᵀb differ by at most",
                 float((scores - closed).abs().max()),
                 f"the largest score is {float(closed.max()):.3g}"),
        Identity("PIG and marginal gain", "a score misses the column's marginal gain by at most",
                 float(gap.max()), f"the lemma's bound is {float(mixed.max()):.3g}, which a "
                 "quadratic g attains"),
    ]  # fmt: skip


def _ig(g: Callable[[Tensor], Tensor], n: int, knobs: Knobs) -> Tensor:
    problem = objective(g, n, dtype=torch.float64)
    return maximize(problem, IG(knobs.steps)).unit_scores.double()
