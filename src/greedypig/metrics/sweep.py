"""Forward passes over masks: a network is shown parts of an input, and its answers are read.

All curves of an example come from one sweep over its masks, rows of several examples share device
batches, and no more than a batch of rows exists at a time. The network that is asked may be
another than the one that was explained: then every row is shown to it in its own terms.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, NonFinite
from ..core.layout import Layout
from ..core.lockstep import Undisturbed
from ..core.objective import Oracle, Runs
from ..network.fingerprint import fingerprint
from ..network.frozen import Frozen
from ..tensors.baselines import recorded, resolve
from ..tensors.inputs import Example, ModelFamily
from ..tensors.targets import Target

Translate = Callable[[Tensor], Tensor]
"""Inputs (m, …) of the explained model → the same pictures as inputs of its judge."""


class _Answers(Oracle):
    """An oracle of whole outputs: (m, n) points → (m, classes) logits."""

    def _checked(self, values: Tensor, points: Tensor) -> Tensor:
        return values


@dataclass(eq=False)
class Sweep:
    """One example: the masks it is shown with, and the answers so far."""

    example: Example
    """The full input as the asked network sees it, with its answer to it."""
    layout: Layout
    """Of the explained model's input, in which the masks are made."""
    x: Tensor
    """(n,) the full input of the explained model."""
    baselines: tuple[Tensor, ...]
    """(n,) each: what absent elements look like."""
    needed: Tensor
    """(n,) long: with how many elements present each one is among them."""
    counts: tuple[int, ...]
    """How many elements are shown, or taken away, at each point of the curve."""
    removing: bool
    """Are the top elements taken away, rather than shown?"""
    about: dict[str, Any]
    """What the curves record."""
    paid: int = 1
    """Forward rows paid so far: for the answer to the full input, and to check a fast copy."""
    rows: list[tuple[int, int]] = field(init=False)
    """(baseline, point) of every row that has to be asked."""
    answers: list[Tensor] = field(default_factory=list)
    """(m, 2) float64 of consecutive rows: the target's value, the loss."""

    def __post_init__(self) -> None:
        whole = 0 if self.removing else self.x.numel()
        # The full input was asked already, for the reference.
        asked = [i for i, count in enumerate(self.counts) if count != whole]
        self.rows = [(b, i) for b in range(len(self.baselines)) for i in asked]
        self.about["forwards"] = len(self.rows) + self.paid

    def points(self, lo: int, hi: int) -> Tensor:
        """(hi − lo, n): rows lo … hi as inputs of the explained model."""
        rows = self.rows[lo:hi]
        counts = torch.tensor([self.counts[i] for _, i in rows], device=self.x.device)
        shown = (self.needed <= counts.unsqueeze(1)) != self.removing
        if len(self.baselines) == 1:
            return torch.where(shown, self.x, self.baselines[0])
        return torch.where(shown, self.x, torch.stack([self.baselines[b] for b, _ in rows]))

    def receive(self, lo: int, logits: Tensor) -> None:
        """Keep what the curves need of the answers to rows from lo on."""
        found = measured(logits, self.example)
        finite = torch.isfinite(found[:, :1] if logits.dim() == 1 else found).all(1)
        if not bool(finite.all()):
            _, i = self.rows[lo + int(torch.nonzero(~finite)[0])]
            verb = "taken away" if self.removing else "present"
            raise NonFinite(
                f"The model's answer with {self.counts[i]} of {self.x.numel()} elements {verb} "
                "is not finite."
            )
        self.answers.append(found)

    def table(self) -> tuple[Tensor, Tensor]:
        """(points, 2): value and loss at every point, averaged over baselines; (2,) at the full."""
        output = self.example.reference.output
        full = measured(output.unsqueeze(0), self.example)[0]
        table = full.expand(len(self.counts), 2).clone()
        if self.rows:
            parts = torch.cat(self.answers).view(len(self.baselines), -1, 2)
            asked = torch.tensor([i for b, i in self.rows if b == 0])
            table[asked] = parts.mean(0)
        return table, full


def measured(logits: Tensor, example: Example) -> Tensor:
    """(m, 2) float64: p_c(row) and KL(f(x) ‖ f(row)) = Σ_c f_c(x) · (log f_c(x) − log f_c(row)).

    Of a value: the value itself, and NaN.
    """
    logits = logits.detach().double()
    if logits.dim() == 1:
        return torch.stack([logits, torch.full_like(logits, torch.nan)], 1).cpu()
    found = torch.log_softmax(logits, 1)
    wanted = torch.log_softmax(example.reference.output.double(), 0)
    loss = (wanted.exp() * (wanted - found)).sum(1).clamp_min(0)
    return torch.stack([found[:, example.reference.target].exp(), loss], 1).cpu()


