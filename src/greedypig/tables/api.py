"""`gp.select_features`: rank a trained model's columns by how much it uses them."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch

from ..core.arguments import advise
from ..core.attribution import Attribution
from ..core.carry_out import carry_out
from ..core.errors import InvalidInput, levels_to_caller
from ..core.features import Elements
from ..core.methods import InRounds, Method, as_method
from ..core.numbers import check_count, check_seed, whole
from ..core.question import Question, Record
from ..core.schedule import equal
from ..core.scorers import MarginalGains, Random
from ..core.stopping import Stop
from ..core.two_sided import one_side, title, with_sides
from ..network.distributed import ALONE, Group
from ..network.fingerprint import callables, digest, fingerprint, versions
from ..network.names import model_name
from ..results.table_notes import TableFacts
from ..types import Baseline, MethodLike, Model, PathOrText, ProgressLike, Seed
from . import losses
from .baseline import keep_constant, set_baseline
from .checks import check_model, check_rows
from .losses import LossLike
from .methods import FOR_COLUMNS
from .networks import Network, network_for
from .objective import Permutation, TableObjective, held_out
from .stream import Feed, feed

LEAST_SAMPLE = 16
"""Batches, at least, on which G(S) is measured where a budget is given."""
JUDGED = 64
"""Batches of the held-out rows, at most."""


@advise
def select_features(
    model: Model,
    batches: object,
    *,
    valid: object = None,
    outputs: str = "logits",
    loss: LossLike = "binary-cross-entropy",
    baseline: Baseline = "zero",
    names: Sequence[str] | None = None,
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    budget: int | None = None,
    seed: Seed = 0,
    group: Group = ALONE,
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which columns of a table does the model use, best first?

    G(S) = −mean over rows of loss(label, model(row with the columns outside S at the baseline)):
    one mask for the whole data, maximised by Greedy PIG, one column a round.

    model: any module or callable from features to outputs, never changed; see docs/tables.md.
    batches: (features, label) pairs that can be read again and again, a list or a stream; features
        are a tensor (rows, columns), a tuple (numeric, categorical), a dict of tensors or a
        DataFrame of numbers. (features, label, weights) makes the mean one by the rows' weights.
    valid: batches of rows that the model has not learned from. The columns selected are checked on
        them: `a.about.held_out` says after how many columns nothing more is gained.
    loss: "binary-cross-entropy", "cross-entropy", "squared-error", or a callable
        (outputs, labels) → one loss per row. gp.two_sided(…) of one adds how much worse the loss
        is without the selected columns: necessity beside sufficiency.
    outputs: "probabilities" for a model that ends in a sigmoid or a softmax.
    k: how many columns to select; None ranks them all.
    method: None (`gp.GreedyPIG(per_round=1, steps=5, schedule="equal")`), a name ("greedy-pig",
        "sequential-gradient", "ig", "gradient", "permutation", "marginal-gains", "random"), or an
        object that carries its knobs: gp.GreedyPIG(per_round=1, steps=9), gp.IG(steps=39).
    stop: gp.Stop(gradients=…, seconds=…, value=…, gain=True): reasons to stop early.
    budget: gradient batches in all: one batch at one point of a path is one. Shared equally by
        the rounds, in an order of batches shuffled by seed; the points of a path share their
        batches. For "permutation" and "marginal-gains" one forward pass over a batch is what the
        budget counts. None takes all batches in every round. G(S) is measured by the forward
        pass on all batches, or with a budget on as many as a round has, at least 16.
    baseline: what an absent column looks like: "zero", "mean", one number per column (of a
        category the id that stands for absence); or "conditional": absent columns are imputed by
        linear regression on the selected ones, so that copies are not selected twice.
    names: one per column.
    seed: of everything random.
    group: the processes that share the work (`greedypig.network.distributed.joined()`).
    checkpoint, progress: as in `explain`. The first of the processes writes the file; the others
        read it.

    Examples:
        >>> rows = torch.randn(100, 3)
        >>> model = lambda x: x[:, 0] + 3 * x[:, 2]
        >>> a = gp.select_features(model, [(rows, model(rows))], loss="squared-error", k=2)
        >>> a.top(2)
        [2, 0]
    """
    chosen: Method = FOR_COLUMNS if method is None else as_method(method)
    loss, both = one_side(loss)
    loss = "binary-cross-entropy" if loss is None else loss
    loss_name, loss_function = losses.resolve(loss, outputs)
    with torch.inference_mode(False):
        order = check_seed(seed)[0]
        source = feed(batches, order, group)
        network = network_for(model, source, loss_name, loss_function, names)
        called = network.table.names
        numbered = called == tuple(map(str, range(network.columns)))
        features = Elements(network.columns, None if numbered else called)
        schedule = chosen.picks(features, whole(k))
        shares, sample = _spend(budget, schedule, chosen, features.count, 1 + both)
        objective = TableObjective(network, source, group, shares=shares, sample=sample)
        concerns, constant = check_rows(network, objective.sampled(), group)
        concerns += check_model(network, loss_name)
        described = set_baseline(network, baseline, objective.sampled(), group)
        # Integrated gradients stay shares of G(all) − G(∅), from the mean on.
        network.credits_others = isinstance(chosen, InRounds)
        if isinstance(baseline, str):
            keep_constant(network, constant)
        provenance = versions() | callables(loss=loss)
        provenance |= {"model": fingerprint(model), "input": _input(network, source)}
    settings = {
        "loss": title(loss_name, both),
        "budget": whole(budget),
        "sample": sample,
        "baseline": described,
    }
    concerns = concerns if group.first else []
    paid: dict[str, Any] = objective.paid
    about = TableFacts(model=model_name(model), warnings=tuple(concerns))
    for concern in concerns:
        warnings.warn(concern, UserWarning, stacklevel=levels_to_caller())

    def finish(_: int, a: Attribution) -> Attribution:
        if valid is None:
            return a
        judged = feed(valid, order, ALONE).sample(JUDGED)  # Every process reads them all.
        check = held_out(network, judged, a.order.tolist(), a.selected)
        return a.with_notes(replace(about, **paid, held_out=check))

    def take_up(saved: Attribution) -> None:
        objective.paid |= {name: getattr(saved.about, name, 0) for name in objective.paid}

    record = Record(settings, provenance, lambda: (about, {}))
    question = Question(
        with_sides(objective, both),
        features,
        (record,),
        finish=finish,
        memory=lambda: (dict(objective.paid), {}),
        take_up=take_up,
    )
    search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
    watch: dict[str, Any] = {"checkpoint": checkpoint, "progress": progress}
    return carry_out(question, chosen, **search, **watch, writes=group.first)[0]


