"""explain on every kind of input and output: the answer is Algorithm 1 on the model's own g."""

import inspect
import sys
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from greedypig.core.run import Run
from greedypig.tensors.api import Job
from nets import (
    Returns,
    TwoInputs,
    algorithm_1,
    close,
    cnn,
    linear,
    midpoints,
    mlp,
    picture,
    row,
    unfolded,
)

PICKS = (1, 2, 3)


def masked(model, x, baseline, read):
    """masks (m, n) → values, by hand in float64."""

    def g(masks: Tensor) -> Tensor:
        m = masks.reshape(-1, *x.shape)
        return read(model(baseline + m * (x - baseline)))

    return g


def softmax_of(target):
    return lambda logits: torch.softmax(logits, 1)[:, target]


@pytest.mark.parametrize(
    ("model", "x"),
    [
        pytest.param(cnn(), picture(), id="picture"),
        pytest.param(mlp(), row(), id="row"),
        pytest.param(
            nn.Sequential(nn.Flatten(), mlp(12)).eval(), row(1, 12).view(4, 3), id="sequence"
        ),
    ],
)
def test_order_and_scores_are_algorithm_1(model, x):
    a = gp.explain(unfolded(model), x, method=gp.GreedyPIG(schedule=PICKS, steps=3))
    model64, x64 = deepcopy(model).double(), x.double()
    target = int(model64(x64[None]).argmax())
    g = masked(model64, x64, torch.zeros_like(x64), softmax_of(target))
    order, scores = algorithm_1(g, x.numel(), PICKS, midpoints(3))
    assert a.order[: sum(PICKS)].tolist() == order
    assert close(a.feature_scores, scores)
    assert a.selected == sum(PICKS)
    assert a.picks == PICKS
    assert a.gradients_used == len(PICKS) * 3
    assert a.scores.shape == x.shape


@pytest.mark.parametrize("container", ["tuple", "list", "dict"])
def test_several_inputs_are_one_set_of_features(container):
    model, image, other = TwoInputs(), picture(0, (3, 4)), row(1, 5)
    x = {
        "tuple": (image, other),
        "list": [image, other],
        "dict": {"row": other, "image": image},  # By name, so in any order.
    }[container]
    a = gp.explain(model, x, method=gp.GreedyPIG(schedule=PICKS, steps=4))
    both = deepcopy(model).double()
    target = int(both(image.double()[None], other.double()[None]).argmax())

    def g(masks: Tensor) -> Tensor:
        parts = (masks[:, :12], masks[:, 12:]) if container != "dict" else None
        m_image, m_row = parts or (masks[:, 5:], masks[:, :5])
        logits = both(m_image.reshape(-1, 3, 4) * image, m_row * other)
        return torch.softmax(logits, 1)[:, target]

    order, scores = algorithm_1(g, 17, PICKS, midpoints(4))
    assert a.order[: sum(PICKS)].tolist() == order
    assert close(a.feature_scores, scores)
    for found in (a.scores, a.importance, a.mask(3)):
        if container == "dict":
            assert list(found) == ["row", "image"]
            assert found["row"].shape == (5,)
            assert found["image"].shape == (3, 4)
        else:
            assert isinstance(found, tuple)
            assert [tuple(t.shape) for t in found] == [(3, 4), (5,)]


def test_a_dict_is_passed_by_name_not_by_position():
    def model(*, b, a):
        return torch.stack([a.sum(1), 2 * b.sum(1)], 1)

    x = {"a": torch.ones(2), "b": torch.ones(3)}
    scores = gp.explain(model, x, objective="logit", target=1, method="ig").scores
    assert torch.allclose(scores["a"], torch.zeros(2))
    assert torch.allclose(scores["b"], torch.full((3,), 2.0))


