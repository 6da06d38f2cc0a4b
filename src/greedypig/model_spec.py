"""From a word on the command line to a network for photos: a built-in one, or the user's own.

`package.module:factory` is called without arguments and gives any `nn.Module` from images to
logits. What an explanation of a photo needs besides (how a photo becomes an input, which input a
colour is, what the classes are called) the network may bring as attributes; what it does not bring
is found out or taken to be as usual for ImageNet.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .core.errors import GreedyPigError, InvalidInput, InvalidType
from .models import ImageModel, load
from .models.imagenet import class_names
from .models.pictures import upright_rgb
from .models.pretrained import NAMES

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OwnModel", "build", "model_from"]


def model_from(spec: str, *, weights: Any = None) -> ImageModel:
    """The network that `spec` names: on the CPU, in eval mode, no parameter requires a gradient.

    Args:
        spec: the name of a built-in network ("efficientnet-lite0", "mobilenet-v2", "resnet50"), or
            "package.module:factory" for your own (see `OwnModel`); modules in the current directory
            are found too.
        weights: for a built-in network, as in `greedypig.models.load`.
    """
    if not isinstance(spec, str):
        raise InvalidType(f"Expected the name of a model (got {type(spec).__name__}).")
    if ":" not in spec:
        if spec not in NAMES and "." in spec:
            raise InvalidInput(
                f"Expected a model as package.module:factory (got {spec!r}, without a colon). "
                f'Try "{":".join(spec.rsplit(".", 1))}".'
            )
        return load(spec, weights)
    if weights is not None:
        raise InvalidInput(
            f"Expected no weights for the model {spec} (got {weights!r}). "
            "Try loading them in its factory."
        )
    made = _call(_find(spec), spec)
    if isinstance(made, ImageModel):
        return made.eval().requires_grad_(False)
    return OwnModel(made, spec)


def build(spec: str, *arguments: Any) -> nn.Module:
    """The module that the factory `spec`, package.module:factory, gives for these arguments.

    A factory that takes none is called without.
    """
    factory = _find(spec)
    if arguments and not isinstance(factory, nn.Module) and callable(factory):
        try:
            inspect.signature(factory).bind(*arguments)
        except (TypeError, ValueError):
            return _call(factory, spec)
        return _call(partial(factory, *arguments), spec)
    return _call(factory, spec)


class OwnModel(ImageModel):
    """A user's network with what an explanation needs; `net` is the network itself.

    Optional attributes of the network, and what stands in where they are absent:

    - `preprocess`: a callable from an RGB PIL image to an input (channels, h, w). Otherwise the
      short side is resized to 256, the centre 224 x 224 cut out, and ImageNet's mean and deviation
      normalise.
    - `baseline`: a callable from "gray", "black" or "white" to an input of that colour, and
      `to_pixels`: a callable from inputs (..., channels, h, w) to the colours in [0, 1] that they
      show. Otherwise the inputs of a black and of a white picture are the ends of each channel's
      scale, and gray is the middle.
    - `classes`: the names of the classes in the order of the logits, or a mapping from index to
      name. Otherwise ImageNet's for 1,000 logits, else the indices.
    """

    resample = "BILINEAR"
    level_mean = (255 * 0.485, 255 * 0.456, 255 * 0.406)
    level_std = (255 * 0.229, 255 * 0.224, 255 * 0.225)

    def __init__(self, net: nn.Module, spec: str) -> None:
        super().__init__()
        self.net = net
        self.spec = spec
        # In a dict: as an attribute, a transform that is a Module would become a layer of this one.
        self._own = {name: _own(net, name) for name in ("preprocess", "baseline", "to_pixels")}
        self._ends: tuple[Tensor, Tensor] | None = None
        self.eval()
        self._classes = self._named(self._logits_of_gray())
        self.requires_grad_(False)  # Layers that are lazy have parameters only now.

    def forward(self, x: Tensor) -> Tensor:
        """What the network itself gives."""
        out: Tensor = self.net(x)
        return out

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self._classes

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input for a PIL image: its own way, or ImageNet's."""
        if self._own["preprocess"] is None:
            return super().preprocess(image)
        self._check_image(image)
        x = self._asked("preprocess", upright_rgb(image, self.resize))
        if x.dim() == 4 and x.shape[0] == 1:
            x = x[0]
        if x.dim() != 3 or not x.is_floating_point():
            raise InvalidInput(
                f"Expected preprocess of {self.spec} to give floats (channels, height, width) "
                f"(got {x.dtype} of shape {tuple(x.shape)})."
            )
        return self._placed(x).contiguous()

    def to_pixels(self, x: Tensor) -> Tensor:
        """The colours in [0, 1] that an input shows."""
        if self._own["to_pixels"] is not None:
            return self._asked("to_pixels", x)
        if self._own["preprocess"] is None:
            return super().to_pixels(x)
        black, white = (end.to(x) for end in self._scale())
        return ((x - black) / (white - black)).clamp(0, 1)

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white", to broadcast over images."""
        if self._own["baseline"] is not None:
            return self._placed(self._asked("baseline", name))
        if self._own["preprocess"] is None:
            return super().baseline(name)
        black, white = self._scale()
        return torch.lerp(black, white, self._level(name) / 255)

    def _scale(self) -> tuple[Tensor, Tensor]:
        """The inputs of black and of white, (channels, 1, 1) each."""
        from PIL import Image

        if self._ends is None:
            black, white = (
                self.preprocess(Image.new("RGB", (256, 256), colour))
                for colour in ("black", "white")
            )
            for plain in (black, white):
                spread = (plain.amax((1, 2)) - plain.amin((1, 2))).amax()
                if not bool(spread <= 1e-3 * (white - black).abs().amax()):
                    raise self._no_scale("a plain picture does not stay plain in it")
            ends = black.mean((1, 2), keepdim=True), white.mean((1, 2), keepdim=True)
            if not bool((ends[0] != ends[1]).all()):
                raise self._no_scale("it makes black and white alike")
            self._ends = ends
        return self._ends

    def _no_scale(self, why: str) -> InvalidInput:
        return InvalidInput(
            f"Expected the colours of inputs to be found from preprocess of {self.spec} "
            f"(got {why}). Try giving the model attributes baseline(name) and to_pixels(x)."
        )

    def _placed(self, x: Tensor) -> Tensor:
        """On the device and in the dtype of the network, where it has parameters."""
        weight = next(self.net.parameters(), None)
        return x if weight is None else x.detach().to(device=weight.device, dtype=weight.dtype)

    def _asked(self, what: str, argument: object) -> Tensor:
        how = self._own[what]
        assert how is not None
        try:
            out = how(argument)
        except GreedyPigError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"Expected {what} of {self.spec} to work (got {_said(error)})."
            ) from error
        if not isinstance(out, Tensor):
            raise InvalidInput(
                f"Expected {what} of {self.spec} to give a tensor (got {type(out).__name__})."
            )
        return out

    def _logits_of_gray(self) -> int:
        """How many logits there are, from one picture that is all gray."""
        from PIL import Image

        x = self.preprocess(Image.new("RGB", (256, 256), (127, 127, 127)))[None]
        try:
            with torch.no_grad():
                logits = self.net(x)
        except Exception as error:
            raise InvalidInput(
                f"Expected {self.spec} to take a batch of shape {tuple(x.shape)} "
                f"(got {_said(error)}). Try giving the model an attribute preprocess."
            ) from error
        if not isinstance(logits, Tensor) or logits.dim() != 2 or logits.shape[0] != 1:
            got = tuple(logits.shape) if isinstance(logits, Tensor) else type(logits).__name__
            raise InvalidInput(
                f"Expected {self.spec} to give logits of shape (1, classes) for one photo "
                f"(got {got})."
            )
        return logits.shape[1]

    def _named(self, count: int) -> tuple[str, ...]:
        given = getattr(self.net, "classes", None)
        if given is None or isinstance(given, nn.Module) or callable(given):
            return class_names() if count == len(class_names()) else tuple(map(str, range(count)))
        if isinstance(given, Mapping):
            given = [given.get(i, str(i)) for i in range(count)]
        if isinstance(given, str) or not isinstance(given, Sequence) or len(given) != count:
            got = f"{len(given):,}" if hasattr(given, "__len__") else type(given).__name__
            raise InvalidInput(
                f"Expected a name for each of the {count:,} logits in classes of {self.spec} "
                f"(got {got})."
            )
        return tuple(str(name) for name in given)