class Respondent(ModelFamily):
    """A model that is asked for its answers and for no gradient, with a count of the rows.

    A fast copy of it is tried against it, as `gp.explain` does at every call, but not again while
    both are what they were when it was tried.
    """

    rows = 0
    """Forward rows paid so far, of the model and of its fast copy."""

    def _prepare(self, example: Example, baseline: Tensor) -> None:
        self._prepared = True
        if not self._foldable:
            return  # What else the base class makes of a model serves its gradients alone.
        super()._prepare(example, baseline)

    def _probe(self, example: Example, rows: Tensor, network: Frozen) -> Tensor:
        if network is not self.plain and len(rows) == 1 and self.was_tried(example, network):
            return example.reference.output.unsqueeze(0)
        return super()._probe(example, rows, network)

    def _run(self, network: Frozen, points: Tensor, runs: Runs) -> Any:
        self.rows += points.shape[0]
        return super()._run(network, points, runs)


class Network:
    """The network whose answers count: the explained model, or its judge."""

    def __init__(
        self,
        model: Callable[..., Any],
        judge: Callable[..., Any] | None,
        *,
        outputs: str | None,
        batch_size: int | Literal["auto"],
        optimize: bool,
        class_given: bool = False,
    ) -> None:
        self.model, self.judge = model, judge
        self.settings: dict[str, Any] = {"outputs": outputs, "batch_size": batch_size,
                                         "optimize": optimize}  # fmt: skip
        if judge is not None:
            _check_same_classes(model, judge)
        with Undisturbed():
            asked = model if judge is None else judge
            self.reading = Target(None, outputs, class_given=class_given)
            self.family = Respondent(asked, self.reading, batch_size=batch_size,
                                     optimize=optimize)  # fmt: skip
            self.translate = None if judge is None else translation(model, judge)
        self.explained: Respondent | None = None
        self._oracles: dict[Layout, _Answers] = {}

    @property
    def rows(self) -> int:
        """Forward rows paid so far, of all networks."""
        return self.family.rows + (0 if self.explained is None else self.explained.rows)

    def example(
        self, x: Any, baseline: Any, target: int | None, fixed: Any
    ) -> tuple[Example, tuple[Tensor, ...]]:
        """The input as the asked network sees it, and its baselines as the explained one does."""
        if target is None and self.judge is not None:
            target = self._explained_class(x, fixed)
        shown = x if self.translate is None else self._translated(x)
        example = self.family.example(shown, target=target, fixed=fixed)
        layout = Layout.of(x)
        baselines = tuple(b.detach() for b in resolve(baseline, x, layout, self.model))
        empty = layout.unflatten(baselines[0])
        # Making the objective chooses the fast stand-in for the network, where it answers alike.
        start = empty if self.translate is None else self._translated(empty)
        self.family.objective(example, shown, start)
        return example, baselines

    def answer(self, batch: Sequence[tuple[Sweep, int, int]]) -> None:
        """Ask one batch of rows (sweep, lo, hi) and hand the answers to their sweeps."""
        chunks = [sweep.points(lo, hi) for sweep, lo, hi in batch]
        points = chunks[0] if len(chunks) == 1 else torch.cat(chunks)
        first = batch[0][0]
        if self.translate is not None:
            images = points.view(-1, *first.layout.shapes[0])
            points = self.translate(images).reshape(len(points), -1).to(first.example.x)
        runs = [(sweep.example, hi - lo) for sweep, lo, hi in batch]
        logits, _, _ = self.oracle(first.example.layout).evaluate(points, runs, gradient=False)
        at = 0
        for sweep, lo, hi in batch:
            sweep.receive(lo, logits[at : at + hi - lo])
            at += hi - lo

    def oracle(self, layout: Layout) -> Oracle:
        """Whole outputs at rows of this layout; knows the batch size."""
        if layout not in self._oracles:

            def function(points: Tensor, runs: Runs) -> Tensor:
                return self.family.logits(points, runs)

            size = self.settings["batch_size"]
            self._oracles[layout] = _Answers(function, layout.n, batch_size=size)
        return self._oracles[layout]

    def _explained_class(self, x: Any, fixed: Any) -> int:
        """The class the explained model predicts: its judge is asked about the same one."""
        if self.explained is None:
            self.explained = Respondent(self.model, self.reading, optimize=False)
        return self.explained.example(x, fixed=fixed).reference.target

    def _translated(self, x: Any) -> Tensor:
        if not isinstance(x, Tensor) or x.dim() != 3:
            raise InvalidInput(
                "Expected one picture (channels, height, width) for two models that know their "
                f"own preprocessing (got {Layout.of(x).shapes})."
            )
        assert self.translate is not None
        return self.translate(x.detach().unsqueeze(0))[0]


