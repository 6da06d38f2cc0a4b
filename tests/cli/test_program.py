"""The program as a whole: help, exit codes, terminals, pipes."""

import fcntl
import json
import os
import pty
import re
import resource
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
from greedypig.cli.commands import COMMANDS, TEXT_METHODS
from greedypig.cli.main import build_parser, main, module_of
from greedypig.cli.terminal import Terminal, duration


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
        for option in ("--json", "--out"):
            assert option in out.split("\noutput:")[1]


@pytest.mark.parametrize("name", COMMANDS)
def test_help_fits_a_screen_and_help_all_has_every_option(call, name):
    short = call(name, "--help")[1]
    whole = call(name, "--help-all")[1]
    assert len(short.splitlines()) <= 40
    assert max(map(len, (short + whole).splitlines())) <= 80
    options = (
        build_parser([name])._subparsers._group_actions[0].choices[name]._option_string_actions
    )
    in_short = [option for option in options if f"\n  {option}" in short]
    assert len(in_short) <= 17
    assert all(option in whole for option in options)
    titles = [line[:-1] for line in whole.splitlines() if re.fullmatch(r"\w+:", line)]
    assert set(titles) <= {"input", "model", "method", "output", "examples"}


SINGLE = {
    "explain": ("photo.png", *TINY, "--rounds", "1", "--no-html"),
    "compare": ("photo.png", *TINY, "--methods", "ig,random", "--budget", "2"),
    "select": ("t.csv", "--label", "y", "--k", "1", "--seeds", "1", "--epochs", "1"),
    "compress": ("graph.npz", "--epochs", "1", "--rounds", "1"),
    "explain-node": ("graph.npz", "--node", "3", "--k", "2", "--epochs", "1", "--draws", "1"),
}
KEYS = {
    "explain": {"class", "probability", "curve", "method"},
    "compare": {"methods", "failed"},
    "select": {"losses", "loss_all", "method"},
    "compress": {"kept", "accuracy", "accuracy_full", "agreement", "curve", "method"},
    "explain-node": {"class", "probability", "method"},
}


@pytest.mark.usefixtures("graph", "quick_figures")
@pytest.mark.parametrize("name", SINGLE)
def test_json_is_an_object_per_input_done_or_failed(answer, place, name):
    rows = [f"{i % 7},{(5 * i) % 11},{int(i % 7 > 3)}" for i in range(200)]
    (place / "t.csv").write_text("\n".join(["a,b,y", *rows]))
    record = answer(name, *SINGLE[name])
    assert {"order", "gradients", "seconds", "settings", "files"} | KEYS[name] <= set(record)
    assert "error" not in record
    for words, code in [(MISSING[name], 2), ([*SINGLE[name], "--no-such"], 2)]:
        record = answer(name, *words, code=code)
        assert set(record) == {"error"}
        assert record["error"]


@pytest.mark.slow
def test_every_help_is_there_in_half_a_second_and_loads_no_command():
    helps = [["--help"], *([name, "--help"] for name in COMMANDS)]
    code = (
        f"import sys; from greedypig.cli.main import main; [main(words) for words in {helps}];"
        "print(*sys.modules, file=sys.stderr)"
    )
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 0.5
    loaded = set(done.stderr.split())
    assert "torch" not in loaded
    commands = {f"greedypig.cli.{name.replace('-', '_')}" for name in COMMANDS}
    assert not loaded & commands


def test_helps_say_the_default_rounds():
    from greedypig.graphs.methods import FOR_EDGES, FOR_NODES
    from greedypig.text.methods import FOR_TEXTS

    assert (FOR_EDGES.rounds, FOR_EDGES.steps, FOR_NODES.steps) == (33, 3, 20)
    assert (FOR_TEXTS.rounds, FOR_TEXTS.steps, FOR_TEXTS.schedule) == (6, 4, "measured")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("explain photo.png --target 3", "--class"),
        ("explain photo.png --label cat", "--class"),
        ("explain photo.png --output x", "--out"),
        ("explain photo.png --basline gray", "--baseline"),
        ("select t.csv --target y", "--label"),
        ("select t.csv --label y --features 3", "--k"),
        ("compress graph.npz --k 100", "--keep"),
        ("explain-node graph.npz --node 1 --targt 2", None),
    ],
)
def test_an_option_of_another_name_is_suggested(call, words, option):
    code, _, err = call(*words.split())
    assert code == 2
    assert ("Did you mean" in err) == (option is not None)
    assert option is None or f"Did you mean '{option}'?" in err


