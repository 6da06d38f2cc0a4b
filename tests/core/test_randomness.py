"""What is random has a seed, and leaves everybody else's random numbers alone."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
import torch

import greedypig as gp
from greedypig.core.carry_out import carry_out
from greedypig.core.question import Question, Record
from problems import net, round_at

RANDOM = {
    "smooth": gp.SmoothIG(gp.IG(2), samples=3),
    "smooth-gradient": gp.SmoothIG(gp.Gradient(), samples=4, noise=0.5),
    "random": gp.Random(),
}
STEADY = {
    "ig": gp.IG(3),
    "guided": gp.GuidedIG(steps=5),
    "gains": gp.MarginalGains(),
}


def run(scorer, seed: int | tuple[int, int]) -> gp.Attribution:
    return gp.maximize(net(4, 12).objective(), gp.Greedy(scorer, rounds=3), seed=seed)


@pytest.mark.parametrize("name", RANDOM)
def test_the_same_seed_gives_the_same_answer_and_another_seed_another(name):
    one, again, other = (run(RANDOM[name], seed) for seed in (5, 5, 6))
    assert torch.equal(one.order, again.order)
    assert torch.equal(one.feature_scores, again.feature_scores)
    assert not torch.equal(one.feature_scores, other.feature_scores)


@pytest.mark.parametrize("name", STEADY)
def test_what_is_not_random_does_not_depend_on_the_seed(name):
    assert torch.equal(run(STEADY[name], 5).feature_scores, run(STEADY[name], 6).feature_scores)


@pytest.mark.parametrize("name", [*RANDOM, *STEADY])
def test_global_random_state_is_neither_read_nor_moved(name):
    scorer = (RANDOM | STEADY)[name]
    answers = []
    for state in (1, 2):
        torch.manual_seed(state)
        np.random.seed(state)
        random.seed(state)
        before = torch.get_rng_state(), np.random.get_state(), random.getstate()
        answers.append(run(scorer, 5).feature_scores)
        assert torch.equal(torch.get_rng_state(), before[0])
        assert all(
            np.array_equal(a, b) for a, b in zip(np.random.get_state(), before[1], strict=True)
        )
        assert random.getstate() == before[2]
    assert torch.equal(*answers)


def test_global_random_state_is_restored_after_an_objective_that_draws():
    # A model with dropout draws inside g; the caller's stream goes on as if it had not.
    def g(w):
        return (w * torch.rand(12)).sum(1)

    torch.manual_seed(3)
    before = torch.get_rng_state()
    objective = gp.objective(g, 12, dtype=torch.float32)
    gp.maximize(objective, gp.GreedyPIG(rounds=2))
    rounds = gp.rounds(objective, gp.GreedyPIG(rounds=2))
    next(rounds)
    assert torch.equal(torch.get_rng_state(), before)
    torch.rand(1)  # The caller's own draw between two rounds is not undone.
    moved = torch.get_rng_state()
    next(rounds)
    assert torch.equal(torch.get_rng_state(), moved)


def test_every_round_and_stream_has_numbers_of_its_own():
    objective, drawn = net(4, 12).objective(), set()
    for seed, number, example, stream in np.ndindex(3, 4, 2, 5):
        now = round_at(objective, number=number, seed=seed, examples=(example,))
        drawn.add(torch.rand(1, generator=now.generator(0, stream)).item())
        drawn.add(torch.rand(1, generator=now.generator(0, stream, 1)).item())
    assert len(drawn) == 2 * 3 * 4 * 2 * 5


@pytest.mark.parametrize("name", RANDOM)
def test_the_numbers_of_an_example_are_those_of_its_place_wherever_it_runs(name):
    three = Question.of(net(4, 12).objective().repeated(3))
    three = replace(three, records=tuple(Record(example=place) for place in range(3)))
    many = carry_out(three, gp.Greedy(RANDOM[name], rounds=3), seed=5)
    assert len({tuple(a.feature_scores.tolist()) for a in many}) == 3
    for place, found in enumerate(many):
        alone = run(RANDOM[name], (5, place))
        torch.testing.assert_close(alone.feature_scores, found.feature_scores)
        assert alone.order.tolist() == found.order.tolist()
        assert alone.settings["seed"] == 5
        assert alone.settings.get("example", 0) == place
    first = run(RANDOM[name], (5, 0))
    assert torch.equal(first.feature_scores, run(RANDOM[name], 5).feature_scores)


def test_noise_is_standard_normal_times_the_share_of_the_range():
    # g = Σ w_i²/2 has ∂_i g(1 + ε_i) = 1 + ε_i, so one sample of the smoothed gradient at the end
    # gives (1 + ε_i)², ε ~ N(0, σ²), with mean 1 + σ² and variance 4σ² + 2σ⁴ over the values.
    n, sigma = 40_000, 0.25
    objective = gp.objective(lambda w: 0.5 * (w * w).sum(1), n, dtype=torch.float64)
    smooth = gp.SmoothIG(gp.Gradient(at=1.0), samples=1, noise=sigma)
    scores = smooth(objective, round_at(objective))
    spread = 4 * sigma**2 + 2 * sigma**4
    # Five standard errors; the seed is fixed.
    assert float(scores.mean()) == pytest.approx(1 + sigma**2, abs=5 * (spread / n) ** 0.5)
    assert float(scores.var()) == pytest.approx(spread, rel=0.1)


def test_random_order_is_uniform():
    # Each of 6 features comes first in a sixth of 600 seeds: 100 ± 5·√(600·1/6·5/6) ≈ 46.
    firsts = [0] * 6
    objective = net(1, 6).objective()
    for seed in range(600):
        firsts[int(gp.maximize(objective, gp.Random(), seed=seed).order[0])] += 1
    assert all(abs(count - 100) <= 46 for count in firsts)


@pytest.mark.parametrize("seed", [1.5, "1", None, True, (1,), (1, 2, 3), (1, -1), (1, 0.5)])
def test_a_seed_is_a_whole_number_and_a_place_too(seed):
    with pytest.raises(gp.InvalidInput, match="seed"):
        run(gp.Random(), seed)


@pytest.mark.parametrize(
    "make",
    [
        lambda: gp.SmoothIG(samples=0),
        lambda: gp.SmoothIG(noise=-0.1),
        lambda: gp.SmoothIG(noise=float("nan")),
        lambda: gp.GuidedIG(steps=0),
        lambda: gp.GuidedIG(fraction=1.5),
        lambda: gp.GuidedIG(max_dist=-0.1),
        lambda: gp.GuidedIG(fraction=float("nan")),
        lambda: gp.BlurIG(steps=0),
        lambda: gp.BlurIG(sigma=0),
        lambda: gp.BlurIG(grad_step=-1),
    ],
)
def test_scorers_check_their_knobs_when_they_are_made(make):
    with pytest.raises(gp.InvalidInput):
        make()


def test_smooth_wraps_scorers_of_values_only():
    # A scorer of whole features has no noisy path to follow.
    for inner in (gp.Random(), gp.MarginalGains(), 3, None):
        with pytest.raises((gp.InvalidInput, gp.InvalidType)):
            run(gp.SmoothIG(inner), 1)
