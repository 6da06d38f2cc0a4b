"""From a name to a network for photos: a built-in one, or the user's own.

`package.module:factory` is called without arguments and returns any `nn.Module` from images to
logits; `OwnModel` adds all that an explanation of a photo needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import Argument, GreedyPigError, InvalidInput, did_you_mean, first_line
from ..network.from_spec import build
from ..tensors.targets import Target
from .class_names import class_names
from .networks import ImageModel, load
from .networks.pictures import pillow, upright_rgb
from .networks.pretrained import NAMES

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OwnModel", "model_from"]

_PROBE = (64, 128, 192)
"""A colour that tells scales apart, and orders of the channels."""


def model_from(spec: str, *, outputs: str | None = None) -> ImageModel:
    """The network that `spec` names: on the CPU, in eval mode, no parameter requires a gradient.

    Args:
        spec: the name of a built-in network ("efficientnet-lite0", "mobilenet-v2", "resnet50"), or
            "package.module:factory" for your own (see `OwnModel`); modules in the current directory
            are found too.
        outputs: for your own, "logits" or "probabilities": which of them it gives. None takes
            what its attribute `outputs` says, else logits.
    """
    if "." in spec and ":" not in spec:
        raise InvalidInput(
            f"Expected a model as package.module:factory (got {spec!r}, without a colon). "
            f'Try "{":".join(spec.rsplit(".", 1))}".'
        )
    if ":" not in spec and spec not in NAMES:
        raise InvalidInput(
            f"Expected one of {', '.join(NAMES)}, or a network of your own as "
            f"package.module:factory (got {spec!r}).{did_you_mean(spec, NAMES)}",
            argument="model",
        )
    model = build(spec) if ":" in spec else load(spec)
    if not isinstance(model, ImageModel):
        return OwnModel(model, spec, outputs)
    if outputs not in (None, "logits"):
        raise InvalidInput(
            "Expected ",
            Argument("outputs"),
            f" for a network of your own (got {outputs!r} for {spec}, which gives logits).",
        )
    return model.eval().requires_grad_(False)


class OwnModel(ImageModel):
    """A user's network with all that an explanation needs; `net` is the network itself.

    It returns logits (m, classes), whatever the network returns: a tensor, a tuple that begins
    with one, a dict or an object with `logits`. One logit z per picture, (m,) or (m, 1), becomes
    two, [0, z], so that softmax is sigmoid.

    Optional attributes of the network, and their defaults:

    - `preprocess`: a callable from an RGB PIL image to an input (channels, h, w). Otherwise the
      short side is resized to 256, the centre 224 x 224 cut out, and ImageNet's mean and deviation
      normalise.
    - `baseline`: a callable from "gray", "black" or "white" to an input of that colour;
      `to_pixels`: a callable from inputs (..., channels, h, w) to the colours in [0, 1] that they
      show; `from_pixels`: the inverse, which a judge needs. They are not needed for RGB that runs
      from 0 to 1, from -1 to 1, or is normalised as for ImageNet.
    - `outputs`: "logits" or "probabilities", which of them it returns. Otherwise logits.
    - `classes`: the names of the classes in the order of the logits, or a mapping from index to
      name. Otherwise ImageNet's for 1,000 logits, "no" and "yes" for one, else "class 0" and so on.
    """

    def __init__(self, net: nn.Module, spec: str, outputs: str | None = None) -> None:
        super().__init__()
        self.net, self.name = net.eval(), spec
        stated = outputs or getattr(net, "outputs", None)
        self.outputs = stated if isinstance(stated, str) else "logits"
        x = self.preprocess(pillow().Image.new("RGB", (256, 256), (127, 127, 127)))[None]
        try:
            self._target = Target(outputs=self.outputs, class_given=True)
            with torch.no_grad():
                output = self.net(x)
            logits = self._target.logits(output, 1)
            self._target.reference(logits[0], None)  # Looks whether they are probabilities.
            single = Target().logits(output, 1).dim() == 1
        except GreedyPigError as error:
            raise InvalidInput(f"{self.name}: {error}") from error
        except Exception as error:
            raise InvalidInput(
                f"Expected {self.name} to take a batch of shape {tuple(x.shape)} (got "
                f"{type(error).__name__}: {first_line(error)}). Try giving the model an attribute "
                "preprocess."
            ) from error
        self._returns_logits = logits is output
        self._classes = self._named(logits.shape[1], single)
        self.eval().requires_grad_(False)  # Layers that are lazy have parameters only now.

    def forward(self, x: Tensor) -> Tensor:
        """Logits (m, classes), from what the network itself gives."""
        output: Any = self.net(x)
        if self._returns_logits:  # Without a look at it: then the network can be read as a graph.
            return output  # type: ignore[no-any-return]
        return self._target.logits(output, len(x))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self._classes

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input for a PIL image: its own way, or ImageNet's."""
        x = self._own("preprocess", upright_rgb(image), super().preprocess)
        x = x[0] if x.dim() == 4 and len(x) == 1 else x
        if x.dim() != 3:
            raise InvalidInput(
                f"Expected preprocess of {self.name} to give (channels, height, width) "
                f"(got shape {tuple(x.shape)})."
            )
        return x.contiguous()

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the input for a picture of this height and width."""
        x = self.preprocess(pillow().Image.new("RGB", (width, height)))
        return x.shape[1], x.shape[2]

    def to_pixels(self, x: Tensor) -> Tensor:
        """The colours in [0, 1] that an input shows."""
        return self._own("to_pixels", x, super().to_pixels)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """The input that shows colours in [0, 1]."""
        return self._own("from_pixels", pixels, super().from_pixels)

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white", to broadcast over images."""
        return self._own("baseline", name, super().baseline)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self._function("preprocess") is None:
            return super()._statistics(like)
        mean, std = (like.new_tensor(each).view(3, 1, 1) for each in self._scale)
        return mean, std

    @cached_property
    def _scale(self) -> tuple[Sequence[float], Sequence[float]]:
        """Mean and deviation of the levels in the network's own preprocessing."""
        x = self.preprocess(pillow().Image.new("RGB", (256, 256), _PROBE)).cpu().double()
        imagenet = (self.level_mean, self.level_std)
        for mean, std in (((0,) * 3, (255,) * 3), ((127.5,) * 3, (127.5,) * 3), imagenet):
            levels = x * x.new_tensor(std).view(3, 1, 1) + x.new_tensor(mean).view(3, 1, 1)
            away = (levels - levels.new_tensor(_PROBE).view(3, 1, 1)).abs()
            if len(x) == 3 and float(away.max()) < 2:
                return mean, std
        raise InvalidInput(
            f"Expected preprocess of {self.name} to give red, green and blue from 0 to 1, from -1 "
            "to 1, or normalised as for ImageNet (got others). Try giving the model attributes "
            "baseline(name), to_pixels(x) and, for a judge, from_pixels(pixels)."
        )

    def _function(self, name: str) -> Callable[[Any], Any] | None:
        """The network's attribute, unless it is a layer (with weights) that has this name."""
        function: Any = getattr(self.net, name, None)
        layer = isinstance(function, nn.Module) and any(True for _ in function.parameters())
        return function if callable(function) and not layer else None

    def _own(self, name: str, argument: Any, otherwise: Callable[[Any], Tensor]) -> Tensor:
        """What the network's own function of this name returns, else the usual one."""
        function = self._function(name) or otherwise
        try:
            return self._placed(function(argument).detach())
        except GreedyPigError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"Expected {name} of {self.name} to give a tensor "
                f"(got {type(error).__name__}: {first_line(error)})."
            ) from error

    def _named(self, count: int, single: bool) -> tuple[str, ...]:
        names = getattr(self.net, "classes", None)
        if isinstance(names, Mapping):
            names = [names.get(i, f"class {i}") for i in range(count)]
        if not isinstance(names, Sequence):
            if count == len(class_names()):
                return class_names()
            names = ("no", "yes") if single else [f"class {i}" for i in range(count)]
        if len(names) != count:
            raise InvalidInput(
                f"Expected a name for each of {count:,} classes in classes of {self.name} "
                f"(got {len(names)})."
            )
        return tuple(map(str, names))
