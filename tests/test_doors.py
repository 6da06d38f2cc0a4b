"""What every way to explain something promises, whichever it is: checkpoints, clocks, randomness,
progress, signatures, and that a callable objective is what a photo's curves are about."""

from __future__ import annotations

import copy
import inspect
import json
import pickle
import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from agreement import agree, agree_in_numbers
from greedypig.core.objective import Objective
from made_graphs import features, random_graph, seeded
from nets import TENSORS, WHOLE, Calls, bits, cnn, identical, mlp, picture, row
from problems import net
from tables.worlds import cut, regression
from watched import WATCH, Watch, Watched, WatchedGraph, watched, watched_photos, watched_texts

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
PIG = gp.GreedyPIG(per_round=1, steps=3)


@pytest.fixture(autouse=True)
def watch() -> Watch:
    WATCH.reset()
    return WATCH


@pytest.fixture
def path(tmp_path) -> Path:
    return tmp_path / "run.gpig"


# The doors. model, x: numbers of models and of inputs that differ.


def explain(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    return gp.explain(Watched(mlp(seed=model)), row(x), **{"method": PIG, "k": 4} | options)


def explain_picture(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    options = {"method": gp.SteadyPIG(rounds=5), "k": 300} | options
    return gp.explain(Watched(cnn(seed=model)), picture(x, (3, 16, 14)), **options)


def explain_photo(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    Image = pytest.importorskip("PIL.Image", reason="needs Pillow")
    photo = Image.new("RGB", (8, 8), (20, 20 + 80 * x, 20))
    photo.paste((230, 60, 40), (2, 2, 6, 6))
    photo.paste((90, 160, 40), (0, 3, 4, 8))
    options = {"method": gp.GreedyPIG(rounds=5, steps=3), "k": 60} | options
    with watched_photos(1 + model / 2) as name:
        return gp.explain_photo(photo, name, **options)


def graph(model: int, x: int) -> tuple[nn.Module, Tensor, Tensor]:
    network = WatchedGraph(seeded(gp.models.GCN, 5, 3, 8, seed=model))
    return network, features(40, seed=x), random_graph(40, 80)[0]


def explain_edges(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    return gp.explain_edges(*graph(model, x), **{"method": PIG, "k": 4} | options)


def explain_node(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    return gp.explain_node(*graph(model, x), 7, **{"method": PIG, "k": 4, "hops": 2} | options)


@cache
def text_model(kind: str, number: int) -> nn.Module:
    from text.tiny import model

    network = copy.deepcopy(model(kind))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.mul_(1 + number / 4)
    return network


def explain_text(model: int = 0, x: int = 0, kind: str = "bert", **options: Any) -> gp.Attribution:
    pytest.importorskip("transformers", reason="needs the extra text")
    from text.tiny import tokenizer

    network = text_model(kind, model)
    options = {"tokenizer": tokenizer(classifier=kind == "bert")} | options
    sources = ["The cat sat .", "The dog ran .", "Maria ran .", "The house was red ."]
    asked: dict[str, Any] = {"text": ("The cat sat on the mat .", "The dog ran on the mat .")[x]}
    if kind != "bert":
        asked = {"context": sources[x:], "question": "What ?", "answer": "a good dog"}
    with watched_texts(network):
        return gp.explain_text(network, **asked, **{"method": PIG, "k": 4} | options)


MODEL, X, Y = regression()


def select_features(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    network = copy.deepcopy(MODEL)
    with torch.no_grad():
        network.weight.mul_(1 + model)
    batches = cut(X.roll(x, 0), Y.roll(x, 0))
    options = {"method": PIG, "k": 4, "loss": "squared-error"} | options
    return gp.select_features(Watched(network), batches, **options)


def maximize(model: int = 0, x: int = 0, **options: Any) -> gp.Attribution:
    objective = gp.objective(watched(net(17 + 5 * model + 9 * x, 9).g), 9, dtype=torch.float64)
    return gp.maximize(objective, **{"method": PIG, "k": 4} | options)


Door = Callable[..., gp.Attribution]
DOORS: dict[str, Door] = {
    "explain": explain,
    "explain_picture": explain_picture,
    "explain_photo": explain_photo,
    "explain_edges": explain_edges,
    "explain_node": explain_node,
    "explain_text": explain_text,
    "select_features": select_features,
    "maximize": maximize,
}
SMOOTH = gp.Greedy(gp.SmoothIG(gp.IG(2), 2), per_round=1)
MEASURED = gp.GreedyPIG(rounds=4, steps=3, schedule="measured")
ASKED: dict[str, tuple[Door, dict[str, Any]]] = {
    **{name: (door, {}) for name, door in DOORS.items()},
    "explain with noise": (explain, {"method": SMOOTH, "seed": 3}),
    "explain measured": (explain, {"method": MEASURED, "k": None}),
    "explain complete": (explain, {"method": gp.GreedyPIG(per_round=1, steps=3, complete=True)}),
    "explain to a value": (explain, {"stop": gp.Stop(value=9.0)}),
    "explain while there is gain": (explain, {"stop": gp.Stop(gain=True), "k": None}),
    "explain two-sided": (explain, {"objective": gp.two_sided()}),
    "explain counterfactual": (explain, {"objective": "counterfactual"}),
    "explain from the seed of an example": (explain, {"method": SMOOTH, "seed": (3, 2)}),
    "explain_photo steady-pig": (explain_photo, {"method": gp.SteadyPIG(rounds=4), "k": None}),
    "explain_photo counterfactual": (explain_photo, {"objective": "counterfactual"}),
    "explain_edges two-sided": (explain_edges, {"objective": gp.two_sided("softmax")}),
    "explain_node two-sided": (explain_node, {"objective": gp.two_sided("softmax")}),
    "explain_text measured": (explain_text, {"method": MEASURED, "k": None}),
    "explain_text by default": (
        explain_text,
        {"method": None, "k": None, "objective": gp.two_sided()},
    ),
    "explain_text two-sided": (explain_text, {"kind": "gpt2", "objective": gp.two_sided()}),
    "select_features budget": (select_features, {"budget": 60, "seed": 2}),
    "select_features conditional": (select_features, {"baseline": "conditional"}),
    "select_features valid": (select_features, {"valid": cut(X[:90], Y[:90])}),
    "maximize two rounds at once": (maximize, {"method": gp.GreedyPIG(per_round=2, steps=2)}),
}
"""Calls, by a name that begins with their door's."""


def facts(a: gp.Attribution) -> dict[str, Any]:
    """What people are told, but for times."""
    return {name: fact for name, fact in a.about.record().items() if "seconds" not in name}


def differing(a: gp.Attribution, b: gp.Attribution) -> list[str]:
    """The fields that are not the same to the last bit, and facts that are others. Numbers among
    the facts agree to rounding: they are measured in batches of what is not known yet."""
    fields = [
        name
        for name in (*TENSORS, *WHOLE, "forwards_used")
        if exact(getattr(a, name, None)) != exact(getattr(b, name, None))
    ]
    if not fields:
        assert identical(a, b)
    return fields + [name for name in {**facts(a), **facts(b)} if not near(a, b, name)]


def exact(value: Any) -> Any:
    """A value that is equal to another one if they are the same bits."""
    return bits(value) if isinstance(value, Tensor) else repr(value)


def near(a: gp.Attribution, b: gp.Attribution, fact: str) -> bool:
    """Is the fact the same, but for rounding?"""
    try:
        agree_in_numbers(facts(a).get(fact), facts(b).get(fact))
    except AssertionError:
        return False
    return True


class Told:
    """A progress function that keeps what it is told; at the last of `most` it interrupts."""

    def __init__(self, most: int | None = None) -> None:
        self.most = most
        self.calls: list[tuple[float, float | None]] = []
        self.times: list[float] = []
        self.forwards: list[int] = []

    def __call__(self, done: float, total: float | None) -> None:
        self.calls.append((done, total))
        self.times.append(time.monotonic())
        self.forwards.append(WATCH.forwards)
        if len(self.calls) == self.most:
            raise KeyboardInterrupt

    @property
    def seconds(self) -> float:
        """From the first call to the last one."""
        return self.times[-1] - self.times[0]


# Checkpoints.


@pytest.mark.parametrize("where", ["in a gradient", "after a round", "after the last round"])
@pytest.mark.parametrize("name", ASKED)
def test_an_interrupted_call_goes_on_from_its_checkpoint(name, where, path, watch):
    door, options = ASKED[name]
    told = Told()
    whole = door(**options, progress=told)
    paid = watch.gradients
    watch.reset(most=paid * 2 // 3 if where == "in a gradient" else None)
    calls = {"in a gradient": None, "after a round": 2, "after the last round": len(told.calls)}
    with pytest.raises(KeyboardInterrupt):
        door(**options, checkpoint=path, progress=Told(calls[where]))
    saved = gp.load(path)
    assert saved.stop is gp.StopReason.RUNNING
    assert 0 < len(saved.picks) <= len(whole.picks)
    assert (len(saved.picks) == len(whole.picks)) == (where == "after the last round")
    assert saved.order[: saved.selected].tolist() == whole.order[: saved.selected].tolist()

    watch.reset()
    resumed = door(**options, checkpoint=path)
    # Steady-pig's scorer measures G of everything once in each part of a run: a forward more.
    again = whole.method == "steady-pig" and len(saved.picks) < len(whole.picks)
    assert differing(resumed, whole) == ["forwards_used"] * again
    left = whole.gradients_used - saved.gradients_used
    assert watch.gradients * whole.gradients_used == paid * left
    assert resumed.seconds >= saved.seconds
    assert differing(gp.load(path), resumed) == []


@pytest.mark.parametrize("name", ASKED)
def test_a_finished_call_repeated_costs_no_search(name, path, watch):
    door, options = ASKED[name]
    whole = door(**options, checkpoint=path)
    before, told = path.read_bytes(), Told()
    watch.reset()
    assert differing(door(**options, checkpoint=path, progress=told), whole) == []
    assert watch.gradients == 0
    assert told.forwards[0] == watch.forwards  # Only the model's output for the input.
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", DOORS)
def test_limits_may_change_when_a_call_goes_on(name, path, watch):
    whole = DOORS[name]()
    paid = watch.gradients
    watch.reset()
    part = DOORS[name](checkpoint=path, stop=gp.Stop(gradients=whole.gradients_used // 2))
    assert 0 < len(part.picks) < len(whole.picks)
    resumed = DOORS[name](checkpoint=path)
    agree(resumed, whole)  # What was measured when the first part ended is not measured again.
    assert bits(resumed.feature_scores) == bits(whole.feature_scores)
    assert resumed.gradients_used == whole.gradients_used
    assert watch.gradients == paid  # Of both parts together.


OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "model": ({"model": 1}, "model|objective"),
    "input": ({"x": 1}, "input|objective"),
    "k": ({"k": 3}, "k="),
    "method": ({"method": gp.SequentialGradient(rounds=4)}, "settings"),
    "knob": ({"method": gp.GreedyPIG(per_round=1, steps=4)}, "settings"),
    "seed": ({"seed": 1}, "seed=0"),
    "seed of an example": ({"seed": (0, 1)}, "example="),
}
"""What is asked otherwise → the arguments, what the error names."""


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("name", DOORS)
def test_a_checkpoint_of_another_question_is_refused_and_stays(name, other, path, watch):
    DOORS[name](checkpoint=path, stop=gp.Stop(gradients=DOORS[name]().gradients_used // 2))
    before = path.read_bytes()
    options, named = OTHERS[other]
    watch.reset()
    with pytest.raises(gp.InvalidInput, match=rf"Expected the .*({named})") as error:
        DOORS[name](checkpoint=path, **options)
    assert "of the saved run" in str(error.value)
    assert "checkpoint" in str(error.value)
    assert path.read_bytes() == before
    assert watch.gradients == 0


@pytest.mark.parametrize("foreign", ["words", "nothing", "another door's"])
@pytest.mark.parametrize("name", DOORS)
def test_a_foreign_checkpoint_is_refused_and_stays(name, foreign, path, watch):
    if foreign == "another door's":
        DOORS["explain" if name == "maximize" else "maximize"](checkpoint=path)
    else:
        path.write_text("the only copy of my thesis" * (foreign == "words"))
    before = path.read_bytes()
    watch.reset()
    with pytest.raises(gp.GreedyPigError, match=r"Expected .*checkpoint"):
        DOORS[name](checkpoint=path)
    assert path.read_bytes() == before
    assert watch.gradients == 0


@pytest.mark.parametrize("name", DOORS)
def test_a_checkpoint_in_no_folder_is_refused_before_the_search(name, tmp_path, watch):
    with pytest.raises(gp.InvalidInput, match="checkpoint to be a file in a folder that exists"):
        DOORS[name](checkpoint=tmp_path / "none" / "run.gpig")
    assert watch.gradients == 0


def explain_rows(model: int = 0, seed: int = 0, **options: Any) -> list[gp.Attribution]:
    """One at a time, so that the examples that are done are the same bits, however many."""
    xs = [row(10 * seed + i) for i in range(4)]
    options = {"method": PIG, "batch_size": 1} | options
    return list(gp.explain_many(Watched(mlp(seed=model)), xs, **options))


@pytest.mark.parametrize("method", [PIG, SMOOTH])
def test_an_interrupted_explain_many_goes_on_from_its_folder(method, tmp_path, watch):
    whole = explain_rows(method=method)
    paid = watch.gradients
    watch.reset(most=paid * 5 // 8)
    with pytest.raises(KeyboardInterrupt):
        explain_rows(method=method, checkpoint=tmp_path / "all")
    done = len(list((tmp_path / "all").iterdir()))
    assert 2 <= done < 4
    watch.reset()
    resumed = explain_rows(method=method, checkpoint=tmp_path / "all")
    assert list(map(differing, resumed, whole)) == [[]] * 4
    assert watch.gradients <= paid // 2
    before = {file: file.read_bytes() for file in (tmp_path / "all").iterdir()}
    assert len(before) == 4
    watch.reset()
    again = explain_rows(method=method, checkpoint=tmp_path / "all")
    assert list(map(differing, again, whole)) == [[]] * 4
    assert watch.gradients == 0
    assert before == {file: file.read_bytes() for file in (tmp_path / "all").iterdir()}


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"model": 1}, "model"),
        ({"seed": 1}, "input"),
        ({"k": 3}, "k="),
        ({"method": gp.SequentialGradient(rounds=4)}, "settings"),
    ],
)
def test_a_folder_of_another_question_is_refused_and_stays(options, named, tmp_path, watch):
    explain_rows(checkpoint=tmp_path)
    before = {file: file.read_bytes() for file in tmp_path.iterdir()}
    watch.reset()
    with pytest.raises(gp.InvalidInput, match=rf"Expected the .*({named})") as error:
        explain_rows(checkpoint=tmp_path, **options)
    assert "checkpoint" in str(error.value)
    assert before == {file: file.read_bytes() for file in tmp_path.iterdir()}
    assert watch.gradients == 0


def test_a_selector_with_a_checkpoint_goes_on_from_it(path, watch):
    pytest.importorskip("sklearn", reason="needs the extra sklearn")
    if "checkpoint" not in inspect.signature(gp.FeatureSelector).parameters:
        pytest.skip("has no checkpoint")

    def fit(**options: Any) -> gp.Attribution:
        selector = gp.FeatureSelector(Watched(MODEL), n_features_to_select=4, **options)
        return selector.fit(X.numpy(), Y.numpy()).attribution_

    whole = fit(loss="squared-error")
    watch.reset(most=watch.gradients // 2)
    with pytest.raises(KeyboardInterrupt):
        fit(loss="squared-error", checkpoint=path)
    watch.reset()
    assert differing(fit(loss="squared-error", checkpoint=path), whole) == []


# Clocks.


@pytest.mark.parametrize("name", DOORS)
def test_seconds_are_those_of_the_search(name, watch):
    watch.reset(pause=0.002 if name == "select_features" else 0.03)
    told = Told()
    a = DOORS[name](progress=told)
    assert told.seconds >= 0.1
    assert a.seconds == pytest.approx(told.seconds, rel=0.15, abs=0.03)


@pytest.mark.parametrize("name", ["explain_photo", "explain_text", "select_features"])
def test_checks_after_the_search_are_not_in_its_seconds(name, watch):
    table = name == "select_features"
    options = {"valid": cut(X[:90], Y[:90])} if table else {}
    watch.reset(pause=0.001 if table else 0.02)
    began, told = time.monotonic(), Told()
    a = DOORS[name](progress=told, **options)
    after = time.monotonic() - began - told.seconds
    assert watch.forwards > told.forwards[-1]
    assert after > 0.06
    assert a.seconds < told.seconds + 0.03


def test_seconds_of_explain_many_are_shares_of_the_search(watch):
    watch.reset(pause=0.005)
    told = Told()
    xs = [row(i) for i in range(6)]
    several = list(gp.explain_many(Watched(mlp()), xs, method=PIG, progress=told))
    assert 0.02 < sum(a.seconds for a in several) <= told.seconds + 0.01


def test_the_clock_stands_still_once_a_run_has_ended():
    run = gp.rounds(gp.objective(net(17, 9).g, 9, dtype=torch.float64), PIG)
    for _ in run:
        pass
    seconds = run.results()[0].seconds
    time.sleep(0.05)
    assert run.results()[0].seconds == seconds


def test_the_clock_stands_still_between_the_rounds():
    run = gp.rounds(gp.objective(net(17, 9).g, 9, dtype=torch.float64), PIG)
    for _ in run:
        time.sleep(0.02)
    assert run.results()[0].seconds < 0.1 < 9 * 0.02


# Rounds, one by one.


@pytest.mark.parametrize("method", [PIG, gp.MarginalGains(), gp.IG(5), MEASURED])
def test_results_evaluate_every_set_once(method):
    def forwards(each_round: bool) -> int:
        g = Calls(net(17, 9).g)
        run = gp.rounds(gp.objective(g, 9, dtype=torch.float64), method)
        for _ in run:
            if each_round:
                run.results()
        first = run.results()[0]
        before = sum(g.value_rows)
        again = run.results()[0]
        assert sum(g.value_rows) == before
        assert bits(again.values) == bits(first.values)
        return before

    # Asked in between, what everything gives is measured, too: it is the last set anyway.
    assert forwards(each_round=True) <= forwards(each_round=False) + 1


def test_results_between_rounds_are_those_of_a_run_that_stops_there():
    objective = gp.objective(net(17, 9).g, 9, dtype=torch.float64)
    run = gp.rounds(objective, PIG)
    for count, _ in enumerate(run, 1):
        stopped = gp.maximize(objective, PIG, stop=gp.Stop(gradients=3 * count))
        agree(replace(run.results()[0], stop=stopped.stop), stopped)


# Randomness.


def test_every_example_has_a_random_order_of_its_own():
    xs = [row(i) for i in range(5)]
    several = list(gp.explain_many(mlp(), xs, method="random"))
    assert len({tuple(a.order.tolist()) for a in several}) == 5


RANDOM = {
    "random": (mlp(), [row(i) for i in range(5)], "random"),
    "random in rounds": (mlp(), [row(i) for i in range(5)], gp.Greedy(gp.Random(), per_round=2)),
    "smooth-ig": (mlp(), [row(i) for i in range(5)], gp.SmoothIG(gp.IG(3), 4)),
    "smooth-ig in rounds": (mlp(), [row(i) for i in range(5)], SMOOTH),
    "steady-pig": (cnn(), [picture(i, (3, 16, 14)) for i in range(5)], gp.SteadyPIG(rounds=3)),
}


@pytest.mark.parametrize("batch_size", ["auto", 1])
@pytest.mark.parametrize("name", RANDOM)
def test_an_example_of_many_is_explained_alone_by_its_seed_and_place(name, batch_size):
    model, xs, method = RANDOM[name]
    options = {"method": method, "batch_size": batch_size}
    several = list(gp.explain_many(model, xs, seed=4, **options))
    alone = gp.explain(model, xs[3], seed=(4, 3), **options)
    agree(alone, several[3])
    elsewhere = gp.explain(model, xs[3], seed=(4, 2), **options)
    assert elsewhere.feature_scores.tolist() != alone.feature_scores.tolist()
    if batch_size == 1:
        assert identical(alone, several[3])


@pytest.mark.parametrize("name", RANDOM)
def test_equal_examples_differ_by_their_place_alone(name):
    model, xs, method = RANDOM[name]
    several = list(gp.explain_many(model, [xs[0]] * 3, method=method))
    assert len({bits(a.feature_scores) for a in several}) == 3
    agree(several[0], gp.explain(model, xs[0], method=method))


@pytest.mark.parametrize("name", DOORS)
def test_a_seed_is_that_of_the_first_example(name):
    door = DOORS[name]
    method = "random" if name != "explain_picture" else gp.SteadyPIG(rounds=2)
    options = {"method": method, "k": None}
    plain = door(**options, seed=5)
    assert identical(door(**options, seed=(5, 0)), plain)
    for other in ((5, 1), 6):
        assert bits(door(**options, seed=other).last_scores) != bits(plain.last_scores)


@pytest.mark.parametrize("seed", [(0,), (0, -1), (0, 1, 2), (0, 1.5), "0", (0, "1"), None])
@pytest.mark.parametrize("name", DOORS)
def test_what_is_no_seed_is_refused(name, seed):
    with pytest.raises(gp.GreedyPigError, match=r"Expected .*seed.*\(got"):
        DOORS[name](seed=seed)


# Signatures and progress.

PUBLIC = {
    name: getattr(gp, name)
    for name in (
        *("explain", "explain_many", "explain_photo", "explain_edges", "explain_node"),
        *("explain_text", "select_features", "maximize"),
    )
}
SHARED = (
    *("target", "objective", "baseline", "features", "method", "k", "stop", "seed"),
    *("batch_size", "checkpoint", "progress"),
)
"""Arguments of several doors, in the order in which they come at each; text calls its baseline
`absent`."""


@pytest.mark.parametrize("door", PUBLIC.values(), ids=PUBLIC)
def test_a_door_has_at_most_16_parameters_and_no_resume(door):
    names = list(inspect.signature(door).parameters)
    assert len(names) <= 16
    assert "resume" not in names
    assert {"method", "k", "stop", "seed", "checkpoint", "progress"} <= set(names)


@pytest.mark.parametrize("door", PUBLIC.values(), ids=PUBLIC)
def test_shared_arguments_come_in_one_order(door):
    parameters = inspect.signature(door).parameters.values()
    names = [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
    names = ["baseline" if name == "absent" else name for name in names]
    assert [n for n in names if n in SHARED] == [n for n in SHARED if n in names]


@pytest.mark.parametrize("door", PUBLIC.values(), ids=PUBLIC)
def test_annotations_say_what_is_taken(door):
    whole = inspect.signature(door)
    parameters = whole.parameters.values()
    assert all(p.annotation is not p.empty for p in parameters)
    written = [str(p.annotation) for p in parameters] + [str(whole.return_annotation)]
    assert [text for text in written if re.search(r"\bAny\b", text)] == []


@pytest.mark.parametrize("name", ["stop", "seed", "batch_size", "checkpoint", "progress"])
def test_a_shared_argument_has_one_type_and_one_default(name):
    found = []
    for door in PUBLIC.values():
        if parameter := inspect.signature(door).parameters.get(name):
            names = inspect.unwrap(door).__globals__
            found.append((eval(parameter.annotation, names), parameter.default))
    assert len({str(annotation) for annotation, _ in found}) == 1
    assert len({repr(default) for _, default in found}) == 1


@pytest.mark.parametrize("door", [*PUBLIC.values(), gp.rounds, gp.FeatureSelector])
def test_nothing_takes_resume(door):
    assert "resume" not in inspect.signature(door).parameters


@pytest.mark.parametrize("name", DOORS)
def test_progress_is_told_before_the_first_round_and_after_each(name):
    told = Told()
    a = DOORS[name](progress=told)
    rounds = len(a.picks)
    assert told.calls == [(done, rounds) for done in range(rounds + 1)]


@pytest.mark.parametrize("name", DOORS)
def test_progress_may_be_a_line_on_standard_error(name, capsys):
    DOORS[name](progress=True)
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(r"\d of \d", err)
    assert err.endswith("\n")
    for none in (False, None):
        DOORS[name](progress=none)
    assert capsys.readouterr() == ("", "")


def test_progress_of_many_counts_examples(capsys):
    told, xs = Told(), [row(i) for i in range(5)]
    list(gp.explain_many(mlp(), xs, method=PIG, batch_size=40, progress=told))
    done = [count for count, _ in told.calls]
    assert done[0] == 0
    assert done[-1] == 5
    assert done == sorted(done)
    assert {total for _, total in told.calls} == {5}
    list(gp.explain_many(mlp(), xs, method=PIG, progress=True))
    assert capsys.readouterr().err.endswith("\n")


# A photo's curves are about what was asked.


def best_channel(logits: Tensor) -> Tensor:
    """The probability of class 2, which is neither class 0 nor the predicted one."""
    return logits.softmax(1)[:, 2]


def lead(logits: Tensor) -> Tensor:
    """No probability, and below 0 for some."""
    return logits[:, 2] - logits[:, 1]


def photo_and_network() -> tuple[Any, nn.Module]:
    from PIL import Image

    photo = Image.new("RGB", (8, 8), (230, 60, 40))
    photo.paste((20, 250, 20), (2, 2, 6, 6))
    from cli.tiny_models import Tiny

    return photo, Tiny()


@pytest.mark.parametrize("own", [best_channel, lead])
def test_a_callable_is_what_a_photo_s_curves_are_about(own):
    pytest.importorskip("PIL.Image", reason="needs Pillow")
    photo, network = photo_and_network()
    x = network.preprocess(photo)
    with watched_photos() as name:
        a = gp.explain_photo(photo, name, objective=own, method=gp.GreedyPIG(rounds=6, steps=3))

    def of(pictures: Tensor) -> float:
        with torch.no_grad():
            return float(own(network(pictures.unsqueeze(0))))

    order = a.order.tolist()

    def kept(share: float) -> float:
        shown = torch.full_like(x, 0.5).flatten()
        best = order[: round(share * x.numel())]
        shown[best] = x.flatten()[best]
        return of(shown.view_as(x))

    assert a.about.nothing == pytest.approx(of(torch.full_like(x, 0.5)), abs=1e-4)
    for share, value in a.about.kept.items():
        assert value == pytest.approx(kept(float(share)), abs=1e-3), share
    assert a.about.kept
    curves = {name: c for name, c in a.about.curves.items() if name != "second-opinion"}
    assert curves
    for curve in curves.values():
        assert float(curve.values[0]) == pytest.approx(a.about.nothing, abs=1e-4)
        assert float(curve.values[-1]) == pytest.approx(of(x), abs=1e-4)
    assert a.full_value == pytest.approx(of(x), abs=1e-4)


@pytest.mark.parametrize("both", [False, True])
def test_a_photo_s_counterfactual_is_measured_by_deletion(both):
    objective = gp.two_sided("counterfactual") if both else "counterfactual"
    a = explain_photo(objective=objective)
    assert list(a.about.curves) == ["deletion"]
    assert a.about.kept == {}
    assert sorted(a.about.removed) == [0.01, 0.05, 0.1]


@pytest.mark.parametrize(
    "options",
    [
        {"objective": best_channel},
        {"objective": lambda logits: logits[:, 2]},
        {"objective": gp.two_sided(lead)},
        {"baseline": torch.zeros(3, 8, 8)},
        {"baseline": lambda x: x * 0},
        {"baseline": [torch.zeros(3, 8, 8), "gray"]},
        {"objective": gp.margin(against=3)},
    ],
)
def test_a_photo_s_result_holds_no_address_and_no_printed_tensor(options):
    a = explain_photo(**options)
    texts = json.dumps([a.about.record(), dict(a.settings)], default=str)
    assert "0x" not in texts
    assert "tensor(" not in texts
    assert "<function" not in texts
    assert "Margin(" not in texts


# Objectives are plain objects.


def tanh_of_sums(points: Tensor, problems: Tensor) -> Tensor:
    """A set function that pickle finds by its name."""
    return torch.tanh(points.cumsum(1)).sum(1)


def two_sided_objective() -> Any:
    """What a run of a two-sided objective works on."""
    start = torch.zeros(1, 1, 5, dtype=torch.float64)
    objective = Objective(tanh_of_sums, start, torch.ones_like(start))
    return gp.rounds(gp.two_sided(objective), PIG).objective


@pytest.mark.parametrize(
    "copied", [lambda g: pickle.loads(pickle.dumps(g)), copy.deepcopy, copy.copy]
)
def test_a_two_sided_objective_can_be_copied(copied):
    one = two_sided_objective()
    other = copied(one)
    assert type(other) is type(one) is type(two_sided_objective())
    assert identical(gp.maximize(other, PIG), gp.maximize(one, PIG))


@pytest.mark.parametrize("name", DOORS)
def test_results_can_be_pickled_and_copied(name):
    a = DOORS[name]()
    assert differing(pickle.loads(pickle.dumps(a)), a) == []
    assert differing(copy.deepcopy(a), a) == []
