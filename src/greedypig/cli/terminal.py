"""Lines on standard output, warnings and progress on standard error.

With --json standard output holds one object and nothing else; with --quiet only errors are printed.
Colours, bars and line breaks to the terminal's width appear on terminals alone. In a pipe or a file
every message is one line.

Names of files, columns and classes may hold control characters. `visible`, which all lines pass,
escapes them.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import textwrap
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from .outputs import shown

_PLAIN, BOLD, DIM, RED, YELLOW = "\ufdd0", "\ufdd1", "\ufdd2", "\ufdd3", "\ufdd4"
"""Marks of styles inside a text, for `visible` to turn into escape sequences. They are
noncharacters, which Unicode leaves to a program's own use."""
_SEQUENCES = {ord(_PLAIN): "\x1b[0m", ord(BOLD): "\x1b[1m", ord(DIM): "\x1b[2m",
              ord(RED): "\x1b[31m", ord(YELLOW): "\x1b[33m"}  # fmt: skip
_CONTROLS = [c for c in (*range(0x20), *range(0x7F, 0xA0)) if chr(c) not in "\n\t"]
_DIRECTIONS = [0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""Line ends and changes of the writing direction: a name could hide its own ending with them."""
_ESCAPED = {c: f"\\x{c:02x}" for c in _CONTROLS} | {
    c: f"\\u{c:04x}" for c in (*_DIRECTIONS, *_SEQUENCES)
}
_LEAST_WIDTH, _USUAL_WIDTH, _MOST_WIDTH = 20, 80, 100
UNLIMITED = 1_000_000
"""The width where there is no screen: lines are not broken, names not cut."""
_NAMED = 3
"""Saved files that are named."""
_TICK = 0.1
"""Seconds between two drawings of a bar."""


class Terminal:
    """The output of a command."""

    def __init__(
        self,
        *,
        json_wanted: bool = False,
        quiet: bool = False,
        command: Sequence[str] = (),
        subcommand: bool = True,
    ) -> None:
        self.json_wanted, self.quiet = json_wanted, quiet
        self.command = tuple(command)
        """The command line as it was typed, program first."""
        self._options_at = 1 if subcommand else 0
        """Where options may stand among the words: behind the subcommand, if there is one."""
        self.speaks = True
        """Of several processes the first one prints for all; the others print errors only."""
        self._kept: dict[Path, _Kept] = {}
        self.subject = ""
        """The photo or method under way, where there are several: warnings begin with it."""
        self._bar: Bar | None = None

    @property
    def width(self) -> int:
        """Columns to write in on standard output."""
        return width_of(sys.stdout)

    def say(self, text: str = "") -> None:
        """A line for people."""
        if not (self.json_wanted or self.quiet):
            self._print(text, sys.stdout)

    def wrapped(
        self, text: str, indent: str = "", hanging: str | None = None, width: int | None = None
    ) -> str:
        """Text broken into lines of the terminal's width; long names stay whole."""
        return textwrap.fill(
            text, width or self.width, initial_indent=indent,
            subsequent_indent=indent if hanging is None else hanging,
            break_long_words=False, break_on_hyphens=False,
        )  # fmt: skip

    def caution(self, text: str, indent: str = "") -> None:
        """A ▲ line: a result to doubt."""
        self.say(self.style(self.wrapped(f"▲ {text}", indent, f"{indent}  "), YELLOW))

    def note(self, text: str) -> None:
        """A remark, on standard error, also under --json."""
        if not self.quiet:
            self._print(self.wrapped(text, width=width_of(sys.stderr)), sys.stderr)

    def warn(self, text: str) -> None:
        """A warning, on standard error."""
        if not self.quiet:
            mark = self.style("warning:", YELLOW, stream=sys.stderr)
            self._print(f"{mark} {text}", sys.stderr)

    def fail(self, text: str) -> None:
        """An error, in one sentence, on standard error."""
        mark = self.style("error:", RED, stream=sys.stderr)
        self._print(f"{mark} {text}", sys.stderr)

    def result(self, record: dict[str, Any]) -> None:
        """The one object of --json."""
        if self.json_wanted:
            self._print(json.dumps(record, allow_nan=False), sys.stdout)

    def trace(self, error: BaseException) -> None:
        """The traceback of an error, on standard error."""
        self._print("".join(traceback.format_exception(error)).rstrip(), sys.stderr)

    def _print(self, text: str, stream: TextIO) -> None:
        line = visible(text, colours=_has_colours(stream))
        with nullcontext() if self._bar is None else self._bar.hidden():
            try:
                print(line, file=stream, flush=True)
            except (OSError, ValueError) as error:
                # An error on standard error itself can be printed nowhere.
                if stream is sys.stdout:
                    reason = getattr(error, "strerror", None) or str(error)
                    number = getattr(error, "errno", None)
                    raise OSError(number, reason, "standard output") from error

    def style(self, text: str, *codes: str, stream: TextIO | None = None) -> str:
        """Text in a colour or weight, where the stream shows them."""
        if not codes or not _has_colours(sys.stdout if stream is None else stream):
            return text
        return f"{''.join(codes)}{text}{_PLAIN}"

    def follow(self) -> None:
        """Print errors only: another process prints for all."""
        self.speaks, self.json_wanted, self.quiet = False, False, True

    def keeps(self, evidence: Path, resume: bool, name: Path | None = None) -> None:
        """A file or folder that --resume goes on from, once this run has written to it.

        resume: whether this run itself goes on from it, so that it counts as it is.
        name: what to call it, if not by its own name.
        """
        before: Set[tuple[str, int, int]] = set() if resume else _files(evidence)
        self._kept.setdefault(evidence, _Kept(evidence if name is None else name, before))

    def stopped(self, why: str) -> None:
        """Print that the command ended early, its files, and the command that goes on."""
        if not self.speaks:
            return
        kept = [shown(k.name) for path, k in self._kept.items() if _files(path) - k.before]
        more = f" and {len(kept) - _NAMED} more" if len(kept) > _NAMED else ""
        if kept:
            said = f"Kept: {', '.join(kept[:_NAMED])}{more}. Go on with:\n  {self.resume_hint()}"
        elif "--resume" in self.command:
            said = f"Go on with:\n  {self.resume_hint()}"
        else:
            said = f"Nothing was kept to go on from. Start again with:\n  {self.command_line()}"
        self.fail(f"{why} {said}")

    def resume_hint(self) -> str:
        """The command line that goes on where this one was stopped."""
        words = [word for word in self.command[1:] if word not in ("--resume", "--no-resume")]
        # Before all other words: a "--" further on would make a file name of it.
        words[self._options_at : self._options_at] = ["--resume"]
        return self._line(words)

    def command_line(self) -> str:
        """The command as it can be typed again."""
        return self._line(self.command[1:])

    def _line(self, words: Sequence[str]) -> str:
        # The program may be several words, "python -m greedypig", and is quoted already.
        program = self.command[0] if self.command else "greedypig"
        return f"{program} {' '.join(map(_quoted, words))}"

    @contextmanager
    def bar(self, label: str) -> Iterator[Bar]:
        """A bar on the terminal while the block runs; invisible where there is none."""
        self._bar = Bar(label, self, visible=not self.quiet and _is_terminal(sys.stderr))
        try:
            yield self._bar
        finally:
            self._bar.close()
            self._bar = None


class Bar:
    """Progress and time left, drawn by a thread so that the work never waits.

    `follow(done, total)` takes a function that returns how much is done; it is called ten times a
    second.
    """

    def __init__(self, label: str, terminal: Terminal, *, visible: bool) -> None:
        self.label, self.terminal = label, terminal
        self._done: Callable[[], float] | None = None
        self._phase: Callable[[], str] | None = None
        self._seen: tuple[float, float, float] | None = None
        """(done, time, seconds left) when `done` last changed."""
        self._total = 0.0
        self._base = 0.0
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._pen = threading.RLock()
        self._thread: threading.Thread | None = None
        if visible:
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()

    def follow(
        self, done: Callable[[], float], total: float, phase: Callable[[], str] | None = None
    ) -> None:
        """Show `done()` of `total` from now on; time left is estimated from the first such call.

        phase: returns a text behind the label, or "".
        """
        if self._done is None or self._total != total:
            self._base, self._began, self._seen = done(), time.monotonic(), None
        self._done, self._total, self._phase = done, total, phase

    def close(self) -> None:
        """Remove the bar."""
        with self.hidden():
            self._ended.set()
        # A thread that still runs while Python shuts down can abort the whole program.
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    @contextmanager
    def hidden(self) -> Iterator[None]:
        """Hide the bar while other lines are written; the next tick draws it again."""
        with self._pen:
            if self._thread is not None and not self._ended.is_set():
                with suppress(OSError, ValueError):  # The terminal went away.
                    sys.stderr.write("\r\x1b[K")
                    sys.stderr.flush()
            yield

    def line(self) -> str:
        """The line as it is now."""
        width = width_of(sys.stderr) - 1
        phase = "" if self._phase is None else self._phase()
        text = visible(f"{self.label}: {phase}" if phase else self.label)
        if self._done is None or self._total <= 0:
            return _cut(text, width)
        done = min(self._done(), self._total)
        share = done / self._total
        tail = f" {100 * share:3.0f} %"
        left = self._left(done)
        if left is not None:
            tail += f", {duration(left)} left"
        room = min(30, width - len(tail) - min(len(text), 24) - 2)
        if room < 5:
            return _cut(text, max(width - len(tail), 0)) + tail
        full = round(share * room)
        label = _cut(text, width - len(tail) - room - 1)
        return f"{label} {'█' * full}{'░' * (room - full)}{tail}"

    def _left(self, done: float) -> float | None:
        """Seconds left, by the pace so far; None before there is one, and once they are over.

        A long piece of work reports nothing until it is done: meanwhile its time runs down.
        """
        now = time.monotonic()
        if done <= self._base:
            return None
        if self._seen is None or self._seen[0] != done:
            pace = (now - self._began) / (done - self._base)
            self._seen = done, now, pace * (self._total - done)
        _, then, left = self._seen
        return left - (now - then) if left > now - then else None

    def _draw(self) -> None:
        while not self._ended.wait(_TICK):
            with self._pen:
                if self._ended.is_set():
                    return
                try:
                    sys.stderr.write(f"\r\x1b[K{self.line()}")
                    sys.stderr.flush()
                except (OSError, ValueError):  # The terminal went away; the work goes on.
                    return


@dataclass(frozen=True)
class _Kept:
    name: Path
    before: Set[tuple[str, int, int]]
    """Its files when the run began: what is no work of this run."""


def _files(path: Path) -> Set[tuple[str, int, int]]:
    """The files at or below a path, each as it is now: a file written anew is another."""
    found = [path] if path.is_file() else path.rglob("*")
    stats = ((str(f), f.stat()) for f in found if f.is_file())
    return {(name, stat.st_ino, stat.st_mtime_ns) for name, stat in stats}


def visible(text: str, *, colours: bool = False) -> str:
    """Text that does nothing to a terminal but appear there, control characters as \\x1b.

    colours: turn the marks of `Terminal.style` into colours and weights.
    """
    return text.translate(_ESCAPED | _SEQUENCES if colours else _ESCAPED)


def _quoted(word: str) -> str:
    """A word for the shell; $'…' where it holds what a terminal cannot show."""
    if word.isprintable():
        return shlex.quote(word)
    plain = (
        chr(b) if 0x20 <= b < 0x7F and b not in b"'\\" else f"\\x{b:02x}" for b in os.fsencode(word)
    )
    return f"$'{''.join(plain)}'"


def width_of(stream: TextIO) -> int:
    """Columns of a stream: as $COLUMNS says, else the terminal's; unlimited where there is none."""
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given) > 0:
        columns = int(given)
    elif not _is_screen(stream):
        return UNLIMITED
    else:
        try:
            columns = os.get_terminal_size(stream.fileno()).columns or _USUAL_WIDTH
        except (OSError, ValueError):
            columns = _USUAL_WIDTH
    return max(_LEAST_WIDTH, min(_MOST_WIDTH, columns))


def duration(seconds: float) -> str:
    """Seconds in words: 0.4 s, 12 s, 3 min 20 s, 2 h 5 min."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(width - 1, 0)] + "…"


def _is_terminal(stream: TextIO) -> bool:
    return _is_screen(stream) and os.environ.get("TERM") != "dumb"


def _is_screen(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (AttributeError, ValueError):  # Closed, or no real stream.
        return False


def _has_colours(stream: TextIO) -> bool:
    return not os.environ.get("NO_COLOR") and _is_terminal(stream)
