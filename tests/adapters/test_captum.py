"""Captum both ways: GreedyPIG in the place of IntegratedGradients, Captum's methods as scorers."""

import threading

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from nets import TwoInputs, bits, close, cnn, linear, mlp, picture, row

captum = pytest.importorskip("captum")
from captum.attr import (  # noqa: E402
    LRP,
    DeepLift,
    FeatureAblation,
    FeaturePermutation,
    GradientShap,
    GuidedBackprop,
    InputXGradient,
    IntegratedGradients,
    LayerIntegratedGradients,
    NoiseTunnel,
    Saliency,
    ShapleyValueSampling,
)

from greedypig.adapters.captum import GreedyPIG  # noqa: E402

RULES = ["gausslegendre", "riemann_middle", "riemann_left", "riemann_right", "riemann_trapezoid"]
pytestmark = [
    pytest.mark.filterwarnings("ignore:Setting forward, backward hooks"),
    pytest.mark.filterwarnings("ignore:Internal batch size cannot be less"),
    pytest.mark.filterwarnings("ignore:Input Tensor 0 did not already require gradients"),
]
ROWS = torch.stack([row(s) for s in range(4)])
ONE = {"n_rounds": 1}


def both(model, inputs, n_steps=6, **options):
    """(ours with one round, Captum's integrated gradients)."""
    ours = GreedyPIG(model).attribute(inputs, n_steps=n_steps, **ONE, **options)
    return ours, IntegratedGradients(model).attribute(inputs, n_steps=n_steps, **options)


class Grid(nn.Module):
    """Outputs (rows, 2, 3)."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp(classes=6)

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x).view(-1, 2, 3)


class Steered(nn.Module):
    """A row-wise tensor, a number and a flag go along."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor, scale: Tensor, power: float, flip: bool = False) -> Tensor:
        out = self.net(x) * scale.view(-1, 1) ** power
        return -out if flip else out


def squares(x: Tensor) -> Tensor:
    return x**2


def products(x: Tensor, y: Tensor) -> Tensor:
    return x * y


# In the place of IntegratedGradients.


@pytest.mark.parametrize("method", RULES[:4])
@pytest.mark.parametrize("n_steps", [2, 7])
def test_one_round_is_captum_s_integrated_gradients(method, n_steps):
    ours, theirs = both(mlp(), ROWS, n_steps=n_steps, target=1, method=method)
    assert ours.shape == ROWS.shape
    assert ours.dtype == theirs.dtype
    assert close(ours, theirs, 1e-5)


def test_one_round_by_trapezoid_is_captum_s_with_weights_that_sum_to_one():
    """Captum spaces n nodes 1/(n−1) apart but weighs them by 1/n: its sum is (n−1)/n of ours."""
    for n in (2, 5, 9):
        ours, theirs = both(mlp(), ROWS, n_steps=n, target=1, method="riemann_trapezoid")
        assert close(ours, theirs * n / (n - 1), 1e-5)


