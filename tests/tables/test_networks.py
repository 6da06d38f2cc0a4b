"""Every way by which a mask reaches a model's columns is the same function, gradient and all."""

import copy

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from worlds import Plain, cut, deep, mixed, regression

import greedypig as gp
from agreement import agree
from greedypig.network.distributed import ALONE
from greedypig.tables import losses
from greedypig.tables.baseline import set_baseline
from greedypig.tables.networks import network_for
from greedypig.tables.objective import TableObjective
from greedypig.tables.stream import feed


def objective(model, batches, loss="binary-cross-entropy", baseline="zero", fast=True):
    source = feed(batches, 0, ALONE)
    network = network_for(model, source, *losses.resolve(loss), None)
    if not fast:
        network.layers = None
    set_baseline(network, baseline, source.all(), ALONE)
    return TableObjective(network, source, ALONE)


def masks_of_rounds(n):
    """No column, some, all but one."""
    mask = torch.zeros(3, n, dtype=torch.float64)
    mask[1, [0, 3]] = 1
    mask[2, 1:] = 1
    return mask


NODES = torch.tensor([0.1, 0.5, 0.9], dtype=torch.float64)
WEIGHTS = torch.tensor([0.3, 0.5, 0.2], dtype=torch.float64)


def path(table, mask):
    """Σ_k weights_k · ∇g at the points of the path from a mask (n,) to everything."""
    points = mask + NODES.unsqueeze(1) * (1 - mask)
    return table.gradient(points[None], WEIGHTS)[0]


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("baseline", ["zero", "mean"])
def test_the_fast_path_of_a_tabular_mlp_is_autograds(outputs, baseline):
    numbers, ids, y = mixed(rows=1100, classes=2 if outputs == 1 else 3)  # More than one chunk.
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(16, 8, 4), outputs=outputs).double()
    batches = cut((numbers.double(), ids), y, 550)
    loss = "binary-cross-entropy" if outputs == 1 else "cross-entropy"
    fast = objective(model, batches, loss, baseline)
    assert fast.network.layers is not None
    slow = objective(model, batches, loss, baseline, fast=False)
    assert slow.network.layers is None
    for mask in masks_of_rounds(7):
        torch.testing.assert_close(path(fast, mask), path(slow, mask))


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("end", ["relu", "tanh", "batchnorm"])
def test_the_fast_path_of_a_chain_of_layers_is_autograds(bias, end):
    _, x, y = regression()
    model = deep(dtype=torch.float64)
    if not bias:
        model[0].bias = model[2].bias = None
    if end == "tanh":
        model[3] = nn.Tanh()
    if end == "batchnorm":
        model.insert(1, nn.BatchNorm1d(12, dtype=torch.float64))
    fast = objective(model, cut(x, y), "squared-error")
    slow = objective(model, cut(x, y), "squared-error", fast=False)
    assert fast.network.layers is not None
    assert slow.network.layers is None
    for mask in masks_of_rounds(6):
        torch.testing.assert_close(path(fast, mask), path(slow, mask))
    masks = torch.cat([masks_of_rounds(6), torch.eye(6).double(), torch.rand(2, 6).double()])
    torch.testing.assert_close(fast.values(masks[None]), slow.values(masks[None]))


def test_the_gradient_of_a_path_is_the_weighted_sum_of_its_points():
    _, x, y = regression()
    table = objective(deep(dtype=torch.float64), cut(x, y), "squared-error")
    mask = masks_of_rounds(6)[1]
    points = mask + NODES.unsqueeze(1) * (1 - mask)
    gradients = table.values_and_gradients(points[None])[1][0]
    torch.testing.assert_close(path(table, mask), WEIGHTS @ gradients)


def test_any_algorithm_of_the_core_runs_on_a_tables_objective():
    _, x, y = regression()
    model, batches = deep(dtype=torch.float64), cut(x, y)
    direct = gp.maximize(
        objective(model, batches, "squared-error"), gp.GreedyPIG(per_round=1, steps=5)
    )
    a = gp.select_features(model, batches, loss="squared-error")
    agree(a, direct)


