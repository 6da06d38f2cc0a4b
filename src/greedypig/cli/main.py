"""The program: find the subcommand, run it, return an exit code whatever happens."""

from __future__ import annotations

import argparse
import difflib
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NoReturn, Protocol

import greedypig

from ..core.errors import DiskFull
from . import compare, compress, explain, explain_node, options, report, select
from .failures import FAILED, USAGE, Stopped, UsageError, sentence
from .terminal import Terminal


class Command(Protocol):
    """What a subcommand's module defines; see the package's docstring."""

    HELP: str
    DESCRIPTION: str
    EXAMPLES: str

    def configure(self, parser: argparse.ArgumentParser) -> None:
        """Add its arguments."""

    def run(self, args: argparse.Namespace, terminal: Terminal) -> int:
        """Do the job and return the exit code."""


COMMANDS: dict[str, Command] = {
    "explain": explain, "compare": compare, "select": select, "compress": compress,
    "explain-node": explain_node, "report": report,
}  # fmt: skip
"""The subcommands, in the order of the help."""

DEBUG = "GREEDYPIG_DEBUG"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; returns the exit code."""
    return run_program(build_parser(), COMMANDS, argv, _program())


def run_program(
    parser: argparse.ArgumentParser,
    commands: Mapping[str, Command],
    argv: Sequence[str] | None,
    program: str,
) -> int:
    """Run the command that `args.command` names; returns the exit code."""
    _prepare_streams()
    words = list(sys.argv[1:] if argv is None else argv)
    try:
        args = parser.parse_args(words)
    except SystemExit as end:  # argparse has printed its message.
        return _flushed(int(end.code or 0))
    except OSError:  # The help could not be printed.
        return _flushed(FAILED)
    terminal = Terminal(
        json_wanted=args.json,
        quiet=args.quiet,
        command=(program, *words),
        subcommand=args.command != program,
    )
    debug = args.debug or bool(os.environ.get(DEBUG))
    with _sigterm_interrupts(), _short_warnings(terminal):
        code = _run(commands[args.command], args, terminal, debug)
    return _flushed(code)


def _run(command: Command, args: argparse.Namespace, terminal: Terminal, debug: bool) -> int:
    """The command's exit code, whatever happens in it; with `debug` the traceback too."""
    try:
        return command.run(args, terminal)
    except BrokenPipeError:
        return FAILED  # The reader of the output is gone: `… | head`.
    except (KeyboardInterrupt, Stopped) as stop:
        terminal.stopped(str(stop) or "Stopped.")
        return FAILED
    except Exception as error:
        if debug:
            terminal.trace(error)
        if isinstance(error, DiskFull) and terminal.speaks:
            terminal.stopped(sentence(error))
            return FAILED
        terminal.fail(sentence(error, debug))
        return USAGE if isinstance(error, UsageError) else FAILED


def build_parser() -> argparse.ArgumentParser:
    """The whole command line."""
    parser = _Parser(
        prog="greedypig",
        description="Which few features does a trained model really use?",
        epilog="example:\n  greedypig explain photo.jpg\n\n"
        "'greedypig COMMAND --help' describes a command.\n"
        "Exit code: 0 done, 1 something failed or was stopped, 2 the command was wrong.",
        formatter_class=_Help,
    )
    parser.add_argument("--version", action="version", version=f"greedypig {greedypig.__version__}")
    subparsers = parser.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=_Parser, title="commands"
    )
    for name, command in COMMANDS.items():
        _configure(command, subparsers.add_parser(name, help=command.HELP, **_layout(command)))
    return parser


def command_parser(program: str, command: Command) -> argparse.ArgumentParser:
    """The parser of a program that is one command."""
    parser = _Parser(prog=program, **_layout(command))
    parser.set_defaults(command=program)
    _configure(command, parser)
    return parser


def _layout(command: Command) -> dict[str, Any]:
    return {
        "description": command.DESCRIPTION,
        "epilog": f"examples:\n{command.EXAMPLES.rstrip()}",
        "formatter_class": argparse.RawDescriptionHelpFormatter,
        "allow_abbrev": False,
    }


def _configure(command: Command, parser: argparse.ArgumentParser) -> None:
    command.configure(parser)
    output = options.group(parser, "output")
    output.add_argument(
        "--json",
        action="store_true",
        help="print one JSON object on standard output and nothing else there",
    )
    output.add_argument("--quiet", "-q", action="store_true", help="print errors only")
    output.add_argument(
        "--debug", action="store_true", help=f"show the traceback of an error (or set {DEBUG}=1)"
    )


class _Help(argparse.HelpFormatter):
    """Descriptions as wide as the terminal, examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith("example"):
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


class _Parser(argparse.ArgumentParser):
    """argparse with one short line for an error, and the nearest word for an unknown one."""

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As argparse does, but unknown arguments are reported by the command."""
        found, rest = self.parse_known_args(args, namespace)
        if rest:
            self._commands().get(found.command, self).error(
                f"unrecognized arguments: {' '.join(rest)}"
            )
        return found

    def error(self, message: str) -> NoReturn:
        Terminal().fail(f"{message}{self._near(message)}. Try '{self.prog} --help'.")
        raise SystemExit(USAGE)

    def _near(self, message: str) -> str:
        command = re.match(r"argument COMMAND: invalid choice: '(.*?)'", message)
        if command is not None:
            near = difflib.get_close_matches(command[1], list(self._commands()), 1)
            return f" (did you mean {near[0]}?)" if near else ""
        for word in message.partition("unrecognized arguments:")[2].split():
            near = difflib.get_close_matches(
                word.partition("=")[0], list(self._option_string_actions), 1
            )
            if word.startswith("-") and near:
                return f" (did you mean {near[0]}?)"
        return ""

    def _commands(self) -> dict[str, argparse.ArgumentParser]:
        for action in self._actions:
            if isinstance(action, argparse._SubParsersAction):
                return dict(action.choices)
        return {}


def _program() -> str:
    import shlex

    name = os.path.basename(sys.argv[0])
    if name in ("__main__.py", "-m", "-c", ""):
        return f"{shlex.quote(os.path.basename(sys.executable) or 'python')} -m greedypig"
    return "greedypig"


@contextmanager
def _sigterm_interrupts() -> Iterator[None]:
    """SIGTERM is handled like Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: Any) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _short_warnings(terminal: Terminal) -> Iterator[None]:
    """Print warnings in one line each, without their place in the code."""
    with warnings.catch_warnings():
        # Python shows a text once; here it is shown for each input that it is about.
        warnings.simplefilter("always", UserWarning, append=True)
        shown: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            text = " ".join(str(message).split())
            text = f"{terminal.subject}: {text}" if terminal.subject else text
            if text not in shown and issubclass(category, UserWarning):
                shown.add(text)
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
        reconfigure = getattr(getattr(sys, name), "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors="backslashreplace")


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


__all__ = ["COMMANDS", "build_parser", "command_parser", "main", "run_program"]
