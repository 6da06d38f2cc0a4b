"""Errors and warnings of the library as the command line says them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import greedypig as gp
from greedypig.cli.commands import COMMANDS
from greedypig.cli.main import build_parser
from greedypig.cli.terminal import Terminal
from greedypig.core.errors import Argument


@pytest.mark.parametrize("name", ["seed='1'.png", 'k="2".png'])
def test_a_name_that_looks_like_a_parameter_stays_as_it_is(call, name):
    code, _, err = call("explain", name)
    assert code == 2
    assert f"at {name} (got nothing there)" in err


OPTIONS = {"target": None, "class_": None, "budget": None, "nodes": None, "directed": False}


@pytest.mark.parametrize(
    ("argument", "option"),
    [
        (Argument("nodes"), "--nodes"),
        (Argument("nodes", "a=1.csv"), "--nodes a=1.csv"),
        (Argument("nodes", "my nodes.csv"), "--nodes 'my nodes.csv'"),
        (Argument("nodes", None), "no --nodes"),
        (Argument("gradients", 1), "--budget 1"),
        (Argument("target"), "--class"),
        (Argument("directed", True), "--directed"),
        (Argument("hops", 3), "hops=3"),  # No option of this command.
    ],
)
def test_an_argument_is_written_as_the_option_of_the_command(argument, option):
    error = gp.InvalidInput("Expected ", argument, " (got '--no option').", advice=argument)
    assert Terminal((), OPTIONS).sentence(error) == (
        f"Expected {option} (got '--no option'). Try {option}."
    )


def test_errors_of_the_library_name_no_option():
    """They are read in Python too: only the command line writes an `Argument` as an option."""
    options = {
        option
        for name in COMMANDS
        for option in build_parser([name])
        ._subparsers._group_actions[0]
        .choices[name]
        ._option_string_actions
        if option.startswith("--")
    }
    assert {"--class", "--nodes"} <= options
    library = Path(gp.__file__).parent
    for file in library.rglob("*.py"):
        if "cli" in file.relative_to(library).parts:
            continue
        for text in texts_of_errors(ast.parse(file.read_text(encoding="utf-8"))):
            assert not options & set(re.findall(r"--[\w-]+", text)), (file, text)


def texts_of_errors(tree: ast.AST) -> Iterator[str]:
    """All texts in the `raise` statements and the warnings of a module."""
    for node in ast.walk(tree):
        warned = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(
            ("warnings.warn", "Warning", "super().__init__")
        )
        if isinstance(node, ast.Raise) or warned:
            for inner in ast.walk(node):
                if isinstance(inner, ast.Constant) and isinstance(inner.value, str):
                    yield inner.value
