"""Agreement with other people's code: Captum's and PAIR's implementations, and loops by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.objective import Objective
from greedypig.core.rounds import Round
from problems import net, normal

captum_attr = pytest.importorskip("captum.attr")
saliency = pytest.importorskip("saliency.core")

TARGET = 1
CLOSE = {"rtol": 0, "atol": 1e-5}
"""What is asked; in float64 the agreement is far better, see `SAME`."""
SAME = {"rtol": 0, "atol": 1e-10}
FLOAT32_NODES = {"rtol": 0, "atol": 1e-7}
"""Captum rounds its weights and Riemann nodes to float32 whatever the input."""


def row_net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(10, 16), nn.Tanh(), nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 3)
    ).to(dtype)


def picture_net(dtype: torch.dtype = torch.float64) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(3, 6, 3, padding=1),
        nn.Softplus(),
        nn.AvgPool2d(2),
        nn.Flatten(),
        nn.Linear(6 * 6 * 5, 3),
    ).to(dtype)


def row(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(10, generator=torch.Generator().manual_seed(seed)).to(dtype)


def picture(seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.rand(3, 12, 10, generator=torch.Generator().manual_seed(seed)).to(dtype)


CASES = {"row": (row_net, row), "picture": (picture_net, picture)}


def explained(model: nn.Module, x: Tensor, method: object, **knobs: object) -> Tensor:
    knobs = {"objective": "logit", "target": TARGET, "baseline": 0.0} | knobs
    return gp.explain(model, x, method=method, **knobs).scores


# Captum.


def captum_scores(model: nn.Module, x: Tensor, baseline: Tensor, **knobs: object) -> Tensor:
    method = captum_attr.IntegratedGradients(model)
    return method.attribute(x[None], baseline[None], target=TARGET, **knobs)[0].detach()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("steps", [2, 7, 50])
@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        ("gausslegendre", "gauss_legendre"),
        ("riemann_middle", "midpoint"),
        ("riemann_left", "left"),
        ("riemann_right", "right"),
    ],
)
def test_integrated_gradients_agree_with_captum(case, steps, theirs, ours):
    model, x = CASES[case][0](), CASES[case][1](5)
    baseline = 0.3 * torch.ones_like(x)
    expected = captum_scores(model, x, baseline, n_steps=steps, method=theirs)
    got = explained(model, x, gp.IG(steps, ours), baseline=baseline)
    torch.testing.assert_close(got, expected, **FLOAT32_NODES)


def test_a_later_round_agrees_with_captum_on_the_updated_baseline():
    # "In practice, Greedy PIG can be implemented by repeated invocations of PIG": the baseline
    # of a round is x on S and the old baseline elsewhere.
    model, x = row_net(), row(7)
    a = gp.explain(
        model,
        x,
        target=TARGET,
        objective="logit",
        baseline=0.0,
        method=gp.GreedyPIG(rounds=5, per_round=2, steps=20),
    )
    baseline = torch.zeros_like(x)
    for r in range(5):
        chosen = a.order[2 * r : 2 * r + 2]
        captum = captum_scores(model, x, baseline, n_steps=20, method="riemann_middle")
        captum[a.order[: 2 * r]] = -torch.inf
        assert torch.topk(captum, 2).indices.tolist() == chosen.tolist()
        torch.testing.assert_close(a.scores[chosen], captum[chosen], **FLOAT32_NODES)
        baseline[chosen] = x[chosen]


def test_the_gradient_at_the_input_agrees_with_captum():
    model, x = row_net(), row(8)
    leaf = x[None].clone().requires_grad_(True)
    expected = captum_attr.InputXGradient(model).attribute(leaf, target=TARGET)[0].detach()
    torch.testing.assert_close(explained(model, x, gp.Gradient(at=1.0)), expected, **SAME)


# PAIR's saliency.


def gradients_for_saliency(model: nn.Module, *, last: bool):
    """PAIR's call_model_function; its pictures have the channels last."""

    def call(rows: np.ndarray, call_model_args=None, expected_keys=None):
        x = torch.from_numpy(np.ascontiguousarray(rows)).double()
        x = (x.permute(0, 3, 1, 2) if last else x).contiguous().requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(x)[:, TARGET].sum(), x)
        gradient = gradient.permute(0, 2, 3, 1) if last else gradient
        return {saliency.INPUT_OUTPUT_GRADIENTS: gradient.numpy()}

    return call


def patch_quantile(patch: pytest.MonkeyPatch) -> None:
    """saliency 0.2.1 calls np.quantile(interpolation=…), which NumPy 2 spells method=…."""
    quantile = np.quantile
    patch.setattr(np, "quantile", lambda a, q, interpolation: quantile(a, q, method=interpolation))


