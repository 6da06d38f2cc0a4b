"""explain_many: many examples in lockstep, each answered as if it were alone, streamed in order."""

import gc
import time
import weakref

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree
from names import without_address
from nets import Calls, TwoInputs, bits, cnn, identical, mlp, picture, row

ROUNDS = gp.GreedyPIG(rounds=3, steps=2)
METHODS = {
    "greedy-pig": {"method": gp.GreedyPIG(rounds=4, steps=3)},
    "left rule": {"method": gp.GreedyPIG(rounds=4, steps=3, rule="left")},
    "sequential": {"method": gp.SequentialGradient(per_round=2)},
    "ig": {"method": gp.IG(steps=5)},
    "smooth": {"method": gp.Greedy(gp.SmoothIG(gp.IG(2), samples=3), rounds=2)},
    "guided": {"method": gp.GuidedIG(6)},
    "random": {"method": "random"},
    "gains": {"k": 3, "method": gp.Greedy(gp.MarginalGains(), per_round=1)},
    "two baselines": {"baseline": [0.0, 0.5], "method": ROUNDS},
    "counterfactual": {"objective": "counterfactual", "method": ROUNDS},
    "log-likelihood": {"objective": "log-likelihood", "method": ROUNDS},
    "margin": {"objective": "margin", "method": ROUNDS},
}


def as_alone(found: gp.Attribution, place: int, model, x, **options) -> bool:
    """Is the example at this place of a call answered as by `explain`?"""
    alone = gp.explain(model, x, seed=(0, place), **options)
    agree(found, alone)
    return (
        found.gradients_used == alone.gradients_used
        and found.settings == alone.settings
        and found.provenance == alone.provenance
    )


@pytest.mark.parametrize("batch_size", [1, 3, 8, "auto"])
@pytest.mark.parametrize("name", METHODS)
def test_each_answer_is_the_answer_alone(name, batch_size):
    model, xs, options = mlp(), [row(s) for s in range(5)], METHODS[name]
    many = list(gp.explain_many(model, xs, batch_size=batch_size, **options))
    assert len(many) == 5
    for place, found in enumerate(many):
        assert as_alone(found, place, model, xs[place], batch_size=batch_size, **options)


@pytest.mark.parametrize("features", ["pixels", gp.windows(3), gp.grid(2)], ids=without_address)
def test_each_picture_is_answered_as_alone(features):
    model, xs = cnn(), [picture(s) for s in range(4)]
    options = {"features": features, "method": gp.GreedyPIG(rounds=3, steps=3)}
    for x, found in zip(xs, gp.explain_many(model, xs, **options), strict=True):
        agree(found, gp.explain(model, x, **options))


def test_no_examples_give_no_answers():
    assert list(gp.explain_many(mlp(), [])) == []


def test_examples_of_different_shapes_share_a_call():
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)
    ).eval()
    xs = [picture(s, (3, 4 + s % 3, 6 - s % 2)) for s in range(7)]
    options = {"method": ROUNDS}
    many = list(gp.explain_many(model, xs, **options))
    assert len(many) == 7
    for place, found in enumerate(many):
        assert found.scores.shape == xs[place].shape
        assert as_alone(found, place, model, xs[place], **options)


@pytest.mark.parametrize("targets", [[0, 3, 1], (0, 3, 1), torch.tensor([0, 3, 1])])
def test_every_example_may_have_its_own_target(targets):
    xs = [row(s) for s in range(3)]
    found = list(gp.explain_many(mlp(), xs, target=targets, method=gp.GreedyPIG(rounds=2, steps=2)))
    assert [f.settings["target"] for f in found] == [0, 3, 1]
    for place, target in enumerate((0, 3, 1)):
        assert as_alone(
            found[place],
            place,
            mlp(),
            xs[place],
            target=target,
            method=gp.GreedyPIG(rounds=2, steps=2),
        )


def test_a_target_may_be_left_open_for_some():
    found = list(
        gp.explain_many(mlp(), [row(0), row(1)], target=[2, None], method=gp.GreedyPIG(rounds=1))
    )
    assert found[0].settings["target"] == 2
    assert found[1].settings["target"] == int(mlp()(row(1)[None]).argmax())


