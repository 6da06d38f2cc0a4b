"""From a name to a network for photos: a built-in one, or the user's own.

`package.module:factory` is called without arguments and returns any `nn.Module` from images to
logits; `OwnModel` adds all that an explanation of a photo needs.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import sys
from pathlib import Path
from typing import Any

from torch import nn

from ..core.errors import InvalidInput, first_line
from .networks import ImageModel, load
from .wrapped import OwnModel

__all__ = ["OwnModel", "build", "model_from"]


def model_from(spec: str, *, weights: Any = None, outputs: str | None = None) -> ImageModel:
    """The network that `spec` names: on the CPU, in eval mode, no parameter requires a gradient.

    Args:
        spec: the name of a built-in network ("efficientnet-lite0", "mobilenet-v2", "resnet50"), or
            "package.module:factory" for your own (see `OwnModel`); modules in the current directory
            are found too.
        weights: for a built-in network, as in `greedypig.models.load`.
        outputs: for your own, "logits" or "probabilities": which of them it gives. None takes
            what its attribute `outputs` says, else logits.
    """
    if ":" in spec:
        if weights is not None:
            raise InvalidInput(
                f"Expected no weights for the model {spec} (got {weights!r}). "
                "Try loading them in its factory."
            )
        model = build(spec)
    elif "." in spec:
        raise InvalidInput(
            f"Expected a model as package.module:factory (got {spec!r}, without a colon). "
            f'Try "{":".join(spec.rsplit(".", 1))}".'
        )
    else:
        model = load(spec, weights)
    if not isinstance(model, ImageModel):
        return OwnModel(model, spec, outputs)
    if outputs not in (None, "logits"):
        raise InvalidInput(
            f"Expected outputs for a network of your own (got {outputs!r} for {spec}, which gives "
            "logits)."
        )
    return model.eval().requires_grad_(False)


def build(spec: str, *arguments: Any) -> nn.Module:
    """The module that the factory `spec`, package.module:factory, gives for these arguments.

    A factory that takes none is called without. `spec` may also name the module itself.
    """
    factory = _find(spec)
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise InvalidInput(
            f"Expected {spec} to be a function that builds a model (got "
            f"{type(factory).__name__}, which cannot be called)."
        )
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


def _find(spec: str) -> Any:
    # An installed command, unlike `python -m`, does not look into the current directory.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        return pkgutil.resolve_name(spec)
    except Exception as error:  # Importing the module may raise anything.
        raise InvalidInput(
            f"Expected a model as package.module:factory (got {spec!r}, "
            f"{type(error).__name__}: {first_line(error)}). "
            "Try the folder that holds the module as current directory, or PYTHONPATH."
        ) from error
