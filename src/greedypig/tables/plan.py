"""What a `SelectJob` is asked to do."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..core.errors import NAMED, Argument, InvalidInput, did_you_mean
from ..core.numbers import check_count
from ..core.registry import COLUMNS, METHODS, serving
from ..core.scorers import IG
from .methods import FOR_COLUMNS
from .row_batches import Batches
from .schema import Schema
from .schema_inference import Reading

ONE_SHOT = IG(steps=39)
"""Integrated gradients with the paper's number of steps."""
USUAL_KS, FEW_KS, FEW = (5, 10, 20, 30), (1, 2, 3, 5, 7, 10), 20
"""How many columns are kept by default, of many columns and of at most FEW."""
EMBEDDING, MOST_NUMBERS = 8, 2048
"""Numbers of a category, and of a row, up to which baseline "conditional" is the default."""
EACH = 40
"""Batches of each gradient of greedy-pig."""


@dataclass(frozen=True)
class Plan:
    """The settings of a job."""

    label: str
    reading: Reading
    ks: tuple[int, ...]
    """How many columns to keep, ascending; empty until the columns are known."""
    seeds: int
    seed: int
    methods: tuple[str, ...]
    model: str | None
    """The name of the caller's model; None where a network is trained."""
    epochs: int | None
    baseline: str = ""
    """Empty until the columns are known."""

    def check(self, columns: int) -> None:
        """Refuse settings that no table of so many columns has."""
        for k in self.ks:
            check_count("ks", k)
        if max(self.ks, default=1) > columns:
            raise InvalidInput(
                *("Expected ", Argument("ks")),
                f" of at most {columns}, the number of columns besides the label (got "
                f"{max(self.ks)}).",
                advice=Argument("ks", (columns,)),
            )
        check_count("seeds", self.seeds)
        if self.epochs is not None:
            check_count("epochs", self.epochs)
        names = serving(METHODS, COLUMNS)
        for method in self.methods:
            if method not in names:
                raise InvalidInput(
                    *("Expected ", Argument("methods")),
                    f" among {', '.join(names)} (got {method!r}).{did_you_mean(method, names)}",
                )
        if self.methods[:1] in ((), ("random",)):
            raise InvalidInput(
                *("Expected ", Argument("methods")),
                f" of which the first one ranks columns (got {self.methods}).",
            )

    def identity(self) -> dict[str, Any]:
        """What a resumed job must share: more seeds, methods and smaller k add work."""
        options = asdict(self) | asdict(self.reading) | {"k": max(self.ks, default=None)}
        for name in ("reading", "seeds", "methods", "ks", "baseline"):
            del options[name]
        record: dict[str, Any] = json.loads(json.dumps(options))
        return record

    def settled(self, schema: Schema, left_out: Sequence[str] = ()) -> Plan:
        """The plan with the ks and the baseline for these columns.

        For our own network the question is which columns suffice, so copies should not be
        selected; for a model of the user's it is which columns the model reads. A regression on
        very many numbers would be slow.
        """
        columns = len(schema.numbers) + len(schema.categories)
        usual = USUAL_KS if columns > FEW else FEW_KS
        ks = self.ks or tuple(k for k in usual if k < columns) or (1,)
        if max(ks) > columns:
            ranked = Argument("categorical", tuple(left_out[:NAMED]))
            others = (", or ", ranked, " to rank row numbers too") if left_out else ()
            raise InvalidInput(
                *("Expected ", Argument("ks")),
                f" of at most {columns}, the number of columns that can be ranked (got {max(ks)}).",
                advice=("Try ", Argument("ks", (columns,)), *others, "."),
            )
        width = len(schema.numbers) + EMBEDDING * len(schema.categories)
        imputed = self.model is None and width <= MOST_NUMBERS
        return replace(self, ks=ks, baseline="conditional" if imputed else "zero")

    def gradient_batches(self, method: str, train: Batches) -> int:
        """Gradient batches of a method: the same for all, unless a method needs more."""
        columns, k = len(train.schema.names), max(self.ks)
        # Methods that try every column by itself need a batch for each try.
        least = {
            "ig": ONE_SHOT.steps,
            "permutation": columns + 1,
            "marginal-gains": sum(1 + columns - r for r in range(k)),
        }
        return max(min(EACH, len(train)) * FOR_COLUMNS.steps * k, least.get(method, 0))