@pytest.mark.parametrize("copies", [False, True])
def test_hooks_on_embeddings_do_what_gates_by_hand_do(copies):
    numbers, ids, y = mixed()
    model = Plain(copies=copies)
    table = objective(model, cut((numbers, ids), y))
    masks = torch.rand(4, 7, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    values, gradients = (each[0] for each in table.values_and_gradients(masks[None]))

    def by_hand(gates):
        out = model.gated(numbers, ids, gates.float()).squeeze(1)
        return -functional.binary_cross_entropy_with_logits(out, y.float())

    for mask, value, gradient in zip(masks, values, gradients, strict=True):
        leaf = mask.clone().requires_grad_(True)
        expected = by_hand(leaf)
        torch.testing.assert_close(value, expected.detach().double(), rtol=1e-5, atol=1e-6)
        expected.backward()
        torch.testing.assert_close(gradient, leaf.grad, rtol=1e-4, atol=1e-6)


def test_equal_columns_of_ids_are_told_apart_by_trying():
    numbers, ids, y = mixed(sizes=(9, 9, 9))
    ids = ids[:, :1].expand(-1, 3).contiguous()
    model = Plain(sizes=(9, 9, 9))
    network = objective(model, cut((numbers, ids), y)).network
    assert network.column_of.tolist() == [0, 1, 2, 3, 4, 4, 4, 5, 5, 5, 6, 6, 6]


@pytest.mark.parametrize("words", [1, 4])
def test_one_embedding_for_all_columns_and_bags_of_one_id_are_gated_too(words):
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.one = nn.Embedding(20, 2)
            self.bag = nn.EmbeddingBag(6, 3)
            self.out = nn.Linear(4 + 3 + 1, 1)

        def forward(self, number, ids, word):
            seen = self.one(ids + torch.tensor([0, 10])).flatten(1)
            return self.out(torch.cat([number.unsqueeze(1), seen, self.bag(word)], dim=1))

    generator = torch.Generator().manual_seed(0)
    features = {
        "number": torch.randn(60, generator=generator),
        "ids": torch.randint(10, (60, 2), generator=generator),
        "word": torch.randint(6, (60, words), generator=generator),
    }
    model, y = Shared(), torch.randint(2, (60,), generator=generator)
    if words > 1:
        with pytest.raises(gp.InvalidInput, match="bags a single id"):
            gp.select_features(model, [(features, y)])
        return
    table = objective(model, [(features, y)])
    assert table.network.table.names == ("number", "ids[0]", "ids[1]", "word")
    assert table.network.column_of.tolist() == [0, 1, 1, 2, 2, 3, 3, 3]
    off = torch.tensor([[1.0, 1, 0, 1]]).double()
    seen = model.one(features["ids"] + torch.tensor([0, 10]))
    seen = torch.cat([seen[:, 0], torch.zeros(60, 2)], dim=1)
    parts = [features["number"].unsqueeze(1), seen, model.bag(features["word"])]
    out = model.out(torch.cat(parts, dim=1)).squeeze(1)
    expected = -functional.binary_cross_entropy_with_logits(out, y.float())
    assert float(table.values(off[None])[0, 0]) == pytest.approx(float(expected), rel=1e-5)


def test_a_category_that_no_embedding_looks_up_is_named():
    class Ignores(Plain):
        def forward(self, numbers, ids):
            return super().forward(numbers, ids[:, [0, 1, 1]] % 3)

    numbers, ids, y = mixed()
    with pytest.raises(gp.InvalidInput, match="none for 'c'"):
        gp.select_features(Ignores(), cut((numbers, ids), y), names=[*"wxyzabc"])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Plain(),
        lambda: gp.models.TabularMLP(4, [5, 9, 3], hidden=(8, 4)),
    ],
)
@pytest.mark.parametrize("fails", [False, True])
def test_nothing_is_left_behind_on_the_model(make, fails):
    numbers, ids, y = mixed()
    model = make().train()
    before = copy.deepcopy(model.state_dict())
    batches = cut((numbers, ids), y)
    if fails:
        batches[3] = (batches[3][0], batches[3][1] * float("nan"))
        with pytest.raises(gp.InvalidInput, match="label"):
            gp.select_features(model, batches)
    else:
        gp.select_features(model, batches, k=2)
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert not any(m._forward_hooks for m in model.modules())
    assert all(torch.equal(before[k], v) for k, v in model.state_dict().items())


