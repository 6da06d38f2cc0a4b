"""What `greedypig select` was asked for."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from ..core.errors import quoted
from ..tables import Batches, Effort, Reading, Schema
from ..tables.api import STEPS
from ..tables.column_checks import drop_words
from .failures import UsageError
from .select_model import Outputs

TRAINING = "Glorot, small steps, missing indicators, patience"
"""Results of networks that were trained otherwise, by earlier versions, are not gone on with."""
METHODS = ("greedy-pig", "ig", "random")
ANEW = "no --resume to begin anew, with another --out to keep what is here"
EMBEDDING, EXPECTED = 8, 2048
"""Numbers of a category, and of a row, up to which baseline "conditional" is the default."""
HELD, MOST_HELD, HELD_ROWS = 0.1, 0.3, 1000
USUAL_KS, FEW_KS, FEW = (5, 10, 20, 30), (1, 2, 3, 5, 7, 10), 20
"""How many columns are kept where nobody says, of many columns and of at most FEW."""
EACH = 40
"""Batches of each gradient of greedy-pig, where no budget is given."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    label: str
    reading: Reading
    ks: tuple[int, ...]
    """Empty until the columns are known, where nobody says: see `settled`."""
    seeds: int
    seed: int
    methods: tuple[str, ...]
    steps: int | None
    budget: int | None
    baseline: str | None
    """None until the columns are known: see `settled`."""
    finetune: int | None
    model: str | None
    outputs: Outputs
    """Of the user's model."""
    valid_share: float | None
    epochs: int | None
    rate: float
    batch_size: int | None

    @property
    def effort(self) -> Effort:
        """Of every training."""
        return Effort(epochs=self.epochs, rate=self.rate)

    def held_out(self, rows: int) -> float:
        """Share of the rows to judge on: a tenth, of a small table more."""
        return self.valid_share or min(MOST_HELD, max(HELD, HELD_ROWS / rows))

    def settled(self, schema: Schema, left_out: Sequence[str] = ()) -> Plan:
        """The plan with the ks and the baseline for these columns.

        Which columns suffice is asked of our own network, so that copies should not come again; of
        a model of the user's, which columns it reads. A regression on very many numbers would not
        be quick any more.
        """
        columns = len(schema.numbers) + len(schema.categories)
        usual = USUAL_KS if columns > FEW else FEW_KS
        ks = self.ks or tuple(k for k in usual if k < columns) or (1,)
        if max(ks) > columns:
            raise UsageError(
                f"Expected --k of at most {columns}, the number of columns without "
                f"{quoted(list(left_out))}, which number the rows (got {max(ks)}). Try --keep "
                f"{drop_words(left_out)} to rank those too."
            )
        if self.baseline is not None:
            return replace(self, ks=ks)
        width = len(schema.numbers) + EMBEDDING * len(schema.categories)
        own = self.model is None and self.finetune is None
        baseline = "conditional" if own and width <= EXPECTED else "zero"
        return replace(self, ks=ks, baseline=baseline)

    def identity(self) -> dict[str, Any]:
        """What must be the same to go on with: everything but what only adds."""
        fixed = asdict(self)
        for name in ("seeds", "methods", "steps", "budget", "baseline", "ks"):
            if name == "baseline" and self.finetune:
                continue  # The fine-tuned network has learned what an absent column looks like.
            del fixed[name]  # A selection checks its own settings; trials are by columns and seed.
        known: dict[str, Any] = json.loads(json.dumps(fixed))
        return known | {"way of training": TRAINING}

    def refuse_other(self, before: Mapping[str, Any], budget: int) -> None:
        """Refuse to go on with a ranking that was made with other settings, and say with which.

        The rounds of a ranking share its budget: another k or budget is another ranking.
        """
        last = before.get("k")
        if isinstance(last, int) and last != max(self.ks):
            ks = ",".join(map(str, [*(k for k in self.ks if k < last), last]))
            raise UsageError(
                f"Expected {last} as the largest --k, as in the stopped run, whose rounds shared "
                f"the gradient batches (got {max(self.ks)}). Try --k {ks} to go on, or {ANEW}."
            )
        steps = self.steps or STEPS["greedy-pig"]
        now = {"budget": budget, "baseline": self.baseline}
        now |= {"steps": steps} if before.get("method") == "greedy-pig" else {}
        for name, value in now.items():
            if name in before and before[name] != value:
                raise UsageError(
                    f"Expected --{name} {before[name]}, as in the stopped run (got {value}). "
                    f"Try that to go on, or {ANEW}."
                )

    def gradient_batches(self, train: Batches) -> int:
        """Gradient batches of every method."""
        if self.budget is not None:
            return self.budget
        steps = self.steps or STEPS["greedy-pig"]
        columns, k = len(train.schema.names), max(self.ks)
        # Methods that look at every column by itself need a batch for each look.
        least = {"permutation": columns + 1, "greedy": sum(1 + columns - r for r in range(k))}
        each = min(EACH, len(train)) * steps * k
        return max(each, STEPS["ig"], *(least.get(method, 0) for method in self.methods))
