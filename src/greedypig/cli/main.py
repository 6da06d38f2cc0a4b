"""The program: find the subcommand, run it, return an exit code whatever happens.

A command's module is imported when it is run, so that no --help waits for torch.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from importlib import import_module
from shutil import get_terminal_size
from types import ModuleType
from typing import Any, NoReturn, TypeAlias

from ..core.errors import DiskFull, Message, MissingPackage, did_you_mean
from . import options
from .commands import COMMANDS, Command
from .failures import FAILED, USAGE, Stopped, UsageError
from .terminal import LARGEST_WIDTH, Terminal, visible

DEBUG = "GREEDYPIG_DEBUG"
Run: TypeAlias = Callable[[argparse.Namespace, Terminal], int]
"""Does a command's job and returns the exit code."""
MEANT = {
    **dict.fromkeys(("--target", "--label", "--y"), ("--class", "--node", "--label")),
    **dict.fromkeys(("--features", "--columns", "--top", "--n"), ("--k", "--keep")),
    "--k": ("--keep",),
    **dict.fromkeys(("--output", "--output-dir", "-o"), ("--out",)),
    **dict.fromkeys(("--gpu", "--cuda"), ("--device",)),
}
"""Options that other programs have, and what they may be here, if the command has it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    name = os.path.basename(sys.argv[0])
    python = shlex.quote(os.path.basename(sys.executable) or "python")
    started_by_python = name in ("__main__.py", "-m", "-c", "")
    program = f"{python} -m greedypig" if started_by_python else "greedypig"
    return run_program(build_parser, argv, program)


def run_program(
    build: Callable[[Sequence[str]], argparse.ArgumentParser],
    argv: Sequence[str] | None,
    program: str,
) -> int:
    """Run the command that the words name; returns the exit code.

    build: the parser for the words of a command line; it sets `load`, which gives the command's
        function `run`.
    """
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        with _interrupts(deferred=False):
            with _interrupts(deferred=True):
                args = build(words).parse_args(words)
                args.run = args.load()
            terminal = Terminal((program, *words), vars(args))
            with _short_warnings(terminal):
                code = _run(args, terminal)
    except SystemExit as end:  # argparse has printed the help, or the reader of a pipe is gone.
        code = int(end.code or 0)
    except KeyboardInterrupt:  # While the command was loaded.
        code = _complain(words, f"Stopped. Start again with:\n  {program} {shlex.join(words)}")
    except UsageError as error:  # argparse does not understand the words.
        code = _complain(words, str(error), USAGE)
    except MissingPackage as error:  # There is no rich, so no terminal.
        code = _complain(words, str(error))
    except OSError:  # The help could not be printed.
        code = FAILED
    return _flushed(code)


def _run(args: argparse.Namespace, terminal: Terminal) -> int:
    """The command's exit code, whatever happens in it; with --debug the traceback too."""
    debug = args.debug or bool(os.environ.get(DEBUG))
    try:
        return int(args.run(args, terminal))
    except BrokenPipeError:
        return FAILED  # The reader of the output is gone: `… | head`.
    except (KeyboardInterrupt, Stopped) as stop:
        terminal.stopped(str(stop) or "Stopped.")
        return FAILED
    except Exception as error:
        if debug:
            terminal.trace(error)
        if isinstance(error, DiskFull) and terminal.speaks:
            terminal.stopped(terminal.sentence(error))
            return FAILED
        terminal.end(terminal.sentence(error, debug))
        return USAGE if isinstance(error, UsageError) else FAILED


def _complain(words: Sequence[str], text: str, code: int = FAILED) -> int:
    """An error before there is a terminal, or without rich; returns the exit code."""
    with suppress(OSError):
        print(f"error: {visible(text)}", file=sys.stderr)
        if "--json" in words:
            print(json.dumps({"error": text}))
    return code


