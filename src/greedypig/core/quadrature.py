"""Rules that turn ∫₀¹ f(t) dt into Σ weights_k · f(nodes_k).

Every rule's weights sum to 1, so a constant is integrated exactly whatever the number of nodes
(a widely used trapezoid sums to 1 − 1/n instead; completeness then fails by that share).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .errors import InvalidInput
from .numbers import check_count
from .registry import RULES


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


def left(steps: int) -> Rule:
    """The left end of each of `steps` equal intervals; order 1. One is the gradient at 1_S."""
    return Rule(tuple(k / steps for k in range(steps)), (1 / steps,) * steps)


def right(steps: int) -> Rule:
    """The right end of each of `steps` equal intervals; order 1."""
    return Rule(tuple((k + 1) / steps for k in range(steps)), (1 / steps,) * steps)


def trapezoid(steps: int) -> Rule:
    """`steps` equally spaced nodes with both ends, the ends at half weight; order 2."""
    if steps < 2:
        raise InvalidInput(
            f"Expected steps ≥ 2 for the trapezoid rule (got {steps}). Try rule='midpoint'."
        )
    gap = 1.0 / (steps - 1)
    nodes = *(k * gap for k in range(steps - 1)), 1.0
    return Rule(nodes, (gap / 2, *[gap] * (steps - 2), gap / 2))


def midpoint(steps: int) -> Rule:
    """The middle of each of `steps` equal intervals; order 2."""
    return _midpoints(steps, lambda u: u, lambda u: 1.0)


def cubic(steps: int) -> Rule:
    """Midpoints in u with t = u³, of order 2: nodes crowd at 0, for functions steep there."""
    return _midpoints(steps, lambda u: u**3, lambda u: 3 * u**2)


def smoothstep(steps: int) -> Rule:
    """Midpoints in u with t = u² · (3 − 2u), of order 2: nodes crowd at both ends."""
    return _midpoints(steps, lambda u: u**2 * (3 - 2 * u), lambda u: 6 * u * (1 - u))


def _midpoints(steps: int, path: Callable[[float], float], speed: Callable[[float], float]) -> Rule:
    """t(u) at the middle u of each of `steps` equal intervals, with weights dt/du that sum to 1:
    ∫₀¹ f(t) dt = ∫₀¹ f(t(u)) · dt/du du."""
    places = [(k + 0.5) / steps for k in range(steps)]
    weights = [speed(u) for u in places]
    return Rule(tuple(map(path, places)), tuple(w / sum(weights) for w in weights))


def completed(weights: Tensor, slopes: Tensor, rise: Tensor) -> Tensor:
    """(s,) weights, (b, s) slopes dg/dt at the nodes, (b,) g(1) − g(0) → (b, s): weights with
    Σ_k weights_k · slopes_k = rise.

    Their relative changes are the smallest in least squares: change_k ∝ weights_k · slopes_k, so
    the nodes at which g rises most change most. No weight turns negative or more than doubles:
    where that is not enough, the nodes have missed the rise, and the sum stays wrong.
    """
    parts = weights * slopes
    largest = parts.abs().amax(1, keepdim=True).clamp_min(torch.finfo(parts.dtype).tiny)
    shares = parts / largest  # So that no square underflows.
    effect, missing = (shares * parts).sum(1), rise - parts.sum(1)
    change = torch.where(effect > 0, missing / effect, 0).clamp(-1, 1)
    return weights * (1 + shares * change.unsqueeze(1))


def gauss_legendre(steps: int) -> Rule:
    """Exact for polynomials of degree 2·steps − 1: the roots of the Legendre polynomial P_steps."""
    nodes, weights = _gauss(_jacobi(steps))
    # The rule is symmetric about ½; averaging with the mirror image removes the last rounding.
    nodes, weights = (nodes + 1 - nodes.flip(0)) / 2, (weights + weights.flip(0)) / 2
    return Rule(tuple(nodes.tolist()), tuple((weights / weights.sum()).tolist()))


def gauss_radau(steps: int) -> Rule:
    """Gauss's rule with one node held at 0, where the gradient is that at 1_S: exact for
    polynomials of degree 2·steps − 2. One step is that gradient alone.

    The last entry of the Jacobi matrix is moved so that −1 is an eigenvalue (Golub 1973).
    """
    jacobi = _jacobi(steps)
    jacobi[-1, -1] = -1.0
    if steps > 1:
        inner = jacobi[:-1, :-1] + torch.eye(steps - 1, dtype=torch.float64)
        last = torch.zeros(steps - 1, dtype=torch.float64)
        last[-1] = jacobi[-1, -2] ** 2
        jacobi[-1, -1] += torch.linalg.solve(inner, last)[-1]
    nodes, weights = _gauss(jacobi)
    return Rule((0.0, *nodes[1:].clamp(0, 1).tolist()), tuple((weights / weights.sum()).tolist()))


def _jacobi(steps: int) -> Tensor:
    """The Jacobi matrix of Legendre's polynomials on [−1, 1]."""
    k = torch.arange(1, steps, dtype=torch.float64)
    off = k / torch.sqrt(4 * k * k - 1)
    return torch.diag(off, 1) + torch.diag(off, -1)


def _gauss(jacobi: Tensor) -> tuple[Tensor, Tensor]:
    """Nodes on [0, 1] and weights: its eigenvalues and eigenvectors (Golub and Welsch 1969)."""
    x, vectors = torch.linalg.eigh(jacobi)
    return (x + 1) / 2, vectors[0] ** 2


def rule(name: str, steps: int) -> Rule:
    """The rule called `name` with `steps` nodes; "gauss-legendre" is spelled either way."""
    steps = check_count("steps", steps)
    key = str(name).replace("_", "-")
    if key not in RULES:
        raise InvalidInput(f"Expected rule to be one of {', '.join(RULES)} (got {name!r}).")
    made: Rule = RULES[key].factory(steps)
    return made
