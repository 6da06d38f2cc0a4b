"""baseline="conditional": absent columns are what the others let one expect, and copies no news."""

import numpy as np
import pytest
import torch
from torch import nn

import greedypig as gp
from agreement import agree
from greedypig.models import TabularMLP
from greedypig.network.distributed import ALONE
from greedypig.tables import losses
from greedypig.tables.baseline import set_baseline
from greedypig.tables.networks import network_for
from greedypig.tables.stream import feed

N = 4000


def correlated(columns=6, seed=0, offset=3.0):
    random = np.random.default_rng(seed)
    mixing = random.normal(size=(columns, columns))
    x = random.normal(size=(N, columns)) @ mixing + offset * random.normal(size=columns)
    y = x @ random.normal(size=columns) + random.normal(size=N)
    return x, y


def batches(x, y, size=500):
    x, y = torch.as_tensor(x), torch.as_tensor(y)
    return [(x[lo : lo + size], y[lo : lo + size]) for lo in range(0, len(x), size)]


def least_squares(x, y):
    """(linear layer, mean squared error) of the regression with an intercept."""
    one = np.column_stack([x, np.ones(len(x))])
    solved = np.linalg.lstsq(one, y, rcond=None)[0]
    layer = nn.Linear(x.shape[1], 1, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(solved[:-1])[None])
        layer.bias.fill_(solved[-1])
    return layer, float(((one @ solved - y) ** 2).mean())


def network(model, rows, loss="squared-error", fast=True):
    name, function = losses.resolve(loss)
    source = feed(rows, 0, ALONE)
    made = network_for(model, source, name, function, None)
    if not fast:
        made.layers = None
    set_baseline(made, "conditional", source.all(), ALONE)
    return made, made.encoded(made.example)


def test_g_of_a_linear_model_is_the_loss_of_one_fitted_anew(monkeypatch):
    """E[Xb | X_S] is the projection on X_S of what was projected on X: the projection on X_S."""
    x, y = correlated()
    model, _ = least_squares(x, y)
    monkeypatch.setattr("greedypig.tables.baseline.ridge_for", lambda *_: 1e-12)
    a = gp.select_features(model, batches(x, y), loss="squared-error", baseline="conditional")
    order = a.order.tolist()
    anew = [float(y.var())] + [least_squares(x[:, order[:k]], y)[1] for k in range(1, 7)]
    assert (-a.values).tolist() == pytest.approx(anew, rel=1e-8)


def test_scores_of_a_linear_model_are_what_a_new_fit_would_gain(monkeypatch):
    """Even where columns are correlated: the order is that of forward selection."""
    monkeypatch.setattr("greedypig.tables.baseline.ridge_for", lambda *_: 1e-12)
    x, y = correlated()
    model, _ = least_squares(x, y)
    a = gp.select_features(model, batches(x, y), loss="squared-error", baseline="conditional")
    taken, left = [], list(range(6))
    for pick in a.order.tolist():
        now = float(y.var()) if not taken else least_squares(x[:, taken], y)[1]
        gains = {j: now - least_squares(x[:, [*taken, j]], y)[1] for j in left}
        assert pick == max(gains, key=gains.get)
        assert float(a.scores[pick]) == pytest.approx(gains[pick], rel=1e-6)
        taken.append(pick)
        left.remove(pick)


def test_a_column_that_tells_of_others_counts_for_what_it_tells():
    """The model reads four noisy views of z; z, which it does not read, tells of them all."""
    random = np.random.default_rng(0)
    z, other = random.normal(size=(2, N))
    views = z[:, None] + 0.5 * random.normal(size=(N, 4))
    x = np.column_stack([views, other, z])
    model = nn.Linear(6, 1, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[0.25, 0.25, 0.25, 0.25, 0.5, 0.0]]))
        model.bias.zero_()
    rows = batches(x, views.mean(1) + 0.5 * other)
    first = {
        baseline: gp.select_features(model, rows, loss="squared-error", baseline=baseline, k=2)
        .order[:2]
        .tolist()
        for baseline in ("mean", "conditional")
    }
    assert first["conditional"] == [5, 4]
    assert 5 not in first["mean"]


