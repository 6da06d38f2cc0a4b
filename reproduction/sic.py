"""Figure 2 of the paper: softmax and loss information curves of five methods on MobileNetV2."""

from __future__ import annotations

from . import curves
from .request import Request, Result
from .settings import Settings

FILES = ("sic.md", "sic.png", "sic.csv", "sic-photos.csv", "sic-curves.csv")


def run(request: Request) -> Result:
    """The figure and its table."""
    return curves.run(request, Settings.of("sic"))
