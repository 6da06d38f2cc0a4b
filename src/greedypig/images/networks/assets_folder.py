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
    if named:
        return Path(named)
    here = Path(".assets")
    return here if here.is_dir() else _user_cache()


def _user_cache() -> Path:
    try:
        from platformdirs import user_cache_path
    except ImportError:
        cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        return Path(cache, "greedypig")
    return user_cache_path("greedypig")