SCALES = torch.arange(1.0, 5.0)
NUMBERS = torch.tensor([1.0, -2.0, 3.0, 0.5])
TWO = (
    torch.stack([picture(s, (3, 4)) for s in range(4)]),
    torch.stack([row(s, 5) for s in range(4)]),
)
CALLS = {
    "class": (mlp(), ROWS, {"target": 2}),
    "class each": (mlp(), ROWS, {"target": [0, 3, 1, 1]}),
    "tensor of classes": (mlp(), ROWS, {"target": torch.tensor([0, 3, 1, 1])}),
    "tensor": (mlp(), ROWS, {"target": torch.tensor(2)}),
    "tensor of one": (mlp(), ROWS, {"target": torch.tensor([2])}),
    "place": (Grid(), ROWS, {"target": (1, 2)}),
    "place each": (Grid(), ROWS, {"target": [(0, 0), (1, 2), (0, 1), (1, 0)]}),
    "no target": (mlp(classes=1), ROWS, {}),
    "baseline int": (mlp(), ROWS, {"target": 1, "baselines": 0}),
    "baseline float": (mlp(), ROWS, {"target": 1, "baselines": 0.5}),
    "baseline row": (mlp(), ROWS, {"target": 1, "baselines": row(7)[None]}),
    "baseline each": (mlp(), ROWS, {"target": 1, "baselines": ROWS.flip(0)}),
    "tuple of one": (mlp(), (ROWS,), {"target": 1, "baselines": (0.25,)}),
    "two inputs": (TwoInputs(), TWO, {"target": 1}),
    "two baselines": (TwoInputs(), TWO, {"target": 1, "baselines": (0.3, torch.ones(1, 5))}),
    "picture": (cnn(), torch.stack([picture(s) for s in range(3)]), {"target": 2}),
    "extra": (Steered(), ROWS, {"target": 1, "additional_forward_args": (SCALES, 1.5)}),
    "extra flag": (Steered(), ROWS, {"target": 1, "additional_forward_args": (SCALES, 2.0, True)}),
    "extra of one row": (
        Steered(),
        ROWS[:1],
        {"target": 1, "additional_forward_args": (SCALES[2:3], 1.0)},
    ),
    "numbers": (squares, NUMBERS, {}),
    "one number": (squares, NUMBERS[:1], {}),
    "numbers from each": (squares, NUMBERS, {"baselines": NUMBERS.flip(0)}),
    "numbers from one": (squares, NUMBERS, {"baselines": NUMBERS[:1]}),
    "two inputs of numbers": (products, (NUMBERS, SCALES), {"baselines": (0.5, SCALES[:1])}),
    "numbers and rows": (lambda x, y: x**2 * y.sum(1), (NUMBERS, ROWS), {}),
    "numbers, class each": (
        lambda x: torch.stack([x, x**2], 1),
        NUMBERS,
        {"target": [0, 1, 1, 0]},
    ),
    "numbers, extra": (products, NUMBERS, {"additional_forward_args": SCALES}),
}


@pytest.mark.parametrize("call", CALLS)
def test_every_form_of_call_gives_captum_s_answer(call):
    model, inputs, options = CALLS[call]
    ours, theirs = both(model, inputs, **options)
    assert isinstance(ours, tuple) == isinstance(inputs, tuple)
    if not isinstance(ours, tuple):
        ours, theirs, inputs = (ours,), (theirs,), (inputs,)
    for a, b, x in zip(ours, theirs, inputs, strict=True):
        assert a.shape == x.shape
        assert close(a, b, 1e-5)


@pytest.mark.parametrize("n_rounds", [1, 3, 20])
def test_as_many_gradients_as_captum_s_in_all_rounds_if_no_steps_are_given(n_rounds):
    inputs, counts = torch.rand(1, 6, generator=torch.Generator().manual_seed(0)), []

    def forward(x: Tensor) -> Tensor:
        counts.append(len(x) * torch.is_grad_enabled())
        return (x.relu() * x).sum(1)

    ours = GreedyPIG(forward).attribute(inputs, n_rounds=n_rounds)
    assert sum(counts) == {1: 50, 3: 48, 20: 48}[n_rounds]
    if n_rounds == 1:
        assert close(ours, IntegratedGradients(forward).attribute(inputs), 1e-5)


@pytest.mark.parametrize("size", [1, 3, 100])
def test_internal_batch_size_bounds_the_rows_and_changes_nothing(size):
    seen, net = [], mlp()

    def forward(x: Tensor) -> Tensor:
        seen.append(x.shape[0])
        return net(x)

    ours = GreedyPIG(forward).attribute(ROWS, target=1, n_steps=5, internal_batch_size=size, **ONE)
    assert max(seen) <= size
    assert close(ours, IntegratedGradients(net).attribute(ROWS, target=1, n_steps=5), 1e-5)


def test_convergence_delta_is_captum_s():
    options = {"target": 1, "n_steps": 3, "baselines": 0.2, "return_convergence_delta": True}
    ours, delta = GreedyPIG(mlp()).attribute(ROWS, **ONE, **options)
    _, their_delta = IntegratedGradients(mlp()).attribute(ROWS, **options)
    assert delta.shape == (4,)
    assert torch.allclose(delta, their_delta.to(delta), atol=1e-6)
    by_hand = ours.sum(1) - (mlp()(ROWS)[:, 1] - mlp()(torch.full_like(ROWS, 0.2))[:, 1]).detach()
    assert torch.allclose(delta, by_hand, atol=1e-6)
    assert delta.abs().max() > 1e-5  # Three steps do leave an error to report.
    assert GreedyPIG(mlp()).has_convergence_delta()


