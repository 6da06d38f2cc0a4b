"""Post-hoc feature selection: rank a trained model's columns by what it really uses."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from math import isfinite
from os import PathLike
from typing import Any

import torch

from ..core.algorithms import make_problem
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..core.features import Elements
from ..core.lockstep import Undisturbed
from ..core.objective import as_objective
from ..core.quadrature import Rule
from ..core.quadrature import rule as make_rule
from ..core.rounds import Problem, Rounds, ValuesWanted
from ..core.schedule import check_count, equal, plan_picks, whole
from ..core.stopping import Stop
from ..core.unit_scorers import MarginalGains, RandomOrder
from ..network.fingerprint import callables, digest, fingerprint
from ..tensors.runs import carry_out, take_up, versions
from ..tensors.targets import levels_to_caller
from . import losses, probe
from .baseline import keep_constant, set_baseline
from .build import network_for
from .checks import look
from .conditional import Expected
from .distributed import ALONE, Group
from .held_out import measure
from .networks import Encoded, Network
from .objective import TableObjective
from .scorers import PathScores, Permutation
from .stream import Batch, Feed, feed

METHODS = ("greedy-pig", "sequential-gradient", "ig", "permutation", "greedy", "random")
STEPS = {"greedy-pig": 5, "sequential-gradient": 1, "ig": 39}
"""Points of the path: few where every round has a path of its own, 39 (the paper's) for one."""
ONE_SHOT = ("ig", "permutation", "random")
LEAST_SAMPLE = 16
"""Batches, at least, on which G(S) is measured where a budget is given."""
JUDGED = 64
"""Held-out batches on which the columns selected are judged, at most."""
MOST_ASKED = 16
"""Columns without a score that are tried by leaving them out."""


def select_features(
    model: Callable[..., Any],
    batches: Any,
    *,
    valid: Any = None,
    loss: Any = "binary-cross-entropy",
    outputs: str = "logits",
    k: int | None = None,
    steps: int | None = None,
    budget: int | None = None,
    method: str = "greedy-pig",
    per_round: int = 1,
    gain: bool = False,
    rule: str | Rule | None = None,
    baseline: Any = "zero",
    names: Sequence[str] | None = None,
    sample: int | None = None,
    values: ValuesWanted = "end",
    seed: int = 0,
    group: Group = ALONE,
    resume: Attribution | str | PathLike[str] | None = None,
    checkpoint: str | PathLike[str] | None = None,
    progress: bool | Callable[[Rounds], object] = False,
) -> Attribution:
    """Which columns of a table does the model use, best first?

    G(S) = −mean over rows of loss(label, model(row with the columns outside S at the baseline)):
    one mask for the whole data, climbed by Greedy PIG, one column a round.

    model: any module or callable from features to outputs, never changed; see docs/tables.md.
    batches: (features, label) pairs that can be read again and again, a list or a stream; features
        are a tensor (rows, columns), a tuple (numeric, categorical), a dict of tensors or a
        DataFrame of numbers. (features, label, weights) makes the mean one by the rows' weights.
    valid: batches of rows that the model has not learned from. The columns selected are judged on
        them: `a.about["held_out"]` says after how many columns nothing more is gained.
    loss: "binary-cross-entropy", "cross-entropy", "squared-error", or a callable
        (outputs, labels) → one loss per row.
    outputs: "probabilities" for a model that ends in a sigmoid or a softmax.
    k: how many columns to select; None ranks them all.
    budget: gradient batches in all: one batch at one point of a path is one. Shared equally by
        all gradients, in an order of batches shuffled by seed; the points of a path share their
        batches. None takes all batches for every gradient.
    method: "greedy-pig" (steps=5), "sequential-gradient", "ig" (steps=39), "permutation", "greedy"
        by marginal gains, or "random". The last but one and two look at values, not gradients: for
        them one forward pass over a batch is what the budget counts.
    steps, rule: points of the path and how they are spread: "midpoint", "gauss-legendre", …
    per_round, gain: columns taken in each round; stop when no column left has a positive score.
    baseline: what an absent column looks like: "zero", "mean", one number per column (of a
        category the id that stands for absence), or a dict from columns to these; or
        "conditional", what the columns that are there let one expect of it, by linear regression:
        copies of what is selected are then no news.
    sample: on how many batches G(S) is measured, by the forward pass alone. None takes all, or
        with a budget as many as a gradient has, at least 16.
    group: the processes that share the work (`greedypig.tables.distributed.joined()`).
    names, seed, resume, checkpoint, progress, values: as in `explain`.
    """
    with Undisturbed():
        run = _Selection(
            model, batches, loss=loss, outputs=outputs, k=k, steps=steps, budget=budget,
            method=method, per_round=per_round, gain=gain, rule=rule, baseline=baseline,
            names=names, sample=sample, values=values, seed=seed, group=group, resume=resume,
        )  # fmt: skip
    for concern in run.concerns:
        warnings.warn(concern, UserWarning, stacklevel=levels_to_caller())
    saved = checkpoint if group.first else None
    found = carry_out(run.problem, checkpoint=saved, progress=progress, result=run.attribution)
    if silent := run.silent(found):
        words = (
            f"The values of {silent} move the model's answer and have no gradient where it was "
            "taken: ids or rounding inside the model, or a flat spot (more steps see further). "
            "Their scores are 0 for that reason alone. Try "
            "method='permutation' or 'greedy', or give ids as a category of their own."
        )
        warnings.warn(words, stacklevel=levels_to_caller())
        found = found.with_notes({"warnings": [*run.concerns, words]})
    return found if valid is None else run.judged(found, valid)


class _Selection:
    """One run, its arguments checked once."""

    def __init__(
        self,
        model: Callable[..., Any],
        batches: Any,
        *,
        loss: Any,
        outputs: str,
        k: int | None,
        steps: int | None,
        budget: int | None,
        method: str,
        per_round: int,
        gain: bool,
        rule: str | Rule | None,
        baseline: Any,
        names: Sequence[str] | None,
        sample: int | None,
        values: ValuesWanted,
        seed: int,
        group: Group,
        resume: Attribution | str | PathLike[str] | None,
    ) -> None:
        seed = whole(seed)
        path = _path(method, steps, rule)
        loss_name, loss_function = losses.resolve(loss, outputs)
        source = feed(batches, seed, group)
        network = network_for(model, source, loss_name, loss_function, names)
        features = Elements(network.columns, network.table.names)
        rounds = {"rounds": 1} if method in ONE_SHOT else {"per_round": per_round}
        picks: dict[str, Any] = rounds | {"k": k}
        schedule = plan_picks(features.units, **picks)
        shares, held = _spend(budget, sample, schedule, method, path, features.units)
        self.objective = TableObjective(network, source, group, shares=shares, sample=held)

        def sampled() -> Iterator[Batch]:
            return source.all() if held is None else source.sample(held)

        named = isinstance(baseline, str)
        seen = look(network.table, sampled(), source.example(), group,
                    at_zero=named and baseline == "zero")  # fmt: skip
        asked = probe.concerns(network, source.example(), loss_name)
        self.concerns, self._constant = seen.warnings + asked, seen.constant
        if not group.first:  # One process speaks for all.
            self.concerns = []
        self._first, self._seed = group.first, seed
        self._example = source.example()
        # Integrated gradients stay what they are: shares of G(all) − G(∅), from the mean on.
        absent = set_baseline(network, baseline, sampled(), group, example=self._example,
                              credit=method != "ig")  # fmt: skip
        if named:
            keep_constant(network, seen.constant, self._example)
        self.problem: Problem = make_problem(
            as_objective(self.objective), self._scorer(method, path, rule, seed),
            features=features, seed=seed, values=values, stop=Stop(gain=gain), **picks,
            settings={"method": method, "loss": loss_name, "budget": whole(budget), "sample": held,
                      "baseline": absent},
            provenance=versions() | callables(loss=loss)
            | {"model": fingerprint(model), "input": _input(network, source)},
        )  # fmt: skip
        if resume is not None:
            saved = take_up(self.problem, resume)
            # The next round takes up the batches where the last finished one left them.
            self.objective.calls = len(self.problem.rounds)
            self.objective.batches_used = saved.about.get("gradient_batches", 0)
            self.objective.rows_used = saved.about.get("gradient_rows", 0)

    def attribution(self, events: Rounds) -> Attribution:
        """The result so far, with what was spent in all sittings."""
        warned = {"warnings": self.concerns} if self.concerns else {}
        return events.attribution().with_notes(
            {
                "kind": "table",
                "gradient_batches": self.objective.batches_used,
                "gradient_rows": self.objective.rows_used,
                **warned,
            }
        )

    def judged(self, found: Attribution, valid: Any) -> Attribution:
        """The result with G of its first columns on other rows; every process reads them all."""
        with Undisturbed():
            source = feed(valid, self._seed, ALONE)
            seen = measure(self.objective.network, source.sample(JUDGED), found.order.tolist(),
                           found.selected)  # fmt: skip
        values = [v if isfinite(v) else None for v in seen.values]
        return found.with_notes(
            {"held_out": {"columns": seen.columns, "values": values, "rows": seen.rows}}
        )

    def silent(self, found: Attribution) -> str:
        """Columns whose every score is exactly 0 though the answer needs them, by name."""
        asked = self.problem.values_wanted != "free"
        if not asked or not isinstance(self.problem.scorer, PathScores):
            return ""
        zero = (found.unit_scores == 0) & (found.last_scores == 0)
        network = self.objective.network
        if isinstance(network, Encoded) and isinstance(network.expected, Expected):
            # Scores hold what columns say about others, too; their own slopes are asked for here.
            rule, nothing = self.problem.scorer.rule, torch.zeros(self.objective.n).double()
            nodes, weights = (torch.tensor(x).double() for x in (rule.nodes, rule.weights))
            with Undisturbed(), network.expected.without_credit():
                batch = network.prepare(self._example)
                zero = network.path(batch, nothing, nodes, weights).cpu() == 0
        zero[self._constant] = False
        columns = torch.nonzero(zero).squeeze(1)[:MOST_ASKED]
        if not len(columns):
            return ""
        masks = torch.ones(1 + len(columns), self.objective.n, dtype=torch.float64)
        masks[torch.arange(1, len(masks)), columns] = 0
        with Undisturbed():
            values = self.objective.values(masks)
        moved = columns[values[1:] != values[0]].tolist()
        return self.objective.network.table.listed(moved) if moved and self._first else ""

    def _scorer(self, method: str, path: Rule | None, rule: str | Rule | None, seed: int) -> Any:
        if path is not None:
            own = [list(path.nodes), list(path.weights)] if isinstance(rule, Rule) else rule
            return PathScores(self.objective, path, own or _rule_name(method))
        if method == "permutation":
            return Permutation(self.objective, seed)
        return MarginalGains() if method == "greedy" else RandomOrder()


def _input(network: Network, source: Feed) -> str:
    """A digest of the columns, the first batch and what else is cheap: see `Feed.identity`."""
    words, last = source.identity()
    held: dict[str, Any] = {}
    for name, batch in (("", source.example()), ("last ", last)):
        if batch is not None:
            rows = network.table.read(batch)
            held |= {f"{name}{i}": part for i, part in enumerate(rows.parts)}
            held[f"{name}labels"] = rows.labels
            if rows.weights is not None:
                held[f"{name}weights"] = rows.weights
    return digest(held, repr((network.table.names, words)))


def _rule_name(method: str) -> str:
    return "left" if method == "sequential-gradient" else "midpoint"


def _path(method: str, steps: int | None, rule: str | Rule | None) -> Rule | None:
    """The points of a gradient method's path; None for methods without one."""
    if not isinstance(method, str):
        raise InvalidType(f"Expected method to be a name (got {type(method).__name__}).")
    if method not in METHODS:
        raise InvalidInput(
            f"Expected method to be one of {', '.join(METHODS)} (got {method!r})."
            f"{did_you_mean(method, METHODS)}"
        )
    fixed = method == "sequential-gradient" or method not in STEPS
    if fixed and (steps is not None or rule is not None):
        raise InvalidInput(f"Expected no steps or rule for method={method!r} (got some).")
    if method not in STEPS:
        return None
    if isinstance(rule, Rule):
        if steps is not None and whole(steps) != len(rule):
            raise InvalidInput(f"Expected no steps besides a rule of its own (got {steps!r}).")
        return rule
    return make_rule(rule or _rule_name(method), STEPS[method] if steps is None else steps)


def _spend(
    budget: int | None,
    sample: int | None,
    schedule: tuple[int, ...],
    method: str,
    path: Rule | None,
    units: int,
) -> tuple[tuple[int, ...] | None, int | None]:
    """The batches of each gradient call, equal shares; and of the sample for values."""
    budget, sample = whole(budget), whole(sample)
    if sample is not None:
        check_count("sample", sample)
    if budget is None:
        return None, sample
    check_count("budget", budget)
    if method == "random":
        return (), sample or LEAST_SAMPLE
    if method == "greedy":
        # Marginal gains are all measured on one sample, which the budget decides the size of.
        if sample is not None:
            raise InvalidInput("Expected budget or sample for method='greedy' (got both).")
        taken = [sum(schedule[:r]) for r in range(len(schedule))]
        return (), _each(budget, sum(1 + units - t for t in taken), method)
    points = units + 1 if path is None else len(path)
    _each(budget, points * len(schedule), method)
    shares = equal(budget // points, len(schedule))
    return shares, sample or max(LEAST_SAMPLE, *shares)


def _each(budget: int, parts: int, method: str) -> int:
    """What each of so many parts gets of the budget: at least one batch."""
    if budget < parts:
        raise InvalidInput(
            f"Expected a budget of at least {parts} batches, one for each evaluation of "
            f"method={method!r} (got {budget}). Try a smaller k, fewer steps, or a larger budget."
        )
    return budget // parts
