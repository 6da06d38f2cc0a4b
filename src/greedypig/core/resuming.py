"""Does a saved run belong to the one that is to go on from it?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from .attribution import Attribution, StopReason
from .errors import InvalidInput
from .features import Features


def check_same_run(
    saved: Attribution,
    features: Features,
    settings: Mapping[str, Any],
    schedule: Sequence[int],
    *,
    fewer: bool,
) -> None:
    """Refuse a saved run of other features, other settings or other picks per round.

    fewer: may a round have taken fewer units than planned, where no more gained or were left?
    """
    mine, theirs = features.state(), saved.features.state()
    same = mine[0] == theirs[0] and all(
        torch.equal(mine[1][name].cpu(), theirs[1][name].cpu()) for name in mine[1]
    )
    if not same:
        raise InvalidInput("Expected the features of the saved run (got others).")
    for name, value in settings.items():
        kept = saved.settings.get(name)
        if kept != value and name != "batch_size":  # Batches change the last bits at most.
            raise InvalidInput(
                f"Expected the settings of the saved run, {name}={kept!r} (got {value!r})."
            )
    fits = len(saved.picks) <= len(schedule) and all(
        done == planned or (fewer and done < planned)
        for done, planned in zip(saved.picks, schedule, strict=False)
    )
    if not fits and saved.stop is not StopReason.ALL:
        raise InvalidInput(
            "Expected the schedule of the saved run (got other picks per round). "
            "Try the rounds, k and schedule in its settings."
        )