def test_a_model_that_cannot_be_copied_loses_its_hooks_again():
    class Single(Plain):
        def __deepcopy__(self, memo):
            raise TypeError("only one of me")

    numbers, ids, y = mixed()
    model = Single().train()
    a = gp.select_features(model, cut((numbers, ids), y))
    b = gp.select_features(Plain(), cut((numbers, ids), y))
    assert torch.equal(a.feature_scores, b.feature_scores)
    assert model.training
    assert not any(m._forward_hooks for m in model.modules())


def test_a_model_of_ones_own_with_gates_is_asked_with_gates():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Plain()

        def forward(self, numeric, categorical, gates=None):
            if gates is None:
                return self.inner(numeric, categorical)
            return self.inner.gated(numeric, categorical, gates)

    numbers, ids, y = mixed()
    batches = cut((numbers, ids), y)
    a = gp.select_features(Own(), batches)
    b = gp.select_features(Plain(), batches)
    agree(a, b)
    with pytest.raises(gp.InvalidInput, match="gates its columns itself"):
        gp.select_features(Own(), batches, baseline="mean")


@pytest.mark.parametrize("kind", ["dense", "hooks", "fast"])
def test_at_the_mean_an_empty_set_is_the_mean_row(kind):
    numbers, ids, y = mixed()
    numbers = numbers + 2
    if kind == "dense":
        model, features = nn.Linear(4, 1), numbers
        expected = model(numbers.mean(0, keepdim=True)).expand(240, 1)
    else:
        model = Plain() if kind == "hooks" else gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,))
        features = (numbers, ids)
        if kind == "hooks":
            rows = torch.cat([numbers, *(t(ids[:, j]) for j, t in enumerate(model.tables))], dim=1)
            expected = model.head(rows.mean(0, keepdim=True)).expand(240, 1)
        else:
            mean = model.inputs(numbers, ids).mean(0)
            expected = model.rest(model.first(mean)).expand(240, 1)
    loss = -functional.binary_cross_entropy_with_logits(expected.squeeze(1), y.float())
    table = objective(model, cut(features, y), baseline="mean")
    nothing = torch.zeros(1, table.n, dtype=torch.float64)
    assert float(table.values(nothing[None])[0, 0]) == pytest.approx(float(loss), rel=1e-5)


@pytest.mark.parametrize("kind", ["hooks", "fast"])
def test_a_number_for_each_column_stands_for_its_absence(kind):
    """Of a category the number is the id that is looked up instead."""
    numbers, ids, y = mixed()
    model = Plain() if kind == "hooks" else gp.models.TabularMLP(4, [5, 9, 3], hidden=(8,))
    rest = [0.5, -1.0, 0.0, 2.0, 1, 7, 2]
    table = objective(model, cut((numbers, ids), y), baseline=rest)
    nothing = torch.zeros(1, 7, dtype=torch.float64)
    row = model(torch.tensor([rest[:4]]), torch.tensor([[1, 7, 2]])).expand(240, 1)
    loss = -functional.binary_cross_entropy_with_logits(row.squeeze(1), y.float())
    assert float(table.values(nothing[None])[0, 0]) == pytest.approx(float(loss), rel=1e-5)


