"""Which input a colour is, found from a preprocessing by showing it plain pictures.

Most preprocessings treat a picture's colours alike everywhere and straight: with rgb in [0, 1]

    x = matrix · rgb + black

holds at every pixel, be it a normalisation, another order of the channels or a conversion to gray.
What plain pictures in a few colours become tells the matrix, and more of them whether it holds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from PIL import Image

__all__ = ["Colours", "NoColours"]

_SIDE = 256
_PRIMARY = ((255, 0, 0), (0, 255, 0), (0, 0, 255))
_TRIED = ((128, 128, 128), (64, 128, 192), (210, 90, 30))
_PLAIN = 1e-3
"""How far a plain picture's input may be from plain, relative to the range of inputs."""
_STRAIGHT = 6 / 255
"""Likewise of a colour from where the matrix has it: conversions round to whole levels."""
_TOLD_APART = 1e-2
"""Smaller singular values of the matrix, relative to the largest, count as none."""


class NoColours(Exception):
    """A preprocessing from which colours cannot be found; the text says why."""


@dataclass(frozen=True, eq=False)
class Colours:
    """The inputs of colours: x = matrix · rgb + black."""

    black: Tensor
    """(channels, 1, 1) the input of black …"""
    white: Tensor
    """… and of white."""
    matrix: Tensor
    """(channels, 3) float64; its rows sum to white − black."""
    rank: int
    """3 where the input tells all colours, 1 where it tells grays alone."""
    crooked: str
    """Why the equation does not hold; "" where it does."""

    @staticmethod
    def of(preprocess: Callable[[Image.Image], Tensor]) -> Colours:
        """From what a preprocessing, PIL image → (channels, h, w), makes of plain pictures."""
        from PIL import Image

        def shown(colour: tuple[int, int, int]) -> Tensor:
            # Not every device has double precision.
            return preprocess(Image.new("RGB", (_SIDE, _SIDE), colour)).detach().cpu()

        ends = [shown((level,) * 3) for level in (0, 255)]
        span = float((ends[1] - ends[0]).abs().amax())
        if not all(_spread(plain) <= _PLAIN * span for plain in ends):
            raise NoColours("a plain picture does not stay plain in it")
        black, white = (plain.double().mean((1, 2), keepdim=True).to(plain) for plain in ends)
        others = [shown(colour) for colour in (*_PRIMARY, *_TRIED)]
        start = black.flatten().double()
        found = torch.stack([plain.double().mean((1, 2)) - start for plain in others], 1)
        matrix = found[:, :3]
        # Conversions to gray round: the ends are to be met exactly.
        matrix = matrix + (white.flatten().double() - start - matrix.sum(1)).unsqueeze(1) / 3
        rank = _rank(matrix)
        crooked = ""
        if not all(_spread(plain) <= _PLAIN * span for plain in others):
            crooked = "a plain picture does not stay plain in it"
        elif not _straight(matrix, found):
            crooked = "its inputs are no weighted sums of red, green and blue"
        elif rank == 2:
            crooked = "it makes different colours alike"
        if bool((black == white).any()) and (crooked or rank < 3):
            raise NoColours("it makes black and white alike")
        return Colours(black, white, matrix, rank, crooked)

    def check(self) -> None:
        """Raises where the equation does not hold."""
        if self.crooked:
            raise NoColours(self.crooked)

    def to_pixels(self, x: Tensor) -> Tensor:
        """Inputs (..., channels, h, w) → colours in [0, 1]: (..., 3, h, w), or grays by channel.

        Where the equation does not hold, each channel's place between black and white.
        """
        x = _wide(x)
        if self.crooked or self.rank == 1:
            black, white = self.black.to(x), self.white.to(x)
            return ((x - black) / (white - black)).clamp(0, 1)
        back = torch.linalg.pinv(self.matrix)
        return _mixed(back.to(x), x - self.black.to(x)).clamp(0, 1)

    def from_pixels(self, pixels: Tensor) -> Tensor:
        """Colours (..., 3, h, w) or grays (..., 1, h, w) in [0, 1] → inputs that show them."""
        self.check()
        pixels = _wide(pixels)
        if pixels.shape[-3] == 1:
            pixels = pixels.expand(*pixels.shape[:-3], 3, -1, -1)
        return _mixed(self.matrix.to(pixels), pixels) + self.black.to(pixels)


def _spread(plain: Tensor) -> float:
    return float((plain.amax((1, 2)) - plain.amin((1, 2))).amax())


def _straight(matrix: Tensor, found: Tensor) -> bool:
    """Are the colours that were tried where the matrix has them?"""
    tried = torch.tensor(_TRIED, dtype=matrix.dtype).T / 255
    allowed = _STRAIGHT * found.abs().amax(1, keepdim=True)
    primary = (matrix - found[:, :3]).abs() <= allowed
    return bool(primary.all()) and bool(((matrix @ tried - found[:, 3:]).abs() <= allowed).all())


def _rank(matrix: Tensor) -> int:
    sizes = torch.linalg.svdvals(matrix)
    return int((sizes > _TOLD_APART * sizes[0]).sum())


def _mixed(matrix: Tensor, picture: Tensor) -> Tensor:
    return torch.einsum("ck,...khw->...chw", matrix, picture)


def _wide(x: Tensor) -> Tensor:
    """Half precision has fewer levels than a picture."""
    return x if x.dtype == torch.float64 else x.float()
