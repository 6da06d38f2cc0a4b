"""Bad input gets one clear sentence, "Expected … (got …)", and an error that is also a builtin."""

import copy
import pickle
import re
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

import greedypig as gp
from agreement import agree
from greedypig.core.errors import Argument, BudgetTooSmall, OtherQuestion
from nets import TwoInputs, cnn, linear, mlp, picture, row

NAN, INF = float("nan"), float("inf")


def with_value(x: Tensor, value: float) -> Tensor:
    x = x.clone()
    x.view(-1)[2] = value
    return x


def explain_row(x=None, model=None, **options):
    return gp.explain(mlp() if model is None else model, row() if x is None else x, **options)


def explain_picture(x=None, model=None, **options):
    return gp.explain(cnn() if model is None else model, picture() if x is None else x, **options)


two_inputs = (picture(0, (3, 4)), row(1, 5))


class NaNOutput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.stack([x.sum(1) * NAN, x.sum(1)], 1)


def made_in_inference_mode() -> nn.Module:
    with torch.inference_mode():
        return nn.Sequential(nn.Linear(6, 4), nn.Tanh(), nn.Linear(4, 2))


def lazy() -> nn.Module:
    return nn.Sequential(nn.LazyLinear(4), nn.Tanh(), nn.Linear(4, 2))


def behind_a_function(model: nn.Module):
    return lambda x: model(x)


