"""Lines on standard output; warnings, errors and progress on standard error. Drawn by rich.

With --json standard output holds one object and nothing else; with --quiet only errors are printed.
Colours, progress and line breaks appear on terminals alone. In a pipe or a file every message is
one line of plain text.

Names of files, columns and classes may hold control characters. `visible` escapes them.
"""

from __future__ import annotations

import json
import os
import shlex
import textwrap
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from threading import Event, Thread
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ..core.errors import Argument, Message, MissingPackage

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

BOLD, DIM, RED, YELLOW = "bold", "dim", "red", "yellow"
CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
DIRECTIONS = [0x200E, 0x200F, *range(0x2028, 0x202F), *range(0x2066, 0x206A)]
"""Line ends and changes of the writing direction: a name could hide its own ending with them."""
ESCAPES = {c: f"\\x{c:02x}" for c in CONTROLS} | {c: f"\\u{c:04x}" for c in DIRECTIONS}
GAP = 2
"""Spaces between the columns of a table."""
PARAMETERS = {"target": "class_", "gradients": "budget", "ks": "k", "folder": "out"}
"""Parameters of the library whose option has another name (that in the parsed arguments)."""
LARGEST_WIDTH, UNLIMITED = 100, 1_000_000
"""Columns to write in: on a wide terminal, and where there is no terminal to fit into."""