@pytest.mark.parametrize(("baseline", "copies"), [("mean", 3), ("conditional", 1)])
def test_a_copy_of_what_is_selected_is_no_news(baseline, copies):
    """f = 2 a + 2 a' + 2 a'' + 0.9 b + 0.8 c uses all copies; one tells what the others do."""
    random = np.random.default_rng(0)
    a, b, c = random.normal(size=(3, N))
    x = np.column_stack([a, b, a, c, a])
    model = nn.Linear(5, 1, dtype=torch.float64)
    with torch.no_grad():
        model.weight.copy_(torch.tensor([[2.0, 0.9, 2.0, 0.8, 2.0]]))
        model.bias.zero_()
    y = 6 * a + 0.9 * b + 0.8 * c
    found = gp.select_features(model, batches(x, y), loss="squared-error", baseline=baseline)
    first = found.order.tolist()[:3]
    assert sum(column in (0, 2, 4) for column in first) == copies
    if baseline == "conditional":
        assert {1, 3} < set(first)
        assert abs(float(found.values[3])) < 1e-3 * abs(float(found.values[0]))  # All is told.


def small_mlp(columns, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(columns, 16), nn.ReLU(), nn.Linear(16, 1)).double()


def test_the_fast_way_is_what_autograd_finds():
    x, y = correlated()
    rows, model = batches(x, y), small_mlp(6)
    quick, batch = network(model, rows)
    plain, same = network(model, rows, fast=False)
    assert quick.layers is not None
    assert plain.layers is None
    nodes, weights = torch.tensor([0.0, 0.5, 1.0]).double(), torch.tensor([0.3, 0.3, 0.4]).double()
    for taken in ([], [2], [0, 3, 5]):
        mask = torch.zeros(6, dtype=torch.float64)
        mask[taken] = 1
        points = mask + nodes.unsqueeze(1) * (1 - mask)
        ours = quick.gradient(batch, points, weights)
        theirs = plain.gradient(same, points, weights)
        left = mask == 0
        assert torch.allclose(ours[left], theirs[left], rtol=1e-9)
        masks = torch.stack([mask, torch.ones(6, dtype=torch.float64)])
        assert torch.allclose(quick.values(batch, masks), plain.values(same, masks), rtol=1e-9)


class Own(nn.Module):
    """What TabularMLP does, with an embedding that has to be found."""

    def __init__(self, of: TabularMLP) -> None:
        super().__init__()
        self.table, self.first, self.rest = of.table, of.first, of.rest
        self.register_buffer("start", of.offsets)

    def forward(self, numeric, categorical):
        looked = self.table(categorical + self.start).flatten(1)
        return self.rest(self.first(torch.cat([numeric, looked], dim=1)))


def test_embeddings_are_expected_where_they_come_out():
    random = torch.Generator().manual_seed(0)
    hidden = torch.randn(1000, generator=random)
    ids = torch.stack(
        [(hidden > 0).long() + (hidden > 1), torch.randint(0, 4, (1000,), generator=random)], dim=1
    )
    numeric = torch.stack([hidden, torch.randn(1000, generator=random)], dim=1)
    label = (hidden + torch.randn(1000, generator=random) > 0).float()
    rows = [
        ((numeric[i : i + 250], ids[i : i + 250]), label[i : i + 250]) for i in range(0, 1000, 250)
    ]
    model = TabularMLP(2, (3, 4), hidden=(16, 8), seed=2).double()
    with torch.no_grad():
        model.table.weight.normal_(generator=random)
    results = [
        gp.select_features(asked, rows, baseline="conditional") for asked in (model, Own(model))
    ]
    agree(*results)


def test_integrated_gradients_start_at_the_mean():
    """Nothing is there, so nothing is expected but the mean."""
    x, y = correlated()
    model, rows = small_mlp(6), batches(x, y)
    mean, ours = (
        gp.select_features(model, rows, loss="squared-error", method="ig", baseline=baseline)
        for baseline in ("mean", "conditional")
    )
    assert torch.allclose(mean.scores, ours.scores, rtol=1e-6)


