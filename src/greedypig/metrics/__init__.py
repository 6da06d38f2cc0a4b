"""How good is an explanation? Curves, a second opinion, pointing, quality.

No single metric suffices; `docs/metrics.md` says what each measures and how it can be misled.
"""

from ..results.curve import Curve, mean_curve, median_curve
from .curves import (
    CurveOptions,
    deletion,
    information_curves,
    information_curves_many,
    insertion,
    loss_information_curve,
    softmax_information_curve,
)
from .pointing import Grids, PointingGame, make_grids, pointing_game, pointing_score
from .quality import Quality, attribution_quality, quality_curve

__all__ = [
    "Curve",
    "CurveOptions",
    "Grids",
    "PointingGame",
    "Quality",
    "attribution_quality",
    "deletion",
    "information_curves",
    "information_curves_many",
    "insertion",
    "loss_information_curve",
    "make_grids",
    "mean_curve",
    "median_curve",
    "pointing_game",
    "pointing_score",
    "quality_curve",
    "softmax_information_curve",
]