class Terminal:
    """The output of a command.

    command: the command line as it was typed, program first. options: those of the command, with
    their values.
    """

    def __init__(
        self, command: Sequence[str] = (), options: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.command, self._options = tuple(command), options
        self.json_wanted, self.quiet = options.get("json", False), options.get("quiet", False)
        self.speaks = True
        """Of several processes the first one prints for all; the others print errors only."""
        self.subject = ""
        """The photo or method under way, where there are several: warnings begin with it."""
        self.parameters = dict(PARAMETERS)
        """The options of parameters that have another name."""
        self._out, self._err = _console(stderr=False), _console(stderr=True)
        self._bar_shown = False

    @property
    def width(self) -> int:
        """Columns to write in on standard output."""
        return self._out.width

    def say(self, text: str = "", style: str = "", indent: int = 0) -> None:
        """A paragraph for people, in lines of the terminal's width; long names stay whole."""
        self._print(styled(_filled(text, self.width, indent), style), soft_wrap=True)

    def text(self, text: Text) -> None:
        """A text with colours of its own, in lines of the terminal's width."""
        self._print(text)

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[str | Text]], names: int = 1
    ) -> None:
        """Rows under their heads; the first `names` columns are text, the others numbers."""
        from rich.table import Table

        cells = [[styled(c) if isinstance(c, str) else c for c in row] for row in (heads, *rows)]
        table = Table(box=None, pad_edge=False, header_style=DIM, show_header=any(heads))
        for i, width in enumerate(_widths(cells, self.width)):
            justify: Any = "left" if i < names else "right"
            table.add_column(cells[0][i], justify=justify, overflow="fold", width=width)
        for row in cells[1:]:
            table.add_row(*row)
        self._print(table)

    def caution(self, text: str, indent: int = 0) -> None:
        """A ▲ line: a result to doubt."""
        self.say(f"▲ {text}", YELLOW, indent)

    def note(self, text: str) -> None:
        """A remark, on standard error, also under --json."""
        if not self.quiet:
            self._print_error("", text)

    def warn(self, text: str) -> None:
        """A warning, on standard error."""
        if not self.quiet:
            self._print_error("warning: ", text, YELLOW)

    def fail(self, text: str) -> None:
        """An error, in one sentence, on standard error."""
        self._print_error("error: ", text, RED)

    def sentence(self, error: BaseException, debug: bool = False) -> str:
        """An error or a warning in one sentence, with options in place of parameters; errors of
        others get their type and the option to see more."""
        if isinstance(error, Message):
            pieces = (self._option(p) if isinstance(p, Argument) else p for p in error.pieces)
            return " ".join("".join(pieces).split())
        text = " ".join(str(error).split())
        if isinstance(error, OSError):
            name = "" if error.filename is None else f"{error.filename}: "
            return f"{name}{error.strerror or text}".rstrip(".") + "."
        if isinstance(error, MemoryError):
            return "The memory ran out. Try smaller batches or a smaller input."
        more = "" if debug else " Try --debug to see where."
        return f"{type(error).__name__}: {text[:300]}.{more}"

    def _option(self, argument: Argument) -> str:
        """The option that sets this parameter; the parameter itself where there is none."""
        name, value = self.parameters.get(argument.name, argument.name), argument.value
        if name not in self._options:
            return str(argument)
        option = f"--{name.rstrip('_').replace('_', '-')}"
        if value is None or value is False:
            return f"no {option}"
        if isinstance(value, tuple):  # Names with commas in them are quoted.
            value = ",".join(f'"{one}"' if "," in str(one) else str(one) for one in value)
        return option if value is ... or value is True else f"{option} {shlex.quote(str(value))}"

    def trace(self, error: BaseException) -> None:
        """The traceback of an error, on standard error."""
        self._print_error("", "\n" + "".join(traceback.format_exception(error)).rstrip())

    def result(self, record: dict[str, Any]) -> None:
        """An object of --json, on a line of its own."""
        if self.json_wanted:
            self._write(json.dumps(record, allow_nan=False), soft_wrap=True)

    def end(self, why: str, how: str = "") -> None:
        """An error that ends the command, under --json also as an object."""
        self.fail(f"{why}{how}")
        with suppress(OSError):  # Standard output may be what failed.
            self.result({"error": why})

    def _print(self, text: RenderableType, soft_wrap: bool = False) -> None:
        if not (self.json_wanted or self.quiet):
            self._write(text, soft_wrap)

    def _write(self, text: RenderableType, soft_wrap: bool) -> None:
        # Progress may be on the same terminal; its own console prints above it.
        console = self._err if self._bar_shown and self._out.is_terminal else self._out
        try:
            console.print(text, soft_wrap=soft_wrap)
        except (OSError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise OSError(getattr(error, "errno", None), reason, "standard output") from error

    def _print_error(self, mark: str, text: str, style: str = "") -> None:
        """A paragraph in lines of the terminal's width; lines below it stay as they are."""
        first, _, rest = text.partition("\n")
        width = self._err.width if self._err.is_terminal else UNLIMITED
        lines = "\n".join([_filled(mark + first, width), *rest.splitlines()])
        shown = styled(lines.strip("\n"))
        shown.stylize(style, 0, len(mark))
        with suppress(OSError, ValueError):  # This can be printed nowhere.
            self._err.print(shown, soft_wrap=True)

    def follow(self) -> None:
        """Print errors only: another process prints for all."""
        self.speaks, self.json_wanted, self.quiet = False, False, True

    def stopped(self, why: str) -> None:
        """Print that the command ended early, and the command that goes on."""
        words = [word for word in self.command[1:] if word not in ("--resume", "--no-resume")]
        how = "Start again"
        if "resume" in self._options:
            # Before all other words: a "--" further on would make a file name of it.
            words.insert("command" in self._options, "--resume")
            how = "Go on"
        if self.speaks:
            self.end(why, f" {how} with:\n  {self.command[0]} {shlex.join(words)}")

    def command_line(self) -> str:
        """The command as it can be typed again; the program's own words are quoted already."""
        return f"{self.command[0]} {shlex.join(self.command[1:])}"

    @contextmanager
    def bar(self, label: str) -> Iterator[Bar]:
        """Progress on the terminal while the block runs; invisible where there is none."""
        bar = Bar(label)
        if self.quiet or not self._err.is_terminal or self._err.is_dumb_terminal:
            yield bar
            return
        with bar.drawn_on(self._err):
            self._bar_shown = True
            try:
                yield bar
            finally:
                self._bar_shown = False


class Bar:
    """Progress with the time left; `label` says what is under way.

    `follow(done, total)` takes a function that returns how much is done. The thread that draws
    calls it ten times a second, so that the work never waits.
    """

    def __init__(self, label: str) -> None:
        self.label = label
        self._done: Callable[[], float] = float
        self._total: float | None = None

    def follow(self, done: Callable[[], float], total: float) -> None:
        """Show `done()` of `total` from now on."""
        self._done, self._total = done, total

    @contextmanager
    def drawn_on(self, console: Console) -> Iterator[None]:
        """Draw the bar below what is printed on the console."""
        from rich.constrain import Constrain
        from rich.live import Live
        from rich.markup import escape
        from rich.progress import Progress

        progress = Progress(console=console, speed_estimate_period=3600)
        task = progress.add_task("", total=None)

        def drawn() -> RenderableType:
            text = escape(visible(self.label))
            progress.update(task, description=text, total=self._total, completed=self._done())
            # The terminal shows a Ctrl-C as ^C behind the bar; a new line would not be erased.
            return Constrain(progress.get_renderable(), console.width - len("^C"))

        live = Live(
            get_renderable=drawn,
            console=console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        done = Event()

        def draw() -> None:
            while not done.wait(0.1):
                live.refresh()

        # Live's own thread may outlive it, and a thread at the program's end can abort it.
        thread = Thread(target=draw, daemon=True)
        with live:
            thread.start()
            try:
                yield
            finally:
                done.set()
                thread.join()


def _console(*, stderr: bool) -> Console:
    try:
        from rich.console import Console
    except ImportError as error:
        raise MissingPackage(
            "Expected the package rich for the command line (it is not installed). "
            'Try pip install "greedypig[cli]".'
        ) from error
    console = Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, force_jupyter=False
    )
    limited = console.is_terminal or os.environ.get("COLUMNS", "").isdecimal()
    console.width = min(console.width, LARGEST_WIDTH) if limited else UNLIMITED
    return console


def _filled(text: str, width: int, indent: int = 0) -> str:
    """A paragraph in lines of this width; long words such as paths stay whole."""
    return textwrap.fill(
        visible(text),
        width,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _widths(rows: Sequence[Sequence[Text]], room: int) -> list[int]:
    """The columns' widths: those of the cells, or narrower. Words are broken last."""
    columns = list(zip(*rows, strict=True))
    widths = [max(cell.cell_len for cell in column) for column in columns]
    words = [max(len(w) for c in column for w in (*c.plain.split(), "")) for column in columns]
    excess = sum(widths) + GAP * (len(widths) - 1) - room
    for _ in range(excess):
        i = max(range(len(widths)), key=lambda i: (max(widths[i] - words[i], 0), widths[i]))
        widths[i] = max(widths[i] - 1, 1)
    return widths


def visible(text: str) -> str:
    """Text that does nothing to a terminal but appear there, control characters as \\x1b."""
    return text.translate(ESCAPES)


def styled(text: str, style: str = "") -> Text:
    """Text for rich, in a colour or weight."""
    from rich.text import Text

    return Text(visible(text), style)


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