def test_too_few_targets_or_fixed_inputs_are_refused_by_name():
    xs = [row(s) for s in range(3)]
    with pytest.raises(gp.InvalidInput, match="target"):
        list(gp.explain_many(mlp(), xs, target=[1, 2], method=gp.GreedyPIG(rounds=1)))
    scaled = Scaled().eval()
    with pytest.raises(gp.InvalidInput, match="fixed"):
        list(gp.explain_many(scaled, xs, fixed=[torch.tensor(1.0)], method=gp.GreedyPIG(rounds=1)))


class Scaled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor, scale: Tensor, power: int = 1) -> Tensor:
        assert scale.shape == (x.shape[0],)
        return self.net(x) * scale.unsqueeze(1) ** power


@pytest.mark.parametrize(
    "fixed",
    [
        torch.tensor(2.0),
        (torch.tensor(2.0), 2),
        {"scale": torch.tensor(2.0), "power": 3},
        [torch.tensor(float(s)) for s in range(1, 6)],
        [(torch.tensor(float(s)), s % 2) for s in range(1, 6)],
        [{"scale": torch.tensor(float(s)), "power": s % 3} for s in range(1, 6)],
    ],
    ids=["tensor", "tuple", "dict", "tensors", "tuples", "dicts"],
)
def test_fixed_inputs_for_all_or_for_each(fixed):
    model, xs = Scaled().eval(), [row(s) for s in range(5)]
    found = list(gp.explain_many(model, xs, fixed=fixed, method=ROUNDS))
    for i, a in enumerate(found):
        one = fixed[i] if isinstance(fixed, list) else fixed
        assert as_alone(a, i, model, xs[i], fixed=one, method=ROUNDS)


