"""What is being maximised: one number per row, from the model's outputs.

Names of the paper: softmax is G^AttributionSoftmax (its Eq. 4), log-likelihood is
G^AttributionKL (its Eq. 5). Every objective reads the outputs of rows that may belong to
different examples, each with its own class and its own reference, the output at the full input.

A model with one output is read in one of two ways. As the logit (or probability) of class 1 it has
two classes, with logits 0 and z. As a value, the objective is the value itself, up or down.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..core.errors import (
    Argument,
    GreedyPigWarning,
    InvalidInput,
    InvalidType,
    did_you_mean,
    levels_to_caller,
    listed,
)
from ..core.numbers import whole
from ..core.registry import OBJECTIVES, ROWS, serving
from ..core.two_sided import one_side, title

OF_VALUES = {"increase": 1.0, "decrease": -1.0}
"""Objectives over a single output that is a value, with their sign."""
NAMES = serving(OBJECTIVES, ROWS)
OF_CLASSES = tuple(name for name in NAMES if name not in (*OF_VALUES, "counterfactual"))
"""Objectives over classes; a single output is read as the logit of class 1."""
OUTPUTS = ("logits", "probabilities", "values")
UNSTATED = GreedyPigWarning(
    "The model's single output is read as a value, and the features are those that move it from "
    "the baseline's output to the input's. As a class logit it would be explained in the other "
    "direction.",
    advice=(
        "Try ",
        Argument("outputs", "logits"),
        " for a binary classifier, ",
        Argument("outputs", "values"),
        " for a regression.",
    ),
)
PROBABILITIES = GreedyPigWarning(
    "The model's output looks like probabilities but is read as logits.",
    advice=Argument("outputs", "probabilities"),
)


@dataclass(frozen=True)
class Margin:
    """The class's logit minus that of a rival: the runner-up at the full input, or `against`, as
    in objective=gp.margin(against=207)."""

    against: int | None = None


margin = Margin


@dataclass(frozen=True, eq=False)
class Reference:
    """One example's class, rival and output at the full input."""

    target: int
    rival: int
    """The class that a margin is measured against; -1 where none is."""
    output: Tensor
    """(classes,) logits, or () for a single output."""
    classes: bool
    """Does the output hold one logit for each class?"""
    sign: float = 1.0
    """Of a value: 1 where it is to rise, −1 where it is to fall."""


class References(NamedTuple):
    """The references of b examples side by side."""

    target: Tensor
    """(b,) long."""
    rival: Tensor
    """(b,) long."""
    output: Tensor
    """(b, classes) logits, or (b,)."""
    sign: Tensor
    """(b,)."""

    @staticmethod
    def of(references: Sequence[Reference]) -> References:
        """Stack the references of examples of one model."""
        output = torch.stack([r.output for r in references])
        target, rival, sign = (
            torch.tensor([getattr(r, name) for r in references], device=output.device)
            for name in ("target", "rival", "sign")
        )
        return References(target, rival, output, sign.to(output.dtype))


