"""Rules that turn ∫₀¹ f(t) dt into Σ weights_k · f(nodes_k).

Every rule's weights sum to 1, so a constant is integrated exactly whatever the number of nodes
(a widely used trapezoid sums to 1 − 1/n instead; completeness then fails by that share).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from .errors import InvalidInput
from .numbers import check_count, whole


@dataclass(frozen=True)
class Rule:
    """Nodes in [0, 1] with weights: ∫₀¹ f(t) dt ≈ Σ weights_k · f(nodes_k)."""

    nodes: tuple[float, ...]
    weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.nodes) != len(self.weights) or not self.nodes:
            raise InvalidInput(
                f"Expected as many weights as nodes, at least one "
                f"(got {len(self.nodes)} nodes, {len(self.weights)} weights)."
            )
        if not all(0.0 <= t <= 1.0 for t in self.nodes):
            raise InvalidInput("Expected every node of a quadrature rule in [0, 1].")
        if not abs(sum(self.weights) - 1.0) <= 1e-9:
            raise InvalidInput(f"Expected weights that sum to 1 (got {sum(self.weights)}).")

    def __len__(self) -> int:
        return len(self.nodes)


def midpoint(steps: int) -> Rule:
    """The centres of `steps` equal intervals; order 2."""
    return _uniform([(k + 0.5) / steps for k in range(steps)])


def left(steps: int) -> Rule:
    """The left ends of `steps` equal intervals; order 1. One step is the gradient at 1_S."""
    return _uniform([k / steps for k in range(steps)])


def right(steps: int) -> Rule:
    """The right ends of `steps` equal intervals; order 1."""
    return _uniform([(k + 1) / steps for k in range(steps)])


def trapezoid(steps: int) -> Rule:
    """`steps` equally spaced nodes with both ends, the ends at half weight; order 2."""
    if steps < 2:
        raise InvalidInput(
            f"Expected steps ≥ 2 for the trapezoid rule (got {steps}). Try rule='midpoint'."
        )
    gap = 1.0 / (steps - 1)
    ends = {0, steps - 1}
    return Rule(
        tuple(k * gap if k < steps - 1 else 1.0 for k in range(steps)),
        tuple(gap / 2 if k in ends else gap for k in range(steps)),
    )


def gauss_legendre(steps: int) -> Rule:
    """Exact for polynomials of degree 2·steps − 1: the roots of the Legendre polynomial P_steps.

    Newton's method from Tricomi's estimate of the roots; weights 2 / ((1 − x²) · P′(x)²), halved
    with the interval.
    """
    k = torch.arange(1, steps + 1, dtype=torch.float64)
    x = torch.cos(torch.pi * (k - 0.25) / (steps + 0.5)).flip(0)
    for _ in range(10):
        value, slope = _legendre(x, steps)
        x = x - value / slope
    # The rule is symmetric about ½; averaging with the mirror image removes the last rounding.
    x = (x - x.flip(0)) / 2
    weights = 1 / ((1 - x * x) * _legendre(x, steps)[1] ** 2)
    weights = weights / weights.sum()
    return Rule(tuple(((x + 1) / 2).tolist()), tuple(weights.tolist()))


def gauss_radau(steps: int) -> Rule:
    """Gauss's rule with one node held at 0, where the gradient is that at 1_S: exact for
    polynomials of degree 2·steps − 2. One step is that gradient alone.

    Nodes and weights are the eigenvalues and eigenvectors of the Jacobi matrix of Legendre's
    polynomials, its last entry moved so that −1 is an eigenvalue (Golub 1973).
    """
    k = torch.arange(1, steps, dtype=torch.float64)
    off = k / torch.sqrt(4 * k * k - 1)
    jacobi = torch.diag(off, 1) + torch.diag(off, -1)
    jacobi[-1, -1] = -1.0
    if steps > 1:
        inner = jacobi[:-1, :-1] + torch.eye(steps - 1, dtype=torch.float64)
        last = torch.zeros(steps - 1, dtype=torch.float64)
        last[-1] = off[-1] ** 2
        jacobi[-1, -1] += torch.linalg.solve(inner, last)[-1]
    x, vectors = torch.linalg.eigh(jacobi)
    weights = vectors[0] ** 2
    nodes = ((x + 1) / 2).clamp(0, 1).tolist()
    return Rule((0.0, *nodes[1:]), tuple((weights / weights.sum()).tolist()))


def _legendre(x: Tensor, degree: int) -> tuple[Tensor, Tensor]:
    """P_degree and its derivative at x, by the three-term recurrence."""
    before, value = torch.ones_like(x), x
    for n in range(2, degree + 1):
        before, value = value, ((2 * n - 1) * x * value - (n - 1) * before) / n
    return value, degree * (x * value - before) / (x * x - 1)


RULES: dict[str, Callable[[int], Rule]] = {
    "midpoint": midpoint,
    "left": left,
    "right": right,
    "trapezoid": trapezoid,
    "gauss_legendre": gauss_legendre,
    "gauss_radau": gauss_radau,
}


def rule(name: str, steps: int) -> Rule:
    """The rule called `name` with `steps` nodes; "gauss-legendre" is spelled either way."""
    steps = whole(steps)
    check_count("steps", steps)
    return _made(name, steps)


@lru_cache(maxsize=64)
def _made(name: str, steps: int) -> Rule:
    key = name.replace("-", "_")
    if key not in RULES:
        raise InvalidInput(f"Expected rule to be one of {', '.join(RULES)} (got {name!r}).")
    return RULES[key](steps)


def _uniform(nodes: list[float]) -> Rule:
    return Rule(tuple(nodes), (1.0 / len(nodes),) * len(nodes))