ROW = [
    # Options of explain for a row of 6 values and 4 classes, the builtin, what the message names.
    ({"x": row().to_sparse()}, TypeError, "torch.sparse_coo"),
    ({"x": row().view(2, 3).to_sparse_csr()}, TypeError, "sparse_csr"),
    ({"x": torch.nested.nested_tensor([row(), row()[:3]])}, TypeError, "nested"),
    ({"x": row().to("meta")}, TypeError, "device meta"),
    ({"x": with_value(row(), NAN)}, ValueError, r"NaN at x\[2\], 1 of 6.*Try"),
    ({"x": with_value(row(), INF)}, ValueError, r"finite input 'x' \(got infinity at x\[2\]"),
    ({"x": "hello"}, TypeError, "got a text.*gp.explain_text"),
    ({"x": torch.arange(6)}, TypeError, "floating-point input 'x'"),
    ({"x": torch.ones(6) * 1j}, TypeError, "complex"),
    ({"x": torch.ones(0)}, ValueError, "non-empty input 'x'"),
    ({"x": [1.0, 2.0]}, TypeError, "'0' to be a tensor"),
    ({"x": 3.0}, TypeError, "got float"),
    ({"x": ()}, ValueError, "at least one input tensor"),
    ({"x": row()[None]}, ValueError, r"batch axis.*\(1, 6\).*x\[0\]"),
    ({"x": torch.stack([row()] * 4)}, ValueError, "batch.*explain_many"),
    ({"x": row(0, 5)}, ValueError, r"got shape \(5,\).*1x5"),
    ({"x": row().double()}, TypeError, r"torch.float32.*torch.float64.*x\.to\("),
    ({"fixed": (row().to_sparse(),)}, TypeError, "fixed input 0"),
    ({"model": "net"}, TypeError, "called.*got str.*Try the torch.nn.Module itself"),
    ({"model": row()}, TypeError, "got Tensor.*Try the model first"),
    ({"model": mlp().state_dict()}, TypeError, "got OrderedDict.*load_state_dict"),
    ({"model": 3}, TypeError, "got int.*a function from a batch"),
    ({"model": nn.Linear}, TypeError, r"got the class Linear.*Try an instance, Linear\("),
    ({"model": lazy()}, ValueError, "'0.weight', which a lazy"),
    ({"model": behind_a_function(lazy())}, ValueError, "calling the model once"),
    ({"model": nn.Sequential(nn.LazyBatchNorm1d(affine=False), mlp())}, ValueError, "running_mean"),
    ({"model": mlp().to("meta")}, ValueError, "to_empty"),
    ({"model": made_in_inference_mode()}, ValueError, "torch.inference_mode"),
    ({"model": behind_a_function(made_in_inference_mode())}, ValueError, "copy.deepcopy"),
    ({"model": NaNOutput()}, ValueError, "finite output"),
    ({"model": lambda x: "yes"}, TypeError, "got str"),
    (
        {"model": lambda x: {"pred": x, "aux": x}},
        TypeError,
        r"'pred', 'aux'.*Try lambda batch: model\(batch\)\['pred'\]",
    ),
    ({"model": lambda x: x.sum()}, ValueError, r"got \(\)"),
    ({"model": lambda x: x.view(1, 2, 3)}, ValueError, r"got \(1, 2, 3\)"),
    ({"model": lambda x: torch.ones(len(x), 3)}, ValueError, "depends"),
    ({"model": lambda x: mlp()(x).detach()}, ValueError, "depends"),
    ({"model": linear(classes=1), "target": 2}, ValueError, r"0 to 1 \(got 2\)"),
    ({"baseline": torch.zeros(6).to_sparse()}, TypeError, "the baseline"),
    ({"baseline": torch.zeros(6, device="meta")}, TypeError, "the baseline"),
    ({"baseline": NAN}, ValueError, "finite baseline.*'x'"),
    ({"baseline": [0.0, with_value(row(), INF)]}, ValueError, "finite baseline"),
    ({"baseline": torch.zeros(5)}, ValueError, r"\(6,\).*got \(5,\)"),
    ({"baseline": torch.zeros(1, 6)[None]}, ValueError, r"got \(1, 1, 6\)"),
    ({"baseline": []}, ValueError, "at least one baseline"),
    ({"baseline": "grey"}, ValueError, "got 'grey'.*'gray'"),
    ({"baseline": object()}, TypeError, "got object"),
    ({"baseline": "gray", "x": 7 * row()}, ValueError, "values from -"),
    ({"baseline": "blur"}, ValueError, r"got shape \(6,\)"),
    ({"target": 4}, ValueError, r"0 to 3 \(got 4\)"),
    ({"target": -1}, ValueError, r"0 to 3 \(got -1\)"),
    ({"target": "cat"}, ValueError, "got 'cat'"),
    ({"k": 0}, ValueError, r"Expected k .*1 to 6.*got 0"),
    ({"k": 7}, ValueError, r"Expected k .*1 to 6.*got 7"),
    ({"k": 2.5}, ValueError, r"Expected k .*got 2.5"),
    ({"k": "2"}, ValueError, r"Expected k .*got '2'"),
    ({"method": gp.GreedyPIG(per_round=7)}, ValueError, r"per_round.*1 to 6.*got 7"),
    ({"method": gp.GreedyPIG(schedule=[4, 4])}, ValueError, "got 8"),
    ({"method": gp.IG}, TypeError, r"IG\(\)"),
    ({"method": "greedy_pig"}, ValueError, "'greedy_pig'.*mean 'greedy-pig'"),
    ({"method": 3}, TypeError, "got int"),
    ({"method": lambda objective, round: round.mask[:, :2]}, TypeError, r"6.*got \(1, 2\)"),
    ({"stop": gp.Stop(gradients=4)}, ValueError, r"5, the cost .*\(got 4\). Try gradients=5, or"),
    ({"stop": 100}, TypeError, "gp.Stop.*got int"),
    ({"batch_size": 0}, ValueError, "batch_size.*got 0"),
    ({"batch_size": "max"}, ValueError, "batch_size.*got 'max'"),
    ({"seed": 0.5}, ValueError, "seed.*got 0.5"),
    ({"outputs": "odds"}, ValueError, "got 'odds'"),
    ({"objective": "soft-max"}, ValueError, "got 'soft-max'.*'softmax'"),
    ({"objective": 3}, TypeError, "got int"),
    ({"objective": lambda z: z}, ValueError, r"\(5, 4\)"),
    ({"features": "px"}, ValueError, "got 'px'"),
    ({"features": 3}, TypeError, "features.*got int"),
    ({"features": "pixels"}, ValueError, r"picture.*\(6,\)"),
    ({"features": torch.tensor([0, 0, 1, 1, 3, 3])}, ValueError, r"0 … 3 without gaps.*id 2"),
    ({"features": torch.tensor([-1, 0, 1, 1, 0, 0])}, ValueError, "-1"),
    ({"features": torch.rand(6)}, TypeError, "integer"),
    ({"features": torch.zeros(5).long()}, ValueError, r"\(6,\).*got \(5,\)"),
    ({"features": gp.Elements(7)}, ValueError, r"6 values \(got 7\)"),
    ({"names": ["a", "b"]}, ValueError, "2 names for 6 features"),
    ({"names": list("abcabd")}, ValueError, r"\(got 'a', 'b' more than once\)"),
    ({"checkpoint": "nowhere/a.gpig"}, ValueError, "nowhere/a.gpig"),
    ({"budget": 60}, TypeError, r"stop=gp\.Stop\(gradients=60\)"),
    ({"stop": 5}, TypeError, "gp.Stop.*int"),
    ({"n_steps": 50}, TypeError, r"n_steps=50.*Try method=gp\.IG\(50\)"),
    ({"rounds": 4}, TypeError, r"rounds=4.*method=gp\.GreedyPIG\(rounds=4\)"),
    ({"targt": 1}, TypeError, "'target'"),
]

