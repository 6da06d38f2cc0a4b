"""Where `make assets` puts weights, photos and data, and where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

from ..core.errors import GreedyPigError, MissingPackage

__all__ = ["WeightsNotFoundError", "assets_folder"]


class WeightsNotFoundError(GreedyPigError, FileNotFoundError):
    """The weights of a network are not on this machine; the message says what brings them."""


def assets_folder() -> Path:
    """$GREEDYPIG_ASSETS, else the user's cache, so that assets are found from any folder."""
    if named := os.environ.get("GREEDYPIG_ASSETS"):
        return Path(named)
    try:
        from platformdirs import user_cache_path
    except ImportError as error:
        raise MissingPackage(
            "Expected the package platformdirs to find the user's cache (it is not installed). "
            'Try pip install "greedypig[images]" or "greedypig[text]", or set GREEDYPIG_ASSETS.'
        ) from error
    return user_cache_path("greedypig")
