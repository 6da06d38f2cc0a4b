"""The network for tables: gates, and categories it has never seen."""

import pytest
import torch

import greedypig as gp


def rows(model, count=6, seed=0):
    generator = torch.Generator().manual_seed(seed)
    ids = [torch.randint(s, (count,), generator=generator) for s in model.vocabularies]
    return torch.randn(count, model.numeric, generator=generator), torch.stack(ids, dim=1)


def test_the_papers_network_has_its_layers():
    model = gp.models.TabularMLP(13, [10] * 26)
    widths = [m.out_features for m in model.rest if isinstance(m, torch.nn.Linear)]
    assert (model.first.in_features, model.first.out_features) == (13 + 26 * 8, 768)
    assert widths == [256, 128, 1]
    assert model.n_columns == 39


def test_open_gates_change_nothing_and_shut_gates_leave_zeros():
    model = gp.models.TabularMLP(3, [5, 7], hidden=(8, 4))
    numeric, categorical = rows(model)
    whole = model(numeric, categorical)
    assert torch.equal(model(numeric, categorical, gates=torch.ones(5)), whole)
    shut = model(numeric, categorical, gates=torch.zeros(6, 5))
    assert torch.equal(shut, model.rest(model.first(torch.zeros(6, 19))))


@pytest.mark.parametrize("column", range(5))
def test_a_shut_gate_hides_its_column_and_no_other(column):
    model = gp.models.TabularMLP(3, [5, 7], hidden=(8, 4))
    numeric, categorical = rows(model)
    gates = torch.ones(5)
    gates[column] = 0
    before = model(numeric, categorical, gates=gates)
    for changed in range(5):
        moved, ids = numeric.clone(), categorical.clone()
        if changed < 3:
            moved[:, changed] += 1
        else:
            ids[:, changed - 3] = (ids[:, changed - 3] + 1) % 5
        same = torch.equal(model(moved, ids, gates=gates), before)
        assert same == (changed == column)


def test_unseen_categories_share_buckets_that_say_nothing_at_first():
    model = gp.models.TabularMLP(0, [5, 7], buckets=3)
    ids = torch.tensor([[5, 0], [-1, 0], [2**62, 0], [-(2**63), 0], [4, 0]])
    places = model.places(ids)[:, 0]
    assert set(places[:4].tolist()) <= {5, 6, 7}
    assert places[4] == 4
    inputs = model.inputs(None, ids)
    assert not inputs[:4, :8].any()
    assert inputs[4, :8].any()
    assert torch.equal(model.places(ids), model.places(ids.clone()))


def test_hashing_spreads_over_the_buckets_and_stays_in_its_column():
    model = gp.models.TabularMLP(0, [10, 10], buckets=8)
    ids = torch.arange(10, 4010).unsqueeze(1).expand(-1, 2)
    places = model.places(ids)
    counts = torch.bincount(places[:, 0], minlength=18)[10:18]
    assert counts.min() > 400
    assert counts.max() < 600
    assert int(places[:, 1].min()) >= 18 + 10


def test_a_seed_means_one_network_and_the_global_generator_is_left_alone():
    torch.manual_seed(3)
    before = torch.get_rng_state()
    a, b, c = (gp.models.TabularMLP(2, [5], seed=s) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert not torch.equal(a.first.weight, c.first.weight)


def test_numbers_alone_and_categories_alone_will_do():
    assert gp.models.TabularMLP(3, outputs=4)(torch.zeros(2, 3)).shape == (2, 4)
    assert gp.models.TabularMLP(0, [4], hidden=())(None, torch.zeros(2, 1).long()).shape == (2, 1)


def test_what_does_not_fit_is_named():
    model = gp.models.TabularMLP(3, [5])
    with pytest.raises(gp.InvalidInput, match=r"numeric of shape \(rows, 3\)"):
        model(torch.zeros(2, 4), torch.zeros(2, 1).long())
    with pytest.raises(gp.InvalidInput, match="categorical"):
        model(torch.zeros(2, 3))
    with pytest.raises(gp.InvalidType, match="whole numbers"):
        model(torch.zeros(2, 3), torch.zeros(2, 1))
    with pytest.raises(gp.InvalidInput, match="at least one column"):
        gp.models.TabularMLP(0)
    with pytest.raises(gp.InvalidInput, match="widths"):
        gp.models.TabularMLP(1, hidden=(0,))


def test_a_missing_number_is_told_from_the_mean_and_gated_with_its_column():
    net = gp.models.TabularMLP(3, [5], hidden=(8,), gaps=(2, 0), seed=1)
    assert net.column_of.tolist() == [0, 1, 2, 2, 0, *[3] * 8]
    there = torch.tensor([[1e-30, 0.0, 1e-30]])
    missing = torch.zeros(1, 3)
    ids = torch.tensor([[2]])
    seen = [net.inputs(x, ids)[0, :5] for x in (there, missing)]
    assert torch.stack(seen)[:, 3:].tolist() == [[0, 0], [1, 1]]
    assert not torch.allclose(net(there, ids), net(missing, ids))
    closed = torch.tensor([0.0, 1, 0, 1])
    torch.testing.assert_close(net(there, ids, closed), net(missing, ids, closed))


@pytest.mark.parametrize("gaps", [(3,), (-1,), (1, 1)])
def test_gaps_are_number_columns(gaps):
    with pytest.raises(ValueError, match="gaps as different number columns from 0 to 2"):
        gp.models.TabularMLP(3, gaps=gaps)
