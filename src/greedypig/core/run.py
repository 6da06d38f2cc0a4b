"""A run: one state after every round of a method on a question, until a rule says to stop."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch

from .attribution import Attribution
from .errors import BudgetTooSmall, NonFinite
from .methods import MethodLike, as_method
from .numbers import check_seed, whole
from .question import Question
from .revisions import revisions_of
from .rounds import State, next_round
from .rules import rules_of
from .stopping import Stop, StopReason, as_stop
from .values import completely_measured, measured


class Run:
    """A method at work on a question: loop over it for its frozen states, one after every round.

    `results()` gives the result of each problem so far. The arguments are those of `carry_out`.
    """

    def __init__(
        self,
        question: Question,
        method: MethodLike = "greedy-pig",
        *,
        k: int | None = None,
        stop: Stop | None = None,
        seed: int | tuple[int, int] = 0,
    ) -> None:
        self.question, self.objective = question, question.objective
        self.features, self.k, self.stop = question.features, whole(k), as_stop(stop)
        method = as_method(method)
        self.scorer, self.schedule = method.round_scorer, method.picks(self.features, self.k)
        self.rules = rules_of(self.stop)
        # Where a rule asks for values, each is measured alone, always: the same bits.
        self.measures_alone = any(rule.measures for rule in self.rules)
        self.revisions = method.revisions(self.k, self.stop) + revisions_of(self.stop)
        question.check(self.revisions, self.rules)
        self.seed, first = check_seed(seed)
        self.examples = question.examples(first)
        knobs = {"rounds": len(self.schedule), "k": self.k, "seed": self.seed}
        parts = (method.settings(), knobs, *(revision.settings for revision in self.revisions))
        self.settings = question.settings(*parts, examples=self.examples)
        self.reason, self.exhausted = StopReason.RUNNING, False
        with torch.inference_mode(False):
            self.state, self._memory = question.start(), question.memory()
        if self.stop.gradients is not None and self.stop.gradients < self.cost:
            raise BudgetTooSmall(self.cost, self.stop.gradients)

    def go_on_from(self, saved: Attribution) -> None:
        """Go on after the rounds of a saved result."""
        self.state = self.state.after(saved, alone=self.measures_alone)
        self.exhausted = self.stop.gain and saved.stop is StopReason.NO_GAIN
        self.question.take_up(saved)
        self._memory = self.question.memory()

    def __iter__(self) -> Iterator[State]:
        return self

    def __next__(self) -> State:
        """One more round; a call that fails or is interrupted leaves the rounds before it."""
        while self.reason is StopReason.RUNNING:
            before = len(self.state.picks)
            with self._results_in_errors(), torch.inference_mode(False):
                reason = self._reason_to_stop()
                if reason is StopReason.RUNNING:
                    self.state = self._paid(self._after_round)
                    self.exhausted = len(self.state.picks) == before
            self.reason = reason
            if reason is StopReason.RUNNING and not self.exhausted:
                return self.state
        raise StopIteration

    def _paid(self, work: Callable[[], State]) -> State:
        """The state that some work leads to, with the time and the forward passes it took."""
        began, forwards = time.monotonic(), self.objective.forwards_used
        state = work()
        self._memory = self.question.memory()  # Not that of work that is interrupted.
        return replace(
            state,
            seconds=state.seconds + time.monotonic() - began,
            forwards=state.forwards + self.objective.forwards_used - forwards,
        )

    def _after_round(self) -> State:
        """The state after one more round, as the revisions leave it."""
        before, done = self.state, len(self.state.picks)
        after = next_round(
            self.objective,
            self.scorer,
            self.features,
            before,
            self.schedule[done],
            seed=self.seed,
            examples=self.examples,
        )
        last = done + 1 == len(self.schedule)
        for revision in self.revisions if len(after.picks) > done else ():
            after = revision(self.objective, self.features, before, after, last)
        return after

    def _reason_to_stop(self) -> StopReason:
        done, selected = len(self.state.picks), self.state.order.shape[1]
        if self.features.is_complete(self.state.taken):
            return StopReason.ALL
        if done >= len(self.schedule) or selected == self.k:
            return StopReason.K if selected == self.k else StopReason.ROUNDS
        if self.exhausted:
            return StopReason.NO_GAIN if self.stop.gain else StopReason.ALL
        for rule in self.rules:
            if rule.measures:
                self.state = self._paid(
                    lambda: measured(self.objective, self.features, self.state, [done])
                )
            if (reason := rule.reason(self.state, self.cost)) is not None:
                return reason
        return StopReason.RUNNING

    @property
    def cost(self) -> int:
        """Gradients of the next round: what the scorer says, else what rounds cost so far."""
        cost = self.scorer.cost * self.objective.lines * self.objective.sides
        return cost or -(-self.state.gradients // max(1, len(self.state.picks)))

    def results(self, *, measure: bool = True) -> list[Attribution]:
        """One result for each problem: a full order, whatever stopped the run, if anything did.

        measure: evaluate G(S) after every round; else only what is known already, NaN elsewhere.
        """
        if measure:
            with self._results_in_errors(), torch.inference_mode(False):
                self.state = completely_measured(
                    self.objective, self.features, self.state, alone=self.measures_alone
                )
        rankings = self.state.ranking().cpu()
        facts, tensors = self._memory
        return [
            self.state.attribution(
                problem,
                rankings[problem],
                # Are the scores integrals along the path to everything, or gains of G?
                integrals=len(self.schedule) > 1 and self.scorer.integrates,
                gains=len(self.schedule) > 1 and self.scorer.measures_gains,
                stop=self.reason,
                features=self.features,
                layout=self.objective.layout,
                settings=self.settings[problem],
                provenance=record.provenance,
                notes=record.notes(),
            ).with_notes(facts, **tensors)
            for problem, record in enumerate(self.question.records)
        ]

    @contextmanager
    def _results_in_errors(self) -> Iterator[None]:
        """Numbers that are not finite leave with the results of the rounds before them."""
        try:
            yield
        except NonFinite as error:
            error.so_far = tuple(self.results(measure=False))
            raise
