"""G(S) = g(S) + g(all) − g(all without S), by closed forms; the same for every kind of data."""

import pickle

import pytest
import torch

import greedypig as gp
from greedypig.core.two_sided import as_objective
from nets import mlp, row
from problems import copies, indicator, modular, random_coverage, round_at, saturating, xor

ONE_BY_ONE = gp.GreedyPIG(per_round=1, steps=40)


def two_sided(known, **knobs):
    return as_objective(gp.two_sided(known.objective(**knobs)))


def sets(known, *chosen):
    return torch.stack([indicator(known.n, s) for s in chosen]).unsqueeze(0)


def test_of_a_modular_function_it_is_twice_the_function():
    known = modular([3.0, 1.0, 2.0])
    a = gp.maximize(gp.two_sided(known.objective()), ONE_BY_ONE)
    assert a.scores.tolist() == pytest.approx([6, 2, 4])
    assert a.values.tolist() == pytest.approx([0, 6, 10, 12])


@pytest.mark.parametrize("known", [xor(0.5), saturating([1, 2, 0.5]), random_coverage(0, 6, 8, 3)])
def test_values_and_gradients_are_those_of_the_formula(known):
    g, both = known.objective(), two_sided(known)
    masks = torch.rand(1, 5, known.n, dtype=torch.float64)
    full = known.value(range(known.n))
    expected = g.values(masks) + full - g.values(1 - masks)
    assert both.values(masks).tolist()[0] == pytest.approx(expected.tolist()[0])
    weights = torch.rand(5, dtype=torch.float64)
    leaf = masks.clone().requires_grad_(True)
    total = (weights * (known.g(leaf[0]) - known.g(1 - leaf[0]))).sum()
    (slopes,) = torch.autograd.grad(total, leaf)
    assert both.gradient(masks, weights)[0].tolist() == pytest.approx(slopes.sum(1)[0].tolist())
    _, each = both.values_and_gradients(masks)
    assert (weights @ each)[0].tolist() == pytest.approx(slopes.sum(1)[0].tolist())


def test_nothing_has_the_value_of_nothing_and_everything_is_twice_as_far_from_it():
    known = saturating([1, 2, 0.5])
    empty, full = known.value([]), known.value([0, 1, 2])
    values = two_sided(known).values(sets(known, [], [0, 1, 2]))[0].tolist()
    assert values == pytest.approx([empty, empty + 2 * (full - empty)])


def test_scores_of_one_round_sum_to_the_rise_of_the_two_sided_value():
    known = saturating([1, 2, 0.5])
    a = gp.maximize(gp.two_sided(known.objective()), gp.IG(200))
    assert float(a.scores.sum()) == pytest.approx(a.full_value - float(a.values[0]), rel=1e-4)


def test_of_two_copies_sufficiency_takes_one_and_the_two_sided_objective_both():
    """{0}: 1 + 1.3 − 1.3 = 1; {0, 1}: 1 + 1.3 − 0.3 = 2; {0, 2}: 1.3 + 1.3 − 1 = 1.6."""
    known = copies([1.0, 0.3], [2, 1])
    alone = gp.maximize(known.objective(), gp.MarginalGains(), k=2)
    assert set(alone.top(2)) == {0, 2}
    assert gp.best_subset(known.objective(), 2) == ((0, 2), pytest.approx(1.3))
    both = gp.two_sided(known.objective())
    assert gp.best_subset(both, 2) == ((0, 1), pytest.approx(2.0))
    a = gp.maximize(both, ONE_BY_ONE)
    assert set(a.top(2)) == {0, 1}
    assert a.values.tolist() == pytest.approx([0, 1, 2, 2.6])


def test_xor_s_second_part_gains_nothing_on_either_side():
    """g = 1 for one of the two and 0 for both, so g(all) − g(without 0) = −1 cancels g({0}) = 1."""
    known = xor(0.5)
    values = two_sided(known).values(sets(known, [0], [0, 1], [2]))[0].tolist()
    assert values == pytest.approx([0.0, 0.0, 1.0])
    assert gp.maximize(gp.two_sided(known.objective()), ONE_BY_ONE, k=1).top(1) == [2]


