"""How good is an explanation? Curves, a second opinion, pointing, quality, sanity.

No judge sees everything; `docs/metrics.md` says what each tells and where it can be fooled.
"""

from .curve import Curve, mean_curve, median_curve
from .curves import (
    deletion,
    information_curves,
    information_curves_many,
    insertion,
    loss_information_curve,
    softmax_information_curve,
)
from .pointing import Grids, PointingGame, make_grids, pointing_game, pointing_score

__all__ = [
    "Curve", "Grids", "PointingGame", "deletion", "information_curves", "information_curves_many",
    "insertion", "loss_information_curve", "make_grids", "mean_curve", "median_curve",
    "pointing_game", "pointing_score", "softmax_information_curve",
]  # fmt: skip
