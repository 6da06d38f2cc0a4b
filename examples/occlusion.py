"""A one-shot method of your own, and the same in greedy rounds.

    python examples/occlusion.py

Leave-one-out scores a feature by what the output loses without it. Two copies of a feature both
score 0, because the other copy is still there. Greedy rounds that add one feature at a time select
the first copy, and the second then adds nothing. A method is any callable from an objective and a
round to scores; `round.mask` is 1 for what is selected.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.rounds import Round


@dataclass(frozen=True)
class LeaveOneOut:
    """scores_i = g(1) − g(1 without i)."""

    name = "leave-one-out"
    cost = 0  # It takes values alone, no gradients.

    def __call__(self, objective: gp.Objective, round: Round) -> Tensor:
        """(b, n) scores, for b problems side by side."""
        b, n = round.mask.shape
        full = torch.ones(b, 1, n)
        return objective.values(full) - objective.values(full - torch.eye(n))


@dataclass(frozen=True)
class AddOne:
    """scores_i = g(mask with i) − g(mask)."""

    name = "add-one"
    cost = 0

    def __call__(self, objective: gp.Objective, round: Round) -> Tensor:
        """(b, n) scores, for b problems side by side."""
        mask = round.mask.unsqueeze(1)
        with_one = (mask + torch.eye(mask.shape[2])).clamp(max=1)
        return objective.values(with_one) - objective.values(mask)


def model(rows: Tensor) -> Tensor:
    """Two logits: features 0 and 1 are copies, 2 is weaker, 3 does nothing."""
    signal = 3 * torch.maximum(rows[:, 0], rows[:, 1]) + rows[:, 2]
    return torch.stack([torch.zeros_like(signal), signal - 2], 1)


def main() -> None:
    x, names = torch.ones(4), ["copy 1", "copy 2", "weaker", "noise"]
    once = gp.explain(model, x, names=names, method=LeaveOneOut())
    rounds = gp.explain(model, x, names=names, method=gp.Greedy(AddOne(), per_round=1))
    print("leave one out:", once.top(4), [round(s, 3) for s in once.scores.tolist()])
    print("in rounds:    ", rounds.top(4), [round(s, 3) for s in rounds.scores.tolist()])


if __name__ == "__main__":
    main()
