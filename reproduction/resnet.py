"""The last figure of the paper's appendix: PIG and Greedy PIG on ResNet50."""

from __future__ import annotations

from . import curves
from .request import Request, Result
from .settings import Settings

FILES = ("resnet.md", "resnet.png", "resnet.csv", "resnet-photos.csv", "resnet-curves.csv")


def run(request: Request) -> Result:
    """The figure and its numbers."""
    return curves.run(request, Settings.of("resnet"))