def test_the_delta_of_several_rounds_is_the_largest_of_them_and_shrinks_with_steps():
    def delta(n_steps: int) -> float:
        _, result = GreedyPIG(mlp()).attribute(
            ROWS, target=1, n_steps=n_steps, n_rounds=4, return_convergence_delta=True
        )
        assert result.shape == (4,)
        return result.abs().max().item()

    assert delta(20) < 1e-5 < delta(2)


# Rounds.


def masked(model, x: Tensor, target: int):
    """g over masks of one row, as Captum sees the model: its output at the target."""
    return gp.objective(lambda m: model(m.view(-1, *x.shape) * x)[:, target], x.numel())


@pytest.mark.parametrize("n_rounds", [2, 4, 6])
def test_rounds_are_greedy_pig_row_by_row(n_rounds):
    result = GreedyPIG(mlp()).attribute(ROWS, target=1, n_steps=4, n_rounds=n_rounds)
    for x, contributions in zip(ROWS, result, strict=True):
        method = gp.GreedyPIG(rounds=n_rounds, steps=4, rule="gauss-legendre")
        a = gp.maximize(masked(mlp(), x, 1), method)
        assert torch.allclose(contributions, a.contributions(), atol=1e-6)
        with torch.no_grad():
            move = mlp()(x[None]) - mlp()(torch.zeros_like(x)[None])
        assert float(contributions.sum()) == pytest.approx(float(move[0, 1]), abs=1e-5)


def test_rounds_of_a_product_are_known_by_hand():
    """F = ab. First round: ½ each, a is taken. Second: b has 1. ½ (½ + ½) to ½ (½ + ¾)."""
    attributions = GreedyPIG(lambda x: x[:, 0] * x[:, 1]).attribute(torch.ones(1, 2), n_rounds=2)
    assert attributions[0].tolist() == pytest.approx([4 / 9, 5 / 9], abs=1e-6)


def test_redundant_copies_are_told_apart_by_rounds_only():
    """Lemma on redundancy: one round scores both copies alike, rounds take one of them last."""

    def forward(x: Tensor) -> Tensor:
        return torch.tanh(6 * (x[:, 0] + x[:, 1])) + 0.4 * x[:, 2]

    x = torch.ones(1, 3)
    once = GreedyPIG(forward).attribute(x, n_steps=50, **ONE)[0]
    assert once[0] == pytest.approx(once[1].item())
    assert once[0] > once[2]
    rounds = GreedyPIG(forward).attribute(x, n_steps=50, n_rounds=3)[0]
    assert rounds.argsort(descending=True).tolist() == [0, 2, 1]
    assert float(rounds.sum()) == pytest.approx(1.4, abs=1e-4)


# NoiseTunnel around it.


@pytest.mark.parametrize("nt_type", ["smoothgrad", "smoothgrad_sq", "vargrad"])
@pytest.mark.parametrize("options", [{"internal_batch_size": 3}, {"nt_samples_batch_size": 2}])
def test_a_noise_tunnel_around_one_round_is_one_around_integrated_gradients(nt_type, options):
    def through(method, **more):
        torch.manual_seed(5)
        return NoiseTunnel(method).attribute(
            ROWS, nt_type=nt_type, nt_samples=4, stdevs=0.3, target=1, n_steps=4, **options, **more
        )

    ours = through(GreedyPIG(mlp()), **ONE)
    theirs = through(IntegratedGradients(mlp()))
    assert ours.shape == ROWS.shape
    assert close(ours, theirs, 1e-3)


# What is refused, and what is left alone.


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"method": "simpson"}, "got 'simpson'"),
        ({"n_rounds": 0}, "n_rounds.*got 0"),
        ({"n_rounds": 2.0}, "n_rounds.*got 2.0"),
        ({"n_steps": 0}, "steps.*got 0"),
        ({"internal_batch_size": 0}, "batch_size.*got 0"),
        ({"internal_batch_size": -2}, "batch_size.*got -2"),
    ],
)
def test_bad_knobs_are_named(options, named):
    with pytest.raises(gp.InvalidInput, match=f"Expected .*{named}"):
        GreedyPIG(mlp()).attribute(ROWS, target=1, **options)


def test_non_finite_inputs_are_named_by_row():
    bad = ROWS.clone()
    bad[2, 1] = torch.nan
    with pytest.raises(gp.GreedyPigError, match=r"row 2"):
        GreedyPIG(mlp()).attribute(bad, target=1)


