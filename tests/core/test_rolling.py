"""Gradients rolled over the rounds: points of the integral that are spread and remembered."""

import math

import pytest
import torch

import greedypig as gp
from agreement import agree

N = 12


def quadratic(seed: int = 0):
    """A smooth g with interactions between all elements."""
    torch.manual_seed(seed)
    linear = torch.randn(N, dtype=torch.float64)
    square = torch.randn(N, N, dtype=torch.float64)
    square = square + square.T

    def g(masks):
        masks = masks.double()
        return masks @ linear + 0.5 * ((masks @ square) * masks).sum(1)

    return g


def run(objective, scorer, **knobs):
    rounds = gp.iterate_rounds(objective, scorer, **knobs)
    return list(rounds), rounds.attribution()


def test_a_modular_objective_is_ordered_exactly_whatever_is_remembered():
    weights = torch.tensor([3.0, -1.0, 2.0, 0.5, 2.5])
    objective = gp.objective(lambda masks: masks @ weights, 5)
    for memory in (0.0, 0.5, 0.9):
        a = run(objective, gp.RollingGradients(memory=memory), rounds=5)[1]
        assert a.order.tolist() == weights.argsort(descending=True).tolist()


def test_scores_are_the_weighted_mean_of_the_rounds_gradients():
    """Round 1 by hand: (new + m · before) / (1 + m), elements of S left out."""
    g = quadratic()
    memory, golden = 0.5, (math.sqrt(5) - 1) / 2
    whole = torch.ones(1, N, dtype=torch.float64)

    def gradient(mask, t):
        point = (mask + t * (1 - mask)).requires_grad_(True)
        return torch.autograd.grad(g(point).sum(), point)[0][0].detach()

    nothing = torch.zeros_like(whole)
    first = gradient(nothing, 0.5)
    best = int(first.argmax())
    selected = nothing.clone()
    selected[0, best] = 1
    new = gradient(selected, (golden + 0.5) % 1)
    expected = (new + memory * first) / (1 + memory)
    expected[best] = 0
    done, a = run(gp.objective(g, N), gp.RollingGradients(memory=memory), rounds=2, per_round=1)
    assert done[0].chosen.tolist() == [best]
    assert torch.allclose(a.last_scores.double(), expected, atol=1e-5)


@pytest.mark.parametrize("rounds", [8, 21, 50])
def test_the_points_of_consecutive_rounds_are_spread_evenly(rounds):
    """The star discrepancy of golden-ratio multiples is of order log(r) / r, not r^-1/2."""
    seen = []

    def g(masks):
        seen.extend(masks.detach()[:, -1].tolist())
        return masks.sum(1)

    run(gp.objective(g, rounds), gp.RollingGradients(), rounds=rounds, per_round=1)
    points = sorted(t for t in seen if 0 < t < 1)  # The last unit is taken last: it shows every t.
    assert len(points) == rounds
    gaps = [b - a for a, b in zip([0.0, *points], [*points, 1.0], strict=True)]
    assert max(gaps) < 2.7 / rounds


@pytest.mark.parametrize("features", [None, gp.Groups(torch.arange(N) // 3)])
def test_a_broken_run_goes_on_to_the_bit(features, tmp_path):
    scorer = gp.RollingGradients(memory=0.7)
    units = N if features is None else 4
    knobs = {"features": features, "rounds": units, "values": "end"}
    whole = run(gp.objective(quadratic(3), N), scorer, **knobs)[1]
    half = run(gp.objective(quadratic(3), N), scorer, **knobs, budget=units // 2)[1]
    half.save(tmp_path / "half.gpig")
    assert half.selected < units
    again = run(
        gp.objective(quadratic(3), N), scorer, **knobs, resume=gp.load(tmp_path / "half.gpig")
    )[1]
    assert torch.equal(again.order, whole.order)
    assert torch.equal(again.unit_scores, whole.unit_scores)
    assert torch.equal(again.last_scores, whole.last_scores)


def test_many_in_lockstep_equal_each_alone():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(9, 16), torch.nn.Tanh(), torch.nn.Linear(16, 3))
    xs = torch.randn(5, 9)
    for x, a in zip(xs, gp.explain_many(model, xs, method="rolling-pig", rounds=6), strict=True):
        alone = gp.explain(model, x, method="rolling-pig", rounds=6)
        agree(a, alone)
        assert a.gradients_used == alone.gradients_used == 6


@pytest.mark.parametrize("knobs", [{"points": 0}, {"memory": 1.0}, {"memory": -0.1}])
def test_wrong_knobs_are_refused(knobs):
    with pytest.raises(gp.InvalidInput):
        gp.RollingGradients(**knobs)