def test_every_point_costs_two_gradients_and_a_budget_knows_it():
    both = gp.two_sided(saturating([1, 2, 0.5]).objective())
    assert gp.maximize(both, gp.GreedyPIG(per_round=1, steps=7)).gradients_used == 3 * 7 * 2
    a = gp.maximize(both, gp.GreedyPIG(per_round=1, steps=7), stop=gp.Stop(gradients=30))
    assert a.gradients_used == 28
    with pytest.raises(gp.InvalidInput):
        gp.maximize(both, gp.IG(7), stop=gp.Stop(gradients=13))


def test_a_set_function_with_its_own_gradient_has_two_sides_too():
    a = gp.maximize(gp.two_sided(Modular()), ONE_BY_ONE)
    assert a.scores.tolist() == pytest.approx([6, 2, 4])
    assert a.gradients_used == 3 * 40 * 2


@pytest.mark.parametrize("method", ["guided-ig", "sequential-gradient", "marginal-gains", "random"])
def test_methods_of_masks_run_on_it(method):
    a = gp.maximize(gp.two_sided(saturating([1, 2, 0.5]).objective()), method)
    assert sorted(a.order.tolist()) == [0, 1, 2]


def test_smooth_ig_sees_both_sides():
    weights = torch.tensor([3.0, 1.0, 2.0])
    net = torch.nn.Linear(3, 1, bias=False)
    net.weight.data = weights.view(1, 3)
    x = torch.ones(3)
    one = gp.explain(net, x, objective="increase", method=gp.SmoothIG(gp.IG(5), samples=4))
    objective = gp.two_sided("increase")
    two = gp.explain(net, x, objective=objective, method=gp.SmoothIG(gp.IG(5), samples=4))
    assert two.scores.tolist() == pytest.approx((2 * one.scores).tolist(), rel=1e-5)


def test_two_sides_of_two_sides_are_refused():
    with pytest.raises(gp.InvalidInput, match="one side"):
        gp.two_sided(gp.two_sided("softmax"))


class Modular:
    """A set function with a gradient of its own, which pickle finds by its name."""

    n = 3
    dtype = torch.float64

    def __init__(self):
        self.weights = torch.tensor([3.0, 1.0, 2.0], dtype=torch.float64)

    def values(self, masks):
        return masks @ self.weights

    def gradient(self, masks, weights):
        return self.weights * weights.sum()


def test_a_pickled_objective_counts_for_itself_and_gives_the_same():
    both = as_objective(gp.two_sided(Modular()))
    gp.maximize(both, ONE_BY_ONE)
    copy = pickle.loads(pickle.dumps(both))
    a, b = gp.maximize(both, ONE_BY_ONE), gp.maximize(copy, ONE_BY_ONE)
    assert b.scores.tolist() == a.scores.tolist()
    assert b.values.tolist() == a.values.tolist()
    assert both.gradients_used == copy.gradients_used == 2 * a.gradients_used
    assert copy.inner.gradients_used == copy.gradients_used
    gp.maximize(copy, ONE_BY_ONE)
    assert both.gradients_used == 2 * a.gradients_used


# Models on tensors.


def test_explain_takes_it_for_any_objective_with_several_baselines():
    model, x = mlp(), row(0)

    def p(kept):
        rows = [torch.where(kept, x, torch.full_like(x, b)) for b in (0.0, 0.5)]
        with torch.no_grad():
            return float(torch.softmax(model(torch.stack(rows)), 1)[:, 1].mean())

    method = gp.GreedyPIG(schedule=[2, x.numel() - 2])
    question = {"target": 1, "objective": gp.two_sided("softmax"), "baseline": [0.0, 0.5]}
    a = gp.explain(model, x, method=method, **question)
    assert a.settings["objective"] == "two-sided softmax"
    top = a.mask(2)
    expected = p(top) + p(torch.ones_like(top)) - p(~top)
    assert float(a.values[1]) == pytest.approx(expected, rel=1e-4)
    assert a.gradients_used == 2 * 5 * 2 * 2  # Rounds × steps × sides × baselines.


