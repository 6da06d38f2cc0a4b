"""What `greedypig select` was asked for."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from ..selection import STEPS
from ..tables import Batches, Effort, Reading

METHODS = ("greedy-pig", "ig", "random")
EACH = 40
"""Batches of each gradient of greedy-pig, where no budget is given."""


@dataclass(frozen=True)
class Plan:
    """What was asked for."""

    label: str
    reading: Reading
    ks: tuple[int, ...]
    seeds: int
    seed: int
    methods: tuple[str, ...]
    steps: int | None
    budget: int | None
    baseline: str
    finetune: int | None
    model: str | None
    valid_share: float
    epochs: int
    rate: float
    batch_size: int

    @property
    def effort(self) -> Effort:
        """Of every training."""
        return Effort(epochs=self.epochs, rate=self.rate)

    def identity(self) -> dict[str, Any]:
        """What must be the same to go on with: everything but what only adds."""
        fixed = asdict(self)
        for name in ("seeds", "methods", "steps", "budget", "baseline", "ks"):
            if name == "baseline" and self.finetune:
                continue  # The fine-tuned network has learned what an absent column looks like.
            del fixed[name]  # A selection checks its own settings; trials are by columns and seed.
        known: dict[str, Any] = json.loads(json.dumps(fixed))
        return known

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
