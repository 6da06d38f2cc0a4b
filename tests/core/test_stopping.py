"""Every reason to stop: met on time, named rightly, and with a complete order."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import greedypig as gp
from greedypig.core import run as run_module
from problems import modular, net, normal, saturating, xor

REASON = gp.StopReason


def check_order(a: gp.Attribution) -> None:
    """A full permutation: what was picked, then the rest by the last score, ties by index."""
    count = a.features.count
    assert sorted(a.order.tolist()) == list(range(count))
    assert a.selected == sum(a.picks)
    assert len(a.values) == len(a.picks) + 1 == len(a.totals) + 1
    tail = a.order[a.selected :].tolist()
    assert tail == sorted(tail, key=lambda u: (-float(a.last_scores[u]), u))


def test_all_rounds_done():
    a = gp.maximize(net(1, 8).objective(), gp.GreedyPIG(rounds=3, per_round=2, steps=2))
    assert a.stop is REASON.ROUNDS
    assert a.picks == (2, 2, 2)
    check_order(a)


@pytest.mark.parametrize("knobs", [{"rounds": 2}, {"per_round": 2}, {}, {"schedule": "geometric"}])
def test_k_selected(knobs):
    a = gp.maximize(net(1, 8).objective(), gp.GreedyPIG(steps=2, **knobs), k=5)
    assert a.stop is REASON.K
    assert a.selected == 5
    check_order(a)


def test_everything_selected():
    a = gp.maximize(net(1, 8).objective(), gp.GreedyPIG(rounds=3, steps=2))
    assert a.stop is REASON.ALL
    assert a.selected == 8
    assert float(a.values[-1]) == a.full_value
    check_order(a)


@given(st.integers(1, 60), st.integers(1, 7), st.sampled_from(["midpoint", "left"]))
def test_budget_is_never_exceeded_and_never_left_unused(budget, steps, rule):
    # A round costs `steps` gradients, so ⌊budget / steps⌋ rounds fit, of the 8 there are.
    objective = net(2, 8).objective()
    if budget < steps:
        with pytest.raises(gp.InvalidInput, match="budget"):
            gp.maximize(
                objective,
                gp.GreedyPIG(per_round=1, steps=steps, rule=rule),
                stop=gp.Stop(gradients=budget),
            )
        return
    a = gp.maximize(
        objective, gp.GreedyPIG(per_round=1, steps=steps, rule=rule), stop=gp.Stop(gradients=budget)
    )
    done = min(budget // steps, 8)
    assert len(a.picks) == done
    assert a.gradients_used == done * steps <= budget
    assert objective.gradients_used == a.gradients_used
    assert a.stop is (REASON.ALL if done == 8 else REASON.GRADIENTS)
    check_order(a)


@pytest.mark.parametrize(
    "scorer",
    [
        gp.Gradient(),
        gp.IG(3),
        gp.SmoothIG(gp.IG(2), samples=2),
        gp.GuidedIG(steps=5),
    ],
)
@pytest.mark.parametrize("budget", [5, 11, 12, 13])
def test_budget_holds_for_every_scorer(scorer, budget):
    rounds = gp.rounds(
        net(2, 8).objective(), gp.Greedy(scorer, per_round=1), stop=gp.Stop(gradients=budget)
    )
    done = len(list(rounds))
    a = rounds.results()[0]
    assert a.gradients_used <= budget
    assert done == min(8, budget // scorer.cost)
    assert a.stop is (REASON.ALL if done == 8 else REASON.GRADIENTS)


def test_budget_holds_for_a_scorer_that_cannot_tell_its_cost():
    # What a round of a plain function costs is known once one has been paid.
    def scorer(objective, round):
        return objective.gradient(round.mask.expand(1, 5, -1), torch.full((5,), 0.2))

    rounds = gp.rounds(
        net(2, 8).objective(), gp.Greedy(scorer, per_round=1), stop=gp.Stop(gradients=12)
    )
    assert len(list(rounds)) == 2
    assert rounds.results()[0].gradients_used == 10
    assert rounds.results()[0].stop is REASON.GRADIENTS


def test_free_scorers_are_not_stopped_by_a_budget():
    rounds = gp.rounds(
        net(2, 4).objective(), gp.Greedy(gp.Random(), per_round=1), stop=gp.Stop(gradients=0)
    )
    assert len(list(rounds)) == 4
    assert rounds.results()[0].stop is REASON.ALL


def test_seconds(monkeypatch):
    # A clock that moves one second per batch. A round is one batch, so rounds begin at 0, 1, 2, 3
    # and none begins at 4 or later. The batch that measures the values is not the search's time.
    now = [0.0]
    monkeypatch.setattr(run_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    g = net(3, 8)

    def slow(w):
        now[0] += 1
        return g.g(w)

    objective = gp.objective(slow, 8, dtype=torch.float64)
    now[0] = 0
    a = gp.maximize(objective, gp.GreedyPIG(per_round=1, steps=2), stop=gp.Stop(seconds=4))
    assert a.stop is REASON.SECONDS
    assert len(a.picks) == 4
    assert a.seconds == 4
    assert now[0] == 5
    check_order(a)


@pytest.mark.parametrize("rule", ["midpoint", "left"])
@pytest.mark.parametrize("share", [0.2, 0.5, 0.9, 1.0])
def test_value_stops_at_the_first_round_that_gets_there(rule, share):
    g = saturating([0.3, 2.0, 0.1, 0.7, 1.1, 0.2])
    target = share * g.best(6)
    # The best k are the k largest rates; the first k whose value reaches the target is needed.
    needed = next(k for k in range(1, 7) if g.best(k) >= target)
    a = gp.maximize(
        g.objective(), gp.GreedyPIG(per_round=1, steps=8, rule=rule), stop=gp.Stop(value=target)
    )
    assert a.selected == needed
    assert a.stop is (REASON.ALL if needed == 6 else REASON.VALUE)
    assert float(a.values[-1]) >= target - 1e-12
    assert all(float(v) < target for v in a.values[:-1])
    check_order(a)


def test_value_costs_no_gradient_after_the_target_is_met():
    # The value of a round is known before the next begins, whatever the rule.
    for rule in ("midpoint", "left"):
        a = gp.maximize(
            modular([5, 3, 1, 1]).objective(),
            gp.GreedyPIG(per_round=1, steps=4, rule=rule),
            stop=gp.Stop(value=8.0),
        )
        assert (a.stop, a.selected, a.gradients_used) == (REASON.VALUE, 2, 8), rule


def test_value_may_be_met_by_nothing():
    # G(∅) = 1 ≥ 0.5.
    objective = gp.objective(lambda w: 1 + 0.1 * w.mean(1), 4)
    a = gp.maximize(objective, gp.GreedyPIG(), stop=gp.Stop(value=0.5))
    assert (a.stop, a.selected, a.gradients_used) == (REASON.VALUE, 0, 0)
    check_order(a)


def test_no_gain_stops_before_anything_that_scores_0_or_less():
    a = gp.maximize(
        modular([2, -1, 0, 3, -2]).objective(),
        gp.GreedyPIG(per_round=1, steps=2),
        stop=gp.Stop(gain=True),
    )
    assert a.stop is REASON.NO_GAIN
    assert a.order.tolist() == [3, 0, 2, 1, 4]
    assert a.selected == 2
    assert float(a.values[-1]) == pytest.approx(5, abs=1e-12)
    check_order(a)


def test_gain_takes_only_the_positive_part_of_a_round():
    a = gp.maximize(
        modular([2, -1, 0, 3, -2]).objective(),
        gp.GreedyPIG(rounds=1, steps=2),
        stop=gp.Stop(gain=True),
    )
    assert a.order.tolist() == [3, 0, 2, 1, 4]
    assert a.selected == 2
    assert a.picks == (2,)


def test_gain_looks_again_after_every_round():
    # XOR: both sides have gradient 1 at ∅, but after one of them the other has −1.
    a = gp.maximize(
        xor(0.5).objective(), gp.SequentialGradient(per_round=1), stop=gp.Stop(gain=True)
    )
    assert a.order[: a.selected].tolist() == [0, 2]
    assert a.stop is REASON.NO_GAIN


def test_nothing_with_a_gain_is_a_result_too():
    a = gp.maximize(
        modular([-1, -3, -2]).objective(), gp.GreedyPIG(per_round=1), stop=gp.Stop(gain=True)
    )
    assert (a.stop, a.selected) == (REASON.NO_GAIN, 0)
    assert a.order.tolist() == [0, 2, 1]
    assert a.scores.tolist() == [0, 0, 0]


def test_the_first_reason_met_counts():
    g = modular(normal(4, 10).abs() + 0.1)
    a = gp.maximize(
        g.objective(),
        gp.GreedyPIG(per_round=1, steps=2),
        k=6,
        stop=gp.Stop(gradients=8, value=10.0, gain=True),
    )
    assert a.stop is REASON.GRADIENTS
    a = gp.maximize(
        g.objective(),
        gp.GreedyPIG(per_round=1, steps=2),
        k=3,
        stop=gp.Stop(gradients=8, value=10.0, gain=True),
    )
    assert a.stop is REASON.K


@given(st.data())
def test_order_is_complete_whatever_stops_the_run(data):
    n = data.draw(st.integers(1, 9))
    features = data.draw(
        st.sampled_from(
            [None, gp.Groups(torch.arange(n) // 2), gp.Windows((n,), min(2, n)), gp.Elements(n)]
        )
    )
    limits = {"gradients": st.integers(3, 20), "value": st.floats(-2, 2), "gain": st.booleans()}
    stop = gp.Stop(**data.draw(st.fixed_dictionaries({}, optional=limits)))
    k = data.draw(st.sampled_from([None, 1]))
    objective = net(data.draw(st.integers(0, 999)), n).objective()
    method = gp.GreedyPIG(per_round=1, steps=3)
    a = gp.maximize(objective, method, features=features, k=k, stop=stop)
    check_order(a)
    assert sorted(a.ranking().tolist()) == list(range(n))
    assert a.stop is not REASON.RUNNING


@pytest.mark.parametrize(
    "limit",
    [
        {"gradients": -1},
        {"gradients": 2.5},
        {"gradients": True},
        {"seconds": 0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": "1"},
        {"value": float("nan")},
        {"value": True},
        {"gain": "yes"},
    ],
)
def test_limits_that_make_no_sense_are_refused(limit):
    with pytest.raises((gp.InvalidInput, gp.InvalidType), match=next(iter(limit))):
        gp.Stop(**limit)


@pytest.mark.parametrize(
    ("name", "method", "stop"),
    [
        ("gain=True", "greedy-pig", gp.Stop(gain=True)),
        ("value", "greedy-pig", gp.Stop(value=1.0)),
        ("seconds", "greedy-pig", gp.Stop(seconds=1.0)),
        ("schedule='measured'", gp.GreedyPIG(schedule="measured"), None),
    ],
)
def test_what_looks_at_one_problem_refuses_several_by_its_name(name, method, stop):
    both = modular([1, 2, 3]).objective().repeated(2)
    with pytest.raises(gp.InvalidInput, match=f"one problem for {name} \\(got 2\\)"):
        gp.rounds(both, method, stop=stop)


def test_reasons_read_as_sentences():
    assert str(REASON.GRADIENTS) == "the gradient budget was spent"
    assert len({str(r) for r in REASON}) == len(REASON)
