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

__all__ = [
    "Curve", "deletion", "information_curves", "information_curves_many", "insertion",
    "loss_information_curve", "mean_curve", "median_curve", "softmax_information_curve",
]  # fmt: skip
