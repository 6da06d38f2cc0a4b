"""A folded, channels-last copy answers alike, is dropped where it would not, and is never older
than the model it stands for."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import greedypig as gp
from nets import batch_norm, close, cnn, picture, unfolded


def scores(model, x=None, **options):
    x = picture() if x is None else x
    return gp.explain(model, x, baseline=0.5, method=gp.IG(steps=4), **options).scores


def honest(model, x=None):
    """The answer of a model nobody has seen before, without any fast path."""
    return scores(unfolded(copy.deepcopy(model)), x)


@pytest.fixture
def norm_rows(monkeypatch):
    """Rows that went through BatchNorm with gradients: none where it is folded."""
    rows = []
    plain = F.batch_norm

    def counted(x, *args, **kwargs):
        if x.requires_grad:
            rows.append(x.shape[0])
        return plain(x, *args, **kwargs)

    monkeypatch.setattr(F, "batch_norm", counted)
    return rows


@pytest.mark.parametrize("method", ["ig", "greedy-pig", "sequential-gradient"])
@pytest.mark.parametrize("objective", ["softmax", "log-likelihood", "logit"])
def test_the_fast_copy_answers_alike(method, objective):
    model, x = cnn(), picture()
    fast, plain = (
        gp.explain(each, x, objective=objective, method=method) for each in (model, unfolded(model))
    )
    assert close(fast.scores, plain.scores, 1e-4)
    assert close(fast.values, plain.values, 1e-4)
    assert fast.full_value == pytest.approx(plain.full_value, rel=1e-4)


def test_the_fast_copy_is_used_where_it_is_safe(norm_rows):
    scores(cnn())
    assert norm_rows == []
    scores(unfolded(cnn()))
    assert sum(norm_rows) == 2 * 4


def test_gradients_see_channels_last():
    seen = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.is_contiguous(memory_format=torch.channels_last))
            return x

    model = nn.Sequential(Watch(), cnn()).eval()
    scores(model)
    assert seen[-1] is True
    scores(unfolded(model))
    assert seen[-1] is False


class UsedTwice(nn.Module):
    """The convolution's own output goes on, too: folding would change it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm = nn.Conv2d(3, 4, 3), batch_norm(4)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = self.conv(x)
        return self.head(torch.tanh(self.norm(h) + h).mean((2, 3)))


class Reused(nn.Module):
    """One convolution with two different norms behind it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.conv, self.norm = nn.Conv2d(3, 3, 3, padding=1), batch_norm(3)
        self.other = batch_norm(3)
        self.head = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.conv(x)))
        h = torch.tanh(self.other(self.conv(h)))
        return self.head(h.mean((2, 3)))


class ReusedNorm(Reused):
    def forward(self, x: Tensor) -> Tensor:
        h = torch.tanh(self.norm(self.conv(x)))
        return self.head(torch.tanh(self.norm(h)).mean((2, 3)))


class Branches(Reused):
    """Control flow that depends on data cannot be traced."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        if float(x.detach().mean()) > 0.4:
            h = self.other(h)
        return self.head(torch.tanh(h).mean((2, 3)))