class Target:
    """objective= and outputs= of `explain`, read once: logits (m, classes) → values (m,)."""

    def __init__(
        self, objective: Any = None, outputs: str | None = None, *, class_given: bool = False
    ) -> None:
        if outputs is not None and outputs not in OUTPUTS:
            end = f" to be 'logits', 'probabilities' or 'values' (got {outputs!r})."
            raise InvalidInput("Expected ", Argument("outputs"), end)
        self.outputs = outputs
        objective, self.both = one_side(objective)
        self.chosen = objective is None
        """Is the objective the default: softmax for classes, toward the prediction for values?"""
        self.against: int | None = None
        self.function: Callable[[Tensor], Tensor] | None = None
        self.name = objective if isinstance(objective, str) else "softmax"
        if isinstance(objective, Margin):
            self.name, self.against = "margin", whole(objective.against)
            if self.against is not None and type(self.against) is not int:
                raise InvalidInput(
                    "Expected the margin's rival to be the number of a class "
                    f"(got {objective.against!r})."
                )
        elif callable(objective):
            self.name, self.function = "callable", objective
        elif objective is not None and not isinstance(objective, str):
            raise InvalidType(
                f"Expected objective to be a name or a callable (got {type(objective).__name__})."
            )
        elif self.name not in NAMES:
            raise InvalidInput(
                "Expected ",
                Argument("objective"),
                f" to be one of {', '.join(NAMES)}, or a callable from logits to one number per "
                f"row (got {objective!r}).{did_you_mean(self.name, NAMES)}",
            )
        of_classes = class_given or (not self.chosen and self.name in OF_CLASSES)
        of_values = self.name in OF_VALUES or outputs == "values"
        if of_classes and of_values and self.function is None:
            raise InvalidInput(
                "Expected ",
                Argument("target"),
                " or an objective over classes, or else a value with ",
                Argument("outputs", "values"),
                " or ",
                Argument("objective", "increase"),
                " (got both: ",
                Argument("objective", objective),
                ", ",
                Argument("outputs", outputs),
                f"{', a target' * class_given}).",
                advice=(
                    "Try ",
                    Argument("objective", "logit"),
                    " or ",
                    Argument("outputs", "logits"),
                    " for a class, ",
                    Argument("objective", "increase"),
                    " or 'decrease' for a value.",
                ),
            )
        self.binary = self.function is None and not of_values and (of_classes or bool(outputs))
        """Is a single output read as the logit or probability of class 1?"""

    @property
    def title(self) -> str:
        """The objective's name, with its sides."""
        return title(self.name, self.both)

    @property
    def towards_baseline(self) -> bool:
        """A counterfactual switches features to the baseline instead of to the input."""
        return self.name == "counterfactual"

    def logits(self, output: Any, rows: int) -> Tensor:
        """The model's own output as (m, classes), or (m,) for a value.

        A single output z that is a logit stands for the classes' logits (0, z); for
        objective="logit", the logits of 1 − p and p, for (−z, z).
        """
        tensor = output if isinstance(output, Tensor) else _find_tensor(output)
        if self.function is None and tensor.dim() > 1 and 1 in tensor.shape:
            tensor = _without_axes_of_one(tensor)
        fits = tensor.dim() in (1, 2) or self.function is not None
        if tensor.dim() == 0 or tensor.shape[0] != rows or not fits:
            raise InvalidInput(
                f"Expected the model to return ({rows}, classes) or ({rows},) for {rows} rows "
                f"(got {tuple(tensor.shape)}). Try wrapping it to return one row each."
            )
        sure = self.outputs == "probabilities"
        if self.binary and tensor.dim() == 1:
            same = -tensor if self.name == "logit" else torch.zeros_like(tensor)
            other = 1 - tensor if sure else same
            tensor = torch.stack([other, tensor], 1)
        if sure and tensor.dim() == 2:
            return tensor.clamp_min(torch.finfo(tensor.dtype).tiny).log()
        return tensor

    def reference(self, logits: Tensor, target: int | None) -> Reference:
        """The class, rival and reference of an example, from its logits (classes,) or ()."""
        if self.function is not None and target is not None:
            raise InvalidInput(
                f"Expected no target beside an objective of your own, which reads the logits "
                f"itself (got target={target!r})."
            )
        if logits.dim() == 0 or self.function is not None:
            return Reference(0, -1, logits, False, OF_VALUES.get(self.name, 1.0))
        classes = logits.shape[0]
        self._check_classes(logits)
        target = int(logits.argmax()) if target is None else whole(target)
        if type(target) is not int or not 0 <= target < classes:
            end = f" to be a class from 0 to {classes - 1} (got {target!r})."
            raise InvalidInput("Expected ", Argument("target"), end)
        rival = self.against
        if rival is not None and (not 0 <= rival < classes or rival == target):
            raise InvalidInput(
                f"Expected the margin's rival to be another class from 0 to {classes - 1} "
                f"(got {rival})."
            )
        if rival is None and self.name == "margin":
            best = logits.topk(min(2, classes)).indices.tolist()
            rival = best[0] if best[0] != target else best[-1]
        return Reference(target, -1 if rival is None else rival, logits, True)

    def directed(self, reference: Reference, at_baselines: Tensor) -> Reference:
        """Of a value with no direction asked for: toward f(x), from the baselines' mean f."""
        start, end = float(at_baselines.double().mean()), float(reference.output)
        if self.outputs is None and start != end and (end > 0) != (end > start):
            warnings.warn(UNSTATED, stacklevel=levels_to_caller())
        return replace(reference, sign=-1.0 if end < start else 1.0)

    def is_undirected(self, reference: Reference) -> bool:
        """Is it a value whose direction follows from the baseline?"""
        return self.chosen and not reference.classes and self.function is None

    def described(self, reference: Reference) -> dict[str, Any]:
        """The objective, the outputs and the class, as they were read for this example."""
        if reference.classes or self.function is not None:
            outputs = self.outputs or "logits"
            target = None if self.function is not None else reference.target
            return {"objective": self.title, "outputs": outputs, "target": target}
        rising = "increase" if reference.sign > 0 else "decrease"
        name = "counterfactual" if self.name == "counterfactual" else rising
        outputs = self.outputs if self.outputs == "probabilities" else "values"
        return {"objective": title(name, self.both), "outputs": outputs, "target": None}

    def values(self, logits: Tensor, references: References, problems: Tensor) -> Tensor:
        """(m,): the objective of every row; problems (m,) says to which example a row belongs."""
        if self.function is not None:
            values = self.function(logits)
            if not isinstance(values, Tensor) or values.shape != logits.shape[:1]:
                got = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
                raise InvalidInput(
                    f"Expected the objective to give one number per row of the logits "
                    f"{tuple(logits.shape)} (got {got}). Try lambda logits: logits[:, 0]."
                )
            return values
        if logits.dim() == 1:
            if self.name == "counterfactual":
                return (logits - references.output[problems]).abs()
            return logits * references.sign[problems] + 0.0  # No −0.
        if self.name in ("softmax", "log-probability"):
            shares = torch.softmax if self.name == "softmax" else torch.log_softmax
            return _entries(shares(logits, 1), references.target, problems)
        if self.name in ("logit", "margin"):
            values = _entries(logits, references.target, problems)
            if self.name == "logit":
                return values
            return values - _entries(logits, references.rival, problems)
        expected = torch.log_softmax(references.output, 1)[problems]
        predicted = torch.log_softmax(logits, 1)
        if self.name == "log-likelihood":
            return (expected.exp() * predicted).sum(1)
        # Counterfactual: KL(f(x) ‖ f(x with S at the baseline)), 0 for the empty set.
        return (expected.exp() * (expected - predicted)).sum(1)

    def _check_classes(self, logits: Tensor) -> None:
        """Refuse several outputs where one value is explained, and what is no probability."""
        if self.name in OF_VALUES or self.outputs == "values":
            by_name = self.name in OF_VALUES
            raise InvalidInput(
                "Expected a model with a single output for ",
                Argument("objective", self.name) if by_name else Argument("outputs", "values"),
                f" (got {len(logits)} outputs).",
                advice=(
                    "Try ",
                    Argument("objective", "logit"),
                    " with ",
                    Argument("target"),
                    " for one of them.",
                ),
            )
        total = float(logits.exp().double().sum())
        if self.outputs == "probabilities" and abs(total - 1) > 1e-2:
            raise InvalidInput(
                "Expected probabilities from 0 to 1 that sum to 1 over the classes (got a sum "
                f"of {total:.3g}).",
                advice=("Try ", Argument("outputs", "logits"), ", or 'values' for a regression."),
            )
        if self.outputs != "probabilities" and look_like_probabilities(logits.unsqueeze(0)):
            warnings.warn(PROBABILITIES, stacklevel=levels_to_caller())