class Conditioned(nn.Module):
    """Row-wise: logits of x, scaled and shifted by what is held fixed."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor, scale: Tensor, shift: Tensor | None = None, power: int = 1):
        assert scale.shape[0] == x.shape[0]  # Fixed tensors get the batch axis, too.
        logits = self.net(x) * scale.unsqueeze(1) ** power
        return logits if shift is None else logits + shift


@pytest.mark.parametrize(
    ("fixed", "by_hand"),
    [
        (torch.tensor(2.0), {"scale": 2.0}),
        ((torch.tensor(2.0),), {"scale": 2.0}),
        ((torch.tensor(2.0), row(5, 4)), {"scale": 2.0, "shift": row(5, 4)}),
        ({"scale": torch.tensor(3.0)}, {"scale": 3.0}),
        (
            {"shift": row(5, 4), "scale": torch.tensor(3.0), "power": 2},
            {"scale": 9.0, "shift": row(5, 4)},
        ),
    ],
)
def test_fixed_inputs_are_passed_along(fixed, by_hand):
    model, x = Conditioned().eval(), row()
    a = gp.explain(model, x, fixed=fixed, method=gp.IG(steps=4))
    shift = by_hand.get("shift", torch.zeros(4))

    def alone(rows: Tensor) -> Tensor:
        return model.net(rows) * by_hand["scale"] + shift

    assert close(a.scores, gp.explain(alone, x, method=gp.IG(steps=4)).scores, 1e-5)
    assert a.scores.shape == x.shape


@dataclass
class Output:
    logits: Tensor
    hidden: Tensor


@pytest.mark.parametrize(
    "wrap",
    [
        pytest.param(lambda t: (t, t * 9), id="tuple"),
        pytest.param(lambda t: [t], id="list"),
        pytest.param(lambda t: {"hidden": t * 9, "logits": t}, id="dict"),
        pytest.param(lambda t: {"scores": t, "name": "only one tensor"}, id="dict of one tensor"),
        pytest.param(lambda t: Output(t, t * 9), id="object"),
    ],
)
def test_logits_are_found_in_what_the_model_returns(wrap):
    x = row()
    plain = gp.explain(mlp(), x, method=gp.GreedyPIG(rounds=3, steps=2))
    found = gp.explain(Returns(mlp(), wrap), x, method=gp.GreedyPIG(rounds=3, steps=2))
    agree(found, plain)


@pytest.mark.parametrize("squeeze", [True, False])
@pytest.mark.parametrize("sign", [1, -1])
def test_a_value_is_explained_in_the_direction_it_moved(squeeze, sign):
    net = linear(classes=1)
    with torch.no_grad():
        net.weight.mul_(sign)

    def model(x: Tensor) -> Tensor:
        out = net(x)
        return out.squeeze(1) if squeeze else out

    x = row()
    moves = net.weight[0].detach() * x
    up = 1 if float(moves.sum()) > 0 else -1
    a = gp.explain(model, x, outputs="values", method="ig")
    assert close(a.scores, up * moves, 1e-5)
    assert a.full_value == pytest.approx(up * net(x).item(), abs=1e-6)
    assert a.settings["objective"] == ("increase" if up > 0 else "decrease")
    assert a.settings["target"] is None


def test_probabilities_are_read_as_probabilities():
    net, x = mlp(), row()
    ends_in_softmax = nn.Sequential(net, nn.Softmax(1)).eval()
    for objective in ("softmax", "log-likelihood", "log-probability"):
        logits = gp.explain(net, x, objective=objective, method=gp.GreedyPIG(rounds=4, steps=3))
        found = gp.explain(
            ends_in_softmax,
            x,
            objective=objective,
            outputs="probabilities",
            method=gp.GreedyPIG(rounds=4, steps=3),
        )
        assert torch.equal(found.order, logits.order)
        assert close(found.scores, logits.scores, 1e-4)
        assert close(found.values, logits.values, 1e-5)


def test_probabilities_read_as_logits_get_a_warning_at_the_caller_s_line():
    model = nn.Sequential(mlp(), nn.Softmax(1)).eval()
    with pytest.warns(UserWarning, match="outputs='probabilities'") as caught:
        gp.explain(model, row(), method=gp.GreedyPIG(rounds=1, steps=1))
    assert caught[0].filename == __file__


def test_logits_that_are_no_probabilities_get_no_warning(recwarn):
    gp.explain(mlp(), row(), method=gp.GreedyPIG(rounds=1, steps=1))
    gp.explain(
        nn.Sequential(mlp(), nn.Softmax(1)).eval(),
        row(),
        outputs="probabilities",
        method=gp.GreedyPIG(rounds=1),
    )
    assert not recwarn.list


def test_target_is_the_class_that_is_explained():
    model, x = linear(), row()
    for target in range(3):
        a = gp.explain(model, x, target=target, objective="logit", method="ig")
        assert close(a.scores, model.weight[target].detach() * x, 1e-5)
        assert a.settings["target"] == target


def test_no_target_is_the_predicted_class():
    model, x = linear(), row()
    predicted = int(model(x[None]).argmax())
    a = gp.explain(model, x, objective="logit", method="ig")
    assert a.settings["target"] == predicted
    assert close(a.scores, model.weight[predicted].detach() * x, 1e-5)


@pytest.mark.parametrize("target", [torch.tensor(1), np.int64(1)])
def test_a_target_may_come_straight_from_an_argmax(target):
    a = gp.explain(mlp(), row(), target=target, method=gp.GreedyPIG(rounds=1, steps=1))
    assert a.settings["target"] == 1


def test_memory_format_does_not_matter():
    model = cnn()
    wide = picture(0, (3, 6, 10))
    strided = wide[:, :, ::2]
    channels_last = strided.permute(1, 2, 0).contiguous().permute(2, 0, 1)
    assert not strided.is_contiguous()
    assert not channels_last.is_contiguous()
    expected = gp.explain(model, strided.contiguous(), method=gp.GreedyPIG(rounds=4, steps=3))
    for x in (strided, channels_last, wide.expand(2, 3, 6, 10)[1, :, :, ::2]):
        found = gp.explain(model, x, method=gp.GreedyPIG(rounds=4, steps=3))
        assert torch.equal(found.order, expected.order)
        assert torch.equal(found.scores, expected.scores)


def test_float64_keeps_its_precision():
    model, x = mlp().double(), row().double()
    a = gp.explain(model, x, method=gp.GreedyPIG(schedule=PICKS, steps=3))
    target = int(model(x[None]).argmax())
    g = masked(model, x, torch.zeros_like(x), softmax_of(target))
    order, scores = algorithm_1(g, 6, PICKS, midpoints(3))
    assert a.scores.dtype == torch.float64
    assert a.order.tolist() == order
    assert close(a.feature_scores, scores, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_get_inputs_of_their_own_dtype(dtype):
    seen = set()

    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = mlp().to(dtype)

        def forward(self, x: Tensor) -> Tensor:
            if isinstance(x, Tensor):  # Not where the network is only read.
                seen.add(x.dtype)
            return self.net(x)

    x = row().to(dtype)
    a = gp.explain(Half(), x, method=gp.IG(steps=8))
    assert seen == {dtype}
    assert a.scores.shape == x.shape
    expected = gp.explain(mlp(), row(), target=a.settings["target"], method=gp.IG(steps=8))
    assert close(a.scores, expected.scores, 0.05)


def test_inputs_of_different_precision_reach_the_model_as_they_are():
    seen = []

    def model(a: Tensor, b: Tensor) -> Tensor:
        seen.append((a.dtype, b.dtype))
        return torch.stack([a.double().sum(1), b.sum(1)], 1)

    gp.explain(
        model, (torch.rand(2), torch.rand(2).double()), method=gp.GreedyPIG(rounds=2, steps=1)
    )
    assert set(seen) == {(torch.float32, torch.float64)}


def test_inputs_that_require_gradients_come_back_without_one():
    model, plain = mlp(), row()
    x = plain.clone().requires_grad_(True)
    derived = x * 1.0  # Not a leaf.
    expected = gp.explain(model, plain, method=gp.GreedyPIG(rounds=3, steps=2))
    for candidate in (x, derived):
        a = gp.explain(model, candidate, method=gp.GreedyPIG(rounds=3, steps=2))
        assert torch.equal(a.scores, expected.scores)
        assert not a.scores.requires_grad
    assert x.grad is None
    assert x.requires_grad
    assert derived.grad_fn is not None


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("wrap", [lambda model: model, unfolded], ids=["module", "function"])
@pytest.mark.parametrize("objective", ["softmax", "log-likelihood", "counterfactual"])
def test_the_caller_s_autograd_mode_does_not_matter(mode, wrap, objective):
    method = gp.GreedyPIG(rounds=3, steps=2)

    def run(model, x):
        return gp.explain(wrap(model), x, objective=objective, method=method)

    conv, dense = cnn(), mlp()
    expected_cnn, expected_mlp = run(cnn(), picture()), run(mlp(), row())
    with mode():
        # Inputs made inside are inference tensors under inference_mode.
        found_cnn, found_mlp = run(conv, picture()), run(dense, row())
    for found, expected in ((found_cnn, expected_cnn), (found_mlp, expected_mlp)):
        agree(found, expected)


def test_inputs_made_under_inference_mode_can_be_explained_outside_it():
    with torch.inference_mode():
        x, baseline, scale = row(), row(3), torch.tensor(2.0)
    model = Conditioned().eval()
    found = gp.explain(
        model, x, baseline=baseline, fixed=scale, method=gp.GreedyPIG(rounds=3, steps=2)
    )
    expected = gp.explain(
        model,
        row(),
        baseline=row(3),
        fixed=torch.tensor(2.0),
        method=gp.GreedyPIG(rounds=3, steps=2),
    )
    assert torch.equal(found.scores, expected.scores)


def test_a_job_shows_its_rounds_one_by_one():
    method = gp.GreedyPIG(rounds=3, steps=2)
    job, x = Job(model=mlp(), method=method), row()
    run = Run(*job.question([job.example(x)]))
    parts = [(len(state.picks), run.results()[0]) for state in run]
    a = gp.explain(mlp(), x, method=method)
    assert [count for count, _ in parts] == [1, 2, 3]
    for count, so_far in parts:
        assert so_far.picks == a.picks[:count]
        assert torch.equal(so_far.order[: so_far.selected], a.order[: so_far.selected])
    agree(run.results()[0], a)


def frames_of_ours() -> list[str]:
    """The functions of the package on the stack, the outermost first."""
    frame, names = sys._getframe(1), []
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith("greedypig."):
            names.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return names[::-1]


ROAD = [
    "advise.<locals>.call",
    "explain",
    "carry_out",
    "Run.__next__",
    "Run._paid",
    "Run._after_round",
    "next_round",
    "IG.__call__",
    "Objective.gradient",
    "Objective._evaluate",
]
"""The functions between a caller and autograd."""


@pytest.mark.parametrize("model", [mlp(), cnn()], ids=["rows", "pictures"])
def test_the_road_from_explain_to_autograd_is_short(model, monkeypatch):
    plain, stacks = torch.autograd.grad, []

    def seen(*args, **kwargs):
        stacks.append(frames_of_ours())
        return plain(*args, **kwargs)

    monkeypatch.setattr(torch.autograd, "grad", seen)
    x = picture() if isinstance(model[0], nn.Conv2d) else row()
    gp.explain(model, x, method=gp.GreedyPIG(rounds=2, steps=2))
    assert len(stacks) == 2
    for stack in stacks:
        assert stack == ROAD


def test_explain_has_few_parameters():
    for function in (gp.explain, gp.explain_many):
        parameters = inspect.signature(function).parameters.values()
        assert sum(p.kind is not p.VAR_KEYWORD for p in parameters) <= 16


def test_logits_read_as_probabilities_are_refused():
    with pytest.raises(gp.InvalidInput, match="outputs='logits'"):
        gp.explain(mlp(), row(), outputs="probabilities")


def test_numpy_s_numbers_and_arrays_serve_as_python_s_and_torch_s(tmp_path):
    def run(number, ids, base):
        return gp.explain(
            mlp(),
            row(),
            features=ids,
            baseline=base,
            k=number(2),
            batch_size=number(3),
            seed=number(3),
            method=gp.GreedyPIG(rounds=number(2), steps=number(3)),
            stop=gp.Stop(gradients=number(100)),
        )

    ids, base = torch.tensor([0, 0, 1, 1, 2, 2]), torch.full((6,), 0.1)
    expected, found = run(int, ids, base), run(np.int64, ids.numpy(), base.numpy())
    assert torch.equal(found.feature_scores, expected.feature_scores)
    assert torch.equal(found.mask(np.int32(2)), expected.mask(2))
    assert found.provenance == expected.provenance
    found.save(tmp_path / "a.gpig")
    assert gp.load(tmp_path / "a.gpig").settings == expected.settings
    for schedule in ([np.int64(2), np.int64(4)], np.array([2, 4]), torch.tensor([2, 4])):
        method = gp.GreedyPIG(schedule=schedule)
        assert method == gp.GreedyPIG(schedule=(2, 4))
        a = gp.explain(mlp(), row(), baseline=np.float32(0.5), method=method)
        assert a.picks == (2, 4)
        assert a.settings["schedule"] == [2, 4]


def test_numpy_s_numbers_serve_as_limits_and_inside_scorers_and_features(tmp_path):
    two, half = np.int64(2), np.float32(0.5)
    method = gp.GreedyPIG(ratio=np.float32(2), rounds=two)
    found = gp.explain(
        mlp(), row(), method=method, stop=gp.Stop(value=half, seconds=np.float32(60))
    )
    expected = gp.explain(
        mlp(), row(), stop=gp.Stop(value=0.5, seconds=60), method=gp.GreedyPIG(ratio=2.0, rounds=2)
    )
    assert torch.equal(found.order, expected.order)
    assert found.stop is expected.stop
    for scorer in (gp.IG(two), gp.SmoothIG(samples=two), gp.GuidedIG(two)):
        gp.explain(mlp(), row(), method=gp.Greedy(scorer, rounds=two)).save(tmp_path / "a.gpig")
        assert gp.load(tmp_path / "a.gpig").settings["rounds"] == 2
    ids = np.array([0, 0, 1, 1, 2, 2])
    assert torch.equal(gp.Groups(ids).ids, torch.from_numpy(ids))
    assert gp.Windows((6,), two, axes=(0,), stride=np.int32(1)).count == 5
    for made in (gp.grid(two), gp.windows(two, stride=two)):
        method = gp.GreedyPIG(rounds=two, steps=two)
        assert gp.explain(cnn(), picture(), features=made, method=method).features.count


def test_a_model_that_ignores_its_input_is_told_of():
    with pytest.raises(gp.InvalidInput, match="depends on the features"):
        gp.explain(lambda x: torch.stack([(x * 0).sum(1), (x * 0).sum(1) + 1], 1), torch.ones(4))


def test_an_order_without_any_score_is_warned_of():
    def saturated(x):
        return torch.stack([x.sum(1).sign().detach() + 0 * x.sum(1), 0 * x.sum(1)], 1)

    with pytest.warns(UserWarning, match="is exactly 0.*flat") as seen:
        gp.explain(saturated, torch.ones(4), method=gp.GreedyPIG(rounds=2, steps=2))
    assert seen[0].filename == __file__
    with pytest.warns(UserWarning, match="of input 1 is exactly 0.*baseline itself"):
        list(
            gp.explain_many(
                lambda x: x[:, :2], [torch.ones(4), torch.zeros(4)], method=gp.GreedyPIG(rounds=2)
            )
        )