class Locked(nn.Module):
    """Cannot be copied, so methods that hook layers hook this very one."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 4))
        self.lock, self.calls, self.fail_at = threading.Lock(), 0, 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        if self.calls == self.fail_at:
            raise LookupError("broken")
        return self.net(x)


def state_of(model: nn.Module) -> list[object]:
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        [(m.training, sorted(set(vars(m)) - {"calls", "fail_at"})) for m in model.modules()],
        [len(getattr(m, name)) for m in model.modules() for name in hooks],
        [(p.requires_grad, p.grad, bits(p)) for p in model.parameters()],
        bits(torch.get_rng_state()),
        repr(np.random.get_state()),
    ]


@pytest.mark.parametrize("fail_at", [0, 2, 4])
@pytest.mark.parametrize("method", [DeepLift, GradientShap, IntegratedGradients, Saliency])
def test_the_user_s_model_keeps_no_hooks(method, fail_at):
    model = Locked().train()
    model.fail_at = fail_at
    before = state_of(model)
    greedy = gp.Greedy(gp.from_captum(method), rounds=3)
    if fail_at:
        with pytest.raises(LookupError):
            gp.explain(model, row(), method=greedy)
    else:
        gp.explain(model, row(), method=greedy)
    assert state_of(model) == before


def test_the_adapter_leaves_model_inputs_and_generators_alone():
    model = nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Dropout(), nn.Linear(5, 4)).train()
    before, x = state_of(model), ROWS.clone().requires_grad_(True)
    attributions = GreedyPIG(model).attribute(x, target=1, n_rounds=3)
    assert state_of(model) == before
    assert torch.equal(x, ROWS)
    assert x.grad is None
    assert not attributions.requires_grad


# Attributions per unit of the inputs.


@pytest.mark.parametrize("still", [False, True], ids=["all move", "some stay at the baseline"])
@pytest.mark.parametrize("method", ["riemann_middle", "riemann_left", "gausslegendre"])
def test_without_the_inputs_factor_one_round_is_captum_s_local_attribution(method, still):
    baselines = torch.full_like(ROWS, 0.3)
    if still:
        baselines[:2, 1:3] = ROWS[:2, 1:3]
    ask = {"baselines": baselines, "target": [0, 1, 2, 3], "n_steps": 7, "method": method}
    ours = GreedyPIG(mlp(), multiply_by_inputs=False)
    theirs = IntegratedGradients(mlp(), multiply_by_inputs=False)
    assert ours.multiplies_by_inputs is theirs.multiplies_by_inputs is False
    result = ours.attribute(ROWS, **ask, n_rounds=1)
    assert close(result, theirs.attribute(ROWS, **ask), 1e-5)


def test_without_the_inputs_factor_rounds_are_divided_by_the_way():
    baselines = torch.full_like(ROWS, 0.3)
    baselines[0, 2] = ROWS[0, 2]
    ask = {"baselines": baselines, "target": 1, "n_rounds": 3}
    whole = GreedyPIG(mlp()).attribute(ROWS, **ask)
    local, _ = GreedyPIG(mlp(), multiply_by_inputs=False).attribute(
        ROWS, **ask, return_convergence_delta=True
    )
    moved = baselines != ROWS
    assert torch.allclose((local * (ROWS - baselines))[moved], whole[moved], atol=1e-6)
    assert float(local[0, 2]) == 0


@pytest.mark.parametrize("shape", [(), (1,), (1, 1), (1, 1, 1)], ids=str)
def test_one_output_per_row_may_have_further_axes_of_one(shape):
    net = linear(6, 1)
    result = GreedyPIG(lambda x: net(x).view(len(x), *shape)).attribute(ROWS, n_rounds=1)
    assert close(result, net.weight.detach() * ROWS, 1e-5)


# Captum's methods as scorers.


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (IntegratedGradients, {"n_steps": 3}),
        (DeepLift, {}),
        (GradientShap, {"n_samples": 3, "stdevs": 0.0}),
        (FeatureAblation, {}),
        (ShapleyValueSampling, {"n_samples": 3}),
    ],
)
def test_on_a_linear_model_all_of_them_give_weight_times_way(method, options):
    net, x, baseline = linear(), row(), row(9)
    a = gp.explain(
        net,
        x,
        target=1,
        objective="logit",
        baseline=baseline,
        method=gp.from_captum(method, **options),
    )
    assert close(a.scores, net.weight[1].detach() * (x - baseline), 1e-4)
    assert a.method == f"captum.{method.__name__}"


def test_deep_lift_sees_the_layers_of_the_model():
    """Its rescale rule at the ReLU differs from the gradient, so equality shows the hooks work."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x, baseline = row(), row(9)
    result = gp.explain(
        net, x, target=1, objective="logit", baseline=baseline, method=gp.from_captum(DeepLift)
    ).scores
    theirs = DeepLift(net).attribute(x[None], baseline[None], target=1)[0].detach()
    assert close(result, theirs, 1e-5)
    point = x.clone().requires_grad_(True)
    slope = torch.autograd.grad(net(point[None])[0, 1], point)[0]
    assert not close(result, slope * (x - baseline), 1e-2)