BY_NAME = dict(zip(("image", "row"), two_inputs, strict=True))
TWO = [
    # The same for two inputs.
    ({"x": (two_inputs[0], two_inputs[1].to_sparse())}, TypeError, "input '1'"),
    ({"x": (two_inputs[0], with_value(two_inputs[1], NAN))}, ValueError, "finite input '1'"),
    ({"x": BY_NAME | {"row": with_value(two_inputs[1], NAN)}}, ValueError, "finite input 'row'"),
    ({"x": two_inputs[0]}, ValueError, "'row'.*fixed="),
    ({"baseline": (0.0,)}, ValueError, "2 in all"),
    ({"x": BY_NAME, "baseline": {"image": 0.0, "rows": 0.0}}, ValueError, "row.*image, rows"),
    ({"features": torch.zeros(3, 4).long()}, ValueError, r"2 inputs.*\(got 1\)"),
    ({"x": BY_NAME, "features": {"image": torch.zeros(3, 4).long()}}, ValueError, "image, row"),
    (
        {"x": BY_NAME, "features": {"image": "tokens", "row": torch.arange(5)}},
        TypeError,
        r"input 'image' \(got 'tokens'\).*Try torch\.arange\(3\)\.view\(3, 1\)",
    ),
]

PICTURE = [
    # The same for a picture (3, 6, 5).
    ({"x": picture()[None]}, ValueError, r"batch axis.*\(1, 3, 6, 5\).*x\[0\]"),
    ({"x": picture().permute(1, 2, 0)}, ValueError, r"\(6, 5, 3\).*Try x\.permute\(2, 0, 1\): a"),
    ({"x": picture().permute(1, 2, 0)[None]}, ValueError, r"Try x\[0\]\.permute\(2, 0, 1\): a"),
    (
        {"x": picture().permute(1, 2, 0), "baseline": torch.zeros(3, 1, 1)},
        ValueError,
        r"baseline.*Try x\.permute\(2, 0, 1\): a",
    ),
    ({"x": torch.stack([picture()] * 4)}, ValueError, "batch.*explain_many"),
    ({"x": torch.rand(6)}, ValueError, r"got shape \(6,\).*x\[0\]"),
    ({"baseline": torch.zeros(1, 3, 6, 5)}, ValueError, r"baseline\[0\]"),
    ({"features": "tokens"}, ValueError, r"\(length, size\).*\(3, 6, 5\)"),
    ({"features": gp.windows(2, stride=0)}, ValueError, "stride.*got 0"),
    ({"features": gp.windows(6)}, ValueError, r"axis 2.*got 6"),
]