def halfway_match(logits: Tensor, references: References, problems: Tensor) -> Tensor:
    """(m,): Σ_c q_c · log f_c, with q halfway from the prediction at the full input to its class.

    The log-likelihood (Eq. 5) of a little more than the input's own prediction: largest where the
    class has the probability (1 + f_c(x)) / 2, and the others keep their proportions.
    """
    goal = torch.softmax(references.output, 1) / 2
    goal = goal.scatter_add(1, references.target.unsqueeze(1), torch.full_like(goal[:, :1], 0.5))
    return (goal[problems] * torch.log_softmax(logits, 1)).sum(1)


def _entries(rows: Tensor, columns: Tensor, problems: Tensor) -> Tensor:
    """(m, classes) rows, (b,) columns → (m,): each row's entry in the column of its problem."""
    if columns.shape[0] == 1:
        return rows[:, int(columns)]
    return rows.gather(1, columns[problems].unsqueeze(1)).squeeze(1)


def look_like_probabilities(outputs: Tensor) -> bool:
    """Are rows (m, classes) ≥ 0 with sums of 1, or single outputs (m,), (m, 1) from 0 to 1?"""
    outputs = outputs.detach().double()
    if not bool((outputs >= 0).all()):
        return False
    if outputs.dim() < 2 or outputs.shape[1] == 1:
        return bool((outputs <= 1).all())
    return bool(((outputs.sum(1) - 1).abs() < 1e-4).all())


def _find_tensor(output: Any) -> Tensor:
    """The scores inside what a model returned: a tensor, .logits, ['logits'] or the first item."""
    if isinstance(output, Mapping):
        tensors = {key: value for key, value in output.items() if isinstance(value, Tensor)}
        first = next(iter(tensors), "logits")
        logits = output.get("logits", tensors[first] if len(tensors) == 1 else None)
        if not isinstance(logits, Tensor):
            raise InvalidType(
                "Expected the model to return a dict with 'logits' or a single tensor (got keys "
                f"{listed([repr(key) for key in output])}).",
                advice=f"Try lambda batch: model(batch)[{first!r}].",
            )
        return logits
    if isinstance(output, tuple | list) and output:
        output = getattr(output, "logits", output[0])
    output = output if isinstance(output, Tensor) else getattr(output, "logits", output)
    if not isinstance(output, Tensor):
        raise InvalidType(
            "Expected the model to return a tensor, a tuple that begins with one, a dict or object "
            f"with 'logits' (got {type(output).__name__})."
        )
    return output


def _without_axes_of_one(output: Tensor) -> Tensor:
    """(m, 1) and (m, 1, 1, 1) as (m,), and what convolutions give, (m, classes, 1, 1), as
    (m, classes).

    (m, classes, 1) stays: it may be what a model of one output makes of a whole batch.
    """
    if all(size == 1 for size in output.shape[1:]):
        return output.flatten()
    if output.dim() > 3 and all(size == 1 for size in output.shape[2:]):
        return output.flatten(1)
    return output
