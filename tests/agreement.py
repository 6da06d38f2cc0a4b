"""Do two runs agree, whose work was cut into batches, threads or processes in another way?

The same call gives the same bits. Matrix products of another shape round otherwise, so everything
else agrees to rounding: scores within `relative` of the run's largest, and orders wherever scores
differ by more. Bits are asked for by `nets.identical`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import greedypig as gp


def agree(a: gp.Attribution, b: gp.Attribution, relative: float = 1e-5) -> None:
    """Assert that both runs select the same, but for ties, with the same scores and values.

    A tie at a round's end may put another feature into S. Then the rounds after it look at another
    set, and are not compared.
    """
    assert (a.picks, a.selected, a.stop) == (b.picks, b.selected, b.stop)
    slack = relative * _largest(a.feature_scores, b.feature_scores, a.last_scores, b.last_scores)
    start = 0
    for count in a.picks:
        ours, theirs = a.order[start : start + count], b.order[start : start + count]
        if set(ours.tolist()) != set(theirs.tolist()):
            _check_tied(a.feature_scores, ours, b.feature_scores, theirs, slack)
            return
        _check_scores(a.feature_scores, b.feature_scores, ours, theirs, slack)
        start += count
    ours, theirs = a.order[start:], b.order[start:]
    if len(ours):
        _check_scores(a.last_scores, b.last_scores, ours, theirs, slack)
    found, expected = torch.cat([a.values, _full(a)]), torch.cat([b.values, _full(b)])
    assert torch.equal(found.isnan(), expected.isnan())
    off = (found - expected).nan_to_num().abs().max()
    assert off <= relative * _largest(found, expected), f"values differ by {float(off):.3g}"


def agree_in_numbers(a: Any, b: Any, relative: float = 1e-5) -> None:
    """The same for records: texts, counts and keys are equal, numbers agree."""
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        a, b = list(a.values()), list(b.values())
    if isinstance(a, list):
        assert len(a) == len(b)
        for one, other in zip(a, b, strict=True):
            agree_in_numbers(one, other, relative)
    elif isinstance(a, float):
        assert abs(a - b) <= relative * max(abs(a), abs(b)), f"{a} and {b}"
    else:
        assert a == b


def _full(a: gp.Attribution) -> Tensor:
    """(1,): G of everything."""
    return torch.tensor([a.full_value], dtype=torch.float64)


def _largest(*tensors: Tensor) -> float:
    return max(float(t.double().nan_to_num().abs().max()) for t in tensors)


def _check_scores(a: Tensor, b: Tensor, ours: Tensor, theirs: Tensor, slack: float) -> None:
    """Every feature has the same score in both, and those that changed places have equal ones."""
    off = float((a[ours] - b[ours]).abs().max())
    assert off <= slack, f"scores differ by {off:.3g}, expected at most {slack:.3g}"
    apart = float((a[ours] - a[theirs]).abs().max())
    assert apart <= 2 * slack, f"the order differs where scores differ by {apart:.3g}"


def _check_tied(a: Tensor, ours: Tensor, b: Tensor, theirs: Tensor, slack: float) -> None:
    """Features that one run alone took have the score of the last one taken."""
    last = max(float(a[ours].min()), float(b[theirs].min()))
    for scores, mine, other in ((a, ours, theirs), (b, theirs, ours)):
        alone = mine[~torch.isin(mine, other)]
        off = float((scores[alone] - last).abs().max())
        assert off <= 2 * slack, f"the runs select features whose scores differ by {off:.3g}"
