"""What is maximised on a graph: the mean over nodes of a number read from each one's logits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, did_you_mean
from ..core.numbers import whole

OBJECTIVES = ("log-likelihood", "log-probability", "softmax", "label-loss")


class NodeTarget:
    """The mean over nodes of a number read from each node's logits.

    log-likelihood: Σ_c p_full(c) · log p_S(c), the paper's Eq. 5
    log-probability: log p_S(the class that the node has in the full graph)
    softmax: p_S(that class)
    label-loss: log p_S(the node's label), the negative loss
    """

    def __init__(
        self,
        objective: Any,
        logits: Tensor,
        labels: Any = None,
        nodes: Any = None,
        target: int | None = None,
    ) -> None:
        self.name, self.function = _objective_name(objective)
        check_logits(logits)
        self.single = logits.dim() == 1 or logits.shape[1] == 1
        logits = self.logits(logits)
        self.nodes = _node_ids(nodes, logits.shape[0], logits.device)
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

    def logits(self, output: Tensor) -> Tensor:
        """(nodes, classes) from what the model returned; a single logit z is [0, z]."""
        if not self.single or self.function is not None:
            return output
        lone = output.reshape(-1, 1)
        return torch.cat([torch.zeros_like(lone), lone], 1)

    def value(self, output: Tensor) -> Tensor:
        """G, a number, in differentiable torch."""
        logits = self.logits(output)
        logits = logits if self.nodes is None else logits[self.nodes]
        if self.function is not None:
            return self._own_value(logits)
        if self.name == "softmax":
            chosen = torch.softmax(logits, 1).gather(1, self.classes.unsqueeze(1))
            return chosen.mean()
        log_p = torch.log_softmax(logits, 1)
        if self.expected is not None:
            return (self.expected * log_p).sum(1).mean()
        return log_p.gather(1, self.classes.unsqueeze(1)).mean()

    def _own_value(self, logits: Tensor) -> Tensor:
        assert self.function is not None
        value = self.function(logits)
        if not isinstance(value, Tensor) or value.numel() != 1:
            got = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
            raise InvalidInput(
                f"Expected the objective to give one number for logits {tuple(logits.shape)} "
                f"(got {got}). Try lambda logits: logits[:, 0].mean()."
            )
        return value.reshape(())

    def _labels(self, labels: Any, logits: Tensor) -> Tensor:
        if labels is None:
            raise InvalidInput("Expected labels for objective='label-loss' (got none).")
        labels = torch.as_tensor(labels).detach().to(logits.device)
        if labels.dim() != 1 or labels.shape[0] != logits.shape[0] or labels.is_floating_point():
            raise InvalidInput(
                f"Expected one whole class number per node, ({logits.shape[0]},) "
                f"(got {labels.dtype} {tuple(labels.shape)})."
            )
        labels = labels.long() if self.nodes is None else labels.long()[self.nodes]
        if int(labels.min()) < 0 or int(labels.max()) >= logits.shape[1]:
            raise InvalidInput(
                f"Expected labels from 0 to {logits.shape[1] - 1} at the nodes asked for "
                f"(got {int(labels.min())} to {int(labels.max())}). Try nodes= for those that "
                "have one."
            )
        return labels  # type: ignore[no-any-return]


def check_logits(logits: Any) -> None:
    """Refuse what is not one finite row of logits per node."""
    if not isinstance(logits, Tensor) or logits.dim() not in (1, 2) or not logits.shape[-1]:
        got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
        raise InvalidInput(
            f"Expected the model to return one row of logits per node (got {got}). "
            "Try wrapping it to return (nodes, classes)."
        )
    if not bool(torch.isfinite(logits).all()):
        raise InvalidInput("Expected finite logits on the full graph (got NaN or infinity).")


def _class_index(target: Any, classes: int) -> int:
    index = whole(target)
    if type(index) is not int or not 0 <= index < classes:
        raise InvalidInput(
            f"Expected target to be a class from 0 to {classes - 1} (got {target!r})."
        )
    return index


def _objective_name(objective: Any) -> tuple[str, Callable[[Tensor], Tensor] | None]:
    if callable(objective):
        return "callable", objective
    if objective not in OBJECTIVES:
        raise InvalidInput(
            f"Expected objective to be one of {', '.join(OBJECTIVES)}, or a callable from logits "
            f"to a number (got {objective!r}).{did_you_mean(str(objective), OBJECTIVES)}"
        )
    return str(objective), None


def _node_ids(nodes: Any, count: int, device: torch.device) -> Tensor | None:
    if nodes is None:
        return None
    ids = torch.as_tensor(nodes).detach().to(device).reshape(-1)
    if ids.dtype == torch.bool:
        if ids.numel() != count:
            raise InvalidInput(f"Expected a mask over {count} nodes (got {ids.numel()}).")
        ids = torch.nonzero(ids).squeeze(1)
    if ids.is_floating_point() or ids.numel() == 0:
        raise InvalidInput("Expected nodes as at least one whole id, or a mask over all nodes.")
    ids = ids.long()
    if int(ids.min()) < 0 or int(ids.max()) >= count:
        raise InvalidInput(
            f"Expected nodes from 0 to {count - 1} (got {int(ids.min())} to {int(ids.max())})."
        )
    return ids
