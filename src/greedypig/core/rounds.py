"""Greedy path-integrated gradients: Algorithm 1 of "Greedy PIG: Adaptive Integrated Gradients".

Score everything that is not selected, take the best few, fix them, go on. The scorer is any
one-shot method; one round that takes everything *is* that method.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from math import isfinite, isnan
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from .attribution import Attribution, Round, StopReason
from .errors import BudgetTooSmall, InvalidInput, InvalidType, NonFinite
from .features import Elements, Features
from .lockstep import Answer, Plan, Request, Task, alone, drive, finish, together
from .objective import MeanObjective, PointObjective
from .resuming import check_same_run
from .scorers import PlannedScorer, Scored, Scorer, Situation, mean_of
from .stopping import Stop

UNKNOWN = float("nan")

ValuesWanted = Literal["each", "end", "free"]
"""When G(S) is measured: after each round; at the end, for all rounds in as few batches as it
takes; or only where a scorer brings it along for nothing. Until then it is NaN."""


class Problem:
    """One run of Algorithm 1: its inputs, and S, a and the values as they grow."""

    def __init__(
        self,
        objective: PointObjective | MeanObjective,
        scorer: PlannedScorer | Scorer,
        features: Features,
        schedule: tuple[int, ...],
        *,
        limits: Stop,
        seed: int = 0,
        values: ValuesWanted = "each",
        label: str = "",
        settings: Mapping[str, Any] | None = None,
        provenance: Mapping[str, Any] | None = None,
    ) -> None:
        if features.n != objective.n:
            raise InvalidInput(f"Expected features over {objective.n} elements (got {features.n}).")
        if values not in get_args(ValuesWanted):
            raise InvalidInput(f"Expected values to be 'each', 'end' or 'free' (got {values!r}).")
        self.objective, self.scorer, self.features = objective.metered(), scorer, features
        self.schedule, self.limits, self.seed = schedule, limits, seed
        self.values_wanted: ValuesWanted = values if limits.reach is None else "each"
        self.label = label
        self.settings, self.provenance = dict(settings or {}), dict(provenance or {})
        with torch.inference_mode(False):
            self.mask = torch.zeros_like(objective.start)
            self.taken = self.mask.new_zeros(features.units, dtype=torch.bool)
        self.count, self.complete = 0, False
        self.first: Tensor | None = None
        self.sums: Tensor | None = None
        self.last: Tensor | None = None
        self.before: Tensor | None = None
        self._elements = isinstance(features, Elements)
        self.rounds: list[Round] = []
        self.first_value = self.full_value = UNKNOWN
        self.stopped = StopReason.RUNNING
        self.began = time.monotonic()
        self.paid_before = 0
        self._no_gain = False
        self.flat = False
        """Were all scores of the first round exactly 0, so that the order tells nothing?"""
        self._measuring: list[str] = []
        if limits.budget is not None and limits.budget < self._cost():
            hints = f"budget={self._cost()}", "fewer steps"
            raise BudgetTooSmall(self._cost(), limits.budget, hints)

    @property
    def gradients_used(self) -> int:
        """Gradient evaluations paid by this run, earlier sittings included."""
        return self.objective.gradients_used + self.paid_before

    def steps(self) -> Generator[list[Request] | Round, list[Answer], None]:
        """Algorithm 1, as a generator of requests with a frozen Round after every round."""
        if isnan(self.full_value) and self.objective.ends is not None:
            self.first_value, self.full_value = self.objective.ends
        if not isfinite(self.full_value + self.first_value):
            ends = torch.stack([self.mask, torch.ones_like(self.mask)])
            values = yield from self._values(ends, ["of nothing", "of everything"])
            self.first_value, self.full_value = values.tolist()
        while (stop := self._stop()) is None:
            scored = yield from self._score()
            self._learn_value(scored)
            chosen, scores, total = self._pick(scored)
            if chosen.numel() == 0:
                stop = StopReason.NO_GAIN
                break
            self._add_scores()
            self._take(chosen, scores, total)
            if self.values_wanted == "each":
                yield from self._measure([self.rounds[-1].index])
            yield self.rounds[-1]
        if self.values_wanted == "end":
            yield from self._measure([r.index for r in self.rounds])
        self.stopped = stop

    def attribution(self) -> Attribution:
        """The result so far: a full order, whatever stopped the run, or if nothing did yet."""
        picked = self._picked()
        unit_scores = self._no_scores()
        unit_scores[picked] = torch.cat([unit_scores[:0], *(r.scores for r in self.rounds)])
        used = self.gradients_used
        if self.stopped is StopReason.RUNNING:
            # What a round under way has paid is paid again when the run is resumed.
            used = self.rounds[-1].gradients_used if self.rounds else 0
        return Attribution(
            order=self._order(picked).cpu(),
            selected=picked.numel(),
            unit_scores=unit_scores.cpu(),
            values=torch.tensor(
                [self.first_value, *(r.value for r in self.rounds)], dtype=torch.float64
            ),
            full_value=self.full_value,
            picks=tuple(r.chosen.numel() for r in self.rounds),
            totals=tuple(r.total for r in self.rounds),
            gradients_used=used,
            seconds=time.monotonic() - self.began,
            stop=self.stopped,
            last_scores=self._last().cpu().clone(),
            first_scores=None if self.first is None else self.first.cpu().clone(),
            score_sums=None if self.sums is None else self.sums.cpu().clone(),
            memory=None if self.before is None or self._elements else self.before.cpu().clone(),
            features=self.features,
            layout=self.objective.layout,
            settings=self.settings,
            provenance=self.provenance,
        )

    def resume(self, saved: Attribution) -> None:
        """Take up a saved run where it stopped; the rest is as if it had never been broken."""
        selected = saved.features.members(saved.order[: saved.selected])
        # The round that has selected everything may have found fewer units than were planned.
        ended = saved.features.all_on(selected, saved.selected)
        check_same_run(
            saved, self.features, self.settings, self.schedule, fewer=self.limits.gain or ended
        )
        begin = 0
        for index, count in enumerate(saved.picks):
            chosen = saved.order[begin : begin + count]
            begin += count
            scores = saved.unit_scores[chosen].to(self.mask)
            self._take(chosen.to(self.mask.device), scores, saved.totals[index])
            used = self._cost() * (index + 1)
            self.rounds[-1] = Round(
                index, chosen, scores, float(saved.values[index + 1]), saved.totals[index],
                used or saved.gradients_used * (index + 1) // len(saved.picks), saved.seconds,
            )  # fmt: skip
        if self.rounds:
            self.last = saved.last_scores.to(self.mask)
            if saved.first_scores is not None:
                self.first = saved.first_scores.to(self.mask)
                sums = saved.score_sums
                self.sums = self.first * len(self.rounds) if sums is None else sums.to(self.mask)
            if getattr(self.scorer, "remembers", False):
                kept = saved.last_scores if self._elements else saved.memory
                if kept is None:
                    raise InvalidInput("Expected a saved run with its memory (got one without).")
                self.before = kept.to(self.mask)
            self.first_value, self.full_value = float(saved.values[0]), saved.full_value
        self.began -= saved.seconds
        self.paid_before = saved.gradients_used
        self._no_gain = self.limits.gain and saved.stop is StopReason.NO_GAIN

    def task(self) -> Task[Round]:
        """This run, ready for the driver."""
        return Task(self.steps(), failed=self.failed)

    def failed(self, what: str, step: int, count: int) -> NonFinite:
        """The error for a non-finite number under way, with the rounds so far."""
        of = f" of {self.label}" if self.label else ""
        if self._measuring:
            place = f"The value G {self._measuring[step]}{of}"
        else:
            at = f" at step {step + 1} of {count}" if count else ""
            place = f"{what}{at} in round {len(self.rounds) + 1}{of}"
        return NonFinite(
            f"Expected finite numbers (got NaN or infinity). {place} is not finite. The "
            f"{len(self.rounds)} rounds done so far are in this error's .rounds.",
            self.rounds,
        )

    # The parts of a round.

    def _score(self) -> Plan[Scored]:
        """∫ ∇g(1_S + t · 1_S̄) dt by the scorer, averaged over the objective's parts."""
        parts = self.objective.parts
        if len(parts) == 1:
            return (yield from self._score_part(parts[0]))
        return mean_of((yield from together(map(self._score_part, parts), len(parts))))

    def _score_part(self, part: PointObjective) -> Plan[Scored]:
        index = len(self.rounds)
        if isinstance(self.scorer, PlannedScorer):
            at = Situation(
                part, self.mask, self.features, self.taken, self.schedule[index], index,
                self.seed, self.last, len(self.objective.parts) == 1, self.before,
            )  # fmt: skip
            return (yield from self.scorer.plan(at))
        scores = self.scorer(part, self.mask.clone())
        if not isinstance(scores, Tensor) or scores.numel() != self.features.n:
            got = tuple(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
            raise InvalidType(
                f"Expected the scorer to return {self.features.n} scores (got {got})."
            )
        scores = torch.where(self.mask == 0, scores.detach().reshape(-1).to(self.mask), 0)
        if not bool(torch.isfinite(scores).all()):
            raise self.failed("A score of the scorer", 0, 0)
        return Scored(elements=scores)

    def _pick(self, scored: Scored) -> tuple[Tensor, Tensor, float]:
        """top-z by signed score among what is not selected; and the sum of all scores."""
        z = min(self.schedule[len(self.rounds)], self.features.units - self.count)
        if scored.elements is not None:
            elements = scored.elements
            chosen, scores = self.features.pick(elements, self.mask, self.taken, z)
            total = elements.sum().item() if scored.total is None else scored.total
            self.last = self.features.sum(elements)
            if total == 0 and not self.rounds:
                self.flat = not bool(elements.any())
            if getattr(self.scorer, "remembers", False):
                self.before = elements
        else:
            assert scored.units is not None
            self.last = scored.units.to(self.mask)
            chosen = self.features.pick_units(self.last, self.mask, self.taken, z)
            scores = self.last[chosen]
            total = self.last[~self.features.blocked(self.mask, self.taken)].sum().item()
        if not self.rounds and len(self.schedule) > 1 and getattr(self.scorer, "integrates", False):
            self.first = self.last
        if self.limits.gain:
            positive = scores > 0
            chosen, scores = chosen[positive], scores[positive]
        return chosen, scores, total

    def _add_scores(self) -> None:
        """Every free unit's score, and every taken unit's first score, to the sums."""
        if self.first is None or self.last is None:
            return
        scores = torch.where(self.taken, self.first, self.last)
        self.sums = scores if self.sums is None else self.sums + scores

    def _take(self, chosen: Tensor, scores: Tensor, total: float) -> None:
        """S ← S ∪ Ŝ and a ← a + â_Ŝ."""
        self.features.switch_on(self.mask, chosen)
        self.taken.index_fill_(0, chosen, True)
        self.count += chosen.numel()
        self.complete = self.features.all_on(self.mask, self.count)
        seconds = time.monotonic() - self.began
        value = self.full_value if self.complete else UNKNOWN
        self.rounds.append(
            Round(len(self.rounds), chosen, scores, value, total, self.gradients_used, seconds)
        )

    # What G(S) is.

    def _learn_value(self, scored: Scored) -> None:
        """A scorer that visits 1_S brings along the value of the round before.

        In a resumed run it stands in for what the earlier sitting measured, and where no scorer
        does all is measured again: the same batches give an unbroken run's very bits.
        """
        if self.values_wanted == "each" or not self.rounds:
            return
        if scored.value is not None:
            self.rounds[-1] = _valued(self.rounds[-1], scored.value.item())
        elif not isnan(self.rounds[-1].value):
            self.rounds = [_valued(r, UNKNOWN) for r in self.rounds]

    def _measure(self, indices: list[int]) -> Plan[None]:
        """G(S) after these rounds, where it is not known yet."""
        indices = [i for i in indices if isnan(self.rounds[i].value)]
        if not indices:
            return
        if indices == [len(self.rounds) - 1]:
            masks = self.mask.unsqueeze(0)
            values = yield from self._values(masks, [f"after round {indices[0] + 1}"])
        else:
            values = yield from self._past_values(indices)
        for index, value in zip(indices, values.tolist(), strict=True):
            self.rounds[index] = _valued(self.rounds[index], value)

    def _past_values(self, indices: list[int]) -> Plan[Tensor]:
        """G(S) after these rounds, their masks made anew from the order of selection."""
        ranks = self.features.first_rank(self._order(self._picked()))
        counts = torch.tensor([r.chosen.numel() for r in self.rounds], device=ranks.device)
        edges = counts.cumsum(0)[indices].unsqueeze(1)

        def request(part: PointObjective) -> Request:
            def points(lo: int, hi: int) -> Tensor:
                return part.place((ranks < edges[lo:hi]).to(part.start))

            return Request(part, len(indices), points)

        names = [f"after round {i + 1}" for i in indices]
        return (yield from self._ask_values(request, names))

    def _values(self, masks: Tensor, names: list[str]) -> Plan[Tensor]:
        def request(part: PointObjective) -> Request:
            return Request(part, len(masks), lambda lo, hi: part.place(masks[lo:hi]))

        return (yield from self._ask_values(request, names))

    def _ask_values(
        self, request: Callable[[PointObjective], Request], names: list[str]
    ) -> Plan[Tensor]:
        self._measuring = names
        answers = yield [request(part) for part in self.objective.parts]
        self._measuring = []
        return torch.stack([a.values.double() for a in answers]).mean(0)

    # What the order is.

    def _picked(self) -> Tensor:
        return torch.cat([self.taken.new_empty(0, dtype=torch.long),
                          *(r.chosen for r in self.rounds)])  # fmt: skip

    def _order(self, picked: Tensor) -> Tensor:
        """What was picked, then the rest by the last score they had."""
        rest = torch.ones_like(self.taken)
        rest[picked] = False
        left = torch.nonzero(rest).squeeze(1)
        tail = torch.sort(self._last()[left], descending=True, stable=True).indices
        return torch.cat([picked, left[tail]])

    def _last(self) -> Tensor:
        return self._no_scores() if self.last is None else self.last

    def _no_scores(self) -> Tensor:
        return self.mask.new_zeros(self.features.units)

    # When to stop.

    def _stop(self) -> StopReason | None:
        if self.complete:
            return StopReason.ALL
        if len(self.rounds) == len(self.schedule):
            return StopReason.K if self.settings.get("k") == self.count else StopReason.ROUNDS
        if self._no_gain:
            return StopReason.NO_GAIN
        budget, seconds, reach = self.limits.budget, self.limits.seconds, self.limits.reach
        if budget is not None and self.gradients_used + self._next_cost() > budget:
            return StopReason.BUDGET
        if seconds is not None and time.monotonic() - self.began >= seconds:
            return StopReason.SECONDS
        value = self.rounds[-1].value if self.rounds else self.first_value
        if reach is not None and value >= reach * self.full_value:
            return StopReason.REACHED
        return None

    def _cost(self) -> int:
        """Gradients of one round, as far as the scorer can tell beforehand."""
        if not isinstance(self.scorer, PlannedScorer):
            return 0
        return self.scorer.cost() * len(self.objective.parts)

    def _next_cost(self) -> int:
        """Gradients of the next round: a plain scorer's by what its last round cost."""
        if isinstance(self.scorer, PlannedScorer):
            return self._cost()
        if not self.rounds:
            return 1
        before = self.rounds[-2].gradients_used if len(self.rounds) > 1 else 0
        return self.rounds[-1].gradients_used - before


class Rounds(Iterator[Round]):
    """Frozen rounds as they are finished; `attribution()` is the result so far, at any time."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._task = problem.task()
        self._events = alone(self._task)

    def __next__(self) -> Round:
        return next(self._events)

    def finish(self) -> None:
        """Do all rounds that are left, unseen; a little faster than asking for them."""
        finish(self._task)

    def attribution(self) -> Attribution:
        """A complete result from the rounds done so far: order, scores, values."""
        return self.problem.attribution()


def run(problems: Iterable[Problem], *, hold: int = 256) -> Iterator[Problem]:
    """Problems run in lockstep, each handed back when it has ended, in the order they came.

    At most `hold` are begun and not yet handed back, so memory does not grow with their number.
    One that fails raises its error in its turn, after those before it.
    """
    begun: deque[tuple[Task[Round], Problem]] = deque()
    ended: dict[int, Exception | None] = {}

    def tasks() -> Iterator[Task[Round] | None]:
        for problem in problems:
            while len(begun) >= hold:
                yield None
            if any(ended.values()):
                return
            begun.append((problem.task(), problem))
            yield begun[-1][0]

    for task, event in drive(tasks()):
        if event is None or isinstance(event, Exception):
            ended[id(task)] = event
        while begun and id(begun[0][0]) in ended:
            task, problem = begun.popleft()
            if error := ended.pop(id(task)):
                raise error
            yield problem


def _valued(r: Round, value: float) -> Round:
    """The same round, G(S) after it being known now."""
    return Round(r.index, r.chosen, r.scores, value, r.total, r.gradients_used, r.seconds)
