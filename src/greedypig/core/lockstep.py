"""Many problems, one device: their requests for gradients share batches.

A method is a generator that yields `Request`s and is sent `Answer`s; it is written for one
problem and never sees the others. `drive` keeps a queue of requested rows, takes a full batch
from its front whoever asked, and resumes every generator whose request is complete. A problem's
answers do not depend on its neighbours, so each result agrees to rounding with the one alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import isfinite
from typing import Any, Generic, TypeAlias, TypeVar

import torch
from torch import Tensor

from .errors import NonFinite
from .objective import PointObjective

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class Request:
    """`count` points of one problem, made on demand so that they never all exist at once.

    With weights (count,) the answer holds Σ_k weights_k · ∇(points_k), and with a way (n,) that
    times the way, which makes it scores; without weights, values only. Where the points are not
    elements but what was made of them, `back` leads from that gradient to the elements'.
    """

    objective: PointObjective
    count: int
    points: Callable[[int, int], Tensor]
    weights: Tensor | None = None
    way: Tensor | None = None
    back: Callable[[Tensor], Tensor] | None = None


@dataclass(slots=True, eq=False)
class Answer:
    """What a request asked for: values (count,), and the weighted gradient (n,) if any."""

    values: Tensor
    total: Tensor | None
    sum: float | None = None
    """Σ total_i, where the request had a way."""

    @property
    def gradient(self) -> Tensor:
        """The weighted sum of gradients, along the way if there was one."""
        assert self.total is not None
        return self.total


Plan: TypeAlias = Generator[list[Request], list[Answer], T]
"""A computation that asks for several requests at a time and is sent their answers."""


def ask(request: Request) -> Plan[Answer]:
    """One request on its own."""
    (answer,) = yield [request]
    return answer


def together(plans: Iterable[Plan[T]], limit: int) -> Plan[list[T]]:
    """Run plans side by side, `limit` at a time, so that their requests share batches."""
    source = iter(plans)
    results: list[T] = []
    while group := list(islice(source, limit)):
        done: dict[int, T] = {}
        wanted: dict[int, list[Request]] = {}
        for i, plan in enumerate(group):
            _resume(plan, None, i, wanted, done)
        while wanted:
            answers = iter((yield [r for requests in wanted.values() for r in requests]))
            waiting, wanted = wanted, {}
            for i, requests in waiting.items():
                _resume(group[i], [next(answers) for _ in requests], i, wanted, done)
        results += [done[i] for i in range(len(group))]
    return results


def _resume(
    plan: Plan[T],
    answers: list[Answer] | None,
    i: int,
    wanted: dict[int, list[Request]],
    done: dict[int, T],
) -> None:
    try:
        wanted[i] = next(plan) if answers is None else plan.send(answers)
    except StopIteration as stop:
        done[i] = stop.value


def complete(plan: Plan[T]) -> T:
    """Run one plan to its end, alone."""

    def work() -> Generator[list[Request], list[Answer], None]:
        results.append((yield from plan))

    results: list[T] = []
    finish(Task(work()))
    return results[0]


def alone(task: Task[T]) -> Iterator[T]:
    """Run one task; yields its events. What `drive` does, without queues to keep."""
    while True:
        with Undisturbed():
            try:
                item = _event(task)
            except StopIteration:
                return
        yield item


def finish(task: Task[Any]) -> None:
    """Run one task to its end, its events unseen."""
    with Undisturbed():
        try:
            while True:
                _event(task)
        except StopIteration:
            return


def _event(task: Task[T]) -> T:
    item = next(task.steps)
    while isinstance(item, list):
        item = task.steps.send(_answers_alone(task, item))
    return item  # type: ignore[no-any-return]


def _answers_alone(task: Task[T], requests: list[Request]) -> list[Answer]:
    call = _Call.of(task, requests)
    if len(requests) == 1 and requests[0].count <= requests[0].objective.oracle.batch_size:
        _evaluate_batch([(call, call.slots[0], 0, requests[0].count)])
    else:
        queues = _Queues()
        queues.push(call)
        while queue := queues.fullest()[0]:
            _evaluate(queue)
    if call.error is not None:
        raise call.error
    return [slot.answer() for slot in call.slots]


@dataclass(slots=True, eq=False)
class Task(Generic[T]):
    """A running generator that yields lists of requests, and events of type T in between."""

    steps: Generator[Any, Any, None]
    failed: Callable[[str, int, int], Exception] | None = None
    """The error to raise for (what is not finite, its step from 0, the number of steps)."""


@dataclass(slots=True, eq=False)
class _Slot:
    """A request in the queue: how far it is, and what has come back."""

    request: Request
    done: int = 0
    values: list[Tensor] = field(default_factory=list)
    total: Tensor | None = None
    sum: float | None = None

    def take(self, room: int) -> tuple[int, int]:
        lo, self.done = self.done, min(self.request.count, self.done + room)
        return lo, self.done

    def receive(self, lo: int, hi: int, values: Tensor, gradients: Tensor | None) -> bool:
        """Keep these rows' share of the answer; False if a gradient is not finite."""
        self.values.append(values)
        if gradients is None:
            return True
        request = self.request
        weights, way = request.weights, request.way
        assert weights is not None
        part = (weights if hi - lo == request.count else weights[lo:hi]) @ gradients
        self.total = part if self.total is None else self.total.add_(part)
        if hi < request.count:
            return isfinite(part.sum().item())
        if request.back is not None:
            self.total = request.back(self.total)
        if way is None:
            return isfinite(self.total.sum().item())
        # What is not finite stays so along the way, also where the way is 0.
        self.total = self.total * way
        self.sum = self.total.sum().item()
        return isfinite(self.sum)

    def answer(self) -> Answer:
        values = self.values[0] if len(self.values) == 1 else torch.cat(self.values)
        return Answer(values, self.total, self.sum)