def _check_same_classes(model: Any, judge: Any) -> None:
    """A judge is asked about a class by its index, so it must mean the same to both."""
    own, theirs = (getattr(each, "classes", ()) for each in (model, judge))
    named = isinstance(own, list | tuple) and isinstance(theirs, list | tuple)
    if named and tuple(own) != tuple(theirs):
        raise InvalidInput(
            "Expected a judge with the model's classes in the same order (got one with others)."
        )


def check_judge(name: str, model: Any, judge_name: str, judge: Any) -> None:
    """Refuse a judge of other classes, and one that is the explained network itself."""
    if tuple(judge.classes) != tuple(model.classes):
        raise InvalidInput(
            f"Expected a judge with the classes of {name} (got {judge_name}, which names others)."
        )
    if fingerprint(judge) == fingerprint(model):
        raise InvalidInput(
            "Expected another network than the explained one for a second opinion (got "
            f"{judge_name} with the same weights for both)."
        )


def translation(model: Any, judge: Any) -> Translate | None:
    """The way from the model's inputs to its judge's, where both know how pictures become inputs.

    Each picture passes through pixels in [0, 1]; a judge that sees another size gets the picture
    resized. None where the judge takes the same tensor.
    """
    out, into = getattr(model, "to_pixels", None), getattr(judge, "from_pixels", None)
    if judge is model or not callable(out) or not callable(into):
        return None
    check = getattr(model, "check_pixels", None)
    if callable(check):
        check()

    def translate(images: Tensor) -> Tensor:
        pixels = out(images)
        shape = (images.shape[-2], images.shape[-1])
        # Pictures of a size of their own keep it: only the models' customary sizes are matched.
        size = _input_size(judge, shape) if _input_size(model, shape) == shape else None
        if size is not None and size != shape:
            pixels = torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
        return into(pixels)  # type: ignore[no-any-return]

    return translate


def _input_size(model: Any, shape: tuple[int, int]) -> tuple[int, int] | None:
    """What the model's own preprocessing makes of a picture of this height and width."""
    own, side = getattr(model, "input_size", None), getattr(model, "size", None)
    if callable(own):
        height, width = own(*shape)
        return int(height), int(width)
    return (side, side) if isinstance(side, int) else None


def run(network: Network, sweeps: Iterable[Callable[[], Sweep]]) -> Iterator[Sweep]:
    """Run sweeps, each made when its turn comes, and yield them in order as they are complete.

    Neighbours with equal layouts share batches; fixed inputs keep an example to itself. Those
    under way are finished and handed out before an error in making one is raised.
    """
    batch: list[tuple[Sweep, int, int]] = []
    begun: deque[tuple[Sweep, int]] = deque()
    """In order, with the number of batches after which each is complete."""
    asked = 0

    def ask() -> int:
        if not batch:
            return 0
        network.answer(batch)
        batch.clear()
        return 1

    broken: Exception | None = None
    source = iter(sweeps)
    while broken is None:
        try:
            make = next(source, None)
            if make is None:
                break
            with Undisturbed():
                sweep = make()
        except Exception as error:
            broken = error
            continue
        with Undisturbed():
            if batch and not _together(batch[0][0], sweep):
                asked += ask()
            limit = network.oracle(sweep.example.layout)
            at = 0
            while at < len(sweep.rows):
                room = limit.batch_size - sum(hi - lo for _, lo, hi in batch)
                end = min(len(sweep.rows), at + max(room, 1))
                batch.append((sweep, at, end))
                if end - at >= room:
                    asked += ask()
                at = end
            begun.append((sweep, asked + bool(batch)))
        while begun and begun[0][1] <= asked:
            yield begun.popleft()[0]
    with Undisturbed():
        ask()
    for sweep, _ in begun:
        yield sweep
    if broken is not None:
        raise broken


def _together(a: Sweep, b: Sweep) -> bool:
    same = a.example.layout == b.example.layout and a.example.dtypes == b.example.dtypes
    return same and a.layout == b.layout and a.example.fixed is None and b.example.fixed is None


def class_of(a: Any) -> int | None:
    """The class an attribution was made for, where it was made for one."""
    if not isinstance(a, Attribution) or a.settings.get("objective") == "callable":
        return None
    found = a.settings.get("target")
    return found if isinstance(found, int) else None


def baseline_of(a: Any) -> Any:
    """The baseline an attribution was made with; refused where its record does not hold it."""
    if not isinstance(a, Attribution):
        return None
    found = a.settings.get("baseline")
    if not recorded(found):
        raise InvalidInput(
            f"Expected the baseline that the attribution was made with (got None, and its record "
            f"says only {found!r}). Try baseline= the one given to gp.explain."
        )
    return found