def test_deep_lift_on_a_convolutional_network():
    model, x = cnn(), picture()
    result = gp.explain(
        model, x, target=1, objective="logit", method=gp.from_captum(DeepLift)
    ).scores
    theirs = DeepLift(cnn()).attribute(x[None], target=1)[0].detach()
    assert close(result, theirs, 1e-3)


@pytest.mark.parametrize("method", ["riemann_middle", "riemann_left", "gausslegendre"])
def test_greedy_around_captum_s_ig_is_greedy_around_ours(method):
    rule = {"riemann_middle": "midpoint", "riemann_left": "left"}.get(method, "gauss-legendre")
    theirs = gp.from_captum(IntegratedGradients, n_steps=4, method=method)
    ours = gp.IG(4, rule)
    for options in ({"per_round": 1}, {"rounds": 3}):
        a, b = (gp.explain(mlp(), row(), method=gp.Greedy(s, **options)) for s in (theirs, ours))
        agree(a, b)
        assert a.gradients_used == b.gradients_used


def test_greedy_rounds_make_captum_s_methods_adaptive():
    def model(x: Tensor) -> Tensor:
        return torch.tanh(6 * (x[:, 0] + x[:, 1])) + 0.4 * x[:, 2]

    for method in (IntegratedGradients, ShapleyValueSampling):
        greedy = gp.Greedy(gp.from_captum(method), per_round=1)
        a = gp.explain(model, torch.ones(3), objective="logit", method=greedy)
        assert a.order[1] == 2  # Not the second copy.
        assert a.scores[a.order[2]].abs() < 0.05


def test_captum_s_methods_take_tuples_dicts_and_several_baselines():
    image, other = picture(0, (3, 4)), row(1, 5)
    scorer = gp.from_captum(IntegratedGradients, n_steps=4, method="riemann_middle")
    for x in ((image, other), {"image": image, "row": other}):
        for baseline in (0.2, [0.0, 0.5]):
            a = gp.explain(TwoInputs(), x, method=scorer, baseline=baseline)
            b = gp.explain(TwoInputs(), x, method=gp.IG(4), baseline=baseline)
            agree(a, b)


def test_any_function_to_a_captum_method_will_do():
    scorer = gp.from_captum(
        lambda module: NoiseTunnel(IntegratedGradients(module)), nt_samples=2, stdevs=0.0, n_steps=4
    )
    a = gp.explain(mlp(), row(), method=scorer, baseline=row(9))
    b = gp.explain(mlp(), row(), method=gp.IG(4, "gauss-legendre"), baseline=row(9))
    assert close(a.scores, b.scores, 1e-4)


@pytest.mark.parametrize("method", [GradientShap, ShapleyValueSampling])
def test_random_methods_follow_the_seed_of_the_run_and_no_other(method):
    def scores(seed: int) -> Tensor:
        return gp.explain(mlp(), row(), method=gp.from_captum(method), seed=seed).scores

    torch.manual_seed(1)
    np.random.seed(1)
    first = scores(0)
    torch.manual_seed(0)  # Where mlp() leaves the generator, too.
    mlp()
    np.random.seed(2)
    states = bits(torch.get_rng_state()), repr(np.random.get_state())
    assert torch.equal(scores(0), first)
    assert not torch.equal(scores(3), first)
    assert (bits(torch.get_rng_state()), repr(np.random.get_state())) == states


def test_explain_many_answers_as_alone_with_captum_s_methods():
    method = gp.Greedy(gp.from_captum(DeepLift), rounds=3)
    for x, a in zip(ROWS, gp.explain_many(mlp(), ROWS, method=method), strict=True):
        alone = gp.explain(mlp(), x, method=method)
        agree(a, alone)


