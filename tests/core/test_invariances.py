"""What must not matter: the order of features, batches, dtype, neighbours, who writes the mean."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from agreement import agree
from greedypig.core.algorithms import make_problem
from greedypig.core.objective import MeanObjective, Oracle, PointObjective
from greedypig.core.rounds import run
from greedypig.core.stopping import Stop
from problems import generator, net, normal, random_coverage

SCORERS = [
    gp.IG(4),
    gp.IG(3, "left"),
    gp.IG(3, "gauss_legendre"),
    gp.Gradient(),
    gp.GuidedIG(steps=7, fraction=0.3, max_dist=0.2),
    gp.MarginalGains(),
    gp.MarginalGains(lazy=True),
    gp.SmoothIG(gp.IG(2), samples=3),
    gp.SmoothIG(gp.GuidedIG(steps=3), samples=2),
    gp.Random(),
]
EQUIVARIANT = SCORERS[
    :6
]  # Noise is drawn by position; a lazy bound is valid for submodular g only.

seeds = st.integers(0, 10**6)


def solve(objective, scorer, **knobs) -> gp.Attribution:
    if not knobs.keys() & {"rounds", "per_round", "k"}:
        knobs["rounds"] = 3
    rounds = gp.rounds(objective, gp.Greedy(scorer, **knobs))
    for _ in rounds:
        pass
    return rounds.results()[0]


def assert_alike(a: gp.Attribution, b: gp.Attribution, tolerance: float = 1e-10) -> None:
    agree(a, b, tolerance)
    assert a.gradients_used == b.gradients_used
    assert a.totals == pytest.approx(b.totals, abs=10 * tolerance)


@given(seeds, st.integers(3, 9), st.sampled_from(EQUIVARIANT))
def test_permuting_the_features_permutes_the_result(seed, n, scorer):
    # g'(w) = g(w with feature i at place p_i): order' = p(order), a'_{p_i} = a_i.
    g = net(seed, n)
    place = torch.randperm(n, generator=generator(seed))
    a = solve(g.objective(), scorer)
    b = solve(gp.objective(lambda w: g.g(w[:, place]), n, dtype=torch.float64), scorer)
    assert b.order.tolist() == place[a.order].tolist()
    torch.testing.assert_close(b.unit_scores[place], a.unit_scores, rtol=0, atol=1e-11)
    torch.testing.assert_close(b.values, a.values, rtol=0, atol=1e-11)


@given(seeds, st.sampled_from(SCORERS), st.integers(1, 40), st.sampled_from(["each", "end"]))
def test_batch_size_does_not_matter(seed, scorer, batch_size, values):
    g = (
        random_coverage(seed, 8, 12, 3, whole=True)
        if isinstance(scorer, gp.MarginalGains)
        else net(seed, 8)
    )
    whole = solve(g.objective(batch_size=1000), scorer, values=values)
    assert_alike(solve(g.objective(batch_size=batch_size), scorer, values=values), whole)
    assert_alike(solve(g.objective(), scorer, values=values), whole)


@given(seeds, st.integers(1, 30), st.integers(1, 9))
def test_evaluation_in_chunks_equals_evaluation_at_once(seed, rows, batch_size):
    g = net(seed, 5)
    masks = torch.rand(rows, 5, generator=generator(seed), dtype=torch.float64)
    values, gradients = g.objective(batch_size=batch_size).values_and_gradients(masks)
    torch.testing.assert_close(values, g.g(masks), rtol=0, atol=1e-12)
    expected = torch.stack([g.gradient(m) for m in masks])
    torch.testing.assert_close(gradients, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(g.objective(batch_size=batch_size).values(masks), g.g(masks))


@given(seeds, st.sampled_from(SCORERS[:6]))
def test_float32_agrees_with_float64_to_float32_accuracy(seed, scorer):
    g = net(seed, 7)
    wide = solve(g.objective(), scorer, rounds=1)
    narrow = solve(g.objective(dtype=torch.float32), scorer, rounds=1)
    assert narrow.unit_scores.dtype == torch.float32
    assert wide.unit_scores.dtype == torch.float64
    # Six tanh units with weights of order 1: a few hundred roundings of 6e-8, times their size.
    scale = float(g.out.abs().sum() * g.inner.abs().max())
    torch.testing.assert_close(
        narrow.unit_scores.double(), wide.unit_scores, rtol=0, atol=1e-6 * scale
    )


@given(seeds, st.integers(2, 8), st.sampled_from(SCORERS))
def test_grouping_by_singletons_equals_elements(seed, n, scorer):
    g = (
        random_coverage(seed, n, 12, 3, whole=True)
        if isinstance(scorer, gp.MarginalGains)
        else net(seed, n)
    )
    rounds = {"rounds": min(n, 3)}
    elements = solve(g.objective(), scorer, **rounds)
    groups = solve(g.objective(), scorer, features=gp.Groups(torch.arange(n)), **rounds)
    windows = solve(g.objective(), scorer, features=gp.Windows((n,), 1), **rounds)
    for other in (groups, windows):
        assert_alike(other, elements)
        torch.testing.assert_close(other.scores, elements.scores, rtol=0, atol=1e-11)
        assert torch.equal(other.importance, elements.importance)
        assert torch.equal(other.ranking(), elements.ranking())


@given(seeds, st.integers(2, 4))
def test_a_group_scores_the_sum_of_its_elements(seed, groups):
    n = 3 * groups
    g, ids = net(seed, n), torch.arange(n) % groups
    elements = gp.maximize(g.objective(), gp.IG(steps=3)).scores
    found = gp.maximize(g.objective(), gp.IG(steps=3), features=gp.Groups(ids))
    for unit in range(groups):
        assert float(found.unit_scores[unit]) == pytest.approx(
            float(elements[ids == unit].sum()), abs=1e-12
        )
        assert found.scores[ids == unit].tolist() == [float(found.unit_scores[unit])] * 3


@given(seeds, st.sampled_from(["ig", "gradient", "gains"]))
def test_the_mean_objective_is_the_objective_of_the_mean(seed, kind):
    # Linear scorers: scores of ⅓(g₁ + g₂ + g₃) are the mean of the three scores.
    scorer = {
        "ig": gp.IG(4),
        "gradient": gp.Gradient(),
        "gains": gp.MarginalGains(),
    }
    parts = [net(seed + 10 * i, 7) for i in range(3)]
    mean = MeanObjective([p.objective() for p in parts])
    direct = gp.objective(lambda w: sum(p.g(w) for p in parts) / 3, 7, dtype=torch.float64)
    a, b = solve(mean, scorer[kind]), solve(direct, scorer[kind])
    assert a.order.tolist() == b.order.tolist()
    torch.testing.assert_close(a.unit_scores, b.unit_scores, rtol=0, atol=1e-11)
    torch.testing.assert_close(a.values, b.values, rtol=0, atol=1e-11)
    assert a.full_value == pytest.approx(b.full_value, abs=1e-11)
    # Every point is paid once per part.
    assert a.gradients_used == 3 * b.gradients_used
    masks = torch.rand(4, 7, generator=generator(seed), dtype=torch.float64)
    for x, y in zip(
        mean.values_and_gradients(masks), direct.values_and_gradients(masks), strict=True
    ):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-11)


def test_lines_with_ends_of_their_own_scale_gradients_by_their_reach():
    # g(mask) = f(start + mask·(end − start)): ∂_i g = (end − start)_i · ∂_i f.
    f = net(3, 5)
    start, end = normal(1, 5), normal(2, 5)
    line = PointObjective(Oracle(lambda points, _: f.g(points), 5), start, end)
    direct = gp.objective(lambda w: f.g(start + w * (end - start)), 5, dtype=torch.float64)
    for scorer in SCORERS[:4]:
        assert_alike(solve(line, scorer), solve(direct, scorer))
    masks = torch.rand(3, 5, generator=generator(4), dtype=torch.float64)
    torch.testing.assert_close(line.gradients(masks), direct.gradients(masks), rtol=0, atol=1e-12)
    assert torch.equal(line.place(torch.ones(1, 5).double())[0], end)
    assert torch.equal(line.place(torch.zeros(1, 5).double())[0], start)


# Problems in lockstep.


class Family:
    """Several g in one function, as a model with several examples: rows belong to owners."""

    def __init__(self, seed: int, count: int, n: int, batch_size: int | str) -> None:
        self.parts = [net(seed + 7 * i, n) for i in range(count)]
        self.n, self.batches = n, []
        self.oracle = Oracle(self.values, n, batch_size=batch_size)

    def values(self, points: Tensor, runs) -> Tensor:
        self.batches.append(len(points))
        pieces = torch.split(points, [count for _, count in runs])
        return torch.cat([self.parts[o].g(p) for (o, _), p in zip(runs, pieces, strict=True)])

    def objective(self, i: int) -> PointObjective:
        ends = torch.zeros(self.n).double(), torch.ones(self.n).double()
        return PointObjective(self.oracle, *ends, owner=i)


@given(seeds, st.integers(1, 6), st.integers(1, 33), st.integers(1, 4), st.data())
def test_problems_in_lockstep_equal_the_answers_alone(seed, count, batch_size, hold, data):
    scorers = [
        data.draw(st.sampled_from([s for s in SCORERS if s != gp.MarginalGains(True)]))
        for _ in range(count)
    ]
    picks = [
        data.draw(st.sampled_from([{"rounds": 1}, {"rounds": 3}, {"per_round": 1}, {"k": 2}]))
        for _ in range(count)
    ]
    values = data.draw(st.sampled_from(["each", "end", "free"]))
    limits = [
        data.draw(st.sampled_from([Stop(), Stop(gain=True), Stop(reach=0.5)])) for _ in range(count)
    ]
    family = Family(seed, count, 6, batch_size)

    def problems():
        for i in range(count):
            yield make_problem(
                family.objective(i), scorers[i], values=values, seed=i, stop=limits[i], **picks[i]
            )

    done = list(run(problems(), hold=hold))
    assert len(done) == count
    assert max(family.batches) <= batch_size
    for i, problem in enumerate(done):
        alone = solve(
            family.parts[i].objective(),
            scorers[i],
            values=values,
            seed=i,
            gain=limits[i].gain,
            reach=limits[i].reach,
            **picks[i],
        )
        assert_alike(problem.results()[0], alone)


def test_lockstep_fills_batches_across_problems():
    # Four problems of 3 rounds × 4 steps in batches of 16: each round of all four is one batch.
    family = Family(1, 4, 6, 16)
    problems = (
        make_problem(family.objective(i), gp.IG(4), rounds=3, values="free") for i in range(4)
    )
    list(run(problems))
    assert sum(family.batches) == 4 * (2 + 3 * 4)  # G(∅), G(1) and the gradients.
    assert family.batches.count(16) == 3


def test_problems_of_different_oracles_run_side_by_side():
    parts = [net(i, 4 + i) for i in range(3)]
    problems = [make_problem(p.objective(), gp.IG(3), rounds=2) for p in parts]
    for part, problem in zip(parts, run(problems), strict=True):
        assert_alike(
            problem.results()[0],
            solve(part.objective(), gp.IG(3), rounds=2, values="end"),
        )


def test_problems_are_read_only_as_far_as_needed():
    family = Family(1, 20, 6, 8)
    begun = []

    def problems():
        for i in range(20):
            begun.append(i)
            yield make_problem(family.objective(i), gp.IG(4), rounds=1)

    results = run(problems(), hold=3)
    next(results)
    assert len(begun) <= 4
    assert len(list(results)) == 19


def test_a_failure_in_one_problem_names_it():
    family = Family(1, 3, 6, 64)
    family.parts[1].out[0] = torch.nan
    problems = (
        make_problem(family.objective(i), gp.IG(4), rounds=1, label=f"input {i}") for i in range(3)
    )
    with pytest.raises(gp.NonFinite, match="input 1"):
        list(run(problems))