MADE = [
    # What is refused when it is made.
    (lambda: gp.GreedyPIG(steps=0), ValueError, r"steps.*≥ 1 \(got 0\)"),
    (lambda: gp.GreedyPIG(steps=2.5), ValueError, r"steps.*got 2.5"),
    (lambda: gp.GreedyPIG(rule="trapezoid", steps=1), ValueError, r"steps ≥ 2.*got 1"),
    (lambda: gp.GreedyPIG(rule="simpson"), ValueError, "got 'simpson'"),
    (lambda: gp.GreedyPIG(rule=3), TypeError, "rule.*got int"),
    (lambda: gp.Greedy(None), TypeError, "got NoneType"),
    (lambda: gp.Stop(value="0.5"), ValueError, "value.*got '0.5'"),
    (lambda: gp.grid(0), ValueError, "grid size.*got 0"),
    (lambda: gp.windows(0), ValueError, "window size.*got 0"),
    (
        lambda: list(gp.explain_many(mlp(), [row(), row().to_sparse()])),
        TypeError,
        "to_dense",
    ),
    (
        lambda: gp.explain_many(mlp(), DataLoader(torch.rand(4, 6), 2)),
        TypeError,
        "DataLoader, which gives batches.*for x in batch",
    ),
    (lambda: gp.summary(gp.explain(mlp(), row())), TypeError, r"Try gp\.summary\(\[a\]\)"),
    (lambda: gp.explain(mlp(), row()).top(7), ValueError, r"k from 0 to 6.*got 7"),
    (lambda: gp.explain(mlp(), row()).top(-1), ValueError, r"k from 0 to 6.*got -1"),
    (
        lambda: gp.metrics.softmax_information_curve(lazy(), row(), torch.arange(6)),
        ValueError,
        "lazy",
    ),
]


def check(call, builtin: type[Exception], named: str) -> None:
    with pytest.raises(gp.GreedyPigError) as caught:
        call()
    error = caught.value
    assert isinstance(error, builtin)
    assert re.search(named, str(error), re.DOTALL)
    assert re.match(r"Expected .*\(got .*\)", str(error), re.DOTALL)
    assert len(str(error)) < 500  # Shapes and names, not tensor contents.


@pytest.mark.parametrize(("options", "builtin", "named"), ROW)
def test_the_error_says_what_was_expected_and_what_came(options, builtin, named):
    check(lambda: explain_row(**options), builtin, named)


@pytest.mark.parametrize(("options", "builtin", "named"), TWO)
def test_errors_of_several_inputs_name_them(options, builtin, named):
    check(lambda: gp.explain(**{"model": TwoInputs(), "x": two_inputs} | options), builtin, named)


@pytest.mark.parametrize(("options", "builtin", "named"), PICTURE)
def test_errors_of_pictures_name_their_shapes(options, builtin, named):
    check(lambda: explain_picture(**options), builtin, named)


@pytest.mark.parametrize(("make", "builtin", "named"), MADE)
def test_knobs_are_refused_when_they_are_given(make, builtin, named):
    check(make, builtin, named)


@pytest.mark.parametrize(
    ("options", "argument", "advice"),
    [
        ({"target": 4}, "target", ""),
        ({"k": 7}, "k", ""),
        ({"baseline": "grey"}, "baseline", ""),
        ({"objective": "soft-max"}, "objective", ""),
        ({"features": "pixels"}, "features", ""),
        ({"outputs": "probabilities"}, None, "Try outputs='logits', or 'values' for a regression."),
        ({"stop": gp.Stop(gradients=4)}, "gradients", "Try gradients=5, or fewer steps."),
    ],
)
def test_an_error_carries_its_argument_and_its_advice(options, argument, advice):
    with pytest.raises(gp.GreedyPigError) as caught:
        explain_row(**options)
    error = caught.value
    assert (error.argument, error.advice) == (argument, advice)
    assert str(error) == f"{error.args[0]} {advice}".rstrip()


