"""Features against plain loops over sets of values."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import greedypig as gp
from problems import generator, history, modular, normal

# Every feature as a set of values, written down without the package.


def sets_of_groups(ids: list[int]) -> list[set[int]]:
    return [{e for e, i in enumerate(ids) if i == feature} for feature in range(max(ids) + 1)]


def sets_of_windows(shape: tuple[int, ...], size: int, axes: tuple[int, ...], stride: int):
    """Boxes from each start 0, stride, 2·stride, … that fits, and one that ends at the edge."""
    starts = []
    for axis in axes:
        last = shape[axis] - size
        starts.append([s for s in range(last + 1) if s % stride == 0 or s == last])
    places = list(product(*(range(d) for d in shape)))
    return [
        {
            e
            for e, place in enumerate(places)
            if all(a <= place[axis] < a + size for axis, a in zip(axes, corner, strict=True))
        }
        for corner in product(*starts)
    ]


def pick_by_hand(
    sets: list[set[int]], scores: list[float], on: set[int], taken: set[int], z: int
) -> tuple[list[int], list[float]]:
    """z times: the feature whose values that are still off add up to most; ties to the lowest."""
    on, taken, chosen, found = set(on), set(taken), [], []
    for _ in range(z):
        worth = {
            u: sum(scores[e] for e in sorted(members - on))
            for u, members in enumerate(sets)
            if u not in taken and members - on
        }
        if not worth:
            break
        best = min(worth, key=lambda u: (-worth[u], u))
        chosen.append(best)
        found.append(worth[best])
        taken.add(best)
        on |= sets[best]
    return chosen, found


@st.composite
def group_cases(draw):
    count = draw(st.integers(1, 5))
    extra = draw(st.lists(st.integers(0, count - 1), max_size=8))
    ids = draw(st.permutations([*range(count), *extra]))
    return gp.Groups(torch.tensor(ids)), sets_of_groups(ids)


@st.composite
def window_cases(draw):
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=1, max_size=3)))
    axes = tuple(sorted(draw(st.sets(st.sampled_from(range(len(shape))), min_size=1, max_size=3))))
    size = draw(st.integers(1, min(shape[a] for a in axes)))
    stride = draw(st.integers(1, size))
    made = gp.Windows(shape, size, axes=axes, stride=stride)
    return made, sets_of_windows(shape, size, axes, stride)


@st.composite
def element_cases(draw):
    n = draw(st.integers(1, 8))
    return gp.Elements(n), [{e} for e in range(n)]


feature_cases = st.one_of(element_cases(), group_cases(), window_cases())


def values_of(features: gp.Features, feature: int) -> Tensor:
    """(n,) bool: the values of one feature."""
    taken = torch.zeros(1, features.count, dtype=torch.bool)
    taken[0, feature] = True
    return features.mask(taken)[0]


def whole_scores(seed: int, n: int) -> Tensor:
    """Small whole numbers: sums are exact in any order, and ties are frequent."""
    return torch.randint(-3, 4, (n,), generator=generator(seed)).double()


@given(feature_cases, st.integers(0, 10**6))
def test_sum_is_the_sum_over_each_feature_s_values(case, seed):
    features, sets = case
    scores = whole_scores(seed, features.n)
    assert features.count == len(sets)
    assert features.n == max(max(u) for u in sets) + 1
    assert features.sum(scores[None])[0].tolist() == [sum(scores[list(u)].tolist()) for u in sets]


@given(feature_cases, st.data())
def test_a_mask_holds_the_values_of_the_features_taken(case, data):
    features, sets = case
    taken = torch.zeros(2, len(sets), dtype=torch.bool)
    for row in taken:
        chosen = data.draw(st.lists(st.integers(0, len(sets) - 1), unique=True))
        row[chosen] = True
    masks = features.mask(taken)
    for row, mask in zip(taken, masks, strict=True):
        expected = set().union(*(sets[u] for u in torch.nonzero(row).flatten().tolist()))
        assert set(torch.nonzero(mask).squeeze(1).tolist()) == expected
        assert features.is_complete(row[None]) == (len(expected) == features.n)


@given(feature_cases, st.integers(0, 10**6))
def test_first_rank_is_the_position_of_the_first_feature_that_holds_the_value(case, seed):
    features, sets = case
    order = torch.randperm(len(sets), generator=generator(seed))
    expected = [
        min(rank for rank, u in enumerate(order.tolist()) if e in sets[u])
        for e in range(features.n)
    ]
    assert features.first_rank(order).tolist() == expected


@given(feature_cases, st.integers(0, 10**6), st.data())
def test_pick_takes_the_best_features_among_what_is_still_off(case, seed, data):
    features, sets = case
    scores = whole_scores(seed, features.n)
    taken = data.draw(st.sets(st.integers(0, len(sets) - 1)))
    on = set().union(*(sets[u] for u in taken))
    free = sum(1 for u, members in enumerate(sets) if u not in taken and members - on)
    z = data.draw(st.integers(0, free))
    flags = torch.zeros(1, len(sets)).bool()
    flags[0, sorted(taken)] = True
    scores[sorted(on)] = 0
    chosen, found = features.pick(scores[None], flags, z)
    expected = pick_by_hand(sets, scores.tolist(), on, taken, z)
    assert (chosen[0].tolist(), found[0].tolist()) == expected
    assert flags.sum() == len(taken)


def test_a_chosen_window_s_values_score_0_afterwards():
    # g = 5·w₀ + 1·w₁ + 9·w₂ + 1·w₃ + 4·w₄, windows {0,1}, {1,2}, {2,3}, {3,4} score 6, 10, 10, 5.
    # {1,2} is taken (tie to the lowest); then {0,1} → 5, {2,3} → 1, {3,4} → 5: {0,1} by index;
    # then {2,3} → 1, {3,4} → 5; now everything is on and {2,3} would switch nothing on.
    # (Two steps of weight ½: no rounding, so ties are ties.)
    rounds = history(
        gp.rounds(
            modular([5, 1, 9, 1, 4]).objective(),
            gp.GreedyPIG(per_round=1, steps=2),
            features=gp.Windows((5,), 2),
        )
    )
    assert [r.chosen.tolist() for r in rounds] == [[1], [0], [3]]
    assert [r.scores.item() for r in rounds] == pytest.approx([10, 5, 5], abs=1e-12)
    assert [r.value for r in rounds] == pytest.approx([10, 15, 20], abs=1e-12)


def test_windows_stop_when_everything_is_on():
    a = gp.maximize(
        modular(normal(3, 6)).objective(), gp.GreedyPIG(per_round=1), features=gp.Windows((6,), 3)
    )
    assert a.stop is gp.StopReason.ALL
    assert a.selected < 4
    assert sorted(a.order.tolist()) == [0, 1, 2, 3]
    assert float(a.values[-1]) == a.full_value
    assert bool(a.mask(a.selected).all())


@given(window_cases())
def test_no_fewer_windows_than_the_cover_hold_everything(case):
    made, sets = case
    anchors = {
        e
        for e, place in enumerate(product(*map(range, made.shape)))
        if all(p % made.size == 0 if a in made.axes else p == 0 for a, p in enumerate(place))
    }
    # Of these values, `size` apart along each axis, no window holds two.
    assert made.cover == len(anchors)
    assert all(len(members & anchors) <= 1 for members in sets)


@given(window_cases(), st.data())
def test_rounds_of_windows_are_all_used_and_select_everything(case, data):
    made, sets = case
    rounds = data.draw(st.integers(1, made.cover))
    schedule = data.draw(st.sampled_from(["equal", "geometric"]))
    g = modular(normal(3, made.n))
    a = gp.maximize(
        g.objective(), gp.GreedyPIG(rounds=rounds, schedule=schedule, steps=1), features=made
    )
    assert len(a.picks) == a.gradients_used == rounds
    assert a.stop is gp.StopReason.ALL
    chosen = a.order[: a.selected].tolist()
    assert len(set(chosen)) == len(chosen)
    assert set.union(*(sets[u] for u in chosen)) == set(range(made.n))


def test_windows_side_by_side_are_a_grid():
    g = modular(normal(5, 48))
    rows, columns = torch.arange(6).view(6, 1) // 2, torch.arange(8) // 2
    grid = gp.Groups(rows * 4 + columns)
    for knobs in ({"rounds": 5}, {"rounds": 4, "schedule": "geometric"}, {"per_round": 5}):
        a, b = (
            gp.maximize(g.objective(), gp.GreedyPIG(**knobs), features=f)
            for f in (gp.Windows((6, 8), 2, stride=2), grid)
        )
        assert a.picks == b.picks
        assert torch.equal(a.order, b.order)
        assert torch.allclose(a.feature_scores, b.feature_scores, atol=1e-12)


@pytest.mark.parametrize(
    ("ids", "error"),
    [
        (torch.tensor([0, 2, 2]), gp.InvalidInput),
        (torch.tensor([1, 2]), gp.InvalidInput),
        (torch.tensor([-1, 0, 1]), gp.InvalidInput),
        (torch.tensor([-2, -1]), gp.InvalidInput),
        (torch.tensor([], dtype=torch.long), gp.InvalidInput),
        (torch.tensor([0.0, 1.0]), gp.InvalidType),
        (torch.tensor([False, True]), gp.InvalidType),
        (torch.tensor([0j, 1]), gp.InvalidType),
    ],
)
def test_group_ids_must_count_from_0_without_gaps(ids, error):
    with pytest.raises(error):
        gp.Groups(ids)


@pytest.mark.parametrize(
    "knobs",
    [
        {"size": 0},
        {"size": -1},
        {"size": 5},
        {"size": 2.0},
        {"size": 2, "stride": 0},
        {"size": 2, "axes": (2,)},
        {"size": 2, "axes": (-3,)},
        {"size": 2, "axes": (0, 0)},
        {"size": 2, "axes": ()},
    ],
)
def test_windows_that_do_not_fit_are_refused(knobs):
    with pytest.raises(gp.InvalidInput):
        gp.Windows((4, 6), **knobs)


def test_names_follow_the_order():
    features = gp.Elements(3, names=["age", "height", "shoe size"])
    a = gp.maximize(modular([1, 3, 2]).objective(), gp.IG(), features=features)
    assert a.top(2) == ["height", "shoe size"]
    assert gp.maximize(modular([1, 3, 2]).objective(), gp.IG()).top(3) == [1, 2, 0]


@pytest.mark.parametrize(
    "make",
    [
        lambda names: gp.Elements(3, names),
        lambda names: gp.Groups(torch.tensor([0, 1, 2, 2]), names),
        lambda names: gp.Windows((4,), 2, names=names),
    ],
)
def test_there_must_be_one_name_per_feature(make):
    assert make(["a", "b", "c"]).names[1] == "b"
    with pytest.raises(gp.InvalidInput, match="2 names for 3 features"):
        make(["a", "b"])


def test_features_must_be_over_the_objective_s_values():
    with pytest.raises(gp.InvalidInput, match="over 3 values"):
        gp.maximize(modular([1, 2, 3]).objective(), gp.GreedyPIG(), features=gp.Elements(4))


def test_random_takes_no_window_that_switches_nothing_on():
    # Windows {0,1}, {1,2}, {2,3} of 4 values: after the outer two, the middle one is on.
    method, features = gp.Greedy(gp.Random(), rounds=1), gp.Windows((4,), 2)
    for seed in range(5):
        on = torch.zeros(4).bool()
        g = modular([3.0, 1.0, 1.0, 3.0])
        run = gp.rounds(g.objective(), method, features=features, seed=seed)
        for chosen in next(run).order[0].tolist():
            values = values_of(features, chosen)
            assert bool((values & ~on).any())
            on |= values


def test_marginal_gains_of_windows_that_overlap_are_refused():
    with pytest.raises(gp.InvalidInput, match="overlap"):
        gp.maximize(
            modular([3, 1, 2]).objective(), gp.MarginalGains(), features=gp.Windows((3,), 2)
        )


@given(st.one_of(element_cases(), group_cases()), st.integers(0, 10**6))
def test_scores_of_whole_features_come_back_from_their_values(case, seed):
    features, _ = case
    scores = torch.rand(2, features.count, generator=generator(seed))
    assert torch.equal(features.sum(features.spread(scores)), scores)