@pytest.fixture
def quantile_of_today(monkeypatch):
    patch_quantile(monkeypatch)


GUIDED = [
    {},  # 200 steps, fraction 0.25, max_dist 0.02
    {"steps": 50},
    {"steps": 50, "fraction": 0.1},
    {"steps": 50, "fraction": 0.25, "max_dist": 1.0},
    {"steps": 30, "fraction": 0.5, "max_dist": 0.1},
    {"steps": 30, "fraction": 1.0, "max_dist": 0.5},
    {"steps": 25, "fraction": 0.0, "max_dist": 0.3},
    {"steps": 40, "max_dist": 0.0},
    {"steps": 1},
    {"steps": 1, "max_dist": 1.0},
]


def theirs_guided(model: nn.Module, x: Tensor, baseline: Tensor, knobs: dict[str, float]) -> Tensor:
    knobs = {("x_steps" if k == "steps" else k): v for k, v in knobs.items()}
    return torch.from_numpy(
        saliency.GuidedIG().GetMask(
            x.numpy(),
            gradients_for_saliency(model, last=False),
            x_baseline=baseline.numpy(),
            **knobs,
        )
    )


@pytest.mark.usefixtures("quantile_of_today")
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("knobs", GUIDED, ids=str)
def test_guided_ig_agrees_with_pair(case, knobs):
    model, x = CASES[case][0](), CASES[case][1](2)
    baseline = torch.zeros_like(x)
    expected = theirs_guided(model, x, baseline, knobs)
    torch.testing.assert_close(explained(model, x, gp.GuidedIG(**knobs)), expected, **SAME)


@pytest.mark.usefixtures("quantile_of_today")
def test_guided_ig_agrees_with_pair_where_input_and_baseline_coincide():
    model, x = row_net(), row(4)
    baseline = torch.full_like(x, 0.5)
    baseline[[0, 3, 7]] = x[[0, 3, 7]]
    expected = theirs_guided(model, x, baseline, {"steps": 40})
    got = explained(model, x, gp.GuidedIG(steps=40), baseline=baseline)
    torch.testing.assert_close(got, expected, **SAME)
    assert got[[0, 3, 7]].tolist() == [0, 0, 0]
    same = explained(model, x, gp.GuidedIG(steps=5), baseline=x)
    assert same.tolist() == [0.0] * 10


@pytest.mark.usefixtures("quantile_of_today")
def test_adaptive_guided_ig_agrees_with_pair_on_the_updated_baseline():
    model, x = row_net(), row(9)
    scorer = gp.GuidedIG(steps=30)
    a = gp.explain(
        model,
        x,
        target=TARGET,
        objective="logit",
        baseline=0.0,
        method=gp.Greedy(scorer, schedule=[2, 3, 5]),
    )
    baseline, at = torch.zeros_like(x), 0
    for count in a.picks:
        chosen = a.order[at : at + count]
        expected = theirs_guided(model, x, baseline, {"steps": 30})
        torch.testing.assert_close(a.scores[chosen], expected[chosen], **SAME)
        baseline[chosen] = x[chosen]
        at += count


def nothing_selected(n: int, **knobs: int) -> Round:
    """The first round of one problem, or one with other knobs."""
    mask = torch.zeros(1, n).double()
    return Round(mask, Elements(n), mask.bool(), **knobs)