def test_a_baseline_that_cannot_be_is_named():
    model, x, y = regression()
    for baseline, said in (
        ("mena", "Did you mean 'mean'"),
        ([1.0, 2.0], "each of the 6 columns"),
        ({"a": 1.0}, "a number for each column"),
    ):
        with pytest.raises((gp.InvalidInput, gp.InvalidType), match=said):
            gp.select_features(model, cut(x, y), loss="squared-error", baseline=baseline)


def test_parameters_get_no_gradients_and_embeddings_are_looked_up_once(monkeypatch):
    numbers, ids, y = mixed()
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(8, 4))
    looked_up = []
    plain = gp.models.TabularMLP.inputs
    monkeypatch.setattr(
        gp.models.TabularMLP,
        "inputs",
        lambda self, *a: (looked_up.append(len(a[0])), plain(self, *a))[1],
    )
    counts = []
    more = {"budget": 7 * 5 * 2, "progress": lambda *_: counts.append(len(looked_up))}
    gp.select_features(model, cut((numbers, ids), y, 60), **more)
    # One for each of 14 batches, none more for their five points.
    assert counts[-1] - counts[0] == 14


def test_a_subclass_with_a_way_of_its_own_is_asked_and_not_cut_open():
    class Doubled(gp.models.TabularMLP):
        def forward(self, numeric, categorical=None, gates=None):
            return 2 * super().forward(numeric, categorical, gates)

    numbers, ids, y = mixed()
    model = Doubled(4, [5, 9, 3], hidden=(8, 4))
    table = objective(model, cut((numbers, ids), y))
    assert table.network.gates_itself
    everything = torch.ones(1, 7, dtype=torch.float64)
    expected = -functional.binary_cross_entropy_with_logits(
        model(numbers, ids).squeeze(1), y.float()
    )
    torch.testing.assert_close(table.values(everything[None])[0, 0], expected.detach().double())


@given(
    columns=st.integers(1, 7),
    hidden=st.integers(1, 6),
    rows=st.integers(1, 9),
    seed=st.integers(0, 999),
    data=st.data(),
)
def test_any_path_of_any_small_network_is_autograds(columns, hidden, rows, seed, data):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, columns, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (rows,), generator=generator)
    model = nn.Sequential(
        nn.Linear(columns, hidden), nn.ReLU(), nn.Linear(hidden, 1), nn.Identity()
    ).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    taken = data.draw(st.lists(st.booleans(), min_size=columns, max_size=columns))
    mask = torch.tensor(taken, dtype=torch.float64)
    rest = torch.randn(columns, generator=generator, dtype=torch.float64)
    fast = objective(model, [(x, y)], baseline=rest)
    slow = objective(model, [(x, y)], baseline=rest, fast=False)
    torch.testing.assert_close(path(fast, mask), path(slow, mask))
    torch.testing.assert_close(fast.values(mask[None, None]), slow.values(mask[None, None]))


def test_a_column_of_one_category_has_an_embedding_of_one_row():
    """No other id can be tried on it; it is found all the same, and worth nothing to select."""

    class Sparse(nn.Module):
        def __init__(self):
            super().__init__()
            self.only, self.some = nn.Embedding(1, 2), nn.Embedding(4, 2)

        def forward(self, x, ids):
            return (x[:, 0] + self.only(ids[:, 0]).sum(1) + self.some(input=ids[:, 1]).sum(1))[
                :, None
            ]

    x, ids = torch.zeros(40, 1), torch.zeros(40, 2, dtype=torch.long)
    ids[:, 1] = torch.arange(40) % 4
    model = Sparse()
    with torch.no_grad():
        model.some.weight.copy_(torch.tensor([[-3.0, 0], [3, 0], [-3, 0], [3, 0]]))
    with pytest.warns(UserWarning, match="constant"):
        a = gp.select_features(
            model, [((x, ids), torch.arange(40) % 2)], names=["x", "one", "four"]
        )
    assert a.top(1) == ["four"]