@dataclass(slots=True, eq=False)
class _Call:
    """The requests a task waits for.

    Slots do not point back at their call: such a cycle would keep every round's tensors alive
    until the garbage collector comes by.
    """

    task: Task[Any]
    slots: list[_Slot]
    missing: int
    error: Exception | None = None
    """Set where a number came back that is not finite; the rest of the call is dropped."""

    @staticmethod
    def of(task: Task[Any], requests: list[Request]) -> _Call:
        return _Call(task, [_Slot(r) for r in requests], len(requests))


_Rows: TypeAlias = "tuple[_Call, _Slot, int, int]"
"""Rows lo … hi of a slot, in a device batch."""


class _Queues:
    """Requested rows by what may share a batch: one oracle, with gradients or without."""

    def __init__(self) -> None:
        self.slots: dict[tuple[int, bool], deque[tuple[_Call, _Slot]]] = {}

    def push(self, call: _Call) -> None:
        for slot in call.slots:
            key = (id(slot.request.objective.oracle), slot.request.weights is None)
            self.slots.setdefault(key, deque()).append((call, slot))

    def fullest(self) -> tuple[deque[tuple[_Call, _Slot]] | None, bool]:
        """The queue with most rows, relative to its batch, and whether it fills a batch."""
        best, best_share = None, 0.0
        for queue in self.slots.values():
            if queue:
                rows = sum(s.request.count - s.done for _, s in queue)
                share = rows / queue[0][1].request.objective.oracle.batch_size
                if share > best_share:
                    best, best_share = queue, share
        return best, best_share >= 1.0


def drive(tasks: Iterator[Task[T] | None]) -> Iterator[tuple[Task[T], T | Exception | None]]:
    """Run tasks in lockstep; yields (task, event) as they come, (task, None) at a task's end.

    A task whose numbers are not finite ends with (task, error); the others go on.

    New tasks are started only while the batch is not full, so what is in flight is bounded by
    the batch size however many tasks there are. A None among the tasks means "not now".
    """
    queues = _Queues()
    events: deque[tuple[Task[T], T | Exception | None]] = deque()
    source: Iterator[Task[T] | None] | None = tasks
    while True:
        queue, full = queues.fullest()
        task = None
        if source is not None and not full:
            try:
                task = next(source)
            except StopIteration:
                source = None
        if task is not None:
            with Undisturbed():
                _advance(task, None, queues, events)
        elif queue is not None:
            with Undisturbed():
                for call in _evaluate(queue):
                    if call.error is not None:
                        events.append((call.task, call.error))
                    else:
                        _advance(call.task, [s.answer() for s in call.slots], queues, events)
        elif source is None and not events:
            return
        while events:
            yield events.popleft()