@pytest.mark.parametrize("k", [",", "", "0", "-3", "2,x"])
def test_a_number_of_columns_is_at_least_one(call, k):
    code, _, err = call("select", "t.csv", "--label", "y", "--k", k)
    assert code == 2
    assert err.startswith("error: Expected --k as a whole number of at least 1 (got ")


@pytest.mark.parametrize("words", [[], ["explian"], ["explain"], ["--no-such"], ["report"]])
def test_a_wrong_command_line(call, words):
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert "--help" in err


@pytest.mark.parametrize(
    ("words", "near", "program"),
    [
        (["selct", "t.csv"], "'select'", "greedypig"),
        (["explain", "a.png", "--methd", "ig"], "'--method'", "greedypig explain"),
        # An option of another command is none of this one.
        (["explain", "a.png", "--seeds=3"], "'--seed'", "greedypig explain"),
        (["report", "a.gpig", "--zzz"], "--zzz", "greedypig report"),
    ],
)
def test_a_misspelt_word_gets_the_nearest_one(call, words, near, program):
    code, _, err = call(*words)
    assert code == 2
    assert near in err
    assert f"'{program} --help'" in err


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ([], "Expected COMMAND (got nothing)."),
        (["explain"], "Expected PHOTO (got nothing)."),
        (["explain", "a.png", "--k"], "Expected a value after --k (got nothing)."),
        (["explain", "a", "--k", "0"], "Expected --k as a whole number of at least 1 (got '0')."),
        (["explain", "a.png", "--json=1"], "Expected no value after --json (got '1')."),
        (["explain", "a.png", "--seed", "x"], "Expected --seed as a whole number (got 'x')."),
        (["explain", "a", "--seconds", "0"], "Expected --seconds as a number above 0 (got '0')."),
        (["select", "t.csv", "--task", "x"],
         "Expected --task as one of classification, regression (got 'x')."),
        (["report", "a.gpig", "--zzz"], "Expected options of this command (got --zzz)."),
        (["explain-node", "g.npz", "--noed", "4"],
         "Expected options of this command (got --noed 4). Did you mean '--node'?"),
        (["explain-node", "g.npz"], "Expected --node (got nothing)."),
        (["report", "a.gpig", "--open=x"], "Expected no value after --open (got 'x')."),
        (["explain-text", "a", "--methods", "ig,randm"],
         f"Expected --methods as names with commas, among {', '.join(TEXT_METHODS)} "
         "(got 'randm'). Did you mean 'random'?"),
    ],
)  # fmt: skip
def test_argparse_speaks_as_the_library_does(call, words, sentence):
    code, out, err = call(*words)
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {sentence} ")


def test_parameters_of_the_library_are_options_here(call, place):
    (place / "edges.csv").write_text("from,to\n0,1\n")
    code, _, err = call("compress", "edges.csv")
    assert code == 2
    assert "Try --nodes nodes.csv." in err


def test_words_of_a_table_are_whole_on_a_narrow_terminal(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "40")
    heads = ["", "second opinion", "above full", "gradients"]
    Terminal().table(heads, [["greedy-pig (regions)", "0.049", "0.054", "9"]])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 40
    for word in ["greedy-pig", "(regions)", "opinion", "gradients"]:
        assert any(word in line.split() for line in lines)


@pytest.mark.parametrize("name", COMMANDS)
def test_examples_of_the_help_are_understood(name):
    for line in COMMANDS[name].examples.splitlines():
        program, *words = line.split(" > ")[0].split()
        assert program == "greedypig"
        assert build_parser(words).parse_args(words).command == name


