"""Checkpoints: when they are written, and that a run goes on from one as if it had never broken."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import fields
from math import isnan
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp
from greedypig.core import carry_out as road
from greedypig.core.errors import OtherQuestion
from greedypig.core.run import Run
from problems import modular, net, random_coverage

N = 9
SCORERS = {
    "ig": gp.IG(3),
    "ig-left": gp.IG(3, "left"),
    "ig-gauss": gp.IG(2, "gauss_legendre"),
    "gradient": gp.Gradient(at=0.0),
    "smooth": gp.SmoothIG(gp.IG(2), samples=3),
    "guided": gp.GuidedIG(steps=6, fraction=0.4, max_dist=0.3),
    "random": gp.Random(),
    "gains": gp.MarginalGains(),
}
SKIPPED = {"seconds", "features", "layout", "settings", "provenance"}


def same(a: object, b: object) -> bool:
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(
            torch.nan_to_num(a, nan=7e77), torch.nan_to_num(b, nan=7e77)
        )
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, float) and isinstance(b, float) and isnan(a) and isnan(b):
        return True
    return a == b


def assert_same(a: gp.Attribution, b: gp.Attribution) -> None:
    """Every field but the clock, to the last bit."""
    for field in fields(gp.Attribution):
        if field.name not in SKIPPED:
            x, y = getattr(a, field.name), getattr(b, field.name)
            assert same(x, y), f"{field.name}: {x} and {y}"


def question(name: str, **knobs) -> tuple[gp.Objective, gp.Greedy]:
    """An objective that suits the scorer, and greedy rounds around it."""
    g = random_coverage(3, N, 14, 3, whole=True) if name == "gains" else net(17, N)
    return g.objective(batch_size=4), gp.Greedy(SCORERS[name], **(knobs or {"rounds": 5}))


def whole_run(name: str, knobs: dict | None = None, **options) -> gp.Attribution:
    return gp.maximize(*question(name, **(knobs or {})), seed=11, **options)


def broken_after(
    count: int, name: str, path: Path, knobs: dict | None = None, *, measure=False, **options
) -> gp.Attribution:
    """What is known after so many rounds, also as a file; measure: with G(S) after every round."""
    run = gp.rounds(*question(name, **(knobs or {})), seed=11, **options)
    for _ in range(count):
        next(run)
    half = run.results(measure=measure)[0]
    half.save(path)
    return half


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.gpig"


class Saved(list):
    """How many rounds every file held, and why its run had stopped."""

    def __init__(self, monkeypatch) -> None:
        save = gp.Attribution.save

        def noted(attribution: gp.Attribution, path: Path) -> None:
            self.append((len(attribution.picks), attribution.stop.name))
            save(attribution, path)

        monkeypatch.setattr(gp.Attribution, "save", noted)


def failing(g, after: int, error: BaseException | None = None, *, gradient: bool = True):
    """g whose calls with (or without) gradients beyond the first `after` fail or are NaN."""
    calls = [0]

    def function(w: Tensor) -> Tensor:
        calls[0] += torch.is_grad_enabled() == gradient
        if calls[0] > after and torch.is_grad_enabled() == gradient:
            if error is not None:
                raise error
            return g.g(w) * torch.nan
        return g.g(w)

    objective = gp.objective(function, N, dtype=torch.float64, batch_size=64)
    objective.origin = g.g  # To a checkpoint it is g.
    return objective


# Going on.


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize("measure", [False, True])
def test_a_run_resumed_from_any_round_equals_the_unbroken_run(name, measure, path):
    whole = whole_run(name)
    for count in range(6):
        half = broken_after(count, name, path, measure=measure)
        assert half.stop is gp.StopReason.RUNNING
        resumed = whole_run(name, checkpoint=path)
        assert_same(resumed, whole)
        assert_same(gp.load(path), whole)


@pytest.mark.parametrize("name", SCORERS)
def test_a_run_broken_again_and_again_equals_the_unbroken_run(name, path, monkeypatch):
    # An interrupt in every round but the first two.
    rounds = Run._after_round
    done = [0]

    def interrupted(run: Run):
        if done[0] == 2:
            done[0] = 1
            raise KeyboardInterrupt
        done[0] += 1
        return rounds(run)

    monkeypatch.setattr(Run, "_after_round", interrupted)
    picks = []
    while True:
        try:
            resumed = whole_run(name, checkpoint=path)
            break
        except KeyboardInterrupt:
            picks.append(len(gp.load(path).picks))
    monkeypatch.undo()
    assert picks == [2, 3, 4]
    assert_same(resumed, whole_run(name))


@pytest.mark.parametrize("name", ["ig", "ig-left", "gradient", "smooth", "guided"])
def test_a_run_out_of_budget_goes_on_with_more(name, path):
    stop = gp.Stop(gradients=2 * SCORERS[name].cost)
    spent = whole_run(name, stop=stop, checkpoint=path)
    assert spent.stop is gp.StopReason.GRADIENTS
    assert len(spent.picks) == 2
    assert_same(gp.load(path), spent)
    assert_same(whole_run(name, checkpoint=path), whole_run(name))


@pytest.mark.parametrize("name", ["ig", "ig-left", "gradient"])
def test_resuming_holds_where_the_last_bits_depend_on_the_batch(name, path):
    # As with BLAS: the same row may differ in its last bits in a batch of another size. Here the
    # value says how many rows came along, so a value measured in another batch is found out.
    g, method = net(17, N), gp.Greedy(SCORERS[name], rounds=5)

    def telling() -> object:
        return gp.objective(lambda w: g.g(w) + 1e-9 * len(w), N, dtype=torch.float64)

    whole = gp.maximize(telling(), method)
    stop = gp.Stop(gradients=2 * SCORERS[name].cost)
    assert len(gp.maximize(telling(), method, stop=stop, checkpoint=path).picks) == 2
    assert_same(gp.maximize(telling(), method, checkpoint=path), whole)


@pytest.mark.parametrize("name", ["ig", "gains"])
def test_groups_resume_too(name, path):
    options = {"features": gp.Groups(torch.tensor([0, 1, 2, 3, 0, 1, 2, 3, 4]))}
    broken_after(2, name, path, {"per_round": 1}, **options)
    whole = whole_run(name, {"per_round": 1}, **options)
    assert_same(whole_run(name, {"per_round": 1}, checkpoint=path, **options), whole)


def test_a_run_that_took_fewer_than_planned_resumes(path):
    # gain=True leaves out what scores 0 or less, so a round may be smaller than its schedule.
    # g = 3w₀ + 2w₁ − w₂ + w₃ and rounds of 2: picks {0, 1}, {3}, then nothing has a gain.
    g = modular([3, 2, -1, 1, -2, -3])
    method, stop = gp.GreedyPIG(per_round=2, steps=2), gp.Stop(gain=True)
    whole = gp.maximize(g.objective(), method, stop=stop)
    assert whole.picks == (2, 1)
    run = gp.rounds(g.objective(), method, stop=stop)
    next(run), next(run)
    run.results()[0].save(path)
    assert_same(gp.maximize(g.objective(), method, stop=stop, checkpoint=path), whole)


@pytest.mark.parametrize("name", ["ig", "random"])
def test_rounds_of_windows_resume_also_after_the_last(name, path):
    # The last round is planned for all windows that are left, and takes those it needs.
    options = {"features": gp.Windows((3, 3), 2)}
    whole = whole_run(name, {"rounds": 3}, **options)
    assert len(whole.picks) == 3
    for done in (1, 2, 3):
        broken_after(done, name, path, {"rounds": 3}, **options)
        assert_same(whole_run(name, {"rounds": 3}, checkpoint=path, **options), whole)


@pytest.mark.parametrize("name", ["ig", "ig-left", "gains"])
def test_a_finished_file_gives_its_result_again_without_any_work(name, path):
    objective, method = question(name)
    whole = gp.maximize(objective, method, checkpoint=path)
    paid, written = (objective.gradients_used, objective.forwards_used), path.stat()
    again = gp.maximize(objective, method, checkpoint=path)
    assert (objective.gradients_used, objective.forwards_used) == paid
    assert again.seconds == whole.seconds
    assert_same(again, whole)
    assert path.stat().st_mtime_ns == written.st_mtime_ns


def test_a_run_that_found_no_gain_resumes_to_itself(path):
    method, stop = gp.GreedyPIG(per_round=1, steps=2), gp.Stop(gain=True)
    g = modular([3, -2, 1])
    whole = gp.maximize(g.objective(), method, stop=stop, checkpoint=path)
    objective = g.objective()
    again = gp.maximize(objective, method, stop=stop, checkpoint=path)
    assert_same(again, whole)
    assert objective.gradients_used == 0
    assert again.stop is gp.StopReason.NO_GAIN
    assert gp.maximize(g.objective(), method, checkpoint=path).stop is gp.StopReason.ALL


def test_the_parts_of_a_run_are_paid_and_timed_together(path):
    half = broken_after(3, "ig", path)
    objective, method = question("ig")
    whole = gp.maximize(objective, method, seed=11, checkpoint=path)
    assert half.gradients_used == 9
    assert whole.gradients_used == 15 == 9 + objective.gradients_used
    assert whole.seconds > half.seconds > 0


def test_explain_goes_on_with_a_rule_of_one_s_own(path):
    torch.manual_seed(0)
    model, x = nn.Linear(6, 3), torch.randn(6)
    method = gp.GreedyPIG(rounds=4, rule=gp.Rule((0.25, 0.75), (0.5, 0.5)))
    gp.explain(model, x, method=method, stop=gp.Stop(gradients=4), checkpoint=path)
    resumed = gp.explain(model, x, method=method, checkpoint=path)
    assert_same(resumed, gp.explain(model, x, method=method))


# Another question.


@pytest.mark.parametrize(
    ("difference", "knobs", "options"),
    [
        ("settings of the saved run, rounds=5 (got 4)", {"rounds": 4}, {}),
        ("settings of the saved run, k=None (got 7)", {"rounds": 5}, {"k": 7}),
        ("settings of the saved run, seed=11 (got 12)", {"rounds": 5}, {"seed": 12}),
        ("features of the saved run", {"rounds": 5}, {"features": gp.Groups(torch.arange(N))}),
        (
            "features of the saved run",
            {"rounds": 5},
            {"features": gp.Elements(N, [f"f{i}" for i in range(N)])},
        ),
    ],
)
def test_the_file_of_another_question_is_refused_and_stays(difference, knobs, options, path):
    broken_after(2, "ig", path)
    before = path.read_bytes()
    with pytest.raises(OtherQuestion) as caught:
        gp.maximize(*question("ig", **knobs), **{"seed": 11, "checkpoint": path, **options})
    assert isinstance(caught.value, gp.InvalidInput)
    assert difference in "".join(map(str, caught.value.sentence))
    assert f"another file than checkpoint={str(path)!r}. It was not changed" in str(caught.value)
    assert path.read_bytes() == before


def test_other_groups_of_the_same_number_are_refused(path):
    g, method = net(1, 4), gp.GreedyPIG(schedule=[1])
    one, other = (gp.Groups(torch.tensor(ids)) for ids in ([0, 0, 1, 2], [0, 1, 2, 2]))
    gp.maximize(g.objective(), method, features=one, checkpoint=path)
    with pytest.raises(OtherQuestion, match="features"):
        gp.maximize(g.objective(), method, features=other, checkpoint=path)


def test_a_checkpoint_is_a_file_of_one_problem_in_a_folder_that_exists(tmp_path):
    with pytest.raises(gp.InvalidInput, match="folder that exists"):
        whole_run("ig", checkpoint=tmp_path / "nowhere" / "run.gpig")
    two = net(1, 4).objective().repeated(2)
    with pytest.raises(gp.InvalidInput, match=r"one problem for checkpoint \(got 2\)"):
        gp.maximize(two, checkpoint=tmp_path / "run.gpig")
    assert os.listdir(tmp_path) == []


# Writing.


def test_rounds_are_written_once_a_second_and_at_the_end(path, monkeypatch):
    # Eight rounds of 0.4 seconds each: 1.2 and 2.4 are the first times a second is over.
    now, g, saved = [0.0], net(17, N), Saved(monkeypatch)
    monkeypatch.setattr(road, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def slow(w: Tensor) -> Tensor:
        now[0] += 0.4 * torch.is_grad_enabled()
        return g.g(w)

    objective = gp.objective(slow, N, dtype=torch.float64)
    now[0] = 0.0
    a = gp.maximize(objective, gp.GreedyPIG(rounds=8, steps=2), checkpoint=path)
    assert saved == [(3, "RUNNING"), (6, "RUNNING"), (8, "RUNNING"), (8, "ALL")]
    assert_same(gp.load(path), a)


@pytest.mark.parametrize("error", [None, RuntimeError("mine"), KeyboardInterrupt()])
def test_an_error_or_ctrl_c_leaves_the_rounds_before_it(error, path, monkeypatch):
    # In the fourth round's gradients; all within the first second.
    saved, method = Saved(monkeypatch), gp.Greedy(SCORERS["ig"], rounds=5)
    with pytest.raises(gp.NonFinite if error is None else type(error)):
        gp.maximize(failing(net(17, N), 3, error), method, checkpoint=path)
    assert saved == [(3, "RUNNING")]
    whole = gp.maximize(net(17, N).objective(batch_size=64), method)
    resumed = gp.maximize(net(17, N).objective(batch_size=64), method, checkpoint=path)
    assert_same(resumed, whole)


def test_ctrl_c_while_values_are_measured_leaves_all_rounds(path):
    method = gp.Greedy(SCORERS["ig"], rounds=5)
    interrupted = failing(net(17, N), 0, KeyboardInterrupt(), gradient=False)
    with pytest.raises(KeyboardInterrupt):
        gp.maximize(interrupted, method, checkpoint=path)
    objective = net(17, N).objective(batch_size=64)
    resumed = gp.maximize(objective, method, checkpoint=path)
    assert objective.gradients_used == 0
    assert_same(resumed, gp.maximize(objective, method))


def test_an_error_before_the_first_round_leaves_no_file(path):
    with pytest.raises(gp.NonFinite):
        gp.maximize(failing(net(17, N), 0), checkpoint=path)
    assert not path.exists()


def test_a_process_that_does_not_write_reads(path):
    whole, half = whole_run("ig"), broken_after(3, "ig", path)
    objective, method = question("ig")
    options = {"seed": 11, "checkpoint": path, "writes": False}
    (resumed,) = road.carry_out(gp.rounds(objective, method).question, method, **options)
    assert_same(resumed, whole)
    assert objective.gradients_used == 6
    assert_same(gp.load(path), half)


LONG = """
import sys, time
sys.path.insert(0, sys.argv[2])
import greedypig as gp
import torch
from greedypig.core import carry_out
from problems import net

def slow(w):
    time.sleep(0.005)
    return net(17, 400).g(w)

carry_out.BETWEEN = 0.0
objective = gp.objective(slow, 400, dtype=torch.float64)
objective.origin = net(17, 400).g  # To the file it is the same, only slower.
gp.maximize(objective, gp.GreedyPIG(per_round=1, steps=2), checkpoint=sys.argv[1])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="SIGKILL")
def test_kill_9_leaves_a_whole_file_to_go_on_from(path):
    tests = str(Path(__file__).parents[1])
    job = subprocess.Popen([sys.executable, "-c", LONG, str(path), tests])
    try:
        deadline = time.monotonic() + 120
        while not path.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # Written again and again meanwhile.
    finally:
        job.send_signal(signal.SIGKILL)
    assert job.wait() == -signal.SIGKILL
    half, g, method = gp.load(path), net(17, 400), gp.GreedyPIG(per_round=1, steps=2)
    assert 0 < half.selected < 400
    assert half.stop is gp.StopReason.RUNNING
    resumed = gp.maximize(g.objective(), method, checkpoint=path)
    assert_same(resumed, gp.maximize(g.objective(), method))
