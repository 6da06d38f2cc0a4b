"""Post-hoc selection on tables whose answers are known in closed form."""

import weakref

import pytest
import torch
from torch import nn
from torch.nn import functional
from worlds import Counting, Stream, cut, deep, mixed, regression

import greedypig as gp
from agreement import agree
from greedypig.core.errors import OtherQuestion
from greedypig.tables.stream import BUFFER

EACH = gp.GreedyPIG(per_round=1, steps=5, schedule="equal")


def full_batch_objective(model, x, y, loss):
    """G written down directly, for the core's own algorithms."""

    def g(masks):
        return torch.stack([-loss(model(x * mask), y).mean() for mask in masks])

    return gp.objective(g, x.shape[1], dtype=torch.float64)


def squared(outputs, labels):
    return (outputs.squeeze(1) - labels) ** 2


def test_linear_regression_is_ranked_by_the_size_of_its_weights():
    model, x, y = regression()
    a = gp.select_features(model, cut(x, y), loss="squared-error")
    assert a.order.tolist()[:4] == [0, 2, 3, 5]
    assert a.selected == 6
    assert float(a.values[0]) == pytest.approx(-float((y**2).mean()))
    assert a.full_value == pytest.approx(0, abs=1e-12)
    assert a.stop is gp.StopReason.ALL


def test_integrated_gradients_of_least_squares_are_the_papers_closed_form():
    """∫ ∇g(t·1) dt = ∫ 2 (1 − t) x ⊙ Aᵀb dt / rows = x ⊙ Aᵀb / rows at the solution x."""
    generator = torch.Generator().manual_seed(3)
    a = torch.randn(80, 5, generator=generator, dtype=torch.float64)
    b = torch.randn(80, generator=generator, dtype=torch.float64)
    solution = torch.linalg.lstsq(a, b.unsqueeze(1)).solution.squeeze(1)
    model = nn.Linear(5, 1, bias=False, dtype=torch.float64)
    model.weight.data[:] = solution
    found = gp.select_features(model, cut(a, b, 16), loss="squared-error", method=gp.IG(4))
    torch.testing.assert_close(found.feature_scores, solution * (a.T @ b) / 80)


@pytest.mark.parametrize("fast", [True, False])
def test_all_batches_for_every_gradient_is_algorithm_1_on_the_whole_table(fast):
    model, x = deep(dtype=torch.float64), regression()[1]
    y = torch.sin(x.sum(1))
    direct = gp.maximize(full_batch_objective(model, x, y, squared), EACH)
    asked = model if fast else lambda rows: model(rows)  # A callable shows no first layer.
    a = gp.select_features(asked, cut(x, y), loss="squared-error")
    agree(a, direct)
    assert a.gradients_used == direct.gradients_used == 30


def test_batches_of_unequal_size_count_by_their_rows():
    model, x = deep(dtype=torch.float64), regression()[1]
    y = torch.cos(x.sum(1))
    uneven = [(x[:7], y[:7]), (x[7:8], y[7:8]), (x[8:], y[8:])]
    a = gp.select_features(model, uneven, loss="squared-error")
    b = gp.select_features(model, [(x, y)], loss="squared-error")
    agree(a, b)


def test_the_discrete_greedy_takes_the_largest_marginal_gains():
    model, x = deep(dtype=torch.float64), regression()[1]
    y = torch.sin(x.sum(1))
    direct = gp.maximize(full_batch_objective(model, x, y, squared), "marginal-gains")
    a = gp.select_features(model, cut(x, y), loss="squared-error", method="marginal-gains")
    agree(a, direct)
    assert a.gradients_used == 0