def test_an_error_may_be_one_text_and_may_be_pickled():
    plain = gp.InvalidInput("Expected a (got b). Try c.")
    assert (str(plain), plain.argument, plain.advice) == ("Expected a (got b). Try c.", None, "")
    full = gp.InvalidType("Expected ", Argument("k", 3), " (got 4).", advice=Argument("k", "…"))
    for error in (plain, full, gp.InvalidInput("Expected a.", argument="x", advice="Try b.")):
        again = pickle.loads(pickle.dumps(error))
        assert (str(again), again.argument, again.advice, again.pieces) == (
            str(error), error.argument, error.advice, error.pieces,
        )  # fmt: skip
    assert str(full) == "Expected k=3 (got 4). Try k='…'."


def test_a_round_that_failed_is_in_the_message():
    error = gp.NonFinite("Expected finite numbers (got NaN).")
    assert "round" not in str(error)
    error.round = 3
    assert str(error) == "Expected finite numbers (got NaN). This was in round 3."


def test_an_output_that_ignores_its_input_is_named_so_even_if_the_weights_have_gradients():
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(gp.NotDifferentiable, match="depends on the features"):
        gp.explain(lambda x: weight.expand(x.shape[0], 3), row())


def test_methods_without_gradients_take_models_without_gradients():
    def model(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.stack([x.sum(1).round(), -x.sum(1)], 1)

    assert gp.explain(model, row(), method="random").selected == 6
    gains = gp.explain(model, row(), method=gp.Greedy(gp.MarginalGains(), per_round=1))
    assert gains.gradients_used == 0


class Root(nn.Module):
    """√ of each input's distance to 1/4: slope without bound when a path steps on 1/4."""

    def forward(self, *inputs: Tensor) -> Tensor:
        return sum(((t - 0.25).abs().sqrt()).sum(1) for t in inputs)


def test_a_gradient_that_is_not_finite_names_round_and_input():
    x = (torch.ones(2) * 0.3, torch.tensor([0.3, 0.5]))  # Halfway of 0.5, the middle of 3 steps.
    with pytest.raises(gp.NonFinite) as caught:
        gp.explain(Root(), x, objective="logit", method=gp.IG(steps=3))
    error = caught.value
    assert isinstance(error, ArithmeticError)
    assert "gradient with respect to x1[1]" in str(error)
    assert "round 1" in str(error)
    assert error.so_far[0].selected == 0


def test_a_gradient_that_is_not_finite_says_what_was_expected_and_what_came():
    with pytest.raises(gp.NonFinite, match=r"(?s)Expected .*\(got .*\)"):
        gp.explain(Root(), torch.tensor([0.5]), objective="logit", method=gp.IG(steps=1))


def test_the_rounds_before_a_non_finite_gradient_are_in_the_error():
    def model(x: Tensor) -> Tensor:
        # Smooth until feature 0 is fully on; from then on there is √0 where feature 1 is ½.
        late = ((x[:, 1] - 0.5).abs() + (x[:, 0] - 1).abs()).sqrt()
        return 5 * x[:, 0] + x[:, 1] + x[:, 2] + late

    with pytest.raises(gp.NonFinite, match="round 2") as caught:
        gp.explain(
            model, torch.ones(3), objective="logit", method=gp.GreedyPIG(per_round=1, steps=1)
        )
    (so_far,) = caught.value.so_far
    assert so_far.order[: so_far.selected].tolist() == [0]


def test_a_value_that_is_not_finite_is_named():
    def model(x: Tensor) -> Tensor:
        return torch.log(x.sum(1))  # −∞ at the baseline.

    with pytest.raises(gp.NonFinite, match="value"):
        gp.explain(model, torch.ones(3), objective="logit")


def test_large_but_finite_gradients_are_no_error():
    """Their sum overflows; each of them does not."""

    def model(x: Tensor) -> Tensor:
        return (x * 3e38).sum(1) * 1e-38

    a = gp.explain(model, torch.ones(4) * 1e-3, objective="logit", method="ig")
    assert torch.isfinite(a.scores).all()


def test_what_the_errors_advise_is_enough():
    model, x = lazy(), row()
    model(x.unsqueeze(0))
    assert explain_row(x, model).selected == 6
    assert explain_row(x, copy.deepcopy(made_in_inference_mode())).selected == 6
    assert explain_row(x.to_sparse().to_dense()).selected == 6
    with torch.inference_mode():
        inside = row()
    assert explain_row(inside).selected == 6  # An input may come from there.
    ids = {"image": torch.arange(3).view(3, 1), "row": torch.arange(3, 8)}
    assert gp.explain(TwoInputs(), BY_NAME, features=ids).features.count == 8
    loader = DataLoader(torch.rand(4, 6), 2)
    assert len(list(gp.explain_many(mlp(), (x for batch in loader for x in batch)))) == 4
    assert len(list(gp.explain_many(mlp(), DataLoader(torch.rand(4, 6), batch_size=None)))) == 4


def test_a_refused_model_is_as_it_was():
    model = made_in_inference_mode()
    with pytest.raises(gp.InvalidInput):
        explain_row(model=behind_a_function(model))
    assert model.training
    assert all(p.requires_grad for p in model.parameters())


def test_an_error_of_the_model_itself_is_passed_on_as_it_is():
    def model(x: Tensor) -> Tensor:
        raise LookupError("my own")

    with pytest.raises(LookupError, match="my own"):
        gp.explain(model, row())


@pytest.mark.parametrize(
    ("error", "builtin"),
    [
        (gp.InvalidInput, ValueError),
        (gp.InvalidType, TypeError),
        (gp.NotDifferentiable, ValueError),
        (gp.NonFinite, ArithmeticError),
        (gp.InvalidFile, ValueError),
        (gp.MissingPackage, ImportError),
    ],
)
def test_every_error_is_ours_and_a_builtin(error, builtin):
    assert issubclass(error, gp.GreedyPigError)
    assert issubclass(error, builtin)


def test_memory_that_runs_out_halves_the_batch_and_changes_nothing():
    seen = []

    def model(x: Tensor) -> Tensor:
        seen.append(x.shape[0])
        if x.shape[0] > 3:
            raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried …")
        return net(x)

    net = mlp()
    run = partial(gp.explain, x=row(), method=gp.GreedyPIG(rounds=2, steps=16))
    found, expected = run(model), run(net)
    agree(found, expected)
    assert found.gradients_used == 32
    assert sum(rows > 3 for rows in seen) <= 4  # Learned once, not at every batch.


def test_memory_that_runs_out_at_a_given_batch_size_is_the_caller_s_to_hear():
    def model(x: Tensor) -> Tensor:
        if x.shape[0] > 3:
            raise RuntimeError("out of memory")
        return x @ torch.ones(6, 2)

    with pytest.raises(RuntimeError, match="out of memory"):
        gp.explain(model, row(), batch_size=8, method=gp.GreedyPIG(steps=16))


@pytest.mark.parametrize(
    ("argument", "wrong"),
    [("baseline", []), ("features", "foo"), ("batch_size", 0), ("names", ["a"]), ("k", 0)],
)
def test_an_error_of_a_shared_argument_names_it(argument, wrong):
    with pytest.raises(gp.GreedyPigError) as error:
        explain_row(**{argument: wrong})
    assert error.value.argument == argument


@pytest.mark.parametrize(
    "error",
    [
        BudgetTooSmall(4, 3),
        OtherQuestion("Expected ", Argument("k", 3), " (got 4).", checkpoint="run.gpig"),
        gp.NonFinite("Expected finite scores.", advice=Argument("k", 3)),
        gp.DiskFull("Expected space."),
    ],
)
def test_an_error_comes_out_of_another_process_as_it_was(error):
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert (str(other), other.args) == (str(error), error.args)
    assert (other.argument, other.advice) == (error.argument, error.advice)
    assert vars(other) == vars(error)
