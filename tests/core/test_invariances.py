"""What must not matter: the order of features, batches, dtype, neighbours, who writes the mean."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from agreement import agree
from greedypig.core.objective import Objective
from problems import generator, net, normal, random_coverage

SCORERS = [
    gp.IG(4),
    gp.IG(3, "left"),
    gp.IG(3, "gauss_legendre"),
    gp.Gradient(),
    gp.GuidedIG(steps=7, fraction=0.3, max_dist=0.2),
    gp.MarginalGains(),
    gp.SmoothIG(gp.IG(2), samples=3),
    gp.SmoothIG(gp.GuidedIG(steps=3), samples=2),
    gp.Random(),
]
EQUIVARIANT = SCORERS[:6]
"""Noise is drawn by position."""

seeds = st.integers(0, 10**6)


def solve(objective, scorer, rounds: int = 3, **options) -> gp.Attribution:
    method = gp.Greedy(scorer, rounds=rounds, schedule="equal")
    return gp.maximize(objective, method, **options)


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
    torch.testing.assert_close(b.feature_scores[place], a.feature_scores, rtol=0, atol=1e-11)
    torch.testing.assert_close(b.values, a.values, rtol=0, atol=1e-11)


@given(seeds, st.sampled_from(SCORERS), st.integers(1, 40))
def test_batch_size_does_not_matter(seed, scorer, batch_size):
    g = (
        random_coverage(seed, 8, 12, 3, whole=True)
        if isinstance(scorer, gp.MarginalGains)
        else net(seed, 8)
    )
    whole = solve(g.objective(batch_size=1000), scorer)
    assert_alike(solve(g.objective(batch_size=batch_size), scorer), whole)
    assert_alike(solve(g.objective(), scorer), whole)


@given(seeds, st.integers(1, 30), st.integers(1, 9))
def test_evaluation_in_chunks_equals_evaluation_at_once(seed, rows, batch_size):
    g = net(seed, 5)
    masks = torch.rand(rows, 5, generator=generator(seed), dtype=torch.float64)
    weights = torch.rand(rows, generator=generator(seed + 1), dtype=torch.float64)
    objective = g.objective(batch_size=batch_size)
    values, gradients = objective.values_and_gradients(masks[None])
    torch.testing.assert_close(values[0], g.g(masks), rtol=0, atol=1e-12)
    expected = torch.stack([g.gradient(m) for m in masks])
    torch.testing.assert_close(gradients[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(objective.values(masks[None])[0], g.g(masks))
    summed = objective.gradient(masks[None], weights)[0]
    torch.testing.assert_close(summed, weights @ expected, rtol=0, atol=1e-11)
    assert objective.gradients_used == 2 * rows


@given(seeds, st.sampled_from(SCORERS[:6]))
def test_float32_agrees_with_float64_to_float32_accuracy(seed, scorer):
    g = net(seed, 7)
    wide = solve(g.objective(), scorer, rounds=1)
    narrow = solve(g.objective(dtype=torch.float32), scorer, rounds=1)
    assert narrow.feature_scores.dtype == torch.float32
    assert wide.feature_scores.dtype == torch.float64
    # Six tanh units with weights of order 1: a few hundred roundings of 6e-8, times their size.
    scale = float(g.out.abs().sum() * g.inner.abs().max())
    torch.testing.assert_close(
        narrow.feature_scores.double(), wide.feature_scores, rtol=0, atol=1e-6 * scale
    )


@pytest.mark.slow
@given(seeds, st.integers(2, 8), st.sampled_from(SCORERS))
def test_grouping_by_singletons_equals_values(seed, n, scorer):
    g = (
        random_coverage(seed, n, 12, 3, whole=True)
        if isinstance(scorer, gp.MarginalGains)
        else net(seed, n)
    )
    rounds = {"rounds": min(n, 3)}
    elements = solve(g.objective(), scorer, **rounds)
    kinds = [gp.Groups(torch.arange(n))]
    if not isinstance(scorer, gp.MarginalGains):  # Which refuses windows.
        kinds.append(gp.Windows((n,), 1))
    for features in kinds:
        other = solve(g.objective(), scorer, features=features, **rounds)
        assert_alike(other, elements)
        torch.testing.assert_close(other.scores, elements.scores, rtol=0, atol=1e-11)
        assert torch.equal(other.importance, elements.importance)
        assert torch.equal(other.ranking(), elements.ranking())


@given(seeds, st.integers(2, 4))
def test_a_group_scores_the_sum_of_its_values(seed, groups):
    n = 3 * groups
    g, ids = net(seed, n), torch.arange(n) % groups
    elements = gp.maximize(g.objective(), gp.IG(steps=3)).scores
    found = gp.maximize(g.objective(), gp.IG(steps=3), features=gp.Groups(ids))
    for group in range(groups):
        assert float(found.feature_scores[group]) == pytest.approx(
            float(elements[ids == group].sum()), abs=1e-12
        )
        assert found.scores[ids == group].tolist() == [float(found.feature_scores[group])] * 3


LINEAR = [gp.IG(4), gp.Gradient(), gp.Gradient(at=0.0), gp.MarginalGains()]
"""Scores of a mean of functions are the mean of their scores."""


@given(seeds, st.sampled_from(LINEAR), st.integers(1, 20))
def test_several_lines_are_averaged(seed, scorer, batch_size):
    f, n = net(seed, 7), 7
    start, end = normal(seed + 1, 3, 1, n), normal(seed + 2, 1, 1, n).expand(3, 1, n)
    lines = Objective(lambda points, _: f.g(points), start, end, batch_size=batch_size)

    def mean(w: Tensor) -> Tensor:
        return sum(f.g(start[i] + w * (end[i] - start[i])) for i in range(3)) / 3

    direct = gp.objective(mean, n, dtype=torch.float64)
    a, b = solve(lines, scorer), solve(direct, scorer)
    agree(a, b, 1e-10)
    assert a.gradients_used == 3 * b.gradients_used  # Every point is paid once per line.
    masks = torch.rand(1, 4, n, generator=generator(seed), dtype=torch.float64)
    for x, y in zip(
        lines.values_and_gradients(masks), direct.values_and_gradients(masks), strict=True
    ):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-11)


def test_lines_with_ends_of_their_own_scale_gradients_by_their_reach():
    # g(mask) = f(start + mask·(end − start)): ∂_i g = (end − start)_i · ∂_i f.
    f = net(3, 5)
    start, end = normal(1, 5), normal(2, 5)
    line = Objective(lambda points, _: f.g(points), start.view(1, 1, 5), end.view(1, 1, 5))
    direct = gp.objective(lambda w: f.g(start + w * (end - start)), 5, dtype=torch.float64)
    for scorer in SCORERS[:4]:
        assert_alike(solve(line, scorer), solve(direct, scorer))


# Problems side by side.


class Family:
    """Several g in one function, as a model with several examples."""

    def __init__(self, seed: int, count: int, n: int, batch_size: int | str) -> None:
        self.parts = [net(seed + 7 * i, n) for i in range(count)]
        self.n, self.batches, self.batch_size = n, [], batch_size

    def values(self, points: Tensor, problems: Tensor) -> Tensor:
        self.batches.append(len(points))
        rows = zip(points, problems.tolist(), strict=True)
        return torch.cat([self.parts[i].g(point[None]) for point, i in rows])

    def objective(self) -> Objective:
        start = torch.zeros(1, len(self.parts), self.n).double()
        labels = [f"input {i}" for i in range(len(self.parts))]
        return Objective(
            self.values, start, torch.ones_like(start), batch_size=self.batch_size, labels=labels
        )


@pytest.mark.slow
@given(seeds, st.integers(1, 6), st.integers(1, 33), st.sampled_from(SCORERS), st.data())
def test_problems_side_by_side_equal_the_answers_alone(seed, count, batch_size, scorer, data):
    knobs = data.draw(st.sampled_from([{"rounds": 1}, {"rounds": 3}, {"per_round": 1}]))
    options = data.draw(st.sampled_from([{}, {"k": 2}, {"stop": gp.Stop(gradients=40)}]))
    family = Family(seed, count, 6, batch_size)
    run = gp.rounds(family.objective(), gp.Greedy(scorer, **knobs), seed=seed, **options)
    for _ in run:
        pass
    results = run.results()
    assert len(results) == count
    assert max(family.batches) <= batch_size
    for part, found in zip(family.parts, results, strict=True):
        alone = gp.maximize(part.objective(), gp.Greedy(scorer, **knobs), seed=seed, **options)
        assert_alike(found, alone)


def test_problems_side_by_side_fill_batches():
    # Four problems of 3 rounds × 4 steps in batches of 16: each round of all four is one batch.
    family = Family(1, 4, 6, 16)
    list(gp.rounds(family.objective(), gp.GreedyPIG(rounds=3, steps=4)))
    assert family.batches == [16, 16, 16]


def test_a_failure_in_one_problem_names_it():
    family = Family(1, 3, 6, 64)
    family.parts[1].out[0] = torch.nan
    with pytest.raises(gp.NonFinite, match="input 1") as caught:
        list(gp.rounds(family.objective(), gp.GreedyPIG(rounds=1, steps=4)))
    assert len(caught.value.so_far) == 3