def test_copies_of_a_column_fill_the_list_of_ig_and_not_that_of_greedy_pig():
    """A model that takes the largest of four copies needs one of them."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 6, generator=generator, dtype=torch.float64)
    x[:, 1:4] = x[:, :1]  # Columns 0 to 3 are one column, four times.

    def model(rows):
        return 16 * rows[:, :4].amax(1) + 2 * rows[:, 4] + rows[:, 5]

    batches = cut(x, model(x))
    ig = gp.select_features(model, batches, loss="squared-error", method="ig")
    assert sorted(ig.order.tolist()[:4]) == [0, 1, 2, 3]
    assert torch.allclose(ig.feature_scores[1:4], ig.feature_scores[:1])
    greedy = gp.select_features(
        model, batches, loss="squared-error", method=gp.GreedyPIG(per_round=1, steps=20)
    )
    assert greedy.order[0] in range(4)
    assert greedy.order.tolist()[1:3] == [4, 5]


def test_xor_needs_both_of_its_columns():
    """Neither column alone says anything; after either one the other is worth all."""
    x = torch.tensor([[a, b, c] for a in (-1.0, 1) for b in (-1.0, 1) for c in (-1.0, 1)])
    y = (x[:, 0] * x[:, 1] > 0).float()

    def model(rows):
        return 4 * rows[:, 0] * rows[:, 1]

    a = gp.select_features(model, [(x, y)], method=gp.GreedyPIG(per_round=1, steps=9))
    assert sorted(a.order.tolist()[:2]) == [0, 1]
    assert float(a.values[1]) == pytest.approx(float(a.values[0]))
    assert float(a.values[2]) > float(a.values[0]) + 0.5


def test_permuted_columns_are_ranked_as_before():
    model, x = deep(dtype=torch.float64), regression()[1]
    y = (model(x).squeeze(1) > model(x).median()).double()
    order = torch.tensor([3, 5, 0, 1, 4, 2])
    other = deep(dtype=torch.float64)
    other[0].weight.data = model[0].weight.data[:, order].clone()
    a = gp.select_features(model, cut(x, y))
    b = gp.select_features(other, cut(x[:, order], y))
    assert order[b.order].tolist() == a.order.tolist()


@pytest.mark.parametrize(
    ("loss", "outputs", "direct"),
    [
        (
            "binary-cross-entropy",
            1,
            lambda o, y: functional.binary_cross_entropy_with_logits(
                o.squeeze(1), y.float(), reduction="none"
            ),
        ),
        ("cross-entropy", 3, lambda o, y: functional.cross_entropy(o, y, reduction="none")),
        ("squared-error", 1, lambda o, y: (o.squeeze(1) - y) ** 2),
        (lambda o, y: (o.squeeze(1) - y).abs(), 1, lambda o, y: (o.squeeze(1) - y).abs()),
    ],
    ids=["binary", "classes", "squared", "own"],
)
def test_every_loss_is_climbed_as_written_down(loss, outputs, direct):
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(90, 6, generator=generator, dtype=torch.float64)
    y = torch.randint(2 if outputs == 1 else 3, (90,), generator=generator)
    model = deep(outputs=outputs, dtype=torch.float64)
    expected = gp.maximize(full_batch_objective(model, x, y, direct), EACH)
    a = gp.select_features(model, cut(x, y, 30), loss=loss)
    agree(a, expected)


def test_a_loss_that_returns_the_mean_is_the_same_loss():
    model, x, y = regression()
    rows = gp.select_features(model, cut(x, y), loss=squared)
    mean = gp.select_features(model, cut(x, y), loss=lambda o, t: squared(o, t).mean())
    torch.testing.assert_close(rows.feature_scores, mean.feature_scores)


def test_a_model_on_another_scale_of_classes_is_refused_by_name():
    model, x, _ = regression()
    with pytest.raises(gp.InvalidInput, match="labels 0 and 1"):
        gp.select_features(model, cut(x, torch.full((400,), 2)))


@pytest.mark.parametrize("method", [None, "sequential-gradient", "ig"])
@pytest.mark.parametrize("kind", ["indexed", "streamed"])
def test_the_budget_is_what_is_read(method, kind):
    model, x, y = regression()
    batches = cut(x, y, 10)
    source = Counting(batches) if kind == "indexed" else Stream(batches)
    steps = {None: 5, "sequential-gradient": 1, "ig": 50}[method]
    rounds = 1 if method == "ig" else 6
    budget = 50 * 5 * 3
    a = gp.select_features(model, source, loss="squared-error", method=method, budget=budget)
    per_gradient = budget // steps / rounds
    spent = sum(
        budget // steps * (r + 1) // rounds - budget // steps * r // rounds for r in range(rounds)
    )
    assert a.about.gradient_batches == spent * steps <= budget
    assert a.about.gradient_rows == spent * steps * 10
    assert a.gradients_used == rounds * steps
    assert per_gradient >= 1


def read_by_rounds(model, source, **more):
    """The numbers of the batches that the rounds read, between the first and the last call."""
    counts = []
    more["progress"] = lambda *_: counts.append(len(source.read))
    gp.select_features(model, source, loss="squared-error", **more)
    return source.read[counts[0] : counts[-1]]


def test_batches_are_read_once_for_all_points_of_a_path():
    """30 batches of the budget at 5 points are 6 batches, each read once, after the sample."""
    model, x, y = regression()
    source = Counting(cut(x, y, 10))
    read = read_by_rounds(model, source, k=3, budget=30)
    assert len(read) == len(set(read)) == 6


def test_order_of_the_batches_depends_on_the_seed_alone():
    model, x, y = regression()
    runs = []
    for seed in (0, 0, 1):
        source = Counting(cut(x, y, 10))
        torch.manual_seed(len(runs))  # The global generator has no say.
        before = torch.get_rng_state()
        runs.append(
            (
                gp.select_features(model, source, loss="squared-error", k=2, budget=40, seed=seed),
                source.read,
            )
        )
        assert torch.equal(torch.get_rng_state(), before)
    (a, read_a), (b, read_b), (_, read_c) = runs
    assert read_a == read_b != read_c
    assert torch.equal(a.feature_scores, b.feature_scores)


def test_an_order_of_their_own_is_asked_of_the_batches():
    class Grouped(Counting):
        def order(self, seed):
            return list(range(len(self)))[::-1]

    model, x, y = regression()
    source = Grouped(cut(x, y, 10))
    assert read_by_rounds(model, source, k=1, budget=20) == [39, 38, 37, 36]


def test_a_budget_beyond_the_data_begins_another_epoch_in_another_order():
    model, x, y = regression(rows=60)
    source = Counting(cut(x, y, 10))
    read = read_by_rounds(model, source, k=1, method="sequential-gradient", budget=18)
    epochs = [read[:6], read[6:12], read[12:]]
    assert all(sorted(epoch) == list(range(6)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) > 1


def test_streams_and_lists_agree_on_all_batches():
    model, x, y = regression()
    a = gp.select_features(model, cut(x, y), loss="squared-error")
    b = gp.select_features(model, Stream(cut(x, y)), loss="squared-error")
    assert torch.equal(a.order, b.order)
    assert torch.equal(a.feature_scores, b.feature_scores)


def test_a_loader_that_shuffles_by_global_chance_follows_the_seed():
    model, x, y = regression()
    data = torch.utils.data.TensorDataset(x, y)
    runs = []
    for state in (1, 2):
        loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True)
        torch.manual_seed(state)
        runs.append(gp.select_features(model, loader, loss="squared-error", k=3, budget=60))
    assert torch.equal(runs[0].feature_scores, runs[1].feature_scores)


def test_random_and_permutation_follow_their_definitions():
    model, x, y = regression()
    batches = cut(x, y, 400)
    a = gp.select_features(model, batches, loss="squared-error", method="permutation", budget=7)
    assert a.order.tolist()[:4] == [0, 2, 3, 5]
    assert a.about.gradient_batches == 7
    # An independent copy of the column's values: the loss grows by w² · E (x − x')² ≈ 2 w².
    assert a.feature_scores[0] == pytest.approx(2 * 9, rel=0.2)
    assert a.feature_scores[1] == 0
    one = gp.select_features(model, batches, loss="squared-error", method="random", seed=1)
    two = gp.select_features(model, batches, loss="squared-error", method="random", seed=2)
    assert sorted(one.order.tolist()) == list(range(6))
    assert one.order.tolist() != two.order.tolist()


def test_k_stops_early_and_the_rest_follows_by_its_last_score():
    model, x, y = regression()
    a = gp.select_features(model, cut(x, y), loss="squared-error", k=2, names=list("abcdef"))
    assert a.selected == 2
    assert sorted(a.order.tolist()) == list(range(6))
    assert a.top(2) == ["a", "c"]
    assert a.stop is gp.StopReason.K


class Unplugged(list):
    """Batches that cannot be read after so many reads, once so many rounds are done."""

    def __init__(self, batches, *, done, reads):
        super().__init__(batches)
        self.done, self.reads, self.left = done, reads, -1

    def count(self, done, total):
        if done == self.done:
            self.left = self.reads

    def __getitem__(self, place):
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return super().__getitem__(place)


@pytest.mark.parametrize("method", [None, "sequential-gradient", "marginal-gains"])
@pytest.mark.parametrize("budget", [None, 300])
def test_a_run_stopped_in_a_round_goes_on_to_the_bits_of_an_unbroken_one(method, budget, tmp_path):
    numbers, ids, y = mixed()
    model = gp.models.TabularMLP(4, [5, 9, 3], hidden=(16, 8))
    batches = cut((numbers, ids), y, 20)
    path = tmp_path / "run.gpig"
    ask = {"method": method, "budget": budget, "seed": 5}
    whole = gp.select_features(model, batches, **ask)

    unplugged = Unplugged(batches, done=3, reads=3)
    with pytest.raises(KeyboardInterrupt):
        gp.select_features(model, unplugged, **ask, checkpoint=path, progress=unplugged.count)
    assert gp.load(path).selected == 3
    again = gp.select_features(model, batches, **ask, checkpoint=path)
    assert torch.equal(again.order, whole.order)
    assert torch.equal(again.feature_scores, whole.feature_scores)
    assert torch.equal(again.values, whole.values)
    assert again.gradients_used == whole.gradients_used
    assert again.about == whole.about


def test_what_a_broken_round_has_paid_is_not_counted(tmp_path):
    model, x, y = regression()
    ask = {"loss": "squared-error", "method": gp.TwoSidedPIG(per_round=1, steps=2)}
    whole = gp.select_features(model, cut(x, y, 20), **ask)
    # The second of the round's two integrals breaks off: the first is done, and paid.
    unplugged = Unplugged(cut(x, y, 20), done=1, reads=len(cut(x, y, 20)) + 2)
    ask["checkpoint"] = tmp_path / "run.gpig"
    with pytest.raises(KeyboardInterrupt):
        gp.select_features(model, unplugged, **ask, progress=unplugged.count)
    assert gp.load(ask["checkpoint"]).selected == 1
    again = gp.select_features(model, cut(x, y, 20), **ask)
    assert again.about == whole.about
    assert again.gradients_used == whole.gradients_used


def test_another_model_or_budget_is_another_question(tmp_path):
    model, x, y = regression()
    ask = {"loss": "squared-error", "k": 2, "budget": 20, "checkpoint": tmp_path / "run.gpig"}
    gp.select_features(model, cut(x, y), **ask)
    with pytest.raises(OtherQuestion, match="budget"):
        gp.select_features(model, cut(x, y), **ask | {"budget": 40})
    other = regression(weights=(1.0, 2, 3, 4, 5, 6))[0]
    with pytest.raises(OtherQuestion, match="model"):
        gp.select_features(other, cut(x, y), **ask)


@pytest.mark.parametrize("change", ["last batch", "fewer"])
def test_other_rows_behind_the_same_first_batch_are_no_rows_to_go_on_with(change, tmp_path):
    x, y = torch.randn(60, 3, generator=torch.Generator().manual_seed(0)), torch.arange(60.0)
    model = torch.nn.Linear(3, 1)
    ask = {"loss": "squared-error", "k": 2, "budget": 40, "checkpoint": tmp_path / "run.gpig"}
    gp.select_features(model, cut(x, y), **ask)
    other = x.clone()
    other[-1] += 1
    batches = cut(other, y) if change == "last batch" else cut(x, y)[:-1]
    with pytest.raises(OtherQuestion, match="input"):
        gp.select_features(model, batches, **ask)


def test_another_callable_loss_is_another_question(tmp_path):
    model, x, y = regression()

    def power(p):
        return lambda outputs, labels: (outputs.reshape(-1) - labels).abs() ** p

    ask = {"k": 2, "budget": 20, "checkpoint": tmp_path / "run.gpig"}
    a = gp.select_features(model, cut(x, y), loss=power(2), **ask)
    same = gp.select_features(model, cut(x, y), loss=power(2), **ask)
    assert torch.equal(same.order, a.order)
    with pytest.raises(OtherQuestion, match="loss of the saved run"):
        gp.select_features(model, cut(x, y), loss=power(4), **ask)


def test_a_result_is_saved_and_read_back(tmp_path):
    model, x, y = regression()
    a = gp.select_features(model, cut(x, y), loss="squared-error", baseline="mean")
    a.save(tmp_path / "a.gpig")
    b = gp.load(tmp_path / "a.gpig")
    assert torch.equal(a.order, b.order)
    assert b.settings["baseline"] == "mean"
    assert b.about == a.about


@pytest.mark.slow
def test_a_stream_is_never_held():
    """Five times the batches, and no more of them alive at once."""
    model, x, y = regression(rows=20)

    class Made:
        """Batches made as they are asked for; how many exist, and the most there ever were."""

        def __init__(self, count):
            self.count, self.alive, self.most = count, 0, 0

        def __iter__(self):
            for _ in range(self.count):
                held = x.clone()
                self.alive += 1
                self.most = max(self.most, self.alive)
                weakref.finalize(held, self.gone)
                yield held, y

        def gone(self):
            self.alive -= 1

    most = []
    for count in (100, 500):
        source = Made(count)
        ask = {"loss": "squared-error", "k": 1, "method": "sequential-gradient"}
        gp.select_features(model, source, **ask, budget=count + 10)
        gp.select_features(model, source, **ask)
        most.append(source.most)
    assert max(most) < 2 * BUFFER + 8  # A shuffling buffer for the rounds, one for the sample.