class Misleading(Reused):
    """Shows the tracer one graph and computes another."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        if isinstance(x, Tensor):
            h = h + self.conv(x)
        return self.head(torch.tanh(h).mean((2, 3)))


class Peeks(Reused):
    """Reads the weights of the layers directly, besides calling them."""

    def forward(self, x: Tensor) -> Tensor:
        h = self.norm(self.conv(x))
        h = h + F.conv2d(x, self.conv.weight, padding=1) + self.norm.running_mean.view(1, 3, 1, 1)
        return self.head(torch.tanh(h).mean((2, 3)))


class Alias(Reused):
    """The same convolution under two names, called by the second."""

    def __init__(self) -> None:
        super().__init__()
        self.again = self.conv

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.norm(self.again(x))).mean((2, 3)))


class Counts(Reused):
    """Groups of channels depend on a python number that forward itself changes."""

    calls = 0

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))


AWKWARD = [UsedTwice, Reused, ReusedNorm, Branches, Misleading, Peeks, Alias, Counts]


@pytest.mark.parametrize("make", AWKWARD)
def test_awkward_networks_answer_as_without_the_fast_path(make):
    model = make().eval()
    assert close(scores(model), honest(model), 1e-4)
    # And again, now that a choice has been made and kept; also for another input.
    assert close(scores(model), honest(model), 1e-4)
    assert close(scores(model, picture(5)), honest(model, picture(5)), 1e-4)


@pytest.mark.parametrize("where", ["conv", "norm"])
@pytest.mark.parametrize("kind", ["forward", "pre"])
def test_hooks_on_the_layers_keep_their_effect(where, kind):
    class Plain(Reused):
        def forward(self, x: Tensor) -> Tensor:
            return self.head(torch.tanh(self.norm(self.conv(x))).mean((2, 3)))

    model = Plain().eval()
    unhooked = honest(model)
    layer = getattr(model, where)
    if kind == "forward":
        layer.register_forward_hook(lambda module, inputs, output: output * 1.5 + 0.3)
    else:
        layer.register_forward_pre_hook(lambda module, inputs: (inputs[0] * 1.5 + 0.3,))
    assert not close(honest(model), unhooked, 1e-2)
    assert close(scores(model), honest(model), 1e-4)


def test_weights_read_outside_the_layer_count_also_where_the_probe_sees_no_difference():
    class Sleeper(Reused):
        """A second use of the convolution's weights that wakes up for bright pictures only."""

        def forward(self, x: Tensor) -> Tensor:
            h = torch.tanh(self.norm(self.conv(x))).mean((2, 3))
            bright = torch.relu(x.mean((1, 2, 3)) - 2.0).view(-1, 1)
            again = F.conv2d(x, self.conv.weight, padding=1).mean((2, 3))
            return self.head(h + bright * again)

    model = Sleeper().eval()
    dark, bright = picture(), picture(3) * 10
    scores(model, dark)
    assert close(scores(model, bright), honest(model, bright), 1e-4)
    both = list(gp.explain_many(model, [dark, bright], baseline=0.5, method=gp.IG(steps=4)))
    assert close(both[1].scores, honest(model, bright), 1e-4)


def test_the_user_s_model_is_not_the_one_that_is_folded():
    model = cnn()
    kinds = [type(m) for m in model.modules()]
    state = {k: v.clone() for k, v in model.state_dict().items()}
    strides = [p.stride() for p in model.parameters()]
    scores(model)
    assert [type(m) for m in model.modules()] == kinds
    assert [p.stride() for p in model.parameters()] == strides
    assert all(torch.equal(v, state[k]) for k, v in model.state_dict().items())


def test_convolutions_over_rows_and_volumes_fold_as_well():
    torch.manual_seed(0)
    for conv, norm, shape in (
        (nn.Conv1d(2, 4, 3), nn.BatchNorm1d(4), (2, 8)),
        (nn.Conv3d(2, 4, 2), nn.BatchNorm3d(4), (2, 4, 4, 3)),
        (nn.ConvTranspose2d(2, 4, 2), nn.BatchNorm2d(4), (2, 4, 4)),
    ):
        norm.running_mean.normal_()
        norm.running_var.uniform_(0.5, 2)
        model = nn.Sequential(conv, norm, nn.Tanh(), nn.Flatten(), nn.LazyLinear(3)).eval()
        x = picture(0, shape)
        model(x[None])
        assert close(scores(model, x), honest(model, x), 1e-4)


def test_single_output_and_several_inputs_are_optimised_alike():
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = cnn()

        def forward(self, picture: Tensor, weights: Tensor) -> Tensor:
            return (self.net(picture) * weights).sum(1)

    model = Mixed().eval()
    x = (picture(), torch.rand(4))
    fast, plain = (gp.explain(m, x, method="ig").scores for m in (model, unfolded(model)))
    for a, b in zip(fast, plain, strict=True):
        assert close(a, b, 1e-4)
