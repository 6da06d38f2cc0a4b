"""Does what was made of a network differentiate as the network itself does?

A network is taken apart by what its forward calls. That does not show under which mode it calls
it (`no_grad`), functions with a derivative of their own, or what is only done to real tensors. So
the gradients of both are compared once, at points where all of the network can be seen.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.objective import Oracle, Runs
from .fold import SAME_OUTPUT, FirstLayer
from .mlp_gradient import Chain, ChainOracle

log = logging.getLogger(__name__)

ROWS = 16
"""So many points are asked about."""


class Mixture:
    """An objective that looks at every output, each with a weight of its own."""

    def __init__(self, logits: Callable[[Any, int], Tensor]) -> None:
        self._logits = logits

    def logits(self, output: Any, rows: int) -> Tensor:
        """The output as (m, classes) or (m,)."""
        return self._logits(output, rows)

    def values(self, logits: Tensor, runs: Any) -> Tensor:
        """The mixture of every row's outputs."""
        return self.slopes(logits, runs)[0]

    def slopes(self, logits: Tensor, runs: Any) -> tuple[Tensor, Tensor]:
        """values (m,), and their derivatives: the weights."""
        flat = logits.reshape(logits.shape[0], -1)
        weights = torch.linspace(1, 2, flat.shape[1], dtype=flat.dtype, device=flat.device)
        return flat @ weights, weights.expand_as(flat).reshape(logits.shape)

    def of(self, network: Callable[[Tensor], Any]) -> Callable[[Tensor, Runs], Tensor]:
        """From points to the mixture of the network's outputs, for an oracle."""
        return lambda points, runs: self.values(self.logits(network(points), points.shape[0]), runs)


def slopes_alike(
    made: Chain | FirstLayer,
    network: Callable[[Tensor], Any],
    logits: Callable[[Any, int], Tensor],
    like: Tensor,
    batch_size: int | Literal["auto"],
) -> bool:
    """Does what was made of the network differentiate as it does, at points like this one?

    Where all gradients are 0 nothing can be told, and the answer is no.
    """
    noise = torch.Generator("cpu").manual_seed(0)
    points = torch.randn(ROWS, like.numel(), generator=noise, device="cpu").to(like)
    target = Mixture(logits)
    plain = Oracle(target.of(network), like.numel(), batch_size=batch_size)
    try:
        expected = _gradients(plain, points.clone())
        if isinstance(made, Chain):
            by_hand = ChainOracle(made, target, plain.function, like.numel(), batch_size=batch_size)
            found = _gradients(by_hand, points)
        else:
            rest = Oracle(target.of(made.rest), made.outputs, batch_size=batch_size)
            found = made.back(_gradients(rest, made.of(points)))
        scale, off = expected.abs().max(), (found - expected).abs().max()
    except Exception as error:  # A convenience; the plain network always works.
        log.debug("gradients could not be compared (%s)", error)
        return False
    return bool(scale > 0) and bool(off <= SAME_OUTPUT * scale)


def _gradients(oracle: Oracle, points: Tensor) -> Tensor:
    gradients = oracle.evaluate(points, [(None, points.shape[0])], gradient=True)[1]
    assert gradients is not None
    return gradients
