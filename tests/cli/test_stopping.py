"""Ctrl-C keeps what was done, says how to go on, and going on gives the same result."""

import re
import resource
import signal
import socket
import subprocess
import sys

import pytest
import torch

import greedypig as gp
from conftest import TINY, environment, make_photo, results, way_on
from greedypig import metrics
from greedypig.cli.resumable import Session
from greedypig.core import run

KNOBS = ("--rounds", "6", "--steps", "2")


GCN = ("--hidden", "8", "--epochs", "15", "--steps", "2")
STOPPED = {
    "explain": (("photo.png", *TINY, *KNOBS), "photo", 3, "photo.png."),
    "compare": (
        ("photo.png", *TINY, "--methods", "ig,greedy-pig", "--budget", "8"),
        *("greedy-pig", 2, "photo.png, greedy-pig after 1 of 2."),
    ),
    "compress": (
        ("graph.npz", *GCN, "--rounds", "3", "--methods", "ig,greedy-pig,random"),
        *("greedy-pig", 2, "Greedy PIG, after 1 method."),
    ),
    "explain-node": (
        ("graph.npz", *GCN, "--node", "4", "--k", "6", "--draws", "2"),
        *("node-4", 2, "node 4."),
    ),
    "explain-text": (
        ("review.txt", "--model", "classifier", "--steps", "3", "--rounds", "4"),
        *("review", 2, "review.txt."),
    ),
}
"""The words of a command, where Ctrl-C comes: a result and its rounds, and what is said."""


def stop_after(monkeypatch, rounds, stem="photo"):
    """Ctrl-C once so many rounds of a result are done."""
    plain = Session.__call__

    def interrupt(self, done, total):
        plain(self, done, total)
        if done == rounds and self.result.stem == stem:
            raise KeyboardInterrupt

    monkeypatch.setattr(Session, "__call__", interrupt)


@pytest.mark.usefixtures("graph", "quick_figures")
@pytest.mark.parametrize("name", STOPPED)
def test_a_stopped_command_goes_on_to_the_same_files(
    call, answer, request, place, monkeypatch, name
):
    words, stem, rounds, said = STOPPED[name]
    if name == "explain-text":
        request.getfixturevalue("saved")
    answer(name, *words, "--out", "whole")
    with monkeypatch.context() as m:
        m.setattr(sys, "argv", ["greedypig"])
        stop_after(m, rounds, stem)
        code, out, err = call(name, *words, "--out", "out")
    assert (code, out) == (1, "")
    assert f"Stopped at {said}" in " ".join(err.split())
    (partial,) = (place / "out").rglob("*.partial.gpig")
    assert (partial.name, len(gp.load(partial).picks)) == (f"{stem}.partial.gpig", rounds)

    before = partial.read_bytes()
    code, _, other = call(name, "--resume", *words, "--out", "out", "--seed", "5")
    assert code == 2
    assert re.search(r"of the saved run.* Try the options of the stopped run, or no --resume\.",
                     " ".join(other.split()))  # fmt: skip
    assert partial.read_bytes() == before

    answer(*way_on(err))
    assert not partial.exists()
    assert results(place / "out") == results(place / "whole")

    if name != "explain-node":  # Its random subgraphs are drawn again.
        monkeypatch.setattr(run, "next_round", None)
    answer(*way_on(err))
    assert results(place / "out") == results(place / "whole")


def test_ctrl_c_before_the_first_round_keeps_nothing(call, place, monkeypatch):
    stop_after(monkeypatch, 0)
    code, _, err = call("explain", "photo.png", *TINY)
    assert code == 1
    assert "Stopped at photo.png" in err
    assert [p.name for p in place.iterdir()] == ["photo.png"]


def test_the_start_of_a_command_removes_what_a_killed_one_left(call, place, monkeypatch):
    left = [f".photo{end}.0123456789abcdef.part" for end in (".gpig", ".html", ".partial.gpig")]
    others = [".holiday.gpig.0123456789abcdef.part", ".photo.gpig.part"]
    for name in (*left, *others):
        (place / name).touch()
    stop_after(monkeypatch, 0)
    assert call("explain", "photo.png", *TINY)[0] == 1
    assert sorted(p.name for p in place.iterdir()) == sorted([*others, "photo.png"])