def test_examples_side_by_side_have_their_own_sides():
    xs = [row(s) for s in range(3)]
    many = list(gp.explain_many(mlp(), xs, objective=gp.two_sided()))
    for a, x in zip(many, xs, strict=True):
        alone = gp.explain(mlp(), x, objective=gp.two_sided())
        assert a.values.tolist() == pytest.approx(alone.values.tolist(), rel=1e-4)
        assert a.gradients_used == alone.gradients_used


def test_a_callable_and_a_margin_have_two_sides_too():
    a = gp.explain(mlp(), row(0), objective=gp.two_sided(lambda logits: logits[:, 0]))
    b = gp.explain(mlp(), row(0), target=0, objective=gp.two_sided("logit"))
    assert a.order.tolist() == b.order.tolist()
    assert a.settings["objective"] == "two-sided callable"
    c = gp.explain(mlp(), row(0), target=0, objective=gp.two_sided(gp.margin(against=1)))
    assert c.settings["objective"] == "two-sided margin"


def test_methods_that_leave_the_line_are_refused():
    conv = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 2))
    with pytest.raises(gp.InvalidInput, match="only switches features"):
        gp.explain(conv, torch.rand(3, 16, 16), objective=gp.two_sided(), method="blur-ig")
    captum = pytest.importorskip("captum")
    method = gp.from_captum(captum.attr.IntegratedGradients)
    with pytest.raises(gp.InvalidInput, match="one side"):
        gp.explain(mlp(), row(0), objective=gp.two_sided(), method=method)


def test_steady_pig_runs_on_it_where_it_is_asked_for():
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 196, 2)
    )
    picture = torch.rand(3, 16, 16)
    method = gp.SteadyPIG(rounds=4, views=2)
    a = gp.explain(net, picture, objective=gp.two_sided(), method=method)
    assert a.method == "steady-pig"
    assert gp.explain(net, torch.rand(3, 128, 128)[:, :16, :16], objective=gp.two_sided())


# Graphs and tables.


def ring(n=6):
    i = torch.arange(n)
    pairs = torch.stack([i, (i + 1) % n])
    return torch.cat([pairs, pairs.flip(0)], 1)


def graph():
    torch.manual_seed(0)
    gcn = gp.models.GCN(4, 3)
    return gcn.eval(), torch.randn(6, 4), ring()


def mean_log_p(gcn, x, edge_index, kept, classes, nodes):
    with torch.no_grad():
        weight = kept.to(x)
        return float(torch.log_softmax(gcn(x, edge_index, weight), 1)[nodes, classes].mean())


def test_explain_edges_measures_both_sides():
    gcn, x, edge_index = graph()
    a = gp.explain_edges(
        gcn, x, edge_index, objective=gp.two_sided(), method=gp.GreedyPIG(schedule=[2, 4])
    )
    with torch.no_grad():
        classes = gcn(x, edge_index, torch.ones(12)).argmax(1)
    kept, nodes = a.mask(2), torch.arange(6)

    def g(mask):
        return mean_log_p(gcn, x, edge_index, mask, classes, nodes)

    expected = g(kept) + g(torch.ones_like(kept)) - g(~kept)
    assert float(a.values[1]) == pytest.approx(expected, rel=1e-4)
    assert a.settings["objective"] == "two-sided log-probability"


