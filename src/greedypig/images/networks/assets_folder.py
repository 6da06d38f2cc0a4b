"""Where `make assets` puts weights, photos and data, and where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["assets_folder"]


def assets_folder() -> Path:
    """$GREEDYPIG_ASSETS, else the user's cache: what was brought once is found from anywhere."""
    if named := os.environ.get("GREEDYPIG_ASSETS"):
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("greedypig")
