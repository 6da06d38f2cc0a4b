"""Ctrl-C at any moment of any command: it says what is kept and the command that goes on."""

import inspect
import json
import os
import re
import shutil
import signal
import sys
from pathlib import Path

import pytest

import greedypig as gp
import reproduction
from conftest import TINY, make_photo, results, way_on
from greedypig.cli import main as program
from greedypig.cli.commands import COMMANDS
from greedypig.cli.explain import Question
from greedypig.cli.main import module_of
from greedypig.cli.terminal import Terminal
from reproduction import __main__ as reproduce

OURS = tuple(str(Path(package.__file__).parent) for package in (gp, reproduction))
MODULES = {name: module_of(name) for name in COMMANDS} | {"reproduce": reproduce}
GRAPH = ("graph.npz", "--hidden", "8", "--epochs", "15", "--steps", "2")
MOMENTS = (0, 0.5, 0.8, 0.9, 0.97)
"""When each command is stopped: of n functions of the package that it calls, at the n^moment-th."""

WORDS = {
    "explain": ("explain", "photo.png", "second.png", *TINY, "--rounds", "4", "--steps", "2"),
    "compare": ("compare", "photo.png", *TINY, "--methods", "greedy-pig,ig", "--budget", "8"),
    "select": ("select", "t.csv", "--label", "y", "--k", "1", "--seeds", "1", "--epochs", "1",
               "--methods", "ig,random"),
    "compress": ("compress", *GRAPH, "--rounds", "3", "--methods", "greedy-pig,random"),
    "explain-node": ("explain-node", *GRAPH, "--node", "3", "--k", "4", "--draws", "2"),
    "explain-text": ("explain-text", "review.txt", "--model", "classifier", "--steps", "2"),
    "reproduce": ("reproduce", "sic", *TINY, "--photos", "photo.png", "second.png", "--budget",
                  "4", "--methods", "ig,random", "--judge", "none"),
}  # fmt: skip


def interrupted(monkeypatch, name, at):
    """Ctrl-C at the at-th call of a function of the package inside the command; counts them.

    Python itself drops what is raised while it closes a generator: those do not count.
    """
    calls = [0]

    def see(frame, event, _):
        code = frame.f_code
        ours = code.co_filename.startswith(OURS) and not code.co_flags & inspect.CO_GENERATOR
        if event == "call" and ours:
            calls[0] += 1
            if calls[0] == at:
                sys.setprofile(None)
                raise KeyboardInterrupt

    plain = MODULES[name].run

    def run(args, terminal):
        sys.setprofile(see)
        try:
            return plain(args, terminal)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(MODULES[name], "run", run)
    return calls


@pytest.fixture(autouse=True)
def started_as_greedypig(monkeypatch):
    """The printed command begins with the program's name, which follows from how it was started."""
    monkeypatch.setattr(sys, "argv", ["greedypig"])


@pytest.fixture
def inputs(place, graph, saved, quick_figures):
    make_photo(place / "second.png", (30, 200, 40))
    rows = [f"{i % 7},{(5 * i) % 11},{int(i % 7 > 3)}" for i in range(200)]
    (place / "t.csv").write_text("\n".join(["a,b,y", *rows]))
    return place


def essence(records):
    """What does not depend on the clock."""
    keys = ("order", "methods", "losses", "curve", "probabilities", "rows")
    text = json.dumps([{k: record[k] for k in keys if k in record} for record in records])
    return re.sub(r'"seconds": [\d.e-]+', "", text)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", WORDS)
def test_a_command_stopped_anywhere_says_how_to_go_on_to_the_same_answer(
    call, answers, inputs, monkeypatch, name
):  # fmt: skip
    words = WORDS[name]
    whole, files = essence(answers(*words, "--out", "out")), results(Path("out"))
    with monkeypatch.context() as m:
        calls = interrupted(m, name, 0)
        assert call(*words, "--out", "out")[0] == 0
    for moment in MOMENTS:
        shutil.rmtree("out")
        with monkeypatch.context() as m:
            interrupted(m, name, int(calls[0] ** moment))
            code, _, err = call(*words, "--out", "out")
        assert code == 1
        assert essence(answers(*way_on(err))) == whole
        assert results(Path("out")) == files


def test_a_page_that_was_stopped_starts_again(call, answer, monkeypatch):
    answer("explain", "photo.png", *TINY, "--no-html")
    with monkeypatch.context() as m:
        interrupted(m, "report", 3)
        code, _, err = call("report", "photo.gpig")
    assert code == 1
    again = way_on(err)
    assert again == ["report", "photo.gpig"]  # There is no --resume to give.
    assert call(*again)[0] == 0


def test_a_stop_before_anything_is_read_keeps_the_resume_that_was_asked_for(call, monkeypatch):
    interrupted(monkeypatch, "explain", 1)
    code, _, err = call("explain", "photo.png", *TINY, "--resume")
    assert code == 1
    assert err.endswith("greedypig explain --resume photo.png --model tiny_models:build\n")


def test_a_stop_while_the_command_is_loaded_starts_again(call, monkeypatch):
    def stop(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(program, "module_of", stop)
    code, _, err = call("explain", "photo.png")
    assert code == 1
    assert way_on(err) == ["explain", "photo.png"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_does_not_interrupt_the_imports_of_a_command(call, monkeypatch, number):
    plain, imported = program.module_of, []

    def load(name):
        os.kill(os.getpid(), number)
        imported.append(plain(name))
        return imported[0]

    monkeypatch.setattr(program, "module_of", load)
    # A shell starts background jobs with Ctrl-C ignored, and then the program ignores it, too.
    before = signal.signal(number, signal.default_int_handler)
    try:
        code, _, err = call("explain", "photo.png")
    finally:
        signal.signal(number, before)
    assert code == 1
    assert len(imported) == 1
    assert way_on(err) == ["explain", "photo.png"]


def test_results_of_an_earlier_run_do_not_block_going_on(call, answer, monkeypatch):
    words = ("explain", "photo.png", *TINY)
    answer(*words)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as m:
        m.setattr(Question, "read", stop)
        code, _, err = call(*words, "--rounds", "3")
    assert code == 1
    assert answer(*way_on(err))["settings"]["rounds"] == 3


@pytest.mark.slow
def test_measuring_all_again_goes_on_with_what_was_measured(call, inputs, monkeypatch):
    words = WORDS["reproduce"]
    with monkeypatch.context() as m:
        calls = interrupted(m, "reproduce", 0)
        assert call(*words, "--out", "out")[0] == 0
    with monkeypatch.context() as m:
        interrupted(m, "reproduce", int(0.7 * calls[0]))
        code, _, err = call(*words, "--no-resume", "--out", "out")
    assert code == 1
    assert "--no-resume" not in way_on(err)


def test_one_process_of_several_speaks(capsys):
    terminal = Terminal(command=("greedypig", "select", "t.csv"))
    terminal.follow()
    terminal.stopped("Stopped.")
    assert capsys.readouterr().err == ""
