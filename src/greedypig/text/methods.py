"""What method=None takes for texts.

6 measured rounds of 4 nodes that crowd at 0, where attention is steep. Their weights are completed,
so that scores sum to the rise of G. A counterfactual, which removes the text, has nodes that crowd
at both ends; embeddings, which are not steep, take midpoints. For a two-sided objective, where both
ends are steep, 8 nodes that crowd at both. Texts that are really deleted have no gradients: greedy
by marginal gains.
"""

from __future__ import annotations

from dataclasses import replace

from ..core.methods import GreedyPIG
from ..core.scorers import MarginalGains

FOR_TEXTS = GreedyPIG(rounds=6, steps=4, rule="cubic", schedule="measured", complete=True)
FOR_BOTH_SIDES_OF_TEXTS = replace(FOR_TEXTS, steps=8, rule="smoothstep")


def choose_for_text(*, two_sided: bool, absent: str, removing: bool) -> GreedyPIG | MarginalGains:
    """What method=None takes for a text; the arguments are those of `pig_for_text`."""
    if absent == "deleted":
        return MarginalGains()
    return pig_for_text(two_sided=two_sided, absent=absent, removing=removing)


def pig_for_text(*, two_sided: bool, absent: str, removing: bool) -> GreedyPIG:
    """Greedy PIG for a text whose features are absent in this way; removing: does the path lead
    away from the text, as a counterfactual's?"""
    method = FOR_BOTH_SIDES_OF_TEXTS if two_sided else FOR_TEXTS
    if absent.endswith("embedding"):
        return replace(method, rule="midpoint")
    return replace(method, rule="smoothstep") if removing else method