def _input(network: Network, source: Feed) -> str:
    """A digest of the columns, the first batch and what else is cheap: see `Feed.identity`."""
    words, last = source.identity()
    tensors: dict[str, Any] = {}
    for place, batch in enumerate((source.example, last)):
        if batch is not None:
            rows = network.table.read(batch)
            parts = [*rows.features, rows.labels, rows.counts()]
            tensors |= {f"{place} {i}": part for i, part in enumerate(parts)}
    return digest(tensors, repr((network.table.names, words)))


def _spend(
    budget: int | None, schedule: Sequence[int], method: Method, columns: int, sides: int
) -> tuple[Sequence[int] | None, int | None]:
    """The batches of each round, equal shares; and of the sample for values. sides: sets that are
    evaluated for each mask."""
    budget = whole(budget)
    if budget is None:
        return None, None
    check_count("budget", budget)
    scorer = method.round_scorer
    if isinstance(scorer, Random):
        return (), LEAST_SAMPLE
    if isinstance(scorer, MarginalGains):
        # Marginal gains are all measured on one sample, whose size the budget decides.
        passes = sides * sum(1 + columns - sum(schedule[:r]) for r in range(len(schedule)))
        _check_enough(budget, passes)
        return (), budget // passes
    points = columns + 1 if isinstance(scorer, Permutation) else sides * max(1, scorer.cost)
    _check_enough(budget, points * len(schedule))
    shares = equal(budget // points, len(schedule))
    return shares, max(LEAST_SAMPLE, *shares)


def _check_enough(budget: int, evaluations: int) -> None:
    if budget < evaluations:
        raise InvalidInput(
            f"Expected a budget of at least {evaluations} batches, one for each evaluation of the "
            f"method (got {budget}). Try a smaller k, fewer steps, or a larger budget."
        )
