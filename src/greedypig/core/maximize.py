"""Set functions: the greedy search by any method, its rounds one by one, and the best subset."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from itertools import combinations, islice
from math import comb
from typing import TypeAlias

import torch

from .attribution import Attribution
from .carry_out import PathOrText, carry_out
from .errors import InvalidInput
from .features import Elements, Features
from .methods import MethodLike
from .numbers import check_count
from .objective import Objective, SetFunction
from .progress import ProgressLike
from .question import Question, Record
from .run import Run
from .stopping import Stop
from .two_sided import TwoSided, as_objective

MOST_SUBSETS = 20_000_000
SetFunctionLike: TypeAlias = Objective | SetFunction | TwoSided
"""What `gp.objective` gives, an object with n, values and gradient, or one of these two-sided."""


def maximize(
    objective: SetFunctionLike,
    method: MethodLike = "greedy-pig",
    *,
    features: Features | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int | tuple[int, int] = 0,
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Maximise G(S) by a method: `gp.maximize(gp.objective(g, n), gp.GreedyPIG(per_round=1))`.

    objective: from `gp.objective`, or any object with n, values and gradient (`SetFunction`).
    method: a name or an object; a callable (objective, round) → scores is one-shot.
    k: how many features to select (default: all). stop: reasons to stop before.
    checkpoint: a file that rounds are saved to; the same call goes on from it.
    progress: True, or a function (rounds done, all rounds).

    Examples:
        >>> objective = gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2], 3)
        >>> gp.maximize(objective, gp.GreedyPIG(per_round=1)).order.tolist()
        [0, 2, 1]
    """
    results = carry_out(
        _question(objective, features),
        method,
        k=k,
        stop=stop,
        seed=seed,
        checkpoint=checkpoint,
        progress=progress,
    )
    return results[0]


def rounds(
    objective: SetFunctionLike,
    method: MethodLike = "greedy-pig",
    *,
    features: Features | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int | tuple[int, int] = 0,
) -> Run:
    """The rounds of `maximize`: a loop gives a frozen state after every one.

    Examples:
        >>> run = gp.rounds(gp.objective(lambda m: m @ torch.tensor([1.0, 3.0, 2.0]), 3), k=2)
        >>> [state.order[0].tolist() for state in run]
        [[1], [1, 2]]
    """
    return Run(_question(objective, features), method, k=k, stop=stop, seed=seed)


def _question(objective: SetFunctionLike, features: Features | None) -> Question:
    """The question about a set function, which a checkpoint tells from other set functions."""
    question = Question.of(objective, features)
    callables = import_module("greedypig.network.fingerprint").callables
    record = Record(provenance=callables(objective=question.objective.plain.origin))
    return replace(question, records=(record,) * question.objective.b)


def best_subset(
    objective: SetFunctionLike, k: int, *, features: Features | None = None
) -> tuple[tuple[int, ...], float]:
    """The best set of exactly k features by trying all, and its value; small n only.

    Equal values go to the set that comes first, by lower indices.

    Examples:
        >>> gp.best_subset(gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2], 3), k=2)
        ((0, 2), 4.0)
    """
    problem = as_objective(objective)
    features = features or Elements(problem.n)
    k = check_count("k", k, features.count)
    count = comb(features.count, k)
    if count > MOST_SUBSETS:
        raise InvalidInput(
            f"Expected at most {MOST_SUBSETS:,} subsets to try (got {count:,}). "
            "Try gp.maximize(objective, gp.MarginalGains(), k=k)."
        )
    best: tuple[int, ...] = ()
    best_value = float("-inf")
    subsets = combinations(range(features.count), k)
    while chunk := list(islice(subsets, 1024)):
        taken = torch.zeros(len(chunk), features.count, dtype=torch.bool)
        taken.scatter_(1, torch.tensor(chunk), True)
        values = problem.values(features.mask(taken).unsqueeze(0))[0]
        at = int(torch.nonzero(values == values.max())[0])
        if float(values[at]) > best_value:
            best, best_value = chunk[at], float(values[at])
    return best, best_value
