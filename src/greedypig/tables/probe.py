"""A few questions to a model before the work: does it gate what it says, does it answer in logits?

A gate of one's own is right if a column whose gate is closed cannot be seen: its values may change
places among the rows, and no answer moves.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..core.errors import GreedyPigError, InvalidInput
from ..tensors.targets import PROBABILITIES, look_like_probabilities
from . import losses
from .networks import BaselinedNetwork, GatedNetwork, Network, Prepared
from .stream import Batch

ROWS = 64
"""Of the first batch, that are asked about."""
MORE_ROWS = 1024
"""Of the first batch, on which answers and labels are compared."""
WORSE = 1.05
"""Times the loss of a constant answer: logits that do worse are hardly any."""
MOST = 64
"""Columns whose gates are tried one by one."""


def concerns(network: Network, example: Batch, loss: str) -> list[str]:
    """What is to be warned of; gates that cannot be used are an error."""
    rows = network.table.read(example).to(network.device)
    parts = [part[:ROWS] for part in rows.parts]
    if len(rows.labels) < 2:
        return []
    said = []
    with torch.no_grad():
        if isinstance(network, GatedNetwork | BaselinedNetwork):
            said = _gates(network, parts)
        if loss in losses.OF_PROBABILITIES:
            parts, labels = [part[:MORE_ROWS] for part in rows.parts], rows.labels[:MORE_ROWS]
            said += _outputs(network, Prepared(network.encode(parts), labels), loss)
    return said


def _outputs(network: Network, batch: Prepared, loss: str) -> list[str]:
    """Probabilities that are read as logits: rows that sum to 1; single numbers from 0 to 1 that
    fit the labels better as probabilities, or as logits worse than a constant answer."""
    given = network.outputs(batch.features, _gates_of(network, 1.0))
    if not isinstance(given, Tensor) or not look_like_probabilities(given):
        return []
    if loss == "binary-cross-entropy":
        as_logits, as_probabilities = (
            losses.per_row(function, given, batch.labels).mean()
            for function in (losses.LOSSES[loss], losses.OF_PROBABILITIES[loss])
        )
        rate = batch.labels.double().mean()
        constant = -torch.xlogy(rate, rate) - torch.xlogy(1 - rate, 1 - rate)
        if bool(as_logits <= as_probabilities) and bool(as_logits <= WORSE * constant):
            return []
    return [f"{PROBABILITIES} Or leave out the model's last sigmoid or softmax."]


def _gates(network: GatedNetwork | BaselinedNetwork, parts: list[Tensor]) -> list[str]:
    """Columns that are seen past their gates."""
    opened, closed = _gates_of(network, 1.0), _gates_of(network, 0.0)
    everything = _asked(network, parts, opened)
    if not _same(everything, _asked(network, parts, opened)):
        return []  # A model that never answers twice alike cannot be asked such questions.
    if _same(everything, _asked(network, parts, closed)) and not _same(everything, everything[:1]):
        raise InvalidInput(
            "Expected a model that uses its gates (got the same answers with all of them 0 as with "
            "all of them 1). Try x * gates where a column enters, or a forward without gates."
        )
    seen, turned = [], torch.arange(len(parts[0]), device=network.device).roll(1)
    for column in range(min(network.columns, MOST)):
        gates = opened.clone()
        gates[column] = 0
        there = _asked(network, parts, gates)
        moved = network.table.reordered(parts, column, turned)
        if not _same(there, _asked(network, moved, gates)):
            seen.append(column)
    if not seen:
        return []
    return [
        f"The model's answers follow {network.table.listed(seen)} with the gate of that column "
        "closed, so scores and order mean little. Expected one gate per column, in the columns' "
        "order, numbers first, on everything that the column becomes, its embedding for instance."
    ]


def _asked(network: GatedNetwork | BaselinedNetwork, parts: list[Tensor], gates: Tensor) -> Tensor:
    """The model's answers; what fails with gates alone is the gates' fault."""
    try:
        found = network.outputs(network.encode(parts), gates)
    except GreedyPigError:
        raise
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        try:
            network.table.call(network.model, parts)
        except Exception:  # It fails without gates, too: not for us to explain.
            raise error from None
        said = (str(error).splitlines() or [""])[0][:100]
        raise InvalidInput(
            f"Expected a model that takes gates of shape ({network.columns},), one for each column "
            f"(got {type(error).__name__}: {said}). Try gates[column_of] for columns that become "
            "several numbers."
        ) from error
    if not isinstance(found, Tensor) or found.dim() == 0 or len(found) != len(parts[0]):
        got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
        raise InvalidInput(f"Expected one output per row, {len(parts[0])} of them (got {got}).")
    return found


def _gates_of(network: Network, value: float) -> Tensor:
    return torch.full((network.columns,), value, dtype=torch.float64, device=network.device)


def _same(a: Any, b: Any) -> bool:
    return torch.allclose(a, b.expand_as(a), rtol=1e-4, atol=1e-6, equal_nan=True)
