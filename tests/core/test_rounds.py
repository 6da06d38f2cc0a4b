"""One round, what changes and what ends it, and the run that strings rounds together."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from greedypig.core.features import Features
from greedypig.core.objective import Objective
from greedypig.core.registry import METHODS
from greedypig.core.revisions import OnlyPositive, WhileGRises
from greedypig.core.rounds import State, next_round
from greedypig.core.rules import GradientLimit, TimeLimit, ValueReached, rules_of
from greedypig.core.values import completely_measured, measured
from problems import copies, modular, net, random_coverage

N = 9
SCORERS = {
    "ig": gp.IG(3),
    "gradient": gp.Gradient(at=0.0),
    "smooth": gp.SmoothIG(gp.IG(2), samples=3),
    "guided": gp.GuidedIG(steps=6, fraction=0.4, max_dist=0.3),
    "random": gp.Random(),
    "gains": gp.MarginalGains(),
}


def begin(name: str, **options):
    g = random_coverage(3, N, 14, 3, whole=True) if name == "gains" else net(17, N)
    method = gp.Greedy(SCORERS[name], rounds=5)
    return gp.rounds(g.objective(batch_size=4), method, seed=11, **options)


def finish(run) -> gp.Attribution:
    list(run)
    return run.results()[0]


def state_with(features: Features, *taken: int, **fields: object) -> State:
    """One problem in which these features were taken, one a round."""
    state = State.start(modular([0.0] * features.n).objective(), features)
    zero = torch.zeros(1, features.count).double()
    for feature in taken:
        state = state.take(torch.tensor([[feature]]), zero[:, :1], zero, (0.0,))
    return replace(state, **fields)


# One round alone.


@given(st.integers(0, 10**6), st.integers(2, 8), st.data())
def test_a_round_is_algorithm_1_s_step(seed, n, data):
    # â = Σ_k w_k · ∇g(1_S + t_k · 1_S̄) off S; the z best are taken, and a takes their scores.
    g, steps = net(seed, n), 4
    taken = data.draw(st.sets(st.integers(0, n - 1), max_size=n - 1))
    z = data.draw(st.integers(1, n))
    objective, features = g.objective(), gp.Elements(n)
    before = state_with(features, *sorted(taken))
    s = torch.zeros(n).double().index_fill(0, torch.tensor(sorted(taken)).long(), 1)
    nodes = [(k + 0.5) / steps for k in range(steps)]
    expected = sum(g.gradient(s + t * (1 - s)) for t in nodes) / steps * (1 - s)
    best = sorted((i for i in range(n) if i not in taken), key=lambda i: -float(expected[i]))[:z]
    after = next_round(objective, gp.IG(steps), features, before, z)
    assert after.order[0].tolist() == [*sorted(taken), *best]
    assert set(after.taken[0].nonzero().flatten().tolist()) == taken | set(best)
    torch.testing.assert_close(after.last[0], expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(after.scores[0][best], expected[best], rtol=0, atol=1e-12)
    torch.testing.assert_close(after.sums[0], expected, rtol=0, atol=1e-12)
    assert after.totals[-1] == pytest.approx((float(expected.sum()),), abs=1e-12)
    assert after.picks == (*before.picks, len(best))
    assert after.gradients == steps
    # The state before is as it was.
    assert before.order[0].tolist() == sorted(taken)
    assert before.gradients == 0


def test_a_round_with_nothing_left_takes_nothing():
    features = gp.Elements(2)
    full = state_with(features, 0, 1)
    after = next_round(modular([1, 2]).objective(), gp.IG(1), features, full, 1)
    assert after.picks == full.picks
    assert after.order.tolist() == full.order.tolist()


# Values.


class Asked:
    """modular([4, 2, 1]) that notes the sets it is asked for."""

    def __init__(self) -> None:
        self.sets: list[tuple[int, ...]] = []

    def objective(self, batch_size: int = 64) -> Objective:
        return gp.objective(self, 3, dtype=torch.float64, batch_size=batch_size)

    def __call__(self, w: Tensor) -> Tensor:
        self.sets += [tuple(row.nonzero().flatten().tolist()) for row in w]
        return w @ torch.tensor([4.0, 2.0, 1.0], dtype=torch.float64)


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_no_value_is_measured_twice(alone, batch_size):
    asked, features = Asked(), gp.Elements(3)
    objective = asked.objective(batch_size)
    asked.sets.clear()
    state = state_with(features, 2, 0)
    state = measured(objective, features, state, [1])
    state = measured(objective, features, state, [1])
    assert asked.sets == [(2,)]
    state = completely_measured(objective, features, state, alone=alone)
    assert sorted(asked.sets) == [(), (0, 1, 2), (0, 2), (2,)]
    assert [float(state.values[r]) for r in range(3)] == [0, 1, 5]
    assert float(state.full_values) == 7
    again = completely_measured(objective, features, state, alone=alone)
    assert len(asked.sets) == 4
    assert again.values == state.values


def test_the_value_of_everything_is_that_of_the_last_round_if_it_took_all():
    asked, features = Asked(), gp.Elements(3)
    objective = asked.objective()
    asked.sets.clear()
    state = completely_measured(objective, features, state_with(features, 2, 0, 1))
    assert asked.sets == [(), (2,), (0, 2), (0, 1, 2)]
    assert float(state.full_values) == float(state.values[3]) == 7


def test_a_run_measures_each_value_once_whoever_asks():
    # `Stop(value)` asks before every round, the results at the end, and again afterwards.
    asked = Asked()
    run = gp.rounds(asked.objective(), gp.SequentialGradient(per_round=1), stop=gp.Stop(value=99))
    asked.sets.clear()
    first, second = finish(run), run.results()[0]
    assert torch.equal(first.values, second.values)
    # Three gradients, at the first three of these sets, and one value of each.
    assert sorted(asked.sets) == sorted([(), (0,), (0, 1)] * 2 + [(0, 1, 2)])
    assert (first.gradients_used, first.forwards_used) == (3, 3)


# Rules.


def test_a_gradient_limit_ends_a_run_before_it_is_exceeded():
    rule, state = GradientLimit(10), state_with(gp.Elements(2), gradients=6)
    assert rule.reason(state, 4) is None
    assert rule.reason(state, 5) is gp.StopReason.GRADIENTS


def test_a_time_limit_ends_a_run_once_it_is_over():
    state = state_with(gp.Elements(2), seconds=2.0)
    assert TimeLimit(2.5).reason(state, 1) is None
    assert TimeLimit(2.0).reason(state, 1) is gp.StopReason.SECONDS


def test_a_value_is_reached_when_the_last_g_is_as_large():
    values = {0: torch.tensor([5.0]), 1: torch.tensor([3.0])}
    state = state_with(gp.Elements(2), 0, values=values)
    assert ValueReached(3.5).reason(state, 1) is None  # 5 was reached before, and lost again.
    assert ValueReached(3.0).reason(state, 1) is gp.StopReason.VALUE


def test_stop_asks_for_one_rule_per_limit_in_this_order():
    assert rules_of(gp.Stop()) == rules_of(gp.Stop(gain=True)) == ()
    every = gp.Stop(value=0.5, seconds=2.0, gradients=7)
    assert rules_of(every) == (GradientLimit(7), TimeLimit(2.0), ValueReached(0.5))
    assert [rule.measures for rule in rules_of(every)] == [False, False, True]


# Revisions.


def revised(revision, g, picks: int, *, last: bool = False) -> tuple[State, State]:
    """The state after a first round of integrated gradients, and as the revision leaves it."""
    objective, features = g.objective(), gp.Elements(g.n)
    before = State.start(objective, features)
    after = next_round(objective, gp.IG(8), features, before, picks)
    return after, revision(objective, features, before, after, last)


def test_only_positive_takes_what_gains():
    after, left = revised(OnlyPositive(), modular([3, -1, 2, 0]), 4)
    assert left.order.tolist() == [[0, 2]]
    assert left.picks == (2,)
    assert left.scores.tolist() == [pytest.approx([3, 0, 2, 0])]
    assert torch.equal(left.last, after.last)
    assert (left.totals, left.gradients) == (after.totals, 8)


def test_only_positive_says_that_nothing_is_left():
    after, left = revised(OnlyPositive(), modular([-3, -1, 0]), 2)
    assert left.picks == ()
    assert left.ranking().tolist() == [[2, 1, 0]]  # By the scores that gained nothing.
    assert left.gradients == after.gradients == 8


def test_while_g_rises_takes_the_next_best_as_long_as_each_gives_half_of_its_score():
    # Copies score 2 each and the second adds nothing; the rest is a sum. After {0} comes 1.
    _, after = revised(WhileGRises(), copies([4, 1.5, 1], [2, 1, 1]), 1)
    assert after.order.tolist() == [[0]]
    assert float(after.values[1]) == 4
    _, after = revised(WhileGRises(), modular([1, 3, 2, -1]), 1)
    assert after.order.tolist() == [[1, 2, 0]]  # And none with a score below 0.
    assert float(after.values[1]) == 6


def test_while_g_rises_ends_at_k_and_at_enough_and_takes_the_rest_in_the_last_round():
    g = modular([1, 3, 2, 0.5])
    assert revised(WhileGRises(k=2), g, 1)[1].order.tolist() == [[1, 2]]
    assert revised(WhileGRises(enough=4.9), g, 1)[1].order.tolist() == [[1, 2]]
    everything = revised(WhileGRises(), copies([4, 1.5, 1], [2, 1, 1]), 1, last=True)[1]
    assert everything.order.shape[1] == 4


@pytest.mark.parametrize("revision", [OnlyPositive(), WhileGRises()])
def test_a_revision_says_which_features_it_fits(revision):
    revision.check(gp.Elements(4))
    if revision == WhileGRises():
        with pytest.raises(gp.InvalidInput, match="overlap"):
            revision.check(gp.Windows((4,), 2))


# The run.


def test_rounds_and_results_are_frozen():
    run = begin("ig")
    first = next(run)
    with pytest.raises(FrozenInstanceError):
        first.picks = (1,)
    with pytest.raises(FrozenInstanceError):
        run.results()[0].selected = 3


@pytest.mark.parametrize("name", SCORERS)
def test_a_result_can_be_taken_at_any_time(name):
    run = begin(name)
    for done in range(6):
        a = run.results()[0]
        assert a.stop is gp.StopReason.RUNNING
        assert len(a.picks) == done
        assert a.selected == sum(a.picks)
        assert sorted(a.order.tolist()) == list(range(N))
        assert a.gradients_used == done * SCORERS[name].cost
        if done < 5:
            state = next(run)
            assert isinstance(state, gp.State)
            assert state.picks == run.results()[0].picks
            assert state.gradients == a.gradients_used + SCORERS[name].cost
    assert next(run, None) is None
    assert run.results()[0].stop is gp.StopReason.ALL


def test_earlier_results_do_not_change_when_the_run_goes_on():
    run = begin("ig")
    next(run)
    early = run.results()[0]
    names = ("order", "feature_scores", "values", "last_scores")
    kept = [getattr(early, name).clone() for name in names]
    list(run)
    assert all(torch.equal(a, getattr(early, name)) for a, name in zip(kept, names, strict=True))


def test_two_runs_of_one_objective_do_not_count_each_other_s_costs():
    objective, method = net(17, N).objective(batch_size=4), gp.Greedy(gp.IG(3), rounds=5)
    stop = gp.Stop(gradients=12, value=99.0)
    alone = finish(gp.rounds(objective, method, stop=stop))
    pair = [gp.rounds(objective, method, stop=stop) for _ in range(2)]
    for _ in range(6):
        for run in pair:
            next(run, None)
    for run in pair:
        a = run.results()[0]
        assert a.order.tolist() == alone.order.tolist()
        assert torch.equal(a.values, alone.values)
        assert (a.gradients_used, a.forwards_used) == (12, 4)
        assert (alone.gradients_used, alone.forwards_used) == (12, 4)


@pytest.mark.parametrize("name", SCORERS)
def test_values_are_the_same_whenever_they_are_measured(name):
    g = random_coverage(3, N, 14, 3, whole=True) if name == "gains" else net(17, N)
    a = finish(begin(name))
    on = torch.zeros(N, dtype=torch.float64)
    expected, at = [float(g.g(on[None]))], 0
    for count in a.picks:
        on[a.order[at : at + count]] = 1
        at += count
        expected.append(float(g.g(on[None])))
    assert a.values.tolist() == pytest.approx(expected, abs=1e-12)
    limited = finish(begin(name, stop=gp.Stop(value=1e9)))  # Measured before every round.
    torch.testing.assert_close(limited.values, a.values, rtol=0, atol=1e-12)
    unmeasured = begin(name).results(measure=False)[0]
    assert bool(unmeasured.values.isnan().all())


# Progress.


@pytest.mark.parametrize(
    ("stop", "planned", "done"),
    [(None, 4, 4), (gp.Stop(gradients=5), 2, 2), (gp.Stop(gain=True), 4, 2)],
)
def test_progress_is_told_before_the_first_round_and_after_each(stop, planned, done):
    told, method = [], gp.GreedyPIG(per_round=1, steps=2)
    gp.maximize(
        modular([2, 1, -1, -2]).objective(), method, stop=stop, progress=lambda *x: told.append(x)
    )
    assert told == [(count, planned) for count in range(done + 1)]


@pytest.mark.parametrize(("stop", "count"), [(None, "4 of 4"), (gp.Stop(gain=True), "2 of 4")])
def test_progress_as_a_line_on_standard_error(stop, count, capsys):
    objective, method = modular([2, 1, -1, -2]).objective(), gp.GreedyPIG(per_round=1, steps=2)
    gp.maximize(objective, method, stop=stop, progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("\r0 of 4 rounds   \r1 of 4 rounds, ")
    assert f"\r{count} rounds, " in err
    assert err.endswith("   \n")
    assert err.count("\n") == 1
    gp.maximize(objective, method)
    assert capsys.readouterr() == ("", "")


# The registry.


@pytest.mark.parametrize("entry", METHODS.values(), ids=METHODS)
def test_a_registered_method_has_its_name_and_its_knobs(entry):
    assert entry.factory.__name__ == entry.title
    assert entry.factory().name == entry.name
    assert tuple(field.name for field in fields(entry.factory)) == entry.knobs