def _find(spec: str) -> Any:
    module_name, _, path = spec.rpartition(":")
    if not module_name or not path or not all(p.isidentifier() for p in module_name.split(".")):
        raise InvalidInput(
            f"Expected a model as package.module:factory (got {spec!r}). "
            'Try "my_models:build" for the function build in my_models.py.'
        )
    # An installed command, unlike `python -m`, does not look into the current directory.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    importlib.invalidate_caches()
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if missing and (module_name == missing or module_name.startswith(f"{missing}.")):
            raise InvalidInput(
                f"Expected a module {module_name} for the model {spec} (got no module named "
                f"{missing}). Try the folder that holds it as current directory, or PYTHONPATH."
            ) from error
        raise InvalidInput(
            f"Expected to import {module_name} for the model {spec} (got {_said(error)})."
        ) from error
    except Exception as error:
        raise InvalidInput(
            f"Expected to import {module_name} for the model {spec} (got {_said(error)})."
        ) from error
    for name in path.split("."):
        if not hasattr(found, name):
            where = getattr(sys.modules[module_name], "__file__", None) or module_name
            raise InvalidInput(
                f"Expected {path} in {where} for the model {spec} (got no attribute {name!r})."
            )
        found = getattr(found, name)
    return found


def _call(factory: Any, spec: str) -> nn.Module:
    if isinstance(factory, nn.Module):
        return factory
    if not callable(factory):
        raise InvalidInput(
            f"Expected {spec} to be a function that builds a model (got "
            f"{type(factory).__name__}, which cannot be called)."
        )
    try:
        made = factory()
    except Exception as error:
        raise InvalidInput(
            f"Expected {spec} to build a model when called without arguments (got {_said(error)})."
        ) from error
    if not isinstance(made, nn.Module):
        raise InvalidInput(
            f"Expected {spec} to give a torch.nn.Module (got {type(made).__name__})."
        )
    return made


def _own(net: nn.Module, name: str) -> Callable[..., Any] | None:
    """The network's attribute, unless it is a layer that happens to have this name.

    A transform that is a Module is registered like a layer: it is the one that takes pictures.
    """
    found: Any = getattr(net, name, None)
    if not callable(found):
        return None
    if isinstance(found, nn.Module):
        is_transform = name == "preprocess" and _takes_pictures(found)
        return found if is_transform else None
    own: Callable[..., Any] = found
    return own


def _takes_pictures(transform: nn.Module) -> bool:
    from PIL import Image

    try:
        return isinstance(transform(Image.new("RGB", (256, 256))), Tensor)
    except Exception:  # A layer may say in any way that a picture is no tensor.
        return False


def _said(error: Exception) -> str:
    """The first line of what went wrong: torch adds pages to some."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