def test_ctrl_c_during_the_curves_keeps_the_explanation(call, answer, place, monkeypatch):
    whole = answer("explain", "photo.png", *TINY, *KNOBS, "--out", "whole")
    with monkeypatch.context() as m:
        m.setattr(metrics, "information_curves", lambda *a, **k: (_ for _ in ()).throw(
            KeyboardInterrupt))  # fmt: skip
        assert call("explain", "photo.png", *TINY, *KNOBS)[0] == 1
    assert gp.load(place / "photo.partial.gpig").gradients_used == 12
    assert answer("explain", "--resume", "photo.png", *TINY, *KNOBS)["order"] == whole["order"]


def test_photos_that_are_done_are_not_done_again(call, answers, place, monkeypatch):
    make_photo(place / "second.png", (30, 200, 40))
    first = answers("explain", "photo.png", "second.png", *TINY, *KNOBS)
    before = (place / "photo.gpig").read_bytes()

    def must_not_run(*_, **__):
        pytest.fail("measured again")

    monkeypatch.setattr(metrics, "information_curves", must_not_run)
    again = answers("explain", "--resume", "photo.png", "second.png", *TINY, *KNOBS)
    assert [r["order"] for r in again] == [r["order"] for r in first]
    assert (place / "photo.gpig").read_bytes() == before


def test_a_judge_may_be_asked_later(call, answer):
    answer("explain", "photo.png", *TINY)
    record = answer("explain", "--resume", "photo.png", *TINY, "--judge", "tiny_models:other")
    assert "second-opinion" in record["curves"]


def test_a_larger_budget_goes_on(answer):
    assert answer("explain", "photo.png", *TINY, *KNOBS, "--budget", "4")["gradients"] == 4
    more = answer("explain", "--resume", "photo.png", *TINY, *KNOBS)
    assert more["gradients"] == 12
    assert more["order"] == answer("explain", "photo.png", *TINY, *KNOBS, "--out", "o")["order"]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_real_signal_in_the_middle(place, number):
    words = ("explain", "photo.png", "--model", "tiny_models:meeting", "--rounds", "60", "--steps",
             "1", "--batch-size", "1")  # fmt: skip
    command = [sys.executable, "-m", "greedypig", *words]
    ours, theirs = socket.socketpair()
    running = subprocess.Popen(
        command,
        cwd=place,
        env=environment(MEETING=str(theirs.fileno())),
        pass_fds=[theirs.fileno()],
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    theirs.close()
    assert ours.recv(1) == b"."  # Nothing, if the program has ended.
    running.send_signal(number)
    ours.close()
    out, err = running.communicate(timeout=300)
    assert running.returncode == 1, err
    assert out == ""
    assert "Traceback" not in err
    assert "Stopped at photo.png" in err
    assert "python" in err
    assert "-m greedypig explain --resume photo.png" in err
    kept = gp.load(place / "photo.partial.gpig")
    assert 0 < len(kept.picks) < 60
    assert torch.equal(kept.order.sort().values, torch.arange(192))


@pytest.mark.slow
def test_a_full_disk_leaves_nothing_that_blocks_going_on(call, answer, place):
    """The figure alone finds no space: what is there is whole, and --resume writes the rest."""
    pytest.importorskip("matplotlib", reason="needs the extra plots")
    words = ("compare", "photo.png", *TINY, "--methods", "ig,random", "--out", "out")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        code, _, err = call(*words)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert code == 1
    assert "Expected space on the disk for out/comparison.png (got: " in " ".join(err.split())
    assert not (place / "out" / "comparison.png").exists()
    assert not [p for p in (place / "out").iterdir() if p.name.startswith(".")]
    (place / "out" / "photo" / "ig.gpig").stat()
    assert answer(*words, "--resume")["methods"]
    assert (place / "out" / "comparison.png").stat().st_size > 20_000
