"""A run from a method to its results: stopping, resuming and measuring, around Algorithm 1.

`maximize` takes any objective and any method. A `Run` gives one state after every round; ask it
for its results at any time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice
from math import comb
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from .attribution import Attribution
from .errors import BudgetTooSmall, InvalidInput, NonFinite
from .facts import Facts
from .features import Elements, Features
from .methods import MEASURED, as_method, describe, picks_of, scorer_of
from .numbers import check_count, whole
from .objective import as_objective
from .rounds import State
from .rounds import rounds as algorithm_1
from .scorers import cost_of
from .stopping import Stop, StopReason, as_stop

MOST_SUBSETS = 20_000_000
FactsAndTensors = tuple[Facts, Mapping[str, Tensor]]
"""Facts and tensors, as `Attribution.with_notes` takes them."""
ALL = -1
"""Stands for the number of rounds after which everything would be selected."""


class Run:
    """A method at work on an objective: loop over it for its frozen states, one after every round.

    `results()[0]` is the result so far. The arguments are those of `maximize`. settings,
    provenance: what is recorded beside the method's knobs, one mapping for each of the b problems.
    notes: from a problem to the facts and tensors that its result carries.
    """

    def __init__(
        self,
        objective: Any,
        method: Any = "greedy-pig",
        *,
        features: Features | None = None,
        k: int | None = None,
        stop: Stop | None = None,
        seed: int = 0,
        settings: Sequence[Mapping[str, Any]] = (),
        provenance: Sequence[Mapping[str, Any]] = (),
        notes: Callable[[int], FactsAndTensors] = lambda problem: (Facts(), {}),
        resume: Attribution | None = None,
    ) -> None:
        seed = whole(seed)
        if type(seed) is not int:
            raise InvalidInput(f"Expected seed to be a whole number (got {seed!r}).")
        self.objective = as_objective(objective).changed(seed=seed)
        self.method = as_method(method)
        self.scorer = scorer_of(self.method)
        self.features = features or Elements(self.objective.n)
        if self.features.n != self.objective.n:
            raise InvalidInput(
                f"Expected features over {self.objective.n} values (got {self.features.n})."
            )
        self.schedule = picks_of(self.method, self.features, k)
        self.k, self.stop, b = whole(k), as_stop(stop), self.objective.b
        self._measures = getattr(self.method, "schedule", None) == MEASURED
        """Does a round take as many features as raise G enough?"""
        if b > 1 and (self.stop.gain or self._measures or resume is not None):
            raise InvalidInput(
                f"Expected one problem for gain=True, schedule='measured' or resume (got {b}). "
                "Try one after the other."
            )
        if self._measures and self.features.kind == "windows":
            raise InvalidInput(
                "Expected features that do not overlap for schedule='measured' (got windows). "
                "Try gp.grid(b)."
            )
        own = describe(self.method) | {"rounds": len(self.schedule), "k": self.k, "seed": seed}
        self.settings = [dict(s) | own for s in settings or [{}] * b]
        self.provenance = [dict(p) for p in provenance or [{}] * b]
        self.notes = notes
        self.reason = StopReason.RUNNING
        self.values: dict[int, Tensor] = {}
        """(b,) G(S) after so many rounds, where a stopping rule asked for it."""
        self.gradients_used = 0
        """Gradients paid for each problem, those before a resumed run included."""
        self._began = time.monotonic()
        self._exhausted = False
        """Was there nothing more to take in the last round?"""
        with torch.inference_mode(False):
            self.state = State.start(self.objective, self.features)
        if self.stop.gradients is not None and self.stop.gradients < self._cost():
            raise BudgetTooSmall(self._cost(), self.stop.gradients)
        if resume is not None:
            self._resume(resume)

    @property
    def seconds(self) -> float:
        """Time since the run began, the parts of a resumed run together."""
        return time.monotonic() - self._began

    def __iter__(self) -> Iterator[State]:
        return self

    def __next__(self) -> State:
        """One more round; a call that fails or is interrupted leaves the rounds before it."""
        while (reason := self._reason_to_stop()) is None:
            before = self.objective.gradients_used
            try:
                with torch.inference_mode(False):
                    states = algorithm_1(
                        self.objective, self.scorer, self.features, self.schedule, self.state
                    )
                    state = next(states, None)
                    if state is not None and self._measures:
                        state = self._measured(state)
            except NonFinite as error:
                error.so_far = tuple(self.results(measure=False))
                raise
            self.gradients_used += self.objective.gradients_used - before
            if state is not None and self.stop.gain:
                state = self._gaining(state)
            if state is not None:
                self.state = state
                return state
            self._exhausted = True
        self.reason = reason
        raise StopIteration

    def finish(
        self, checkpoint: str | PathLike[str] | None, progress: Callable[[Run], object] | None
    ) -> None:
        """All rounds. Each is saved to the checkpoint; `progress` is called with the run before the
        first one and after every one."""
        if progress is not None:
            progress(self)
        for _ in self:
            if checkpoint is not None:
                self.results(measure=False)[0].save(checkpoint)
            if progress is not None:
                progress(self)

    def results(self, *, measure: bool = True) -> list[Attribution]:
        """One result for each problem: a full order, whatever stopped the run, if anything did.

        measure: evaluate G(S) after every round; else only what is known already, NaN elsewhere.
        """
        state, values = self.state, dict(self.values)
        with torch.inference_mode(False):
            full = self._measure(values) if measure else ALL
        nan = torch.full((self.objective.b,), torch.nan, dtype=torch.float64)
        line = torch.stack([values.get(r, nan) for r in range(len(state.picks) + 1)], 1)
        ranking, everything = state.ranking().cpu(), values.get(full, nan)
        # Are the scores integrals along the path to everything? `contributions` needs to know.
        several, scorer = len(self.schedule) > 1, getattr(self.scorer, "name", "")
        integrals = several and scorer == "ig" and cost_of(self.scorer) > 1
        gains = several and scorer == "marginal-gains"
        results = [
            Attribution(
                order=ranking[b],
                selected=state.order.shape[1],
                feature_scores=state.scores[b].cpu(),
                values=line[b],
                full_value=float(everything[b]),
                picks=state.picks,
                totals=tuple(totals[b] for totals in state.totals),
                gradients_used=self.gradients_used,
                seconds=self.seconds / self.objective.b,
                stop=self.reason,
                last_scores=state.last[b].cpu(),
                first_scores=state.first[b].cpu() if integrals or gains else None,
                score_sums=state.sums[b].cpu() if integrals else None,
                features=self.features,
                layout=self.objective.layout,
                settings=self.settings[b],
                provenance=self.provenance[b],
            )
            for b in range(self.objective.b)
        ]
        notes = map(self.notes, range(len(results)))
        return [a.with_notes(n[0], **n[1]) for a, n in zip(results, notes, strict=True)]

    def _measure(self, values: dict[int, Tensor]) -> int:
        """Add G(S) after every round, and of everything under the key that is returned."""
        done = len(self.state.picks)
        complete = self.features.is_complete(self.state.taken)
        sets = range(done + 1) if complete else (*range(done + 1), ALL)
        missing = [r for r in sets if r not in values]
        # Where a rule asks for values, each is measured alone, as then: the same bits.
        size = self.objective.points if self.stop.value is None else 1
        for lo in range(0, len(missing), size):
            part = missing[lo : lo + size]
            values |= zip(part, self._values(part), strict=True)
        return done if complete else ALL

    def _values(self, after: Sequence[int]) -> tuple[Tensor, ...]:
        """(b,) float64 G of what is selected after each of these numbers of rounds."""
        order, (b, count) = self.state.order, self.state.taken.shape
        places = torch.arange(order.shape[1], device=order.device).expand_as(order)
        places = order.new_full((b, count), count).scatter(1, order, places)
        counts = [count + 1 if r == ALL else sum(self.state.picks[:r]) for r in after]
        taken = places.unsqueeze(1) < order.new_tensor(counts).unsqueeze(1)
        masks = self.features.mask(taken.flatten(0, 1)).view(b, len(after), -1)
        try:
            return self.objective.values(masks).double().cpu().unbind(1)
        except NonFinite as error:
            error.so_far = tuple(self.results(measure=False))
            raise

    # When to stop.

    def _reason_to_stop(self) -> StopReason | None:
        done, stop = len(self.state.picks), self.stop
        if self.features.is_complete(self.state.taken):
            return StopReason.ALL
        if done >= len(self.schedule) or self.state.order.shape[1] == self.k:
            return StopReason.K if self.k == self.state.order.shape[1] else StopReason.ROUNDS
        if self._exhausted:
            return StopReason.NO_GAIN if stop.gain else StopReason.ALL
        if stop.gradients is not None and self.gradients_used + self._cost() > stop.gradients:
            return StopReason.GRADIENTS
        if stop.seconds is not None and self.seconds >= stop.seconds:
            return StopReason.SECONDS
        if stop.value is None:
            return None
        if done not in self.values:
            with torch.inference_mode(False):
                (self.values[done],) = self._values([done])
        return StopReason.VALUE if bool((self.values[done] >= stop.value).all()) else None

    def _cost(self) -> int:
        """Gradients of the next round: what the scorer says, else what rounds cost so far."""
        cost = cost_of(self.scorer) * self.objective.lines * self.objective.sides
        return cost or -(-self.gradients_used // max(1, len(self.state.picks)))

    def _measured(self, state: State) -> State:
        """The next state with the next best features too, as long as each raises G by half of its
        score and the value to stop at is not reached. The last round takes the rest."""
        done = self.state.order.shape[1]
        room = (self.k or self.features.count) - done
        ranked = state.ranking()[:, done:][:, :room]
        scores = state.last.gather(1, ranked)
        count = ranked.shape[1]
        if len(state.picks) < len(self.schedule):
            goal = float("inf") if self.stop.value is None else self.stop.value
            value, count = self._value(ranked[:, :1]), 1
            for score in scores[0, 1:].tolist():
                if value >= goal or score <= 0:
                    break
                more = self._value(ranked[:, : count + 1])
                if more - value < score / 2:
                    break
                value, count = more, count + 1
            self.values[len(state.picks)] = torch.tensor([value], dtype=torch.float64)
        return self.state.take(ranked[:, :count], scores[:, :count], state.last, state.totals[-1])

    def _value(self, chosen: Tensor) -> float:
        """G of what is selected and these features."""
        taken = self.state.taken.scatter(1, chosen, True)
        return float(self.objective.values(self.features.mask(taken).unsqueeze(1)))

    def _gaining(self, state: State) -> State | None:
        """The next state without the picks whose score is not positive; None if there are none."""
        chosen = state.order[:, self.state.order.shape[1] :]
        chosen = chosen[:, state.scores.gather(1, chosen)[0] > 0]
        if chosen.shape[1] == 0:
            self.state = replace(self.state, last=state.last)  # It ranks what is left.
            return None
        scores = state.scores.gather(1, chosen)
        return self.state.take(chosen, scores, state.last, state.totals[-1])

    def _resume(self, saved: Attribution) -> None:
        """Take up a saved run; the rest is as if it had never stopped."""
        self._check_same(saved)
        order = saved.order[: saved.selected].unsqueeze(0).to(self.state.order)
        last = saved.last_scores
        first = last if saved.first_scores is None else saved.first_scores
        sums = torch.zeros_like(last) if saved.score_sums is None else saved.score_sums
        scores, last, first, sums = (
            each.unsqueeze(0).to(self.state.scores)
            for each in (saved.feature_scores, last, first, sums)
        )
        totals = tuple((total,) for total in saved.totals)
        taken = self.state.taken.scatter(1, order, True)
        self.state = State(taken, order, scores, last, first, sums, totals, saved.picks)
        self.gradients_used = saved.gradients_used
        self._began -= saved.seconds
        self._exhausted = self.stop.gain and saved.stop is StopReason.NO_GAIN

    def _check_same(self, saved: Attribution) -> None:
        """Refuse a saved run of other features or other settings."""
        mine, theirs = self.features.state(), saved.features.state()
        same = mine[0] == theirs[0] and all(
            torch.equal(mine[1][name].cpu(), theirs[1][name].cpu()) for name in mine[1]
        )
        if not same:
            raise InvalidInput("Expected the features of the saved run (got others).")
        for name, value in self.settings[0].items():
            before = saved.settings.get(name)
            if before != value and name != "batch_size":  # Batches change the last bits at most.
                raise InvalidInput(
                    f"Expected the settings of the saved run, {name}={before!r} (got {value!r})."
                )


rounds = Run


def maximize(
    objective: Any,
    method: Any = "greedy-pig",
    *,
    features: Features | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    resume: Attribution | None = None,
) -> Attribution:
    """Maximise G(S) by a method: `gp.maximize(gp.objective(g, n), gp.GreedyPIG(per_round=1))`.

    objective: from `gp.objective`, or any object with n, values and gradient (`SetFunction`).
    method: a name or an object; a callable (objective, mask) → scores is one-shot.
    k: how many features to select (default: all). stop: reasons to stop before.
    resume: a saved result of the same run, gone on with as if it had never stopped.

    Examples:
        >>> objective = gp.objective(lambda m: 3 * m[:, :2].amax(1) + m[:, 2], 3)
        >>> gp.maximize(objective, gp.GreedyPIG(per_round=1)).order.tolist()
        [0, 2, 1]
    """
    run = Run(objective, method, features=features, k=k, stop=stop, seed=seed, resume=resume)
    for _ in run:
        pass
    return run.results()[0]


def best_subset(
    objective: Any, k: int, *, features: Features | None = None
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
