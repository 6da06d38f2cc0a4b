"""A user's own network for photos, with all that an explanation of a photo needs.

The network may have attributes for its preprocessing, its colours, its outputs and its classes.
Missing attributes are set to what is usual for ImageNet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import GreedyPigError, InvalidInput
from ..tensors.targets import Target
from .networks.image_model import ImageModel
from .networks.imagenet import class_names
from .networks.pictures import upright_rgb

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OwnModel", "first_line"]

_SIDE = 256
_TRIED = ((128, 128, 128), (64, 128, 192))
_LINEAR = 6 / 255
"""How far a colour may lie from the line between black and white, relative to that line's length:
conversions round to whole levels."""


@dataclass(frozen=True, eq=False)
class Levels:
    """The inputs of black and of white, with each channel linear in its own colour in between."""

    black: Tensor
    """(channels, 1, 1)."""
    white: Tensor
    """(channels, 1, 1)."""
    is_exact: bool
    """Do other colours lie where these two say? They do not after a gamma curve, or with channels
    in another order than red, green, blue."""

    @staticmethod
    def of(preprocess: Callable[[Image.Image], Tensor]) -> Levels | None:
        """From a preprocessing's inputs for plain pictures; None where it has no such levels."""
        from PIL import Image

        def plain(colour: tuple[int, int, int]) -> Tensor:
            return preprocess(Image.new("RGB", (_SIDE, _SIDE), colour)).detach().cpu().float()

        black, white = plain((0, 0, 0)), plain((255, 255, 255))
        span = float((white - black).abs().amax())
        if max(_spread(black), _spread(white)) > 1e-3 * span:
            return None  # A plain picture does not stay plain.
        black, white = (x.mean((1, 2), keepdim=True) for x in (black, white))
        if bool((black == white).any()):
            return None
        exact = len(black) == 3
        for colour in _TRIED if exact else ():
            pixels = torch.tensor(colour).view(3, 1, 1) / 255
            away = (plain(colour) - torch.lerp(black, white, pixels)).abs()
            exact = exact and bool((away <= _LINEAR * (white - black).abs()).all())
        return Levels(black, white, exact)


