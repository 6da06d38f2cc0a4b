"""The program as a whole: help, exit codes, terminals, pipes."""

import fcntl
import json
import os
import pty
import re
import select
import shlex
import struct
import subprocess
import sys
import termios
import time

import pytest

import greedypig
from conftest import TINY, environment, make_photo, program
from greedypig.cli import asking
from greedypig.cli.main import COMMANDS, main
from greedypig.cli.terminal import Bar, Terminal, duration


def test_version_and_help(call):
    assert call("--version")[:2] == (0, f"greedypig {greedypig.__version__}\n")
    code, out, _ = call("--help")
    assert code == 0
    for name in COMMANDS:
        assert name in out
    for name in COMMANDS:
        code, out, _ = call(name, "--help")
        assert code == 0
        assert f"greedypig {name}" in out.split("examples:")[1]
        for option in ("--json", "--out", "--quiet", "--debug"):
            assert option in out


@pytest.mark.parametrize("words", [[], ["explian"], ["explain"], ["--no-such"], ["report"]])
def test_a_wrong_command_line(call, words):
    code, out, err = call(*words)
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert "--help" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["selct", "t.csv"], "(did you mean select?). Try 'greedypig --help'."),
        (["explain", "a.png", "--methd", "ig"],
         "--methd ig (did you mean --method?). Try 'greedypig explain --help'."),
        (["explain", "a.png", "--seeds=3"],  # An option of another command is none of this one.
         "--seeds=3 (did you mean --seed?). Try 'greedypig explain --help'."),
        (["report", "a.gpig", "--zzz"], "arguments: --zzz. Try 'greedypig report --help'."),
    ],
)  # fmt: skip
def test_a_misspelt_word_gets_the_nearest_one(call, words, said):
    code, _, err = call(*words)
    assert code == 2
    assert err.rstrip().endswith(said)


def test_examples_of_the_help_are_understood():
    from greedypig.cli.main import build_parser

    for name, command in COMMANDS.items():
        for line in command.EXAMPLES.splitlines():
            words = line.split(" > ")[0].split()
            assert words[0] == "greedypig"
            assert build_parser().parse_args(words[1:]).command == name


def test_exit_codes_and_streams_of_the_program(place):
    fine = program("explain", "photo.png", *TINY, "--json", "--no-html", cwd=place)
    assert fine.returncode == 0, fine.stderr
    assert fine.stderr == ""
    assert json.loads(fine.stdout)["class"] == "red"
    failed = program("explain", "gone.png", cwd=place)
    assert (failed.returncode, failed.stdout) == (1, "")
    assert failed.stderr.startswith("error: Expected a photo or folder at gone.png")


def test_an_unforeseen_error_is_one_sentence_too(call, monkeypatch):
    def fail(*_):
        raise RuntimeError("something\nodd")

    monkeypatch.setattr(COMMANDS["report"], "run", fail)
    code, _, err = call("report", "x.gpig")
    assert code == 1
    assert err == "error: RuntimeError: something odd. Try --debug to see where.\n"
    monkeypatch.setenv("GREEDYPIG_DEBUG", "1")
    assert main(["report", "x.gpig"]) == 1


def test_a_reader_that_leaves_is_no_error(place):
    command = [sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY, "--json"]
    running = subprocess.Popen(command, cwd=place, env=environment(), stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE)  # fmt: skip
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(300) == 1
    assert err == b""


def on_a_terminal(*words, cwd, columns=None, **more):
    """Run with a terminal of its own: (exit code, everything it showed)."""
    leader, follower = pty.openpty()
    env = environment(TERM="xterm", **more)
    if columns is not None:
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        del env["COLUMNS"]
    if "NO_COLOR" not in more:
        env.pop("NO_COLOR", None)
    running = subprocess.Popen([sys.executable, "-m", "greedypig", *words], cwd=cwd, env=env,
                               stdin=follower, stdout=follower, stderr=follower)  # fmt: skip
    os.close(follower)
    shown = b""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        if select.select([leader], [], [], 0.2)[0]:
            try:
                piece = os.read(leader, 65536)
            except OSError:  # The other end is closed.
                break
            if not piece:
                break
            shown += piece
    os.close(leader)
    return running.wait(300), shown.decode()


def test_a_terminal_gets_a_bar_with_the_time_left_and_colours(place):
    words = ("explain", "photo.png", "--model", "tiny_models:slow", "--rounds", "10", "--steps",
             "1", "--no-html", "--batch-size", "200")  # fmt: skip
    code, shown = on_a_terminal(*words, cwd=place)
    assert code == 0, shown
    assert re.search(r"photo\.png █*░+ +\d+ %, [\d.]+ s left", shown)
    assert "\x1b[1mphoto.png: red" in shown
    # Where the bar was, the line is clean before anything else is written.
    assert "\r\x1b[K\x1b[1mphoto.png: red" in shown


def test_no_color_is_respected(place):
    code, shown = on_a_terminal("explain", "photo.png", *TINY, "--no-html", cwd=place, NO_COLOR="1")
    assert code == 0
    assert "\x1b[1m" not in shown
    assert "photo.png: red" in shown


