"""Ctrl-C while the program is being loaded: one line, exit code 130, and nobody else is touched."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from greedypig import starting

SOURCE = Path(__file__).parent.parent / "src"

SLOW_TORCH = """
import pathlib, time
pathlib.Path("loading").touch()
try:
    for _ in range(1200):  # A signal right before a long sleep would only be seen after it.
        time.sleep(0.1)
except KeyboardInterrupt:
    {answer}
"""
"""What takes the seconds, made certain to take them; a package half imported may do either."""

CONSOLE_SCRIPT = """
import re
import sys
from greedypig.cli.main import main
if __name__ == '__main__':
    sys.exit(main())
"""
"""What pip writes for the command."""


def interrupted_while_loading(command, place, answer="raise"):
    """The exit code and standard error of a command that got Ctrl-C in `import torch`."""
    (place / "torch.py").write_text(SLOW_TORCH.format(answer=answer))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place), str(SOURCE)])}
    # Whoever started the tests in the background has SIGINT ignored, and so would their children.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        running = subprocess.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True)  # fmt: skip
    finally:
        signal.signal(signal.SIGINT, before)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and not (place / "loading").exists():
        time.sleep(0.02)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=60)
    assert out == ""
    return running.returncode, err


posix = pytest.mark.skipif(sys.platform == "win32", reason="signals of POSIX")


@posix
@pytest.mark.parametrize("answer", ["raise", "raise ImportError('half of it')", "time.sleep(5)"])
def test_the_module_ends_in_one_line(tmp_path, answer):
    command = [sys.executable, "-m", "greedypig", "explain", "photo.png"]
    assert interrupted_while_loading(command, tmp_path, answer) == (130, "Interrupted.\n")


@posix
def test_the_command_ends_in_one_line(tmp_path):
    script = tmp_path / "greedypig"
    script.write_text(CONSOLE_SCRIPT)
    command = [sys.executable, str(script), "explain", "photo.png"]
    assert interrupted_while_loading(command, tmp_path) == (130, "Interrupted.\n")


@posix
def test_a_program_that_imports_greedypig_keeps_its_own_ctrl_c(tmp_path):
    (tmp_path / "mine.py").write_text(
        "try:\n    import greedypig\nexcept KeyboardInterrupt:\n    raise SystemExit(7)\n"
    )
    assert interrupted_while_loading([sys.executable, "mine.py"], tmp_path) == (7, "")


@pytest.mark.parametrize(
    ("argv", "typed", "is_ours"),
    [
        (["-m", "explain"], ["python", "-m", "greedypig", "explain"], True),
        (["-m"], ["python", "-u", "-mgreedypig"], True),
        (["-m"], ["python", "-m", "greedypig.assets"], True),
        (["-m"], ["python", "-um", "greedypig", "explain"], True),
        (["-m"], ["python", "-Imgreedypig"], True),
        (["-m", "greedypig"], ["python", "-m", "pytest", "greedypig"], False),
        (["-m"], ["python", "-m"], False),
        (["/bin/greedypig", "select"], ["/bin/python", "/bin/greedypig", "select"], True),
        (["C:\\greedypig.py"], ["python", "greedypig.py"], False),
        (["/bin/greedypig"], ["python", "-c", "from multiprocessing.spawn import x"], False),
        (["notebook.py"], ["python", "notebook.py"], False),
        ([], ["python"], False),
    ],
)  # fmt: skip
def test_who_is_the_program(argv, typed, is_ours):
    assert starting.is_program(argv, typed) is is_ours


def test_loaded_means_that_ctrl_c_is_an_exception_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["-m"])
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "greedypig"])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        starting.watch()
        assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        starting.over()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        starting.watch()
        starting.over()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