@given(
    st.integers(0, 10**6),
    st.integers(1, 12),
    st.sampled_from([1, 2, 5, 37]),
    st.sampled_from([0.0, 0.1, 0.25, 0.29, 0.77, 1.0]),
    st.sampled_from([0.0, 0.001, 0.02, 0.3, 1.0]),
    st.booleans(),
)
def test_guided_ig_agrees_with_pair_on_any_line(seed, n, steps, fraction, max_dist, some_still):
    from saliency.core.guided_ig import guided_ig_impl

    g, x, baseline = net(seed, n), normal(seed + 3, n), normal(seed + 4, n)
    if some_still:
        baseline[: n // 2] = x[: n // 2]
    with pytest.MonkeyPatch.context() as patch:
        patch_quantile(patch)
        expected = guided_ig_impl(
            x.numpy(),
            baseline.numpy(),
            lambda point: g.gradient(torch.from_numpy(point)).numpy(),
            steps,
            fraction,
            max_dist,
        )
    line = Objective(lambda points, _: g.g(points), baseline.view(1, 1, n), x.view(1, 1, n))
    got = gp.GuidedIG(steps, fraction, max_dist)(line, nothing_selected(n))
    torch.testing.assert_close(got[0], torch.from_numpy(expected), rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    "knobs",
    [
        {},  # 100 steps, sigma 50
        {"steps": 20, "sigma": 5.0},
        {"steps": 7, "sigma": 0.4},
        {"steps": 1, "sigma": 3.0},
        {"steps": 30, "sigma": 10.0, "grad_step": 0.1},
    ],
    ids=str,
)
def test_blur_ig_agrees_with_pair(knobs):
    model, x = picture_net(), picture(4)
    renamed = {("max_sigma" if k == "sigma" else k): v for k, v in knobs.items()}
    expected = saliency.BlurIG().GetMask(
        x.permute(1, 2, 0).numpy(), gradients_for_saliency(model, last=True), **renamed
    )
    got = explained(model, x, gp.BlurIG(**knobs))
    torch.testing.assert_close(got, torch.from_numpy(expected).permute(2, 0, 1), **SAME)


def test_blur_ig_by_name_has_pair_s_defaults_and_holds_in_float32():
    x = picture(4, torch.float32)
    expected = saliency.BlurIG().GetMask(
        x.double().permute(1, 2, 0).numpy(), gradients_for_saliency(picture_net(), last=True)
    )
    got = explained(picture_net(torch.float32), x, "blur-ig")
    torch.testing.assert_close(got.double(), torch.from_numpy(expected).permute(2, 0, 1), **CLOSE)


# SmoothGrad-IG, by hand.


def noise_of(n: int, seed: int, round: int, sample: int) -> Tensor:
    """(n,) standard normal numbers, a function of seed, round and sample."""
    generator = nothing_selected(n, number=round, seed=seed).generator(0, sample)
    return torch.randn(n, generator=generator).double()


def integrated(model: nn.Module, x: Tensor, baseline: Tensor, steps: int) -> Tensor:
    """(x − b) ⊙ mean over midpoints t of ∇f(b + t·(x − b))."""
    total = torch.zeros_like(x)
    for k in range(steps):
        point = (baseline + (k + 0.5) / steps * (x - baseline)).requires_grad_(True)
        (gradient,) = torch.autograd.grad(model(point[None])[0, TARGET], point)
        total += gradient / steps
    return total * (x - baseline)


@pytest.mark.parametrize("case", CASES)
def test_smooth_ig_is_the_mean_over_noisy_inputs(case):
    # scores = mean over samples of IG(x + noise·(max x − min x)·ε), signed.
    model, x = CASES[case][0](), CASES[case][1](3)
    samples, noise, steps = 4, 0.2, 5
    span = float(x.max() - x.min())
    baseline = torch.full_like(x, 0.1)
    expected = torch.zeros_like(x)
    for sample in range(samples):
        epsilon = noise_of(x.numel(), 13, 0, sample).view(x.shape)
        one = integrated(model, x + noise * span * epsilon, baseline, steps)
        expected += one / samples
    scorer = gp.SmoothIG(gp.IG(steps), samples=samples, noise=noise)
    got = explained(model, x, scorer, baseline=baseline, seed=13)
    torch.testing.assert_close(got, expected, **SAME)


def test_smooth_ig_keeps_what_is_selected_free_of_noise():
    # Round 2: S sits at x exactly and scores 0; the rest is x + noise, with the noise of round 2.
    model, x = row_net(), row(5)
    samples, steps = 3, 4
    scorer = gp.SmoothIG(gp.IG(steps), samples=samples, noise=0.3)
    a = gp.explain(
        model,
        x,
        target=TARGET,
        objective="logit",
        baseline=0.0,
        seed=2,
        method=gp.Greedy(scorer, schedule=[4, 6]),
    )
    span, inside = float(x.max() - x.min()), a.order[:4]
    baseline = torch.zeros_like(x)
    baseline[inside] = x[inside]
    expected = torch.zeros_like(x)
    for sample in range(samples):
        epsilon = noise_of(x.numel(), 2, 1, sample)
        epsilon[inside] = 0
        expected += integrated(model, x + 0.3 * span * epsilon, baseline, steps) / samples
    later = a.order[4:]
    torch.testing.assert_close(a.scores[later], expected[later], **SAME)


def test_smooth_without_noise_is_the_scorer_itself():
    model, x = row_net(), row(6)
    smooth = explained(model, x, gp.SmoothIG(gp.IG(8), samples=3, noise=0.0))
    torch.testing.assert_close(smooth, explained(model, x, gp.IG(8)), **SAME)
