"""A user's own network for photos, with all that an explanation of a photo needs.

The network may have attributes for its preprocessing, its colours, its outputs and its classes.
Missing attributes are set to what is usual for ImageNet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import GreedyPigError, InvalidInput, first_line
from ..tensors.targets import Target, look_like_probabilities
from .networks.image_model import ImageModel
from .networks.imagenet import class_names
from .networks.pictures import pillow, upright_rgb

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OwnModel"]

_TOLERANCE = 6 / 255
"""How far a colour may lie from the line between black and white, relative to that line's length:
conversions round to whole levels."""


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
      show; `from_pixels`: the inverse, which a judge needs. Otherwise they follow from the inputs
      that `preprocess` gives for black and for white, if it is linear in red, green and blue.
    - `outputs`: "logits" or "probabilities", which of them it returns. Otherwise logits.
    - `classes`: the names of the classes in the order of the logits, or a mapping from index to
      name. Otherwise ImageNet's for 1,000 logits, "no" and "yes" for one, else "class 0" and so on.
    """

    def __init__(self, net: nn.Module, spec: str, outputs: str | None = None) -> None:
        super().__init__()
        self.net, self.name = net, spec
        # In a dict: as an attribute, a transform that is a Module would become a layer of this one.
        names = ("preprocess", "baseline", "to_pixels", "from_pixels")
        self._functions = {name: _function(net, name) for name in names}
        own = getattr(net, "outputs", None)
        stated = outputs or (own if isinstance(own, str) else None)
        if stated not in (None, "logits", "probabilities"):
            raise InvalidInput(
                f'Expected outputs of {spec} to be "logits" or "probabilities" (got {stated!r}).'
            )
        self.outputs = stated or "logits"
        self._target = Target(outputs=self.outputs, class_given=True)
        self.eval()
        self._returns_logits = False
        raw, logits = self._try_gray_picture()
        if stated is None and raw.dim() == 2 and look_like_probabilities(raw):
            warnings.warn(
                f"The outputs of {spec} look like probabilities but are read as logits. Try "
                'outputs="probabilities", or an attribute outputs of the model.',
                stacklevel=3,
            )
        self._classes = self._named(logits.shape[1], single=raw.dim() == 1)
        self.requires_grad_(False)  # Layers that are lazy have parameters only now.

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
        if x.dim() == 4 and x.shape[0] == 1:
            x = x[0]
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
        if self._functions["preprocess"] is None:
            return super()._statistics(like)
        precision = torch.promote_types(like.dtype, torch.float32)
        black, white = (x.to(like.device, precision) for x in self._black_and_white)
        return -255 * black / (white - black), 255 / (white - black)

    @cached_property
    def _black_and_white(self) -> tuple[Tensor, Tensor]:
        """(channels, 1, 1) each: the inputs of both, if other colours lie on the line between."""

        def plain(*colour: int) -> Tensor:
            picture = pillow().Image.new("RGB", (256, 256), colour)
            return self.preprocess(picture).cpu().float()

        black, white = (plain(c, c, c).mean((1, 2), keepdim=True) for c in (0, 255))
        levels = (64, 128, 192) if len(black) == 3 else (128,)
        pixels = torch.tensor(levels).view(-1, 1, 1) / 255
        away = (plain(*levels * (3 // len(levels))) - torch.lerp(black, white, pixels)).abs()
        linear = bool((away <= _TOLERANCE * (white - black).abs()).all())
        if not linear or bool((black == white).any()):
            raise InvalidInput(
                f"Expected preprocess of {self.name} to be linear in red, green and blue (got "
                "another). Try giving the model attributes baseline(name), to_pixels(x) and, for "
                "a judge, from_pixels(pixels)."
            )
        return black, white

    def _own(self, name: str, argument: Any, otherwise: Callable[[Any], Tensor]) -> Tensor:
        """What the network's own function of this name returns, checked; else the usual one."""
        function = self._functions[name] or otherwise
        try:
            output: Any = function(argument)
        except GreedyPigError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"Expected {name} of {self.name} to work "
                f"(got {type(error).__name__}: {first_line(error)})."
            ) from error
        if not isinstance(output, Tensor):
            raise InvalidInput(
                f"Expected {name} of {self.name} to give a tensor (got {type(output).__name__})."
            )
        return self._placed(output.detach())

    def _try_gray_picture(self) -> tuple[Tensor, Tensor]:
        """(1, classes) or (1,) as the network gives it, and (1, classes) logits."""
        x = self.preprocess(pillow().Image.new("RGB", (256, 256), (127, 127, 127)))[None]
        try:
            with torch.no_grad():
                output = self.net(x)
            raw = Target().logits(output, 1)
            logits = self._target.logits(output, 1)
            if self.outputs == "probabilities":
                self._target.reference(logits[0], None)  # Refuses what does not sum to 1.
        except GreedyPigError as error:
            raise InvalidInput(f"{self.name}: {error}") from error
        except Exception as error:
            raise InvalidInput(
                f"Expected {self.name} to take a batch of shape {tuple(x.shape)} (got "
                f"{type(error).__name__}: {first_line(error)}). Try giving the model an attribute "
                "preprocess."
            ) from error
        self._returns_logits = logits is output
        return raw, logits

    def _named(self, count: int, *, single: bool) -> tuple[str, ...]:
        names = getattr(self.net, "classes", None)
        if names is None or callable(names):
            if count == len(class_names()):
                return class_names()
            return ("no", "yes") if single else tuple(f"class {i}" for i in range(count))
        if isinstance(names, Mapping):
            names = [names.get(i, f"class {i}") for i in range(count)]
        if isinstance(names, str) or not isinstance(names, Sequence) or len(names) != count:
            got = len(names) if isinstance(names, Sequence) else type(names).__name__
            raise InvalidInput(
                f"Expected a name for each of {count:,} classes in classes of {self.name} "
                f"(got {got})."
            )
        return tuple(map(str, names))


def _function(net: nn.Module, name: str) -> Callable[..., Any] | None:
    """The network's attribute, unless it is a layer that happens to have this name.

    A transform that is a Module, such as torchvision's, has no weights.
    """
    function: Any = getattr(net, name, None)
    layer = isinstance(function, nn.Module) and any(True for _ in function.parameters())
    return None if layer or not callable(function) else function
