"""What an absent column looks like: zero, its mean, a value of its own, or imputed.

Zero is zero where the gates act: of a standardised number its mean, of a category a vector of
zeros. The mean is taken there too, over the rows of the sample.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from ..core.errors import InvalidInput, InvalidType, did_you_mean
from ..network.fingerprint import digest
from .columns import Batch, Table, as_tensor
from .conditional import fit_conditional
from .distributed import Group
from .networks import Network

NAMES = ("zero", "mean")
CONDITIONAL = "conditional"


def set_baseline(
    network: Network, baseline: Any, sample: Iterator[Batch], group: Group, *,
    example: Batch | None = None, credit: bool = True,
) -> Any:  # fmt: skip
    """Put the network's absent columns at this baseline; returns a description for the record.

    baseline: "zero", "mean", "conditional" (see conditional.py), a number for each column (a
    category's is the id that stands for absence), a tensor with a number for each input of the
    first layer, or a dict from columns (by name or index) to any of "zero", "mean" and numbers,
    the others being zero.
    example, credit: of "conditional", see conditional.py.
    """
    if isinstance(baseline, str) and baseline == "zero":
        return "zero"
    if network.column_of is None:
        raise InvalidInput(
            f"Expected baseline='zero' for a model that gates its columns itself "
            f"(got {baseline!r})."
        )
    if isinstance(baseline, str) and baseline == CONDITIONAL:
        assert example is not None
        if network.refusal:
            raise InvalidInput(
                f"Expected baseline='zero', 'mean' or numbers for {network.refusal} "
                "(got 'conditional')."
            )
        imputed = fit_conditional(network, sample, group, example, credit=credit)
        network.put_absent_at(imputed.moments.mean)
        network.conditional = imputed
        return CONDITIONAL
    wanted = _wanted(baseline, network)
    if isinstance(wanted, Tensor):
        network.put_absent_at(wanted)
        return f"tensor {digest({'baseline': wanted})}"
    rest = torch.zeros_like(network.baseline)
    means = _mean(network, sample, group) if "mean" in wanted else rest
    fixed = _encoded(network, wanted) if any(not isinstance(w, str) for w in wanted) else rest
    for column, choice in enumerate(wanted):
        here = network.column_of == column
        if choice == "mean":
            rest[here] = means[here]
        elif not isinstance(choice, str):
            rest[here] = fixed[here]
    network.put_absent_at(rest)
    same = isinstance(baseline, str)
    return baseline if same else [w if isinstance(w, str) else float(w) for w in wanted]


def keep_constant(network: Network, constant: list[int], example: Batch) -> None:
    """Constant columns stay at their value: the network uses it as a bias, and without that bias
    every other column would seem useful to make up for it."""
    if not constant or network.column_of is None or network.conditional is not None:
        return  # A number that never moves is imputed by its value.
    rows = network.table.read(example)
    if not len(rows):
        return
    first = network.numbers([part[:1].to(network.device) for part in rows.features])[0]
    here = torch.isin(network.column_of, torch.tensor(constant, device=network.device))
    network.put_absent_at(torch.where(here, first.to(network.baseline), network.baseline))


def _wanted(baseline: Any, network: Network) -> list[Any] | Tensor:
    """What is asked of every column, or the numbers of the inputs themselves."""
    table = network.table
    if isinstance(baseline, str):
        return [_choice(baseline)] * table.columns
    if isinstance(baseline, Mapping):
        choices: list[Any] = ["zero"] * table.columns
        for column, choice in baseline.items():
            choices[_index(column, table)] = _choice(choice)
        return choices
    if isinstance(baseline, int | float) and not isinstance(baseline, bool):
        return [float(baseline)] * table.columns
    if isinstance(baseline, list | tuple):
        choices = [_choice(choice) for choice in baseline]
    else:
        numbers = as_tensor(baseline, "the baseline").reshape(-1)
        if len(numbers) == len(network.baseline) != table.columns:
            return numbers
        choices = numbers.tolist()
    if len(choices) != table.columns:
        raise InvalidInput(
            f"Expected a baseline for each of the {table.columns} columns (got {len(choices)})."
        )
    return choices


def _choice(choice: Any) -> Any:
    if isinstance(choice, str):
        if choice == CONDITIONAL:
            raise InvalidInput(
                "Expected 'conditional' as the baseline of all columns (got it for some of them)."
            )
        if choice not in NAMES:
            raise InvalidInput(
                "Expected baseline to be 'zero', 'mean', numbers or a dict of these, or "
                f"'conditional' (got {choice!r}).{did_you_mean(choice, (*NAMES, CONDITIONAL))}"
            )
        return choice
    if isinstance(choice, int | float) and not isinstance(choice, bool):
        return float(choice)
    if isinstance(choice, Tensor) and choice.numel() == 1:
        return float(choice)
    raise InvalidType(f"Expected 'zero', 'mean' or a number (got {type(choice).__name__}).")


def _index(column: Any, table: Table) -> int:
    if column in table.names:
        return table.names.index(column)
    if isinstance(column, int) and 0 <= column < table.columns:
        return column
    raise InvalidInput(
        f"Expected a column of the table in the baseline (got {column!r})."
        f"{did_you_mean(str(column), table.names)}"
    )


def _mean(network: Network, sample: Iterator[Batch], group: Group) -> Tensor:
    total = torch.zeros(len(network.baseline) + 1, dtype=torch.float64)
    for batch in sample:
        rows = network.read(batch)
        if len(rows):
            numbers, count = network.numbers(rows.features).double(), rows.counts()
            total[:-1] += (count @ numbers).cpu()
            total[-1] += count.sum().cpu()
    total = group.sum(total)
    return (total[:-1] / total[-1].clamp(min=1e-300)).to(network.baseline)


def _encoded(network: Network, wanted: list[Any]) -> Tensor:
    """What one row with these numbers and ids looks like where the gates act."""
    parts, column = [], 0
    for part in network.table.parts:
        width = part.width
        values = [0.0 if isinstance(w, str) else w for w in wanted[column : column + width]]
        column += width
        if part.shape != () and part.shape != (width,):
            raise InvalidInput("Expected 'zero' or 'mean' for a bag of categories (got a number).")
        row = torch.tensor(values, dtype=torch.float64).reshape(1, *part.shape)
        if part.categorical and not torch.equal(row, row.round()):
            raise InvalidInput("Expected a whole-number id as a category's baseline.")
        kind = torch.long if part.categorical else network.dtype
        parts.append(row.to(network.device, kind))
    return network.numbers(parts)[0].to(network.baseline)