class Undisturbed:
    """Work outside of inference mode, whatever mode the caller is in.

    Held only while the engine works, never while the caller's own code runs between two steps.
    """

    def __enter__(self) -> Undisturbed:
        self.mode = torch.inference_mode(False) if torch.is_inference_mode_enabled() else None
        if self.mode is not None:
            self.mode.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        if self.mode is not None:
            self.mode.__exit__(*error)


def _advance(
    task: Task[T],
    answers: list[Answer] | None,
    queues: _Queues,
    events: deque[tuple[Task[T], T | Exception | None]],
) -> None:
    """Resume a task until it asks for something or ends; its events go to `events`."""
    try:
        item = next(task.steps) if answers is None else task.steps.send(answers)
        while not isinstance(item, list):
            events.append((task, item))
            item = next(task.steps)
    except StopIteration:
        events.append((task, None))
        return
    queues.push(_Call.of(task, item))


def _evaluate(queue: deque[tuple[_Call, _Slot]]) -> list[_Call]:
    """One device batch from the front of the queue; the calls that it completed."""
    room, taken = queue[0][1].request.objective.oracle.batch_size, []
    while room and queue:
        call, slot = queue[0]
        if call.error is not None:
            queue.popleft()
            continue
        lo, hi = slot.take(room)
        taken.append((call, slot, lo, hi))
        room -= hi - lo
        if slot.done == slot.request.count:
            queue.popleft()
    return _evaluate_batch(taken) if taken else []


def _evaluate_batch(taken: list[_Rows]) -> list[_Call]:
    """Evaluate these rows together and hand them back; the calls that are complete now."""
    chunks = [slot.request.points(lo, hi) for _, slot, lo, hi in taken]
    points = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
    runs = [(slot.request.objective.owner, hi - lo) for _, slot, lo, hi in taken]
    first = taken[0][1].request
    gradient = first.weights is not None
    values, gradients, total = first.objective.oracle.evaluate(points, runs, gradient=gradient)
    finite = isfinite(total.item())
    finished, at = [], 0
    for call, slot, lo, hi in taken:
        if gradient:
            slot.request.objective.paid(hi - lo)
        mine, slopes = values, gradients
        if len(taken) > 1:
            rows = slice(at, at + hi - lo)
            mine, slopes = values[rows], None if gradients is None else gradients[rows]
        fine = slot.receive(lo, hi, mine, slopes)
        if not (fine and finite) and call.error is None:
            call.error = _non_finite_step(call, slot, lo, mine, slopes)
            if call.error is not None:
                finished.append(call)
        at += hi - lo
        if hi == slot.request.count and call.error is None:
            call.missing -= 1
            if not call.missing:
                finished.append(call)
    return finished


def _non_finite_step(
    call: _Call, slot: _Slot, lo: int, values: Tensor, gradients: Tensor | None
) -> Exception | None:
    """The error that names the first NaN or infinity; None if only a sum overflowed."""
    count = slot.request.count
    for row, value in enumerate(values):
        step, gradient = lo + row, None if gradients is None else gradients[row]
        if what := _non_finite(slot.request.objective, value, gradient):
            if call.task.failed is not None:
                return call.task.failed(what, step, count)
            return NonFinite(f"{what} at step {step + 1} of {count} is not finite.")
    if slot.request.back is not None and slot.total is not None:  # Finite only on the way there.
        what = _non_finite(slot.request.objective, values[0], slot.total)
        if what and call.task.failed is not None:
            return call.task.failed(what, count - 1, count)
    return None


def _non_finite(objective: PointObjective, value: Tensor, gradient: Tensor | None) -> str:
    if not bool(torch.isfinite(value)):
        return "The objective's value"
    if gradient is None or bool(torch.isfinite(gradient).all()):
        return ""  # Finite rows whose sum overflowed.
    layout = objective.layout
    for name, part in zip(layout.names, layout.split(gradient.unsqueeze(0)), strict=True):
        if not bool(torch.isfinite(part).all()):
            return f"The gradient of input {name!r}"
    raise AssertionError("unreachable: some part holds the non-finite entry")
