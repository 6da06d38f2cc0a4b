"""Where `make assets` puts weights, photos and data, and where they are looked for."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["assets_folder"]


def assets_folder() -> Path:
    """$GREEDYPIG_ASSETS; else `.assets` in the current directory, if it is there; else the user's
    cache, so that what was brought once is found from any directory.
    """
    named = os.environ.get("GREEDYPIG_ASSETS")
    if named or Path(".assets").is_dir():
        return Path(named or ".assets")
    from platformdirs import user_cache_path

    return user_cache_path("greedypig")