def test_explain_node_adds_what_the_rest_of_the_graph_loses():
    gcn, x, edge_index = graph()
    a = gp.explain_node(gcn, x, edge_index, 2, k=2, target=1, hops=2, objective=gp.two_sided())
    one = gp.explain_node(gcn, x, edge_index, 2, k=2, target=1, hops=2)
    taken = torch.zeros(12, dtype=torch.bool)
    taken[gp.edge_columns(a)] = True

    def g(mask):
        return mean_log_p(gcn, x, edge_index, mask, 1, [2])

    expected = g(taken) + g(torch.ones_like(taken)) - g(~taken)
    assert float(a.values[2]) == pytest.approx(expected, rel=1e-4)
    # Where degrees are recomputed, each point of one side costs the gradient of the rest, too.
    assert a.gradients_used == one.gradients_used
    kept = {"k": 2, "normalisation": "kept"}
    one = gp.explain_node(gcn, x, edge_index, 2, **kept)
    both = gp.explain_node(gcn, x, edge_index, 2, **kept, objective=gp.two_sided())
    assert both.gradients_used == 2 * one.gradients_used
    assert both.settings["objective"] == "two-sided log-likelihood"


def test_select_features_measures_both_sides_of_the_loss():
    torch.manual_seed(0)
    x = torch.randn(400, 3)
    weights = torch.tensor([4.0, 1.0, 2.0])
    y = (x @ weights > 0).float()

    def model(rows):
        return rows @ weights

    def loss(kept):
        logits = model(x * torch.tensor(kept))
        return float(torch.nn.functional.binary_cross_entropy_with_logits(logits, y))

    one = gp.select_features(model, [(x, y)], loss="binary-cross-entropy")
    two = gp.select_features(model, [(x, y)], loss=gp.two_sided("binary-cross-entropy"))
    assert two.settings["loss"] == "two-sided binary-cross-entropy"
    assert two.gradients_used == 2 * one.gradients_used
    assert two.order[0] == 0
    expected = -loss([1.0, 0, 0]) - loss([1.0, 1, 1]) + loss([0.0, 1, 1])
    assert float(two.values[1]) == pytest.approx(expected, rel=1e-4)
    budget = gp.select_features(model, [(x, y)] * 8, loss=gp.two_sided(), k=2, budget=40)
    assert budget.about.gradient_batches <= 40


def test_two_sided_rounds_without_necessity_are_algorithm_1():
    known = random_coverage(1, 8, 10, 3)
    plain = gp.maximize(known.objective(), ONE_BY_ONE)
    both = gp.maximize(known.objective(), gp.TwoSidedPIG(per_round=1, steps=40, necessity=0.0))
    assert both.order.tolist() == plain.order.tolist()


def test_two_sided_rounds_take_both_of_two_features_that_say_the_same():
    g = gp.objective(lambda m: 1 - (1 - m[:, 0]) * (1 - m[:, 1]) + 0.2 * m[:, 2], 3)
    assert set(gp.maximize(g, ONE_BY_ONE, k=2).top(2)) == {0, 2}
    assert set(gp.maximize(g, gp.TwoSidedPIG(per_round=1), k=2).top(2)) == {0, 1}


def test_two_sided_rounds_integrate_with_the_selected_features_present_and_absent():
    g = gp.objective(lambda m: m[:, 0] * m[:, 1] + m[:, 2] ** 2, 3)
    scorer = gp.TwoSidedPIG(steps=60, necessity=0.25).scorer
    scores = scorer(g, round_at(g, torch.tensor([[1.0, 0.0, 0.0]]), number=1))[0]
    # Present: ∫ ∂ = (·, 1, 1), absent: (·, 0, 1); each divided by its largest.
    assert scores.tolist() == pytest.approx([0, 0.75, 1.0], abs=1e-3)


def test_a_round_of_both_sides_counts_the_gradients_of_both():
    g = gp.objective(lambda m: m.sum(1).sqrt(), 4)
    a = gp.maximize(g, gp.TwoSidedPIG(per_round=1, steps=3), k=3)
    assert a.gradients_used == 3 + 6 + 6
