"""A user's own network for photos, with what an explanation of a photo needs besides.

How a photo becomes an input, which input a colour is, what the outputs mean and what the classes
are called the network may bring as attributes; what it does not bring is found out or taken to be
as usual for ImageNet.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..core.errors import GreedyPigError, InvalidInput
from ..tensors.targets import Target
from .networks.colours import Colours, NoColours
from .networks.image_model import ImageModel
from .networks.imagenet import class_names
from .networks.pictures import upright_rgb

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["OwnModel", "said"]


class OwnModel(ImageModel):
    """A user's network with what an explanation needs; `net` is the network itself.

    It gives logits (m, classes), whatever the network gives: a tensor, a tuple that begins with
    one, a dict or an object with `logits`. Of one logit z for each picture, (m,) or (m, 1), it
    makes two, [0, z], so that softmax is sigmoid.

    Optional attributes of the network, and what stands in where they are absent:

    - `preprocess`: a callable from an RGB PIL image to an input (channels, h, w). Otherwise the
      short side is resized to 256, the centre 224 x 224 cut out, and ImageNet's mean and deviation
      normalise.
    - `baseline`: a callable from "gray", "black" or "white" to an input of that colour;
      `to_pixels`: a callable from inputs (..., channels, h, w) to the colours in [0, 1] that they
      show; `from_pixels`: the way back, which a judge needs. Otherwise they are found from what
      `preprocess` makes of plain pictures (`greedypig.images.networks.colours`).
    - `outputs`: "logits" or "probabilities", which of them it gives. Otherwise logits.
    - `classes`: the names of the classes in the order of the logits, or a mapping from index to
      name. Otherwise ImageNet's for 1,000 logits, "no" and "yes" for one, else "class 0" and so on.
    """

    resample = "BILINEAR"
    level_mean = (255 * 0.485, 255 * 0.456, 255 * 0.406)
    level_std = (255 * 0.229, 255 * 0.224, 255 * 0.225)

    def __init__(self, net: nn.Module, spec: str, outputs: str | None = None) -> None:
        super().__init__()
        self.net = net
        self.spec = spec
        # In a dict: as an attribute, a transform that is a Module would become a layer of this one.
        self._own = {name: _own(net, name) for name in _WAYS}
        self._colours: Colours | None = None
        self._sizes: dict[tuple[int, int], tuple[int, int]] = {}
        stated = outputs or _stated(net, spec)
        self.outputs = stated or "logits"
        self._target = Target(outputs=self.outputs)
        self._as_it_is = False
        self.eval()
        found = self._answer_to_gray()
        self._check_answer(found, stated)
        self._classes = self._named(found.shape[1] if found.dim() == 2 else 1)
        self.requires_grad_(False)  # Layers that are lazy have parameters only now.

    def forward(self, x: Tensor) -> Tensor:
        """Logits (m, classes), from what the network itself gives."""
        out: Any = self.net(x)
        if self._as_it_is:  # Without a look at it: then the network can be read as a graph.
            plain: Tensor = out
            return plain
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
        x = self._asked("preprocess", upright_rgb(image, self.resize))
        if x.dim() == 4 and x.shape[0] == 1:
            x = x[0]
        if x.dim() != 3 or not x.is_floating_point():
            raise InvalidInput(
                f"Expected preprocess of {self.spec} to give floats (channels, height, width) "
                f"(got {x.dtype} of shape {tuple(x.shape)})."
            )
        return self._placed(x).contiguous()

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
        if self._own["to_pixels"] is not None:
            return self._asked("to_pixels", x)
        if self._own["preprocess"] is None:
            return super().to_pixels(x)
        with self._colours_needed() as colours:
            return colours.to_pixels(x)

    def check_pixels(self) -> None:
        """Refuses where `to_pixels` shows the colours only roughly: no judge may be asked then."""
        if self._own["to_pixels"] is None and self._own["preprocess"] is not None:
            with self._colours_needed() as colours:
                colours.check()

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """The input that shows colours in [0, 1]; refused where that is not known for sure."""
        if self._own["from_pixels"] is not None:
            return self._placed(self._asked("from_pixels", pixels))
        if self._own["preprocess"] is None:
            return super().from_pixels(pixels)
        with self._colours_needed() as colours:
            return self._placed(colours.from_pixels(pixels))

    def baseline(self, name: str) -> Tensor:
        """The input that is all "gray", "black" or "white", to broadcast over images."""
        if self._own["baseline"] is not None:
            return self._placed(self._asked("baseline", name))
        if self._own["preprocess"] is None:
            return super().baseline(name)
        level = self._level(name) / 255
        with self._colours_needed() as colours:
            return self._placed(torch.lerp(colours.black, colours.white, level))

    @contextmanager
    def _colours_needed(self) -> Iterator[Colours]:
        try:
            if self._colours is None:
                self._colours = Colours.of(self.preprocess)
            yield self._colours
        except NoColours as error:
            raise InvalidInput(
                f"Expected the colours of inputs to be found from preprocess of {self.spec} (got "
                f"that {error}). Try giving the model attributes baseline(name), to_pixels(x) and, "
                "for a judge, from_pixels(pixels)."
            ) from error

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
                f"Expected {what} of {self.spec} to work (got {said(error)})."
            ) from error
        if not isinstance(out, Tensor):
            raise InvalidInput(
                f"Expected {what} of {self.spec} to give a tensor (got {type(out).__name__})."
            )
        return out

    def _answer_to_gray(self) -> Tensor:
        """What the network gives for a picture that is all gray: (1, classes), or (1,)."""
        from PIL import Image

        x = self.preprocess(Image.new("RGB", (256, 256), (127, 127, 127)))[None]
        try:
            with torch.no_grad():
                out = self.net(x)
        except Exception as error:
            raise InvalidInput(
                f"Expected {self.spec} to take a batch of shape {tuple(x.shape)} "
                f"(got {said(error)}). Try giving the model an attribute preprocess."
            ) from error
        try:
            found = Target().logits(out, 1)
        except GreedyPigError as error:
            raise InvalidInput(f"{self.spec}: {error}") from error
        as_it_is = found is out and found.dim() == 2
        self._as_it_is = as_it_is and self.outputs == "logits"
        return found

    def _check_answer(self, found: Tensor, stated: str | None) -> None:
        """Are probabilities told as such?"""
        total = float(found.double().sum())
        shares = bool((found >= 0).all() and (found <= 1).all())
        if self.outputs == "probabilities":
            if not shares or (found.dim() == 2 and abs(total - 1) > 1e-2):
                what = "that sum to 1" if found.dim() == 2 else "from 0 to 1"
                got = f"a sum of {total:.3g}" if shares else "numbers below 0 or above 1"
                raise InvalidInput(
                    f"Expected probabilities {what} from {self.spec} for a gray picture "
                    f'(got {got}). Try outputs "logits".'
                )
        elif stated is None and found.dim() == 2 and shares and abs(total - 1) < 1e-4:
            warnings.warn(
                f"What {self.spec} gives looks like probabilities but is read as logits. Try "
                '--outputs probabilities, or an attribute outputs = "probabilities" of the model.',
                stacklevel=4,
            )

    def _named(self, count: int) -> tuple[str, ...]:
        given = getattr(self.net, "classes", None)
        if given is None or isinstance(given, nn.Module) or callable(given):
            if count == len(class_names()):
                return class_names()
            return ("no", "yes") if count == 1 else tuple(f"class {i}" for i in range(count))
        wanted = max(count, 2)  # One logit tells two classes apart.
        if isinstance(given, Mapping):
            given = [given.get(i, f"class {i}") for i in range(wanted)]
        listed = isinstance(given, Sequence) and not isinstance(given, str)
        if listed and count == len(given) == 1:
            return f"not {given[0]}", str(given[0])
        if not listed or len(given) != wanted:
            got = f"{len(given):,}" if hasattr(given, "__len__") else type(given).__name__
            what = "two names" if count == 1 else f"a name for each of the {count:,} logits"
            raise InvalidInput(f"Expected {what} in classes of {self.spec} (got {got}).")
        return tuple(str(name) for name in given)


_WAYS = ("preprocess", "baseline", "to_pixels", "from_pixels")


def _stated(net: nn.Module, spec: str) -> str | None:
    """What the network says that it gives; something else of that name says nothing."""
    said = getattr(net, "outputs", None)
    if not isinstance(said, str):
        return None
    if said not in ("logits", "probabilities"):
        raise InvalidInput(
            f'Expected outputs of {spec} to be "logits" or "probabilities" (got {said!r}).'
        )
    return said


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


def said(error: Exception) -> str:
    """The first line of what went wrong: torch adds pages to some."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
