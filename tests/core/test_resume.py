"""Rounds as a stream: frozen, readable at any time, and resumed as if never broken, bit for bit."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from math import isnan

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from greedypig.core.run import Run
from problems import modular, net, random_coverage

N = 9
SCORERS = {
    "ig": gp.IG(3),
    "ig-left": gp.IG(3, "left"),
    "ig-gauss": gp.IG(2, "gauss_legendre"),
    "gradient": gp.Gradient(at=0.0),
    "smooth": gp.SmoothIG(gp.IG(2), samples=3),
    "guided": gp.GuidedIG(steps=6, fraction=0.4, max_dist=0.3),
    "random": gp.Random(),
    "gains": gp.MarginalGains(),
}
SKIPPED = {"seconds", "features", "layout", "settings", "provenance"}


def same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(
            torch.nan_to_num(a, nan=7e77), torch.nan_to_num(b, nan=7e77)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float) and isnan(a) and isnan(b):
        return True
    return a == b


def assert_same(a: gp.Attribution, b: gp.Attribution) -> None:
    """Every field but the clock, to the last bit."""
    for field in fields(gp.Attribution):
        if field.name not in SKIPPED:
            x, y = getattr(a, field.name), getattr(b, field.name)
            assert same(x, y), f"{field.name}: {x} and {y}"


def objective_for(name: str, dtype: torch.dtype = torch.float64, batch_size: int = 4):
    g = random_coverage(3, N, 14, 3, whole=True) if name.startswith("gains") else net(17, N)
    return g.objective(dtype=dtype, batch_size=batch_size)


def begin(name: str, *, resume: gp.Attribution | None = None, **options):
    dtype = options.pop("dtype", torch.float64)
    knobs = {k: options.pop(k) for k in ("rounds", "per_round") if k in options} or {"rounds": 5}
    method = gp.Greedy(SCORERS[name], **knobs)
    return gp.rounds(objective_for(name, dtype), method, seed=11, resume=resume, **options)


def finish(run: Run) -> gp.Attribution:
    for _ in run:
        pass
    return run.results()[0]


def broken_after(count: int, name: str, **options) -> gp.Attribution:
    run = begin(name, **options)
    for _ in range(count):
        next(run)
    return run.results()[0]


def through_file(a: gp.Attribution, folder) -> gp.Attribution:
    a.save(folder / "half.gpig")
    return gp.load(folder / "half.gpig")


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("kept", ["memory", "file"])
def test_a_run_resumed_from_any_round_equals_the_unbroken_run(name, kept, tmp_path):
    whole = finish(begin(name))
    for count in range(6):
        half = broken_after(count, name)
        if kept == "file":
            half = through_file(half, tmp_path)
        assert_same(finish(begin(name, resume=half)), whole)


@pytest.mark.parametrize("name", SCORERS)
def test_a_run_broken_again_and_again_equals_the_unbroken_run(name):
    # A new sitting for every round. The first `next` of a resumed run may repeat the last round.
    whole = finish(begin(name))
    kept = broken_after(1, name)
    for done in range(2, 6):
        rounds = begin(name, resume=kept)
        while len(rounds.results()[0].picks) < done:
            next(rounds)
        kept = rounds.results()[0]
        assert kept.picks == whole.picks[:done]
    assert_same(finish(begin(name, resume=kept)), whole)


@pytest.mark.parametrize("name", ["ig", "ig-left", "gradient", "smooth", "guided"])
def test_a_run_out_of_budget_goes_on_with_more(name, tmp_path):
    whole = finish(begin(name))
    spent = finish(begin(name, stop=gp.Stop(gradients=2 * SCORERS[name].cost)))
    assert spent.stop is gp.StopReason.GRADIENTS
    assert len(spent.picks) == 2
    assert_same(finish(begin(name, resume=through_file(spent, tmp_path))), whole)


@pytest.mark.parametrize("name", ["ig", "ig-left", "gradient"])
def test_resuming_holds_where_the_last_bits_depend_on_the_batch(name):
    # As with BLAS: the same row may differ in its last bits in a batch of another size. Here the
    # value says how many rows came along, so a value measured in another batch is found out.
    g = net(17, N)

    def telling() -> object:
        return gp.objective(lambda w: g.g(w) + 1e-9 * len(w), N, dtype=torch.float64)

    method = gp.Greedy(SCORERS[name], rounds=5)
    whole = finish(gp.rounds(telling(), method))
    budget = 2 * SCORERS[name].cost
    half = finish(gp.rounds(telling(), method, stop=gp.Stop(gradients=budget)))
    assert len(half.picks) == 2
    assert_same(finish(gp.rounds(telling(), method, resume=half)), whole)


@pytest.mark.parametrize("name", ["ig", "gains"])
def test_groups_resume_too(name, tmp_path):
    features = gp.Groups(torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4]))
    knobs = {"features": features, "per_round": 1}
    whole = finish(begin(name, **knobs))
    half = through_file(broken_after(2, name, **knobs), tmp_path)
    assert_same(finish(begin(name, resume=half, **knobs)), whole)


def test_a_run_that_took_fewer_than_planned_resumes():
    # gain=True leaves out what scores 0 or less, so a round may be smaller than its schedule.
    # g = 3w₀ + 2w₁ − w₂ + w₃ and rounds of 2: picks {0, 1}, {3}, then nothing has a gain.
    g = modular([3, 2, -1, 1, -2, -3])
    method, stop = gp.GreedyPIG(per_round=2, steps=2), gp.Stop(gain=True)
    whole = finish(gp.rounds(g.objective(), method, stop=stop))
    assert whole.picks == (2, 1)
    rounds = gp.rounds(g.objective(), method, stop=stop)
    next(rounds), next(rounds)
    half = rounds.results()[0]
    resumed = finish(gp.rounds(g.objective(), method, stop=stop, resume=half))
    assert_same(resumed, whole)


@pytest.mark.parametrize("name", ["ig", "random"])
def test_rounds_of_windows_resume_also_after_the_last(name, tmp_path):
    # The last round is planned for all windows that are left, and takes those it needs.
    knobs = {"features": gp.Windows((3, 3), 2), "rounds": 3}
    whole = finish(begin(name, **knobs))
    assert len(whole.picks) == 3
    for done in (1, 2, 3):
        half = through_file(broken_after(done, name, **knobs), tmp_path)
        assert_same(finish(begin(name, resume=half, **knobs)), whole)


def test_a_finished_run_resumes_to_itself():
    for name in ("ig", "ig-left", "gains"):
        whole = finish(begin(name))
        assert_same(finish(begin(name, resume=whole)), whole)


def test_a_run_that_found_no_gain_resumes_to_itself():
    method, stop = gp.GreedyPIG(per_round=1, steps=2), gp.Stop(gain=True)
    g = modular([3, -2, 1])
    whole = finish(gp.rounds(g.objective(), method, stop=stop))
    again = finish(gp.rounds(g.objective(), method, stop=stop, resume=whole))
    assert_same(again, whole)  # Also what it paid: nothing is scored again.
    assert again.stop is gp.StopReason.NO_GAIN
    greedy = finish(gp.rounds(g.objective(), gp.GreedyPIG(per_round=1, steps=2), resume=whole))
    assert greedy.stop is gp.StopReason.ALL


@pytest.mark.parametrize("name", ["ig", "ig-left", "gradient"])
def test_ctrl_c_in_the_middle_of_a_round_loses_no_finished_round(name):
    # The interrupt comes from inside g, in the fourth round's gradients.
    g = net(17, N)
    calls = [0]

    def interrupted(w: Tensor) -> Tensor:
        calls[0] += torch.is_grad_enabled()
        if torch.is_grad_enabled() and calls[0] > 3:
            raise KeyboardInterrupt
        return g.g(w)

    made = gp.objective(interrupted, N, dtype=torch.float64, batch_size=64)
    rounds = gp.rounds(made, gp.Greedy(SCORERS[name], rounds=5))
    with pytest.raises(KeyboardInterrupt):
        list(rounds)
    half = rounds.results()[0]
    # Three rounds were scored and taken.
    assert len(half.picks) == 3
    fresh = [
        gp.rounds(g.objective(batch_size=64), gp.Greedy(SCORERS[name], rounds=5), resume=resume)
        for resume in (None, half)
    ]
    assert_same(finish(fresh[1]), finish(fresh[0]))


def test_what_is_left_over_from_a_resumed_run_counts_its_rounds_and_gradients():
    half = broken_after(3, "ig")
    rounds = begin("ig", resume=half)
    # Before a single new gradient, the resumed run knows what the file knew.
    now = rounds.results()[0]
    assert now.picks == half.picks
    assert now.order.tolist() == half.order.tolist()
    assert now.gradients_used == half.gradients_used == 9
    assert now.values.tolist() == half.values.tolist()


def test_seconds_of_all_sittings_add_up():
    half = broken_after(3, "ig")
    later = finish(begin("ig", resume=half))
    assert later.seconds >= half.seconds > 0


@pytest.mark.parametrize(
    "change",
    [
        {"rounds": 4},
        {"rounds": 5, "k": 7},
        {"features": gp.Groups(torch.arange(N)), "rounds": 5},
        {"features": gp.Elements(N, [f"f{i}" for i in range(N)]), "rounds": 5},
    ],
)
def test_another_run_s_result_is_refused(change):
    half = broken_after(2, "ig")
    with pytest.raises(gp.InvalidInput, match="saved run"):
        begin("ig", resume=half, **change)


def test_a_run_over_other_groups_of_the_same_number_is_refused():
    g = net(1, 4)
    one, other = (gp.Groups(torch.tensor(ids)) for ids in ([0, 0, 1, 2], [0, 1, 2, 2]))
    half = gp.maximize(g.objective(), gp.GreedyPIG(schedule=[1]), features=one)
    with pytest.raises(gp.InvalidInput, match="features"):
        gp.maximize(g.objective(), gp.GreedyPIG(schedule=[1, 1]), features=other, resume=half)


def test_explain_resumes_from_a_file_with_a_rule_of_one_s_own(tmp_path):
    torch.manual_seed(0)
    model, x = nn.Linear(6, 3), torch.randn(6)
    method = gp.GreedyPIG(rounds=4, rule=gp.Rule((0.25, 0.75), (0.5, 0.5)))
    whole = gp.explain(model, x, method=method)
    half = gp.explain(model, x, method=method, stop=gp.Stop(gradients=4))
    half.save(tmp_path / "half.gpig")
    assert_same(gp.explain(model, x, method=method, resume=tmp_path / "half.gpig"), whole)


# The stream itself.


def test_rounds_and_results_are_frozen():
    rounds = begin("ig")
    first = next(rounds)
    with pytest.raises(FrozenInstanceError):
        first.picks = (1,)
    with pytest.raises(FrozenInstanceError):
        rounds.results()[0].selected = 3


@pytest.mark.parametrize("name", SCORERS)
def test_a_result_can_be_taken_at_any_time(name):
    rounds = begin(name)
    for done in range(6):
        a = rounds.results()[0]
        assert a.stop is gp.StopReason.RUNNING
        assert len(a.picks) == done
        assert a.selected == sum(a.picks)
        assert sorted(a.order.tolist()) == list(range(N))
        assert a.gradients_used == done * SCORERS[name].cost
        if done < 5:
            state = next(rounds)
            assert isinstance(state, gp.State)
            assert state.picks == rounds.results()[0].picks
    assert next(rounds, None) is None
    assert rounds.results()[0].stop is gp.StopReason.ALL


def test_earlier_results_do_not_change_when_the_run_goes_on():
    rounds = begin("ig")
    next(rounds)
    early = rounds.results()[0]
    kept = (
        early.order.clone(),
        early.feature_scores.clone(),
        early.values.clone(),
        early.last_scores.clone(),
    )
    list(rounds)
    now = (early.order, early.feature_scores, early.values, early.last_scores)
    assert all(torch.equal(a, b) for a, b in zip(kept, now, strict=True))


def test_two_runs_of_one_objective_do_not_count_each_other_s_gradients():
    objective = objective_for("ig")
    alone = finish(
        gp.rounds(
            objective_for("ig"), gp.Greedy(SCORERS["ig"], rounds=5), stop=gp.Stop(gradients=12)
        )
    )
    pair = [
        gp.rounds(objective, gp.Greedy(SCORERS["ig"], rounds=5), stop=gp.Stop(gradients=12))
        for _ in range(2)
    ]
    for _ in range(6):
        for rounds in pair:
            next(rounds, None)
    for rounds in pair:
        assert_same(rounds.results()[0], alone)


@pytest.mark.parametrize("name", SCORERS)
def test_values_are_the_same_whenever_they_are_measured(name):
    g = random_coverage(3, N, 14, 3, whole=True) if name.startswith("gains") else net(17, N)
    a = finish(begin(name))
    on = torch.zeros(N, dtype=torch.float64)
    expected, at = [float(g.g(on[None]))], 0
    for count in a.picks:
        on[a.order[at : at + count]] = 1
        at += count
        expected.append(float(g.g(on[None])))
    for value, right in zip(a.values.tolist(), expected, strict=True):
        assert value == pytest.approx(right, abs=1e-12)
    limited = finish(begin(name, stop=gp.Stop(value=1e9)))  # Measured after every round.
    torch.testing.assert_close(limited.values, a.values, rtol=0, atol=1e-12)
    unmeasured = begin(name).results(measure=False)[0]
    assert bool(unmeasured.values.isnan().all())
