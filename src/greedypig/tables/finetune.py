"""A short fine-tuning with random column masks, so that g means something away from s = 1.

A model trained on whole rows extrapolates on rows with columns missing, and so does a selection
that uses it. A copy trained on masked rows does not. Masking columns at random during training is
as old as denoising (Vincent et al. 2008); as a surrogate for subsets see Covert et al. 2021,
"Explaining by removing".
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..core.errors import InvalidInput, InvalidType, NonFinite
from ..core.numbers import check_between, check_count, whole
from . import losses
from .baseline import CONDITIONAL, set_baseline
from .checks import check_model
from .distributed import ALONE
from .networks import Network, network_for
from .stream import feed, seed_from

LOOKED_AT = 16
"""Batches over which baseline="mean" is taken."""


def mask_finetune(
    model: nn.Module,
    batches: Any,
    *,
    steps: int = 200,
    loss: Any = "binary-cross-entropy",
    outputs: str = "logits",
    lr: float = 1e-3,
    whole_rows: float = 0.25,
    baseline: Any = "zero",
    seed: int = 0,
    progress: Callable[[int, float], object] | None = None,
) -> nn.Module:
    """A copy of the model, trained for `steps` batches on rows with random columns absent.

    Each row keeps its columns with a probability of its own, drawn evenly from [0, 1], so that all
    sizes of subsets are seen; a share `whole_rows` of the rows stays whole. Adam with rate `lr`;
    dropout and batch norm behave as in use. batches, loss, outputs and baseline are those of
    `select_features`. The model itself is not changed; every process of a group trains the same.

    Every row has gates of its own, but for a model that gates its columns itself and is no
    `TabularMLP` or like it: there one set of gates (columns,) serves a whole batch.
    progress: called with the step, from 1, and the loss on its masked batch.
    """
    if not isinstance(model, nn.Module):
        raise InvalidType(f"Expected a module to train (got {type(model).__name__}).")
    steps, seed = whole(steps), whole(seed)
    check_count("steps", steps)
    check_between("whole_rows", whole_rows, 0, 1)
    if isinstance(baseline, str) and baseline == CONDITIONAL:
        raise InvalidInput(
            "Expected baseline='zero', 'mean' or numbers for masks that differ from row to row "
            "(got 'conditional')."
        )
    loss_name, loss_function = losses.resolve(loss, outputs)
    tuned = copy.deepcopy(model)
    with torch.inference_mode(False), torch.enable_grad():
        source = feed(batches, seed_from(seed, 1), ALONE)
        network = network_for(tuned, source, loss_name, loss_function, None, fast=False)
        concerns = check_model(network, loss_name)
        set_baseline(network, baseline, source.sample(LOOKED_AT), ALONE)
        # The network's twin shares the copy's numbers: what is learnt is learnt by the copy.
        learner = torch.optim.Adam(_trained(network), lr=lr)
        generator = torch.Generator().manual_seed(seed_from(seed, 2))
        for step, given in enumerate(source.take(0, steps), 1):
            batch = network.encoded(network.read(given))
            gates = _gates(network, len(batch), whole_rows, generator)
            learner.zero_grad(set_to_none=True)
            losses_here = network.losses(batch, network.outputs(batch, gates))
            mean = losses_here.sum() / (batch.weight or 1.0)
            if not bool(torch.isfinite(mean)):
                raise NonFinite(f"Expected a finite loss in step {step} (got NaN or infinity).")
            mean.backward()  # type: ignore[no-untyped-call]
            learner.step()
            if progress is not None:
                progress(step, mean.item())
    for concern in concerns:
        warnings.warn(concern, UserWarning, stacklevel=2)
    return tuned


def _trained(network: Network) -> list[nn.Parameter]:
    twin = network.model.module
    if twin is None or network.model.held:
        raise InvalidInput("Expected a model that can be copied (got one that cannot).")
    numbers = [p for p in twin.parameters() if p.is_floating_point()]
    if not numbers:
        raise InvalidInput("Expected a model with parameters to train (got none).")
    for parameter in numbers:
        parameter.requires_grad_(True)
    return numbers


def _gates(network: Network, rows: int, whole_rows: float, generator: torch.Generator) -> Tensor:
    """(rows, columns) of 0 and 1, or (columns,) for a model that may know no other."""
    count = 1 if network.gates_itself else rows
    keep = torch.rand(count, 1, generator=generator)
    keep[torch.rand(count, 1, generator=generator) < whole_rows] = 1
    gates = (torch.rand(count, network.columns, generator=generator) < keep).float()
    return (gates[0] if network.gates_itself else gates).to(network.device)