def build_parser(words: Sequence[str]) -> argparse.ArgumentParser:
    """All commands, with the options of the one that the words name."""
    from greedypig import __version__

    parser = _Parser(
        prog="greedypig",
        description="Which few features does a trained model really use?",
        epilog="example:\n  greedypig explain photo.jpg\n\n"
        "'greedypig COMMAND --help' describes a command.\n\n"
        "Exit code: 0 done, 1 something failed or was stopped, 2 the command was wrong.",
        formatter_class=_Formatter,
    )
    parser.add_argument("--version", action="version", version=f"greedypig {__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser, title="commands"
    )
    for name, command in COMMANDS.items():
        added = subparsers.add_parser(name, help=command.line, add_help=False)
        if name == next(iter(words), None):
            _configure(added, command)
            added.set_defaults(load=lambda name=name: module_of(name).run)
    return parser


def module_of(name: str) -> ModuleType:
    """The module of a subcommand."""
    return import_module(f"{__package__}.{name.replace('-', '_')}")


def command_parser(program: str, command: Command, run: Run) -> argparse.ArgumentParser:
    """The parser of a program that is one command."""
    parser = _Parser(prog=program, add_help=False)
    _configure(parser, command)
    parser.set_defaults(load=lambda: run)
    return parser


def _configure(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add a command's options and help. --help is short, --help-all is whole."""
    parser.formatter_class = _Formatter
    parser.allow_abbrev = False
    for title in ("input", "model", "method", "output"):  # In this order.
        options.group(parser, title)
    command.configure(parser)
    add = options.group(parser, "output").add_argument
    add("--json", action="store_true", help="print JSON and nothing else on standard output")
    add("--quiet", "-q", action="store_true", help="print errors only")
    words = f"show the traceback of an error (or set {DEBUG}=1)"
    add("--debug", action="store_true", help=words)
    needed = [action for action in parser._actions if action.required]
    words = " ".join(" ".join([*a.option_strings, str(a.metavar)]) for a in needed)
    parser.usage = f"%(prog)s [options] {words}"
    rare = options.RARE | command.rare
    hidden = {a: a.help for a in parser._actions if rare & set(a.option_strings)}
    for action in hidden:
        action.help = argparse.SUPPRESS
    add("--help-all", action=_HelpAll, hidden=hidden, text=command.description)
    add("--help", "-h", action="help", help=argparse.SUPPRESS)
    parser.description = command.description.split("\n\n")[0]
    parser.epilog = f"examples:\n{command.examples}"


class _HelpAll(argparse.Action):
    """Print the help with every option and the whole description, and end."""

    def __init__(
        self, *, hidden: Mapping[argparse.Action, str | None], text: str, **more: Any
    ) -> None:
        super().__init__(**more, nargs=0, default=argparse.SUPPRESS, help="show all options")
        self._hidden, self._text = hidden, text

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        for action, text in self._hidden.items():
            action.help = text
        parser.description = self._text
        parser.print_help()
        parser.exit()


class _Formatter(argparse.HelpFormatter):
    """Lines of at most 100 columns; paragraphs are filled, and examples left as they are."""

    def __init__(self, prog: str) -> None:
        width = min(get_terminal_size().columns, LARGEST_WIDTH)
        super().__init__(prog, max_help_position=22, width=width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        fill = super()._fill_text
        parts = text.split("\n\n")
        return "\n\n".join(p if p.startswith("example") else fill(p, width, indent) for p in parts)


class _Parser(argparse.ArgumentParser):
    """argparse with our sentences, made of its actions, and the nearest word for an unknown one."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, exit_on_error=False)

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but what is missing or unknown is an error of the command at hand."""
        required = [action for action in self._actions if action.required]
        for action in required:  # They are looked for below.
            action.required = False
        try:
            namespace, rest = super().parse_known_args(args, namespace)
        except argparse.ArgumentError as error:
            self._refuse_value(error, args)
        finally:
            for action in required:
                action.required = True
        if rest:
            unknown = f"Expected options of this command (got {' '.join(rest)})."
            self.error(unknown + self._option_like(rest[0].partition("=")[0]))
        missing = [_name(a) for a in required if getattr(namespace, a.dest, None) is None]
        if missing:
            self.error(f"Expected {', '.join(missing)} (got nothing).")
        return namespace, rest

    def error(self, message: str) -> NoReturn:
        """Raise the message, with the way to the help."""
        raise UsageError(f"{message} Try '{self.prog} --help'.")

    def _match_argument(self, action: argparse.Action, arg_strings_pattern: str) -> int:
        """How many words an option takes."""
        try:
            return super()._match_argument(action, arg_strings_pattern)
        except argparse.ArgumentError:
            self.error(f"Expected a value after {_name(action)} (got nothing).")

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """A word as the option's type."""
        try:
            return super()._get_value(action, arg_string)
        except options.WrongValue as error:
            self.error(f"Expected {_name(action)} as {error.end}")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Refuse what is none of the option's choices."""
        if action.choices is not None and value not in action.choices:
            names = list(action.choices)
            end = f"one of {', '.join(names)} (got {value!r}).{did_you_mean(value, names)}"
            self.error(f"Expected {_name(action)} as {end}")

    def _refuse_value(self, error: argparse.ArgumentError, words: Sequence[str]) -> NoReturn:
        """Refuse --json=1: what other methods do not find is a value of an option without one."""
        for name in (error.argument_name or "").split("/"):
            start = f"{name}=" if name.startswith("--") else name
            for word in words:
                if name and word.startswith(start):
                    value = word.removeprefix(start)
                    self.error(f"Expected no value after {name} (got {value!r}).")
        self.error(f"Expected a command as in the help (got: {error}).")

    def _option_like(self, word: str) -> str:
        """The end of an error about an unknown option."""
        known = self._option_string_actions
        meant = [option for option in MEANT.get(word, ()) if option in known]
        # Without the dashes, which would make any two options look alike.
        near = get_close_matches(word.lstrip("-"), [option.lstrip("-") for option in known], 1)
        return "".join(f" Did you mean '{o}'?" for o in [*meant, *(f"--{n}" for n in near)][:1])


def _name(action: argparse.Action) -> str:
    """An option, or what stands for a word in the help."""
    return action.option_strings[0] if action.option_strings else str(action.metavar)


@contextmanager
def _interrupts(*, deferred: bool) -> Iterator[None]:
    """SIGTERM is handled like Ctrl-C: a KeyboardInterrupt, at once or, deferred, after the block.

    The imports of a command are not interrupted: what they do with a KeyboardInterrupt is theirs.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def note(number: int, _: Any) -> None:
        came.append(number)

    numbers = (signal.SIGINT, signal.SIGTERM) if deferred else (signal.SIGTERM,)
    handler = note if deferred else signal.default_int_handler
    heard = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heard}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)
    if came:
        raise KeyboardInterrupt


@contextmanager
def _short_warnings(terminal: Terminal) -> Iterator[None]:
    """Print warnings in one line each, without their place in the code, and each once."""
    with warnings.catch_warnings():
        # Python shows a text once; here it is shown for each input that it is about.
        warnings.simplefilter("always", UserWarning, append=True)
        printed: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            text = terminal.sentence(message) if isinstance(message, Message) else str(message)
            text = " ".join(text.split())
            text = f"{terminal.subject}: {text}" if terminal.subject else text
            if text not in printed and issubclass(category, UserWarning):
                printed.add(text)
                terminal.warn(text)

        warnings.showwarning = show
        yield


def _prepare_streams() -> None:
    """Replace a stream that the shell closed (`>&-`), which is None, by /dev/null.

    A file name that the terminal cannot show is shown escaped rather than ending the run.
    """
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_WRONLY), "w"))
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _flushed(code: int) -> int:
    """The exit code once the output is out; a reader that left is no reason for a traceback."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):
            # What is left in the buffer would be written, and fail, once more at the end.
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
            code = code or FAILED
    return code


__all__ = ["build_parser", "command_parser", "main", "module_of", "run_program"]
