"""Arguments that a function does not have: an error that says where they belong."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from .errors import InvalidType, did_you_mean
from .registry import METHODS
from .stopping import Stop

P = ParamSpec("P")
R = TypeVar("R")


def advise(function: Callable[P, R]) -> Callable[P, R]:
    """The function, whose unknown arguments are refused with advice: a knob of a method belongs
    into the method, a limit into `gp.Stop`."""
    parameters = list(signature(function).parameters)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in kwargs.items():
            if name not in parameters:
                advice = _advice(name, value, parameters)
                raise InvalidType(
                    f"Expected an argument of gp.{function.__name__} (got {name}={value!r})."
                    f"{advice}"
                )
        return function(*args, **kwargs)

    return call


def _advice(name: str, value: object, parameters: list[str]) -> str:
    if name == "n_steps":  # Captum's name.
        return f" Try method=gp.IG({value!r})."
    limit = "gradients" if name == "budget" else name
    usual = [METHODS["greedy-pig"], *METHODS.values()]
    owner = next((entry for entry in usual if name in entry.knobs), None)
    if owner is not None:
        return f" Try method=gp.{owner.title}({name}={value!r})."
    if limit in Stop.__dataclass_fields__:
        return f" Try stop=gp.Stop({limit}={value!r})."
    if name == "resume":
        return " Try checkpoint=, a file that the same call goes on from."
    return did_you_mean(name, parameters)