def _spread(x: Tensor) -> float:
    return float((x.amax((1, 2)) - x.amin((1, 2))).amax())


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
      show; `from_pixels`: the inverse, which a judge needs. Otherwise the inputs that `preprocess`
      gives for black and for white are used, and each channel is linear in between.
    - `outputs`: "logits" or "probabilities", which of them it returns. Otherwise logits.
    - `classes`: the names of the classes in the order of the logits, or a mapping from index to
      name. Otherwise ImageNet's for 1,000 logits, "no" and "yes" for one, else "class 0" and so on.
    """

    def __init__(self, net: nn.Module, spec: str, outputs: str | None = None) -> None:
        super().__init__()
        self.net = net
        self.spec = spec
        # In a dict: as an attribute, a transform that is a Module would become a layer of this one.
        ways = ("preprocess", "baseline", "to_pixels", "from_pixels")
        self._own = {name: _own(net, name) for name in ways}
        self._levels: Levels | None = None
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}
        stated = outputs or _stated(net, spec)
        self.outputs = stated or "logits"
        self._target = Target(outputs=self.outputs)
        self._as_it_is = False
        self.eval()
        output = self._output_for_gray()
        self._check_output(output, stated)
        self._classes = self._named(output.shape[1] if output.dim() == 2 else 1)
        self.requires_grad_(False)  # Layers that are lazy have parameters only now.

    def forward(self, x: Tensor) -> Tensor:
        """Logits (m, classes), from what the network itself gives."""
        out: Any = self.net(x)
        if self._as_it_is:  # Without a look at it: then the network can be read as a graph.
            return out  # type: ignore[no-any-return]
        logits = self._target.logits(out, len(x))
        if logits.dim() == 2:
            return logits
        if self.outputs == "logits":
            return torch.stack([torch.zeros_like(logits), logits], 1)
        both = torch.stack([1 - logits, logits], 1)
        return both.clamp_min(torch.finfo(both.dtype).tiny).log()

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, in the order of the logits."""
        return self._classes

    def preprocess(self, image: Image.Image) -> Tensor:
        """The network's input for a PIL image: its own way, or ImageNet's."""
        if self._own["preprocess"] is None:
            return super().preprocess(image)
        self._check_image(image)
        x = self._call_own("preprocess", upright_rgb(image, self.resize))
        if x.dim() == 4 and x.shape[0] == 1:
            x = x[0]
        if x.dim() != 3 or not x.is_floating_point():
            raise InvalidInput(
                f"Expected preprocess of {self.spec} to give floats (channels, height, width) "
                f"(got {x.dtype} of shape {tuple(x.shape)})."
            )
        return self._placed(x.detach()).contiguous()

    def input_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the input for a picture of this height and width."""
        from PIL import Image

        if self._own["preprocess"] is None:
            return super().input_size(height, width)
        if (height, width) not in self._sizes:
            x = self.preprocess(Image.new("RGB", (width, height), "gray"))
            self._sizes[height, width] = x.shape[1], x.shape[2]
        return self._sizes[height, width]

    def to_pixels(self, x: Tensor) -> Tensor:
        """The colours in [0, 1] that an input shows."""
        own = self._own["to_pixels"] is not None
        return self._call_own("to_pixels", x) if own else super().to_pixels(x)

    def check_pixels(self) -> None:
        """Refuse a network whose `to_pixels` shows colours only roughly: no judge can be asked."""
        if self._own["to_pixels"] is None and self._own["preprocess"] is not None:
            self._known_levels(exact=True)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """The input that shows colours in [0, 1]; refused where that is not known exactly."""
        if self._own["from_pixels"] is not None:
            return self._placed(self._call_own("from_pixels", pixels).detach())
        if self._own["preprocess"] is not None:
            self._known_levels(exact=True)
        return super().from_pixels(pixels)

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white", to broadcast over images."""
        if self._own["baseline"] is not None:
            return self._placed(self._call_own("baseline", name).detach())
        return super().baseline(name)

    def _statistics(self, like: Tensor) -> tuple[Tensor, Tensor]:
        if self._own["preprocess"] is None:
            return super()._statistics(like)
        levels = self._known_levels()
        precision = torch.promote_types(like.dtype, torch.float32)
        black, white = (x.to(like.device, precision) for x in (levels.black, levels.white))
        return -255 * black / (white - black), 255 / (white - black)

    def _known_levels(self, *, exact: bool = False) -> Levels:
        """The levels of the preprocessing. exact: refuse those that show colours only roughly."""
        if self._levels is None:
            self._levels = Levels.of(self.preprocess)
        if self._levels is None or (exact and not self._levels.is_exact):
            raise InvalidInput(
                f"Expected preprocess of {self.spec} to be linear in red, green and blue (got "
                "another). Try giving the model attributes baseline(name), to_pixels(x) and, for "
                "a judge, from_pixels(pixels)."
            )
        return self._levels

    def _call_own(self, what: str, argument: object) -> Tensor:
        function = self._own[what]
        assert function is not None
        try:
            out = function(argument)
        except GreedyPigError:
            raise
        except Exception as error:
            raise InvalidInput(
                f"Expected {what} of {self.spec} to work (got {first_line(error)})."
            ) from error
        if not isinstance(out, Tensor):
            raise InvalidInput(
                f"Expected {what} of {self.spec} to give a tensor (got {type(out).__name__})."
            )
        return out

    def _output_for_gray(self) -> Tensor:
        """The network's output for a gray picture: (1, classes), or (1,)."""
        from PIL import Image

        x = self.preprocess(Image.new("RGB", (256, 256), (127, 127, 127)))[None]
        try:
            with torch.no_grad():
                out = self.net(x)
        except Exception as error:
            raise InvalidInput(
                f"Expected {self.spec} to take a batch of shape {tuple(x.shape)} "
                f"(got {first_line(error)}). Try giving the model an attribute preprocess."
            ) from error
        try:
            logits = Target().logits(out, 1)
        except GreedyPigError as error:
            raise InvalidInput(f"{self.spec}: {error}") from error
        self._as_it_is = logits is out and logits.dim() == 2 and self.outputs == "logits"
        return logits

    def _check_output(self, output: Tensor, stated: str | None) -> None:
        """Refuse outputs that are no probabilities; warn of logits that look like some."""
        total = float(output.double().sum())
        shares = bool((output >= 0).all() and (output <= 1).all())
        if self.outputs == "probabilities":
            if not shares or (output.dim() == 2 and abs(total - 1) > 1e-2):
                what = "that sum to 1" if output.dim() == 2 else "from 0 to 1"
                got = f"a sum of {total:.3g}" if shares else "numbers below 0 or above 1"
                raise InvalidInput(
                    f"Expected probabilities {what} from {self.spec} for a gray picture "
                    f'(got {got}). Try outputs "logits".'
                )
        elif stated is None and output.dim() == 2 and shares and abs(total - 1) < 1e-4:
            warnings.warn(
                f"The outputs of {self.spec} look like probabilities but are read as logits. Try "
                'outputs="probabilities", or an attribute outputs of the model.',
                stacklevel=4,
            )

    def _named(self, count: int) -> tuple[str, ...]:
        names = getattr(self.net, "classes", None)
        if names is None or isinstance(names, nn.Module) or callable(names):
            if count == len(class_names()):
                return class_names()
            return ("no", "yes") if count == 1 else tuple(f"class {i}" for i in range(count))
        wanted = max(count, 2)  # One logit tells two classes apart.
        if isinstance(names, Mapping):
            names = [names.get(i, f"class {i}") for i in range(wanted)]
        listed = isinstance(names, Sequence) and not isinstance(names, str)
        if listed and count == len(names) == 1:
            return f"not {names[0]}", str(names[0])
        if not listed or len(names) != wanted:
            got = f"{len(names):,}" if hasattr(names, "__len__") else type(names).__name__
            what = "two names" if count == 1 else f"a name for each of the {count:,} logits"
            raise InvalidInput(f"Expected {what} in classes of {self.spec} (got {got}).")
        return tuple(map(str, names))


def _stated(net: nn.Module, spec: str) -> str | None:
    """The network's attribute `outputs`, if it is a text."""
    stated = getattr(net, "outputs", None)
    if not isinstance(stated, str):
        return None
    if stated not in ("logits", "probabilities"):
        raise InvalidInput(
            f'Expected outputs of {spec} to be "logits" or "probabilities" (got {stated!r}).'
        )
    return stated


def _own(net: nn.Module, name: str) -> Callable[..., Any] | None:
    """The network's attribute, unless it is a layer that happens to have this name.

    A transform that is a Module is registered like a layer: it is the one that takes pictures.
    """
    own: Any = getattr(net, name, None)
    if not callable(own):
        return None
    if isinstance(own, nn.Module) and not (name == "preprocess" and _takes_pictures(own)):
        return None
    return own  # type: ignore[no-any-return]


def _takes_pictures(transform: nn.Module) -> bool:
    from PIL import Image

    try:
        return isinstance(transform(Image.new("RGB", (256, 256))), Tensor)
    except Exception:  # A layer may say in any way that a picture is no tensor.
        return False


def first_line(error: Exception) -> str:
    """The first line of an error; torch adds pages to some."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