def test_a_captum_run_goes_on_from_its_file_and_only_with_its_own_options(tmp_path):
    def method(n_steps: int) -> gp.Greedy:
        return gp.Greedy(gp.from_captum(IntegratedGradients, n_steps=n_steps), per_round=1)

    path = tmp_path / "part.gpig"
    whole = gp.explain(mlp(), row(), method=method(3))
    part = gp.explain(mlp(), row(), method=method(3), stop=gp.Stop(gradients=7), checkpoint=path)
    resumed = gp.explain(mlp(), row(), method=method(3), checkpoint=path)
    assert part.selected < resumed.selected
    assert torch.equal(resumed.order, whole.order)
    assert torch.equal(resumed.scores, whole.scores)
    with pytest.raises(gp.InvalidInput, match="n_steps"):
        gp.explain(mlp(), row(), method=method(9), checkpoint=path)


def test_scorers_run_on_plain_set_functions():
    objective = gp.objective(lambda m: m @ torch.tensor([3.0, 1.0, 2.0]), 3)
    a = gp.maximize(objective, gp.from_captum(IntegratedGradients, n_steps=2))
    assert a.feature_scores.tolist() == pytest.approx([3, 1, 2], abs=1e-5)


@pytest.mark.parametrize("method", [InputXGradient, LRP, Saliency, GuidedBackprop])
def test_a_method_without_baselines_alone_looks_at_the_input_as_captum_does(method):
    net, x = mlp(), row()
    expected = method(net).attribute(x.unsqueeze(0).requires_grad_(), target=1)[0].detach()
    result = gp.explain(net, x, target=1, objective="logit", method=gp.from_captum(method))
    assert torch.allclose(result.scores, expected, atol=1e-6)
    if method is Saliency:  # In rounds the first gradient is taken at the baseline.
        greedy = gp.Greedy(gp.from_captum(method), rounds=1)
        result = gp.explain(net, x, target=1, objective="logit", baseline=row(9), method=greedy)
        expected = method(net).attribute(row(9)[None].requires_grad_(), target=1)[0].detach()
        assert torch.allclose(result.scores, expected, atol=1e-6)


@pytest.mark.parametrize("method", [DeepLift, GuidedBackprop, LRP])
@pytest.mark.parametrize("hide", [lambda net: lambda x: net(x), torch.jit.script])
def test_layer_rules_without_layers_to_see_are_refused(method, hide):
    with pytest.raises(gp.InvalidInput, match="works on its layers"):
        gp.explain(hide(mlp()), row(), target=1, method=gp.from_captum(method))


def test_what_is_no_captum_class_of_a_module_is_refused_with_a_way_out():
    with pytest.raises(gp.InvalidType, match="got an instance of IntegratedGradients"):
        gp.from_captum(IntegratedGradients(mlp()))
    with pytest.raises(gp.InvalidInput, match=r"NoiseTunnel.*lambda net"):
        gp.from_captum(NoiseTunnel)
    with pytest.raises(gp.InvalidInput, match="FeatureAblation"):
        gp.from_captum(FeaturePermutation)
    with pytest.raises(gp.InvalidInput, match="method='leave-one-out'"):
        gp.from_captum(LayerIntegratedGradients)
    tunnel = gp.from_captum(lambda net: NoiseTunnel(Saliency(net)), nt_samples=2)
    assert gp.explain(mlp(), row(), target=1, method=tunnel).scores.any()


def test_the_drop_in_tells_bad_input_in_a_sentence():
    net, rows = mlp(), row().unsqueeze(0)
    with pytest.raises(gp.InvalidInput, match="floating-point"):
        GreedyPIG(net).attribute(rows.long(), target=1)
    with pytest.raises(gp.InvalidInput, match="target within"):
        GreedyPIG(net).attribute(rows, target=77)
    with pytest.raises(gp.InvalidInput, match="at least one row"):
        GreedyPIG(net).attribute(rows[:0], target=1)
    with pytest.raises(gp.InvalidInput, match="inputs with values"):
        GreedyPIG(net).attribute(rows[:, :0], target=1)
    # 6 targets are as many as the points of a batch: Captum's own check would let them pass.
    for target in ([2], [0] * 6, torch.zeros(6, dtype=torch.long)):
        with pytest.raises(gp.InvalidInput, match="target for each of 2 rows"):
            GreedyPIG(net).attribute(rows.repeat(2, 1), target=target, n_steps=3)
