"""The core for any set function with a gradient: each algorithm is the loop with one scorer."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, islice
from math import comb
from typing import Any

import torch

from .attribution import Attribution
from .errors import InvalidInput, InvalidType, NonFinite
from .features import Elements, Features
from .objective import MeanObjective, Objective, PointObjective, as_objective
from .quadrature import Rule
from .rounds import Problem, Rounds, ValuesWanted
from .schedule import check_count, plan_picks, real, whole
from .scorers import Gradient, IntegratedGradients, PlannedScorer, Scorer
from .stopping import Stop
from .unit_scorers import MarginalGains

ObjectiveLike = Objective | PointObjective | MeanObjective
MOST_SUBSETS = 20_000_000


def iterate_rounds(
    objective: ObjectiveLike,
    scorer: PlannedScorer | Scorer | None = None,
    *,
    features: Features | None = None,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    steps: int | None = None,
    rule: str | Rule | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    seed: int = 0,
    values: ValuesWanted = "each",
    resume: Attribution | None = None,
) -> Rounds:
    """Greedy PIG one frozen `Round` at a time; `.attribution()` is the result so far.

    Each round: scores = ∫ ∇g(1_S + t · 1_S̄) dt, take the best by signed score, fix them at 1.

    scorer: any one-shot scorer; default integrated gradients with `steps` nodes of `rule`.
    rounds, per_round, k, schedule, ratio: how many units each round takes (`plan_picks`).
    budget, seconds, reach, gain: reasons to stop early (`Stop`).
    values: when G(S) is measured: "each" round, all at the "end", or only where it is "free".
    resume: a saved result of the same run, gone on with as if it had never stopped.
    """
    problem = make_problem(
        as_objective(objective), scorer, features=features, rounds=rounds, per_round=per_round,
        k=k, schedule=schedule, ratio=ratio, steps=steps, rule=rule,
        stop=Stop(budget, seconds, reach, gain), seed=seed, values=values,
    )  # fmt: skip
    if resume is not None:
        problem.resume(resume)
    return Rounds(problem)


def greedy_pig(
    objective: ObjectiveLike,
    *,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    steps: int = 20,
    rule: str | Rule = "midpoint",
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    features: Features | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    seed: int = 0,
    values: ValuesWanted = "end",
    resume: Attribution | None = None,
) -> Attribution:
    """Algorithm 1: R = rounds, z = per_round, the integral by `steps` nodes of `rule`."""
    return _finish(
        iterate_rounds(
            objective,
            features=features,
            rounds=rounds,
            per_round=per_round,
            k=k,
            schedule=schedule,
            ratio=ratio,
            steps=steps,
            rule=rule,
            budget=budget,
            seconds=seconds,
            reach=reach,
            gain=gain,
            seed=seed,
            values=values,
            resume=resume,
        )
    )


def sequential_gradient(
    objective: ObjectiveLike,
    *,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    features: Features | None = None,
    budget: int | None = None,
    seconds: float | None = None,
    reach: float | None = None,
    gain: bool = False,
    resume: Attribution | None = None,
) -> Attribution:
    """Greedy rounds of one gradient ∇g(1_S): Algorithm 1 with a single left node."""
    return _finish(
        iterate_rounds(
            objective,
            Gradient(),
            features=features,
            rounds=rounds,
            per_round=per_round,
            k=k,
            schedule=schedule,
            ratio=ratio,
            budget=budget,
            seconds=seconds,
            reach=reach,
            gain=gain,
            values="end",
            resume=resume,
        )
    )


def integrated_gradients(
    objective: ObjectiveLike,
    *,
    steps: int = 50,
    rule: str | Rule = "midpoint",
    features: Features | None = None,
) -> Attribution:
    """One-shot integrated gradients, ∫ ∇g(t · 1) dt: one round that ranks everything."""
    return one_shot(objective, IntegratedGradients(steps, rule), features=features)


def one_shot(
    objective: ObjectiveLike,
    scorer: PlannedScorer | Scorer,
    *,
    features: Features | None = None,
    seed: int = 0,
) -> Attribution:
    """Any scorer once, over everything: one round that ranks all units by signed score."""
    return _finish(
        iterate_rounds(objective, scorer, features=features, rounds=1, seed=seed, values="end")
    )


def greedy(
    objective: ObjectiveLike,
    k: int | None = None,
    *,
    features: Features | None = None,
    lazy: bool = False,
    gain: bool = False,
    seconds: float | None = None,
    reach: float | None = None,
    resume: Attribution | None = None,
) -> Attribution:
    """The discrete greedy of Nemhauser et al. 1978: one unit at a time by marginal gain.

    By values alone, no gradient. lazy=True skips units whose earlier gain cannot win any more;
    that is valid for submodular G, where gains only shrink.
    """
    return _finish(
        iterate_rounds(
            objective,
            MarginalGains(lazy),
            features=features,
            k=k,
            per_round=1,
            gain=gain,
            seconds=seconds,
            reach=reach,
            resume=resume,
        )
    )


def best_subset(
    objective: ObjectiveLike,
    k: int,
    *,
    features: Features | None = None,
    at_most: bool = False,
) -> tuple[tuple[int, ...], float]:
    """The best set of exactly k units (or at most k) by trying all, and its value; small n only.

    Equal values go to the set that comes first: fewer units, then lower indices.
    """
    problem = as_objective(objective)
    units = features or Elements(problem.n)
    k = whole(k)
    check_count("k", k, units.units)
    sizes = range(0 if at_most else k, k + 1)
    count = sum(comb(units.units, size) for size in sizes)
    if count > MOST_SUBSETS:
        raise InvalidInput(
            f"Expected at most {MOST_SUBSETS:,} subsets to try (got {count:,}). Try gp.greedy."
        )
    rows = torch.stack([units.members(torch.tensor([u])) for u in range(units.units)])
    rows = rows.to(problem.start)
    best: tuple[int, ...] = ()
    best_value = float("-inf")
    subsets = (s for size in sizes for s in combinations(range(units.units), size))
    while chunk := list(islice(subsets, 1024)):
        masks = torch.stack([rows[list(s)].sum(0).clamp(max=1) for s in chunk])
        values = problem.values(masks)
        if not bool(torch.isfinite(values).all()):
            bad = chunk[int(torch.nonzero(~torch.isfinite(values))[0])]
            raise NonFinite(f"G of the units {bad} is not finite.")
        at = int(torch.nonzero(values == values.max())[0])
        if float(values[at]) > best_value:
            best, best_value = chunk[at], float(values[at])
    return best, best_value


def make_problem(
    objective: PointObjective | MeanObjective,
    scorer: PlannedScorer | Scorer | None = None,
    *,
    features: Features | None = None,
    rounds: int | None = None,
    per_round: int | None = None,
    k: int | None = None,
    schedule: str | Sequence[int] | None = None,
    ratio: float | None = None,
    steps: int | None = None,
    rule: str | Rule | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    values: ValuesWanted = "end",
    label: str = "",
    settings: dict[str, Any] | None = None,
    provenance: dict[str, Any] | None = None,
) -> Problem:
    """A run of Algorithm 1 from the knobs a caller has, checked here once."""
    if scorer is None:
        scorer = IntegratedGradients(20 if steps is None else steps, rule or "midpoint")
    elif steps is not None or rule is not None:
        raise InvalidInput(
            "Expected steps and rule only without a scorer of your own (got both). "
            "Try IntegratedGradients(steps, rule)."
        )
    if not callable(scorer):
        raise InvalidType(
            f"Expected a scorer, a callable (objective, mask) → scores "
            f"(got {type(scorer).__name__})."
        )
    seed, k, ratio = whole(seed), whole(k), real(ratio)
    if type(seed) is not int:
        raise InvalidInput(f"Expected seed to be a whole number (got {seed!r}).")
    features = features or Elements(objective.n)
    picks = plan_picks(
        features.units, cover=features.cover, rounds=rounds, per_round=per_round, k=k,
        schedule=schedule, ratio=ratio,
    )  # fmt: skip
    for_run = getattr(scorer, "for_run", None)  # A scorer may depend on the seed and the rounds.
    scorer = for_run(seed=seed, rounds=len(picks)) if callable(for_run) else scorer
    recorded = {
        **(settings or {}),
        **describe(scorer),
        "rounds": len(picks),
        "k": k,
        "schedule": schedule
        if isinstance(schedule, str)
        else ("equal" if schedule is None else "explicit"),
        "ratio": ratio,
        "seed": seed,
    }
    return Problem(
        objective, scorer, features, picks, limits=stop or Stop(), seed=seed, values=values,
        label=label, settings=recorded, provenance=provenance,
    )  # fmt: skip


def describe(scorer: PlannedScorer | Scorer) -> dict[str, Any]:
    """A scorer's name and knobs, for the record."""
    own = getattr(scorer, "settings", None)
    if callable(own):
        return dict(own())
    return {"scorer": getattr(scorer, "__qualname__", type(scorer).__qualname__)}


def _finish(rounds: Rounds) -> Attribution:
    rounds.finish()
    return rounds.attribution()