class Tabled(nn.Module):
    """Reads the middle of a long table, which its text leaves out."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor, table) -> Tensor:
        table = table[0] if isinstance(table, list) else table
        return self.net(x) * float(table[1000])


@pytest.mark.parametrize("kind", [np.array, torch.tensor], ids=["array", "list of tensors"])
def test_fixed_tables_that_look_alike_are_told_apart(kind, tmp_path):
    tables = np.ones((3, 2000))
    tables[:, 1000] = 1, -2, 3
    fixed = [{"table": [kind(t)] if kind is torch.tensor else kind(t)} for t in tables]
    assert len({repr(f) for f in fixed}) == 1
    model, xs = Tabled().eval(), [row(s) for s in range(3)]
    found = list(gp.explain_many(model, xs, fixed=fixed, method=ROUNDS))
    for place, a in enumerate(found):
        assert as_alone(
            a,
            place,
            model,
            xs[place],
            fixed=fixed[place],
            method=ROUNDS,
        )
    options = {"method": ROUNDS, "checkpoint": tmp_path / "a.gpig"}
    gp.explain(model, xs[0], fixed=fixed[0], **options)
    with pytest.raises(gp.InvalidInput, match="Expected the input of the saved run"):
        gp.explain(model, xs[0], fixed=fixed[1], **options)


def test_examples_of_different_dtypes():
    net = mlp()
    xs = [row(0).half(), row(1), row(2).double()]
    for order in (xs, xs[::-1]):
        found = list(gp.explain_many(lambda x: net(x.float()), order, method=ROUNDS))
        for place, a in enumerate(found):
            assert as_alone(
                a,
                place,
                lambda x: net(x.float()),
                order[place],
                method=ROUNDS,
            )


def test_several_inputs_per_example():
    model = TwoInputs().eval()
    xs = [(picture(s, (3, 4)), row(s, 5)) for s in range(3)]
    found = list(gp.explain_many(model, xs, method=ROUNDS))
    for place, a in enumerate(found):
        assert as_alone(a, place, model, xs[place], method=ROUNDS)


def test_examples_that_stop_at_different_times_still_come_in_order():
    def model(x: Tensor) -> Tensor:
        return x.sum(1)

    # The k largest of these make up 60 %: 1, 5, 1, 3, … features.
    xs = [torch.ones(8) if s % 2 else torch.tensor([90.0] + [1.0] * 7) for s in range(9)]
    xs[4] = torch.tensor([4.0, 3, 2, 1, 1, 1, 1, 1])
    xs = [x / x.sum() for x in xs]
    options = {
        "objective": "logit",
        "batch_size": 5,
        "method": gp.GreedyPIG(per_round=1, steps=2),
        "stop": gp.Stop(value=0.6),
    }
    found = list(gp.explain_many(model, xs, **options))
    assert [a.selected for a in found] == [1, 5, 1, 5, 3, 5, 1, 5, 1]
    assert {a.stop for a in found} == {gp.StopReason.VALUE}
    for place, a in enumerate(found):
        assert as_alone(a, place, model, xs[place], **options)


@pytest.mark.parametrize("name", ["random", "smooth"])
def test_equal_examples_have_random_numbers_of_their_own(name):
    many = list(gp.explain_many(mlp(), [row()] * 4, **METHODS[name]))
    assert len({bits(a.feature_scores) for a in many}) == 4
    again = gp.explain_many(mlp(), [row()] * 4, **METHODS[name])
    assert all(torch.equal(a.order, b.order) for a, b in zip(many, again, strict=True))


def test_budgets_are_per_example():
    found = list(
        gp.explain_many(
            mlp(),
            [row(s) for s in range(4)],
            stop=gp.Stop(gradients=5),
            method=gp.GreedyPIG(per_round=1, steps=2),
        )
    )
    assert [a.gradients_used for a in found] == [4] * 4
    assert {a.stop for a in found} == {gp.StopReason.GRADIENTS}


def counted(xs, read):
    for i, x in enumerate(xs):
        read.append(i)
        yield x


def test_nothing_is_read_before_the_first_answer_is_asked_for():
    read = []
    gp.explain_many(mlp(), counted([row(s) for s in range(9)], read))
    assert read == []


@pytest.mark.slow
@pytest.mark.parametrize("batch_size", [1, 4, 16])
def test_examples_in_flight_are_bounded_by_the_batch(batch_size):
    """Each one under way waits with at least a row in one of two queues, values or gradients,
    and a new one begins only while neither fills a batch."""
    read, answers = [], 0
    xs = (row(s) for s in range(200))
    for _ in gp.explain_many(
        mlp(),
        counted(xs, read),
        batch_size=batch_size,
        method=ROUNDS,
    ):
        answers += 1
        assert len(read) - answers <= 2 * batch_size
    assert answers == 200


def test_examples_that_stop_by_themselves_come_one_by_one():
    read, answers = [], []

    def model(x: Tensor) -> Tensor:
        return x.sum(1)

    xs = [torch.ones(60) if s == 0 else torch.eye(60)[0] for s in range(60)]
    stream = gp.explain_many(
        model,
        counted(xs, read),
        objective="logit",
        batch_size=2,
        stop=gp.Stop(value=0.99),
        method=gp.GreedyPIG(per_round=1, steps=1),
    )
    for a in stream:
        answers.append(a.selected)
        assert len(read) - len(answers) <= 2
    assert answers == [1] * 60


@pytest.mark.slow
def test_finished_examples_are_let_go():
    alive = weakref.WeakSet()

    class Example(Tensor):
        pass

    def xs():
        for s in range(60):
            x = row(s).as_subclass(Example)
            alive.add(x)
            yield x

    for answers, _ in enumerate(
        gp.explain_many(mlp(), xs(), batch_size=4, method=gp.GreedyPIG(rounds=2, steps=2))
    ):
        if answers % 20 == 19:
            gc.collect()
            assert len(alive) <= 12


def test_gradients_of_different_examples_share_batches():
    examples, rounds, steps, batch = 12, 4, 4, 16
    model = Calls(mlp())
    xs = [row(s) for s in range(examples)]
    list(
        gp.explain_many(
            model, xs, batch_size=batch, method=gp.GreedyPIG(rounds=rounds, steps=steps)
        )
    )
    total = examples * rounds * steps
    assert sum(model.gradient_rows) == total
    assert max(model.gradient_rows + model.value_rows) <= batch
    assert len(model.gradient_rows) <= 1.5 * total / batch


def test_a_round_smaller_than_a_batch_fills_up_with_neighbours():
    model = Calls(mlp())
    list(
        gp.explain_many(
            model,
            [row(s) for s in range(24)],
            batch_size=8,
            method=gp.SequentialGradient(per_round=1),
        )
    )
    assert sum(model.gradient_rows) == 24 * 6
    assert len(model.gradient_rows) <= 1.2 * 24 * 6 / 8


@pytest.mark.parametrize("batch_size", [2, "auto"])
def test_a_bad_example_is_named_after_the_good_ones_are_delivered(batch_size):
    xs = [row(0), row(1), torch.full((6,), torch.nan), row(3)]
    stream = gp.explain_many(mlp(), xs, batch_size=batch_size, method=ROUNDS)
    found = []
    with pytest.raises(gp.InvalidInput, match="finite") as caught:
        collect(stream, found)
    assert len(found) == 2
    assert as_alone(
        found[1],
        1,
        mlp(),
        row(1),
        batch_size=batch_size,
        method=ROUNDS,
    )
    assert "input 2" in described(caught.value)


def collect(stream, found):
    for a in stream:
        found.append(a)


def described(error: BaseException) -> str:
    return " ".join([str(error), *getattr(error, "__notes__", [])])


class Trap(nn.Module):
    """Infinite gradient (√ at 0) for the example marked by a zero in its first place."""

    def __init__(self) -> None:
        super().__init__()
        self.net = mlp()

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x) + (x[:, :1] - 0.25).clamp(min=0).sqrt()


@pytest.mark.parametrize("batch_size", [2, "auto"])
def test_a_gradient_that_is_not_finite_is_named_after_the_good_ones_are_delivered(batch_size):
    bad = row(2).clone()
    bad[0] = 0.5  # Its midpoint is 0.25, where the square root's slope is infinite.
    xs = [row(0).abs() + 1, row(1).abs() + 1, bad, row(3).abs() + 1]
    stream = gp.explain_many(
        Trap().eval(),
        xs,
        objective="logit",
        batch_size=batch_size,
        method=gp.GreedyPIG(rounds=2, steps=1),
    )
    found = []
    with pytest.raises(gp.NonFinite) as caught:
        collect(stream, found)
    assert "input 2" in described(caught.value)
    assert len(found) == 2


def test_an_error_of_the_source_itself_comes_after_the_answers_before_it():
    def xs():
        yield row(0)
        yield row(1)
        raise OSError("the disk is gone")

    found = []
    with pytest.raises(OSError, match="disk"):
        collect(gp.explain_many(mlp(), xs(), method=gp.GreedyPIG(rounds=2, steps=2)), found)
    assert len(found) == 2


def test_the_caller_s_own_autograd_mode_is_kept_between_answers():
    with torch.no_grad():
        for _ in gp.explain_many(mlp(), [row(0), row(1)], method=gp.GreedyPIG(rounds=2, steps=2)):
            assert not torch.is_grad_enabled()
    for _ in gp.explain_many(mlp(), [row(0), row(1)], method=gp.GreedyPIG(rounds=2, steps=2)):
        assert torch.is_grad_enabled()


def test_an_output_that_never_changes_is_refused_in_its_turn():
    """As by `explain`; those before it are handed out."""

    def model(x):  # Of the second example it looks at nothing.
        return torch.stack([x.sum(1) * (x[:, 0] > -5), 0 * x.sum(1)], 1)

    first, second = row(0), row(1)
    second[0] = -9
    found = gp.explain_many(model, [first, second], baseline=-9.0, target=0)
    assert sorted(next(found).order.tolist()) == list(range(6))
    with pytest.raises(gp.InvalidInput, match="output of input 1 that depends on the features"):
        next(found)


# Interruptions, progress and time.


def test_an_interrupted_call_goes_on_from_its_folder(tmp_path):
    xs, method = [row(s) for s in range(9)], ROUNDS
    whole = list(gp.explain_many(mlp(), xs, method=method))
    model, options = Calls(mlp()), {"method": method, "batch_size": 8, "checkpoint": tmp_path / "c"}
    first = []
    for a in gp.explain_many(model, xs, **options):
        first.append(a)
        if len(first) == 5:
            break
    done = len(list((tmp_path / "c").iterdir()))
    assert 5 <= done < 9
    model.gradient_rows.clear()
    second = list(gp.explain_many(model, xs, **options))
    for a, b in zip(second, whole, strict=True):
        assert torch.equal(a.order, b.order)
        assert torch.allclose(a.feature_scores, b.feature_scores, rtol=1e-5, atol=1e-7)
    assert [a.seconds for a in second[:5]] == [a.seconds for a in first]
    assert sum(model.gradient_rows) == sum(a.gradients_used for a in whole[done:])
    assert len(list((tmp_path / "c").iterdir())) == 9


def test_a_finished_folder_is_read_and_nothing_is_run_again(tmp_path):
    xs, options = [row(s) for s in range(4)], {"method": "ig", "checkpoint": tmp_path}
    before = list(gp.explain_many(mlp(), xs, **options))
    after = list(gp.explain_many(mlp(), xs, **options))
    assert all(
        identical(a, b) and a.seconds == b.seconds for a, b in zip(before, after, strict=True)
    )


@pytest.mark.parametrize(
    "changed", [{"xs": 1}, {"seed": 3}, {"method": "gradient"}], ids=without_address
)
def test_a_folder_of_another_call_is_refused(tmp_path, changed):
    options = {"xs": [row(s) for s in range(3)], "method": "ig", "seed": 0, "checkpoint": tmp_path}
    list(gp.explain_many(mlp(), **options))
    if "xs" in changed:
        changed = {"xs": [row(7)]}
    with pytest.raises(gp.InvalidInput, match="of the saved run"):
        list(gp.explain_many(mlp(), **options | changed))


def test_a_checkpoint_that_is_a_file_is_refused(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(gp.InvalidInput, match="to be a folder"):
        gp.explain_many(mlp(), [row()], checkpoint=tmp_path / "file")


def test_a_larger_budget_goes_on_from_the_folder(tmp_path):
    options = {"method": ROUNDS, "checkpoint": tmp_path}
    (half,) = gp.explain_many(mlp(), [row()], stop=gp.Stop(gradients=2), **options)
    (whole,) = gp.explain_many(mlp(), [row()], **options)
    assert half.gradients_used == 2
    assert whole.gradients_used == 6
    assert gp.load(tmp_path / "00000.gpig").gradients_used == 6


@pytest.mark.parametrize("sized", [True, False])
def test_progress_counts_examples_and_the_rounds_of_those_that_run(sized):
    told = []
    xs = [row(s) for s in range(6)]
    method = ROUNDS
    answers = gp.explain_many(
        mlp(),
        xs if sized else iter(xs),
        method=method,
        batch_size=4,
        progress=lambda done, total: told.append((done, total)),
    )
    assert len(list(answers)) == 6
    counts = [done for done, _ in told]
    assert counts == sorted(counts)
    assert counts[-1] == 6
    assert any(done % 1 for done in counts)
    assert {total for _, total in told} == {6 if sized else None}


def test_progress_may_be_a_line_on_standard_error(capsys):
    list(gp.explain_many(mlp(), [row(), row(1)], method="ig", progress=True))
    said = capsys.readouterr()
    assert said.out == ""
    lines = [
        "",
        "0 of 2 examples   ",
        "1 of 2 examples, 0 s left   ",
        "2 of 2 examples, 0 s left   \n",
    ]
    assert said.err.split("\r") == lines


def test_the_seconds_of_results_add_up_to_no_more_than_the_call_took():
    began = time.monotonic()
    results = list(gp.explain_many(mlp(), [row(s) for s in range(20)]))
    assert all(a.seconds > 0 for a in results)
    assert sum(a.seconds for a in results) <= time.monotonic() - began


def test_examples_side_by_side_keep_their_rounds(tmp_path):
    xs, method = [row(i) for i in range(4)], gp.GreedyPIG(per_round=1, steps=2)
    whole = list(gp.explain_many(mlp(), xs, method=method))

    def stop(done, total):
        if done > 1:
            raise KeyboardInterrupt

    call = {"method": method, "checkpoint": tmp_path}
    with pytest.raises(KeyboardInterrupt):
        list(gp.explain_many(mlp(), xs, **call, progress=stop))
    kept = [gp.load(tmp_path / f"{i:05}.gpig") for i in range(4)]
    assert all(0 < len(a.picks) < len(b.picks) for a, b in zip(kept, whole, strict=True))
    told = []
    again = list(gp.explain_many(mlp(), xs, **call, progress=lambda done, total: told.append(done)))
    assert told[0] > 0
    for a, b in zip(again, whole, strict=True):
        assert torch.equal(a.order, b.order)
        assert a.gradients_used == b.gradients_used