MISSING = {
    "explain": ["gone.png"],
    "compare": ["gone.png"],
    "select": ["gone.csv", "--label", "y"],
    "compress": ["gone.npz"],
    "explain-node": ["gone.npz", "--node", "3"],
    "explain-text": ["gone.txt"],
    "report": ["gone.gpig"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_missing_input_is_a_wrong_command(call, name):
    code, out, err = call(name, *MISSING[name], "--quiet")
    assert (code, out) == (2, "")
    assert err.startswith("error: Expected")
    assert MISSING[name][0] in err


@pytest.mark.slow
def test_exit_codes_and_streams_of_the_program(place):
    done = program("explain", "photo.png", *TINY, "--json", "--no-html", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert json.loads(done.stdout)["class"] == "red"
    missing = program("explain", "gone.png", cwd=place)
    assert (missing.returncode, missing.stdout) == (2, "")
    assert missing.stderr.startswith("error: Expected a photo or folder at gone.png")


def test_an_unforeseen_error_is_one_sentence_and_its_traceback_harmless(call, monkeypatch, capsys):
    def fail(*_):
        raise RuntimeError("something\nodd\x1b[31m")

    monkeypatch.setattr(module_of("report"), "run", fail)
    code, _, err = call("report", "x.gpig")
    assert code == 1
    assert err == "error: RuntimeError: something odd\\x1b[31m. Try --debug to see where.\n"
    assert main(["report", "x.gpig", "--debug"]) == 1
    err = capsys.readouterr().err
    assert "Traceback" in err
    assert "\x1b" not in err


def test_without_rich_the_command_says_what_to_install(call, monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)  # Importing it fails from here on.
    code, out, err = call("explain", "photo.png", *TINY)
    assert (code, out) == (1, "")
    assert err.startswith("error: Expected the package rich")
    assert 'pip install "greedypig[cli]"' in err
    assert call("--help")[0] == 0


@pytest.mark.slow
def test_a_reader_that_leaves_is_no_error(place):
    command = [sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY, "--json"]
    running = subprocess.Popen(
        command, cwd=place, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.close()
    err = running.stderr.read()
    running.stderr.close()
    assert running.wait(300) == 1
    assert err == b""


def on_a_terminal(*words, cwd, columns=80, **more):
    """Run with a terminal of its own: (exit code, everything it showed)."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    env = {name: value for name, value in environment().items() if name != "NO_COLOR"}
    env |= {"TERM": "xterm", "COLUMNS": str(columns), **more}
    running = subprocess.Popen(
        [sys.executable, "-m", "greedypig", *words],
        cwd=cwd, env=env, stdin=follower, stdout=follower, stderr=follower,
    )  # fmt: skip
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


EVIL = "evil\x1b[31m\x07\x9b2J\u202egnp.exe.png"
ESCAPED = r"evil\x1b[31m\x07\x9b2J\u202egnp.exe.png"


@pytest.mark.slow
def test_a_terminal_gets_progress_with_the_time_left_and_colours(place):
    make_photo(place / EVIL)
    code, shown = on_a_terminal("explain", EVIL, *TINY, "--no-html", cwd=place, columns=120)
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    # The time left is known from the second drawing on, which a quick run may not have.
    assert re.search(re.escape(ESCAPED) + r" +━.* \d+% (0:00:\d\d|-:--:--)", plain)
    assert f"\x1b[1m{ESCAPED}: red" in shown
    # Names do nothing to the terminal.
    assert not set(plain) & {"\x1b", "\x07", "\x9b", "\u202e"}


@pytest.mark.slow
def test_no_color_is_respected(place):
    code, shown = on_a_terminal("explain", "photo.png", *TINY, "--no-html", cwd=place, NO_COLOR="1")
    assert code == 0
    assert not re.search(r"\x1b\[3\dm", shown)
    assert "photo.png: red" in shown


WORDY = ("compare", "a photo with a rather long name that says what is on it.png", *TINY,
         "--methods", "greedy-pig,ig,random", "--judge", "tiny_models:other",
         "--budget", "60")  # fmt: skip


@pytest.mark.slow
def test_lines_are_broken_for_terminals_alone(place, monkeypatch, call):
    make_photo(place / WORDY[1])
    code, shown = on_a_terminal(*WORDY, cwd=place, columns=64)
    assert code == 0, shown
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown).replace("\r\n", "\n")
    assert max(len(line.rpartition("\r")[2]) for line in plain.splitlines()) <= 64
    monkeypatch.delenv("COLUMNS")
    _, out, err = call(*WORDY)
    lines = out.splitlines()
    (head,) = [line for line in lines if "SIC" in line]
    assert "second opinion" in head
    (wrote,) = [line for line in lines if "wrote" in line]
    assert wrote.endswith("and every result")
    assert [line for line in lines if line.startswith("Within 60 gradients: ")]
    assert "\x1b" not in out + err


def test_rows_of_many_photos_are_whole_in_a_pipe(place, monkeypatch, call):
    make_photo(place / WORDY[1])
    monkeypatch.delenv("COLUMNS")
    _, out, _ = call("explain", ".", *TINY, "--no-html")
    rows = [line for line in out.splitlines() if ".png" in line]
    assert any(line.startswith(WORDY[1]) for line in rows)
    head = next(line for line in out.splitlines() if line.startswith("photo "))
    assert {len(row) for row in rows} == {len(head)}  # As wide as its words, not without end.


def test_durations_as_people_say_them():
    assert [duration(s) for s in (0.04, 9.94, 12.2, 59.6, 200, 7500)] == [
        "0.0 s", "9.9 s", "12 s", "1 min 0 s", "3 min 20 s", "2 h 5 min",
    ]  # fmt: skip


def test_the_hint_to_go_on_survives_a_dashed_name(capsys):
    words = ("greedypig", "explain", "--k", "5", "--", "-a photo.png")
    terminal = Terminal(words, {"command": "explain", "resume": False})
    terminal.stopped("Stopped.")
    hint = "greedypig explain --resume --k 5 -- '-a photo.png'"
    assert capsys.readouterr().err.splitlines()[-1].strip() == hint


@pytest.mark.slow
def test_the_page_shows_a_command_that_can_be_typed_again(place):
    words = ["explain", "my photo.png", "--model", "tiny_models:build", "--rounds", "2"]
    make_photo(place / "my photo.png")
    done = program(*words, cwd=place)
    assert done.returncode == 0, done.stderr
    command = greedypig.load(place / "my photo.gpig").about.command
    assert shlex.split(command)[1:] == ["-m", "greedypig", *words]


CLOSED = {"stdout": ">&-", "stderr": "2>&-", "all three": "<&- >&- 2>&-"}


@pytest.mark.slow
@pytest.mark.parametrize("streams", CLOSED.values(), ids=CLOSED)
def test_streams_that_the_shell_closed_are_no_error(place, streams):
    words = shlex.join([sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY, "--json"])
    done = subprocess.run(
        ["sh", "-c", f"{words} {streams}"],
        cwd=place, env=environment(), capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert greedypig.load(place / "photo.gpig").selected > 0
    assert (place / "photo.html").exists()
    if streams == "2>&-":
        assert json.loads(done.stdout)["class"] == "red"


@pytest.mark.parametrize(
    ("words", "code"), [(["--version"], 0), (["explain", "--help"], 0), (["explain", "gone"], 2)]
)
def test_messages_that_nobody_can_read_are_no_traceback(place, monkeypatch, words, code):
    monkeypatch.setattr(sys, "stdout", None)
    monkeypatch.setattr(sys, "stderr", None)
    assert main(words) == code


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="a device of Linux")
def test_standard_output_that_is_full_is_one_sentence(place):
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "greedypig", "explain", "photo.png", *TINY],
            cwd=place, env=environment(), stdout=full, stderr=subprocess.PIPE, text=True,
            timeout=300,
        )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device.\n"


def test_names_of_files_do_nothing_to_the_terminal(place, call):
    make_photo(place / EVIL)
    _, out, err = call("explain", EVIL, *TINY)
    assert ESCAPED in out.replace("\n", "")
    missing = call("explain", "gone\r" + EVIL, *TINY)
    wrong = call("explain", EVIL, *TINY, "--no-such\x1b[31m")
    assert ESCAPED in missing[2]
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
