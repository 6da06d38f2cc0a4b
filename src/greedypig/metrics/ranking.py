"""The order in which the values of an input are shown, from an explanation of any kind.

A curve needs one number per value of the input: how many values are present once this one is. It is
a rank without ties, so that "the top k" is k values, and not however many reach a threshold. A
feature of several values is shown whole or not at all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution, is_one_shot
from ..core.errors import InvalidInput, InvalidType
from ..core.layout import Layout

RANKINGS = ("order", "absolute", "signed")


def counts_needed(
    a: Any, layout: Layout, ranking: str | None = None, *, one_shot: str = "absolute"
) -> tuple[Tensor, str]:
    """(n,) long: with how many values present each one is among them; and the ranking used.

    a: an Attribution, a permutation of the values (n,), best first, or scores shaped like x.
    ranking: "order" of selection, "absolute" value or "signed" value of the scores; None takes
    "order" for greedy runs and permutations, `one_shot` for one-shot methods. Equal scores go by
    the order of selection, else by the lower index.
    """
    if ranking is not None and ranking not in RANKINGS:
        raise InvalidInput(
            f"Expected ranking to be one of {', '.join(RANKINGS)} (got {ranking!r})."
        )
    if isinstance(a, Attribution):
        if a.layout.shapes != layout.shapes:
            raise InvalidInput(
                f"Expected an attribution of inputs shaped {_shapes(layout)} (got one of "
                f"{_shapes(a.layout)})."
            )
        rule = ranking or (one_shot if is_one_shot(a) else "order")
        first = a.features.first_rank(feature_order(a, rule))
        sizes = torch.bincount(first, minlength=a.features.count)
        return sizes.cumsum(0)[first], rule
    if isinstance(a, Tensor) and not (a.is_floating_point() or a.is_complex()):
        order, rule = permutation(a, layout.n), "order"
    else:
        rule = one_shot if ranking in (None, "order") else str(ranking)
        order = _sorted(_scores(a, layout), rule)
    if ranking not in (None, rule):
        raise InvalidInput(
            f"Expected ranking {rule!r} (got {ranking!r}): a permutation has no scores, and scores "
            "have no order of selection."
        )
    return order.argsort() + 1, rule


def feature_order(a: Attribution, ranking: str | None, *, one_shot: str = "absolute") -> Tensor:
    """(features,) long: the features of an attribution, best first by the ranking."""
    rule = ranking or (one_shot if is_one_shot(a) else "order")
    if rule == "order":
        return a.order
    # One round scores every feature; of several rounds only the selected ones have a score.
    scores = a.last_scores if is_one_shot(a) else a.feature_scores
    return a.order[_sorted(scores[a.order], rule)]


def permutation(order: Tensor, n: int) -> Tensor:
    """The order as (n,) long; refused where it is no permutation."""
    order = order.detach()
    whole = order.dtype != torch.bool and order.shape == (n,)
    if not whole or not torch.equal(order.long().sort().values, torch.arange(n).to(order.device)):
        raise InvalidInput(
            f"Expected a permutation of the {n} values, best first, or floating-point scores "
            f"shaped like x (got {order.dtype} {tuple(order.shape)})."
        )
    return order.long()


def _sorted(scores: Tensor, rule: str) -> Tensor:
    keys = scores.abs() if rule == "absolute" else scores
    return torch.sort(keys, descending=True, stable=True).indices


def _scores(scores: Any, layout: Layout) -> Tensor:
    if not isinstance(scores, Tensor | tuple | list | dict):
        raise InvalidType(
            "Expected an Attribution, a permutation of the values or scores shaped like x "
            f"(got {type(scores).__name__}). Try torch.as_tensor(scores)."
        )
    if isinstance(scores, dict) and sorted(scores) == sorted(layout.names):
        scores = {name: scores[name] for name in layout.names}
    own = Layout.of(scores)
    if own.shapes != layout.shapes:
        raise InvalidInput(
            f"Expected scores shaped like x, {_shapes(layout)} (got {_shapes(own)}). "
            "Try scores.expand_as(x) for scores of pixels."
        )
    flat = layout.flatten(scores).detach()
    if not bool(torch.isfinite(flat).all()):
        raise InvalidInput("Expected finite scores (got NaN or infinity).")
    return flat


def _shapes(layout: Layout) -> str:
    return ", ".join(str(shape) for shape in layout.shapes)
