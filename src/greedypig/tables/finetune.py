"""A short fine-tuning with random column masks, so that g means something away from s = 1.

A model trained on whole rows extrapolates on rows with columns missing, and so does a selection
that uses it. As a surrogate for subsets see Covert et al. 2021, "Explaining by removing".
"""

from __future__ import annotations

import copy

import torch
from torch import nn

from ..core.errors import InvalidInput, InvalidType, NonFinite
from ..core.numbers import check_between, check_count, whole
from ..network.distributed import ALONE
from ..types import Baseline
from . import losses
from .baseline import CONDITIONAL, set_baseline
from .networks import network_for
from .stream import feed, seed_from

SAMPLE = 16
"""Batches over which baseline="mean" is taken."""


def mask_finetune(
    model: nn.Module,
    batches: object,
    *,
    steps: int = 200,
    loss: losses.LossLike = "binary-cross-entropy",
    outputs: str = "logits",
    lr: float = 1e-3,
    whole_rows: float = 0.25,
    baseline: Baseline = "zero",
    seed: int = 0,
) -> nn.Module:
    """A copy of the model, trained for `steps` batches on rows with random columns absent.

    Each row keeps its columns with a probability of its own, drawn evenly from [0, 1], so that all
    sizes of subsets are seen; a share `whole_rows` of the rows stays whole. A model that gates its
    columns itself has one set of gates for a whole batch. Adam with rate `lr`; dropout and batch
    norm behave as in use. batches, loss, outputs and baseline are those of `select_features`.
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
    tuned, (loss_name, loss_function) = copy.deepcopy(model), losses.resolve(loss, outputs)
    with torch.inference_mode(False), torch.enable_grad():
        source = feed(batches, seed_from(seed, 1), ALONE)
        network = network_for(tuned, source, loss_name, loss_function, None)
        set_baseline(network, baseline, source.sample(SAMPLE), ALONE)
        twin = network.model.module  # It shares the numbers of the copy, which learns with it.
        parameters = [p for p in (twin or tuned).parameters() if p.is_floating_point()]
        if not parameters or twin is None or network.model.held:
            raise InvalidInput("Expected a model that can be copied, with parameters to train.")
        learner = torch.optim.Adam([p.requires_grad_() for p in parameters], lr=lr)
        generator = torch.Generator().manual_seed(seed_from(seed, 2))
        for step, given in enumerate(source.take(0, steps), 1):
            batch = network.encoded(network.read(given))
            rows = 1 if network.gates_itself else len(batch)
            keep = torch.rand(rows, 1, generator=generator)
            keep[torch.rand(rows, 1, generator=generator) < whole_rows] = 1
            gates = (torch.rand(rows, network.columns, generator=generator) < keep).float()
            gates = (gates[0] if network.gates_itself else gates).to(network.device)
            mean = network.losses(batch, network.outputs(batch, gates)).sum() / (
                batch.weight or 1.0
            )
            if not bool(torch.isfinite(mean)):
                raise NonFinite(f"Expected a finite loss in step {step} (got NaN or infinity).")
            learner.zero_grad(set_to_none=True)
            mean.backward()  # type: ignore[no-untyped-call]
            learner.step()
    return tuned
