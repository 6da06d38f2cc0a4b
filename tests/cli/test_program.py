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
from greedypig.cli.main import COMMANDS, main
from greedypig.cli.terminal import Bar, Terminal, duration
from greedypig.images.api import PhotoNotes


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_a_terminal_gets_a_bar_with_the_time_left_and_colours(place):
    words = ("explain", "photo.png", "--model", "tiny_models:slow", "--rounds", "10", "--steps",
             "1", "--no-html", "--batch-size", "200")  # fmt: skip
    code, shown = on_a_terminal(*words, cwd=place)
    assert code == 0, shown
    assert re.search(r"photo\.png █*░+ +\d+ %, [\d.]+ s left", shown)
    assert "\x1b[1mphoto.png: red" in shown
    # Where the bar was, the line is clean before anything else is written.
    assert "\r\x1b[K\x1b[1mphoto.png: red" in shown


@pytest.mark.slow
def test_no_color_is_respected(place):
    code, shown = on_a_terminal("explain", "photo.png", *TINY, "--no-html", cwd=place, NO_COLOR="1")
    assert code == 0
    assert "\x1b[1m" not in shown
    assert "photo.png: red" in shown


WORDY = ("compare", "a photo with a rather long name that says what is on it.png", *TINY,
         "--methods", "greedy-pig,ig,random", "--judge", "tiny_models:other",
         "--budget", "60")  # fmt: skip


@pytest.mark.slow
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
    head = next(line for line in out.splitlines() if line.startswith("photo "))
    assert len(head) < 150  # As wide as its words, not as a page without end.
    assert {len(row.removesuffix(" ▲")) for row in rows} == {len(head)}


@pytest.mark.slow
def test_a_terminal_keeps_its_width(place):
    make_photo(place / WORDY[1])
    code, shown = on_a_terminal(*WORDY, cwd=place, columns=64)
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[0-9;]*[A-Za-z]", "", shown)
    lines = [line.rpartition("\r")[2] for line in plain.replace("\r\n", "\n").splitlines()]
    assert "second opinion" not in next(line for line in lines if "SIC" in line)
    assert max(map(len, lines)) <= 64


@pytest.mark.slow
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
    lines, plain = [], PhotoNotes.curves
    follow = Bar.follow

    def followed(self, *args):
        lines.append(self)
        follow(self, *args)

    def measured(self, a, x):
        lines.append(lines[0].line())
        return plain(self, a, x)

    monkeypatch.setattr(Bar, "follow", followed)
    monkeypatch.setattr(PhotoNotes, "curves", measured)
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


@pytest.mark.slow
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


CLOSED = {"stdout": ">&-", "stderr": "2>&-", "both": ">&- 2>&-", "all three": "<&- >&- 2>&-"}


@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED.values(), ids=CLOSED)
def test_streams_that_the_shell_closed_are_no_error(place, streams):
    words = shlex.join([sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY, "--json"])
    done = subprocess.run(["sh", "-c", f"{words} {streams}"], cwd=place, env=environment(),
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert greedypig.load(place / "photo.gpig").selected > 0
    assert (place / "photo.html").exists()
    if streams == "2>&-":
        assert json.loads(done.stdout)["class"] == "red"


@pytest.mark.slow
def test_an_error_does_not_go_to_standard_output_where_standard_error_is_closed(place):
    words = shlex.join([sys.executable, "-m", "greedypig", "explain", "gone.png", *TINY])
    done = subprocess.run(["sh", "-c", f"{words} 2>&-"], cwd=place, env=environment(),
                          capture_output=True, text=True, timeout=300)  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "")


@pytest.mark.parametrize("words", [["--version"], ["--help"], ["explain", "--help"]])
def test_help_that_nobody_can_read_is_no_traceback(place, monkeypatch, words):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(words) == 0


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_standard_output_that_is_full_is_one_sentence(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run([sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY],
                              cwd=place, env=environment(), stdout=full, stderr=subprocess.PIPE,
                              text=True, timeout=300)  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device.\n"


EVIL = "evil\x1b[31m\x07\x9b2J\u202egnp.exe.png"
SEEN = r"evil\x1b[31m\x07\x9b2J\u202egnp.exe.png"


def test_names_of_files_do_nothing_to_the_terminal(place, call):
    make_photo(place / EVIL)
    _, out, err = call("explain", EVIL, *TINY)
    assert SEEN in out.replace("\n", "")
    missing = call("explain", "gone\r" + EVIL, *TINY)
    wrong = call("explain", EVIL, *TINY, "--no-such\x1b[31m")
    assert SEEN in missing[2]
    for text in (out, err, *missing[1:], *wrong[1:]):
        assert not set(text) & {"\x1b", "\r", "\x07", "\x9b", "\u202e"}


def test_names_of_columns_do_nothing_to_the_terminal(place, call):
    rows = [f"{i % 7},{(5 * i) % 11},{int(i % 7 > 3)}" for i in range(200)]
    (place / "t.csv").write_text("\n".join(["a\x1b[31m,b\x07,y", *rows]))
    code, out, err = call("select", "t.csv", "--label", "y", "--k", "1,2", "--seeds", "1",
                          "--epochs", "1", "--methods", "ig")  # fmt: skip
    assert code == 0, err
    assert r"a\x1b[31m" in out
    assert not set(out + err) & {"\x1b", "\x07"}
    order = greedypig.load(place / "t-selection" / "selection.gpig").top(2)
    assert set(order) == {"a\x1b[31m", "b\x07"}  # The data keep their own names.
    page = (place / "t-selection" / "selection.html").read_text()
    assert "a\ufffd[31m" in page
    assert "\x1b" not in page


@pytest.mark.slow
def test_names_do_nothing_to_a_terminal_with_colours_and_a_bar(place):
    make_photo(place / "evil\x1b[31m\x1b]0;title\x07.png")
    code, shown = on_a_terminal("explain", "evil\x1b[31m\x1b]0;title\x07.png", "--model",
                                "tiny_models:slow", "--rounds", "4", "--steps", "1", "--no-html",
                                cwd=place)  # fmt: skip
    assert code == 0, shown
    assert "\x1b[1mevil\\x1b[31m\\x1b]0;title\\x07.png: red" in shown  # Ours is bold all the same.
    assert "\x07" not in shown
    assert set(re.findall(r"\x1b[^mK]*[mK]?", shown)) <= {"\x1b[1m", "\x1b[2m", "\x1b[33m",
                                                          "\x1b[0m", "\x1b[K"}  # fmt: skip


def test_tracebacks_do_nothing_to_the_terminal(monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("odd\x1b[31m")

    monkeypatch.setattr(COMMANDS["report"], "run", fail)
    assert main(["report", "x.gpig", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "\x1b" not in err


def test_the_hint_to_go_on_can_be_typed_whatever_the_name():
    words = ("explain", "a\x1b[31m'b\\c\nd\xff \udcff.png", "two words")
    line = Terminal(command=("printf '%s\\0'", *words)).command_line()
    assert line.isprintable()
    done = subprocess.run(["bash", "-c", line], capture_output=True, timeout=60)
    assert done.stdout == b"".join(os.fsencode(word) + b"\0" for word in words)