def test_columns_that_never_move_and_weights_of_rows():
    x, y = correlated(4)
    x[:, 1] = 1e6
    model = least_squares(x, y)[0]
    some = torch.as_tensor(np.random.default_rng(0).random(N))
    rows = [(b, lab, w) for (b, lab), w in zip(batches(x, y), some.split(500), strict=True)]
    twice = [(b[w > 0.5], lab[w > 0.5]) for b, lab, w in rows]
    chosen = [(b, lab, (w > 0.5).double()) for b, lab, w in rows]
    with pytest.warns(UserWarning, match="constant"):
        found = [
            gp.select_features(model, r, loss="squared-error", baseline="conditional")
            for r in (twice, chosen)
        ]
    agree(*found)
    assert float(found[0].scores[1]) == 0


class Gated(nn.Module):
    def forward(self, x, gates=None):
        return (x if gates is None else x * gates).sum(1)


class Weighed(nn.Module):
    """A bag whose ids are weighed by the numbers."""

    def __init__(self):
        super().__init__()
        self.bag, self.out = nn.EmbeddingBag(5, 3, mode="sum"), nn.Linear(3, 1)

    def forward(self, numeric, ids):
        return self.out(self.bag(ids, per_sample_weights=numeric))


def test_numbers_far_from_zero_keep_their_spread():
    """Seconds since 1970 within a quarter of an hour."""
    random = np.random.default_rng(0)
    x = random.normal(size=(N, 3))
    y = x @ np.array([3.0, 1.0, 0.5])
    far = x.copy()
    far[:, 0] = 1.7e9 + 250 * x[:, 0]

    class Standardised(nn.Module):
        def forward(self, rows):
            first = (rows[:, 0] - 1.7e9) / 250
            return 3 * first + rows[:, 1] + 0.5 * rows[:, 2]

    class Plain(nn.Module):
        def forward(self, rows):
            return 3 * rows[:, 0] + rows[:, 1] + 0.5 * rows[:, 2]

    ask = {"loss": "squared-error", "baseline": "conditional"}
    near = gp.select_features(Plain(), batches(x, y), **ask)
    away = gp.select_features(Standardised(), batches(far, y), **ask)
    assert away.order.tolist() == near.order.tolist() == [0, 1, 2]
    assert torch.allclose(away.scores, near.scores, rtol=1e-4)


def test_what_cannot_be_expected_is_refused(monkeypatch):
    x, y = correlated()
    rows = batches(x, y)
    weights, ids = torch.rand(40, 2), torch.randint(0, 5, (40, 2))
    with pytest.raises(gp.InvalidInput, match="without weights"):
        gp.select_features(Weighed(), [((weights, ids), torch.ones(40))], baseline="conditional")
    with pytest.raises(gp.InvalidInput, match="gates its columns itself"):
        gp.select_features(Gated(), rows, loss="squared-error", baseline="conditional")
    with pytest.raises(gp.InvalidInput, match="differ from row to row"):
        gp.mask_finetune(small_mlp(6), rows, loss="squared-error", baseline="conditional")
    with pytest.raises(gp.InvalidInput, match="'conditional'"):
        gp.select_features(small_mlp(6), rows, loss="squared-error", baseline="conditionl")
    monkeypatch.setattr("greedypig.tables.baseline.MOST", 5)
    with pytest.raises(gp.InvalidInput, match=r"at most 5 numbers .*got 6"):
        gp.select_features(small_mlp(6), rows, loss="squared-error", baseline="conditional")


def test_a_stopped_run_goes_on_to_the_same_end(tmp_path):
    x, y = correlated()
    ask = {"loss": "squared-error", "baseline": "conditional", "budget": 60}
    whole = gp.select_features(small_mlp(6), batches(x, y), k=4, **ask)

    ask["checkpoint"], stop = tmp_path / "c.gpig", gp.Stop(gradients=10)
    assert gp.select_features(small_mlp(6), batches(x, y), k=4, stop=stop, **ask).selected == 2
    with pytest.raises(gp.InvalidInput, match="baseline"):
        gp.select_features(small_mlp(6), batches(x, y), k=4, **ask | {"baseline": "mean"})
    again = gp.select_features(small_mlp(6), batches(x, y), k=4, **ask)
    assert torch.equal(again.order, whole.order)
    assert torch.equal(again.scores, whole.scores)
