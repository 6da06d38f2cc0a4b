"""The objectives on a graph: the mean over nodes of a number read from each one's logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput, did_you_mean
from ..core.numbers import whole
from ..core.registry import EDGES, OBJECTIVES, serving
from ..core.two_sided import one_side, title

NAMES = serving(OBJECTIVES, EDGES)


class NodeTarget:
    """The mean over nodes of a number read from each node's logits.

    log-likelihood: Σ_c p_full(c) · log p_S(c), the paper's Eq. 5
    log-probability: log p_S(the class that the node has in the full graph)
    softmax: p_S(that class)
    label-loss: log p_S(the node's label), the negative loss
    None: log-probability
    """

    def __init__(
        self,
        objective: Any,
        logits: Tensor,
        labels: Any = None,
        nodes: Any = None,
        target: int | None = None,
    ) -> None:
        objective, self.both = one_side(objective)
        objective = "log-probability" if objective is None else objective
        if not callable(objective) and objective not in NAMES:
            raise InvalidInput(
                "Expected ",
                Argument("objective"),
                f" to be one of {', '.join(NAMES)}, or a callable from logits to a number "
                f"(got {objective!r}).{did_you_mean(str(objective), NAMES)}",
            )
        self.function: Callable[[Tensor], Any] | None = objective if callable(objective) else None
        self.name: str = "callable" if callable(objective) else objective
        check_logits(logits)
        self.single = logits.dim() == 1 or logits.shape[1] == 1
        logits = self.logits(logits)
        self.nodes = None if nodes is None else node_ids(nodes, len(logits), logits.device)
        own = logits if self.nodes is None else logits[self.nodes]
        self.classes = own.reshape(len(own), -1).argmax(1)
        if target is not None:
            self.classes = torch.full_like(self.classes, _class_index(target, own.shape[1]))
        if self.name == "label-loss":
            self.classes = self._labels(labels, logits)
        elif labels is not None:
            raise InvalidInput(
                f"Expected labels only with objective='label-loss' (got {self.name!r})."
            )
        self.expected = torch.softmax(own, 1) if self.name == "log-likelihood" else None

    @property
    def title(self) -> str:
        """The objective's name, with its sides."""
        return title(self.name, self.both)

    def logits(self, output: Tensor) -> Tensor:
        """(nodes, classes) from what the model returned; a single logit z is [0, z]."""
        if not self.single or self.function is not None:
            return output
        return torch.nn.functional.pad(output.reshape(-1, 1), (1, 0))

    def value(self, output: Tensor) -> Tensor:
        """G, a number, in differentiable torch."""
        logits = self.logits(output)
        logits = logits if self.nodes is None else logits[self.nodes]
        if self.function is not None:
            return self._own_value(self.function(logits), logits)
        log_p = torch.log_softmax(logits, 1)
        if self.expected is not None:
            return (self.expected * log_p).sum(1).mean()
        chosen = log_p.gather(1, self.classes.unsqueeze(1))
        return (chosen.exp() if self.name == "softmax" else chosen).mean()

    def _own_value(self, value: Any, logits: Tensor) -> Tensor:
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise InvalidInput(
                f"Expected the objective to give one number for logits {tuple(logits.shape)} "
                f"(got {_shape(value)}). Try lambda logits: logits[:, 0].mean()."
            )
        return value.reshape(())

    def _labels(self, labels: Any, logits: Tensor) -> Tensor:
        count, classes = logits.shape
        if labels is None:
            raise InvalidInput("Expected labels for objective='label-loss' (got none).")
        labels = torch.as_tensor(labels).detach().to(logits.device)
        if labels.shape != (count,) or labels.is_floating_point():
            raise InvalidInput(
                f"Expected one whole class number per node, ({count},) "
                f"(got {labels.dtype} {tuple(labels.shape)})."
            )
        own: Tensor = labels.long() if self.nodes is None else labels.long()[self.nodes]
        if int(own.min()) < 0 or int(own.max()) >= classes:
            raise InvalidInput(
                f"Expected labels from 0 to {classes - 1} at the nodes asked for "
                f"(got {int(own.min())} to {int(own.max())}). Try nodes= for those that have one."
            )
        return own


def check_logits(logits: Any) -> None:
    """Refuse what is not one finite row of logits per node."""
    if not isinstance(logits, Tensor) or logits.dim() not in (1, 2) or not logits.shape[-1]:
        raise InvalidInput(
            f"Expected the model to return one row of logits per node (got {_shape(logits)}). "
            "Try wrapping it to return (nodes, classes)."
        )
    if not bool(torch.isfinite(logits).all()):
        raise InvalidInput(
            "Expected finite logits on the full graph (got NaN or infinity). Check x, and "
            "edge_weight for negative weights: a degree ≤ 0 has no root."
        )


def _shape(value: Any) -> Any:
    return tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__


def _class_index(target: Any, classes: int) -> int:
    index = whole(target)
    if type(index) is not int or not 0 <= index < classes:
        end = f" to be a class from 0 to {classes - 1} (got {target!r})."
        raise InvalidInput("Expected ", Argument("target"), end)
    return index


def node_ids(nodes: Any, count: int, device: torch.device) -> Tensor:
    """(nodes,) long from one id, several, or a mask over all nodes."""
    try:
        ids = torch.as_tensor(nodes).detach().to(device).reshape(-1)
    except (TypeError, ValueError, RuntimeError):  # No numbers at all.
        ids = torch.empty(0)
    if ids.dtype == torch.bool and ids.numel() == count:
        ids = torch.nonzero(ids).squeeze(1)
    whole_numbers = ids.numel() and not ids.is_floating_point() and ids.dtype != torch.bool
    if not whole_numbers or int(ids.min()) < 0 or int(ids.max()) >= count:
        raise InvalidInput(
            f"Expected nodes as at least one id from 0 to {count - 1}, or as a mask over all of "
            f"them (got {nodes!r:.60})."
        )
    return ids.long()
