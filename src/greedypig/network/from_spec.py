"""A model of the caller's by the name of its factory: "package.module:factory"."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

from torch import nn

from ..core.errors import InvalidInput, first_line


def build(spec: str, *arguments: Any) -> nn.Module:
    """The module that the factory `spec`, package.module:factory, gives for these arguments.

    A factory that takes none is called without. `spec` may also name the module itself.
    """
    # An installed command, unlike `python -m`, does not look into the current directory.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        factory = pkgutil.resolve_name(spec)
    except Exception as error:  # Importing the module may raise anything.
        raise InvalidInput(
            f"Expected a model as package.module:factory (got {spec!r}, "
            f"{type(error).__name__}: {first_line(error)}). "
            "Try the folder that holds the module as current directory, or PYTHONPATH."
        ) from error
    model = factory
    if not isinstance(factory, nn.Module):
        try:
            inspect.signature(factory).bind(*arguments)
        except (TypeError, ValueError):
            arguments = ()
        try:
            model = factory(*arguments)
        except Exception as error:
            raise InvalidInput(
                f"Expected {spec} to build a model when called with {len(arguments)} arguments "
                f"(got {type(error).__name__}: {first_line(error)})."
            ) from error
    if not isinstance(model, nn.Module):
        raise InvalidInput(
            f"Expected {spec} to give a torch.nn.Module (got {type(model).__name__})."
        )
    return model