WORDY = ("compare", "a photo with a rather long name that says what is on it.png", *TINY,
         "--methods", "greedy-pig,ig,random", "--judge", "tiny_models:other",
         "--budget", "60")  # fmt: skip


def test_what_goes_into_a_pipe_is_not_broken_into_lines(place, monkeypatch, call):
    make_photo(place / WORDY[1])
    monkeypatch.delenv("COLUMNS")
    _, out, _ = call(*WORDY)
    lines = out.splitlines()
    (head,) = [line for line in lines if "SIC" in line]
    assert "second opinion" in head  # Heads are shortened for narrow terminals alone.
    (wrote,) = [line for line in lines if "Wrote" in line]
    assert wrote.endswith("and every result")
    (within,) = [line for line in lines if line.startswith("Within 60 gradients")]
    assert "ig" in within
    assert max(map(len, lines)) > 80


def test_rows_of_many_photos_are_whole_in_a_pipe(place, monkeypatch, call):
    make_photo(place / WORDY[1])
    monkeypatch.delenv("COLUMNS")
    _, out, _ = call("explain", ".", *TINY, "--no-html")
    rows = [line for line in out.splitlines() if ".png" in line]
    assert any(line.startswith(WORDY[1]) for line in rows)
    head = out.splitlines()[0]
    assert len(head) < 150  # As wide as its words, not as a page without end.
    assert {len(row.removesuffix(" ▲")) for row in rows} == {len(head)}


def test_a_terminal_keeps_its_width(place):
    make_photo(place / WORDY[1])
    code, shown = on_a_terminal(*WORDY, cwd=place, columns=64)
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown)
    lines = [line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").splitlines()]
    assert "second opinion" not in next(line for line in lines if "SIC" in line)
    assert max(map(len, lines)) <= 64


def test_columns_that_are_asked_for_hold_everywhere(place, monkeypatch, call):
    make_photo(place / WORDY[1])
    monkeypatch.setenv("COLUMNS", "70")
    _, out, _ = call(*WORDY)
    assert max(map(len, out.splitlines())) <= 70


def test_time_left_runs_down_while_nothing_is_reported(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    clock, done, phase = [0.0], [0.0], [""]
    monkeypatch.setattr(time, "monotonic", lambda: clock[0])
    bar = Bar("photo.png", Terminal(), visible=False)
    bar.follow(lambda: done[0], 1, lambda: phase[0])
    clock[0], done[0] = 6.0, 0.6
    assert bar.line().endswith(" 60 %, 4.0 s left")
    clock[0], phase[0] = 9.0, "curves"
    assert bar.line().endswith(" 60 %, 1.0 s left")
    assert bar.line().startswith("photo.png: curves ")
    clock[0] = 11.0  # What was reckoned is over: how long it takes is not known.
    assert bar.line().endswith(" 60 %")
    clock[0], done[0] = 12.0, 0.8
    assert bar.line().endswith(" 80 %, 3.0 s left")


@pytest.mark.parametrize("command", [("explain", "--no-html"), ("compare", "--methods", "ig")])
def test_the_bar_says_when_curves_are_measured(call, monkeypatch, command):
    lines, plain = [], asking.Question._curves
    follow = Bar.follow

    def followed(self, *args):
        lines.append(self)
        follow(self, *args)

    def measured(self, a, x):
        lines.append(lines[0].line())
        return plain(self, a, x)

    monkeypatch.setattr(Bar, "follow", followed)
    monkeypatch.setattr(asking.Question, "_curves", measured)
    assert call(*command, "photo.png", *TINY)[0] == 0
    assert ": curves" in lines[-1]


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_a_bar_fits_its_terminal(monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    bar = Bar("a photo with a rather long name.jpg", Terminal(), visible=False)
    for done in (0, 1, 50, 100):
        bar.follow(lambda: 0, 100)
        bar._done = lambda done=done: done
        assert len(bar.line()) < width
        assert f"{done:3d} %" in bar.line()


def test_durations_as_people_say_them():
    assert [duration(s) for s in (0.04, 9.94, 12.2, 59.6, 200, 7500)] == [
        "0.0 s", "9.9 s", "12 s", "1 min 0 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip


def test_the_hint_to_go_on_survives_a_dashed_name():
    terminal = Terminal(command=("greedypig", "explain", "--k", "5", "--", "-a photo.png"))
    assert terminal.resume_hint() == "greedypig explain --resume --k 5 -- '-a photo.png'"


def test_the_page_shows_a_command_that_can_be_typed_again(place):
    words = ["explain", "my photo.png", "--model", "tiny_models:build", "--rounds", "2"]
    make_photo(place / "my photo.png")
    done = program(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    shown = greedypig.load(place / "my photo.gpig").about["command"]
    assert shlex.split(shown)[1:] == ["-m", "greedypig", *words]
    assert shown.endswith(
        "-m greedypig explain 'my photo.png' --model tiny_models:build --rounds 2"
    )
