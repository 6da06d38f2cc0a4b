"""How good is an explanation? Curves, a second opinion, pointing, quality, sanity.

No judge sees everything; `docs/metrics.md` says what each tells and where it can be fooled.
"""

from ..results.curve import Curve, mean_curve, median_curve
from .curves import (
    deletion,
    information_curves,
    information_curves_many,
    insertion,
    loss_information_curve,
    softmax_information_curve,
)
from .pair import LeftOut, pair_aic, pair_sic
from .pointing import Grids, PointingGame, make_grids, pointing_game, pointing_score
from .quality import Quality, attribution_quality, quality_curve
from .sanity import (
    RandomisationCheck,
    Stability,
    randomisation_check,
    rank_correlation,
    stability,
    top_overlap,
)

__all__ = [
    "Curve", "Grids", "LeftOut", "PointingGame", "Quality", "RandomisationCheck", "Stability",
    "attribution_quality", "deletion", "information_curves", "information_curves_many",
    "insertion", "loss_information_curve", "make_grids", "mean_curve", "median_curve",
    "pair_aic", "pair_sic", "pointing_game", "pointing_score", "quality_curve",
    "randomisation_check", "rank_correlation", "softmax_information_curve", "stability",
    "top_overlap",
]  # fmt: skip
