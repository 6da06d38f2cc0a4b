"""From a name to the folder of a text model that `make assets` brought."""

from __future__ import annotations

from pathlib import Path

from ..core.errors import InvalidInput, did_you_mean
from ..core.registry import MODELS, TEXTS, serving
from ..network.assets_folder import WeightsNotFoundError, assets_folder

__all__ = ["NAMES", "folder_of"]

NAMES = serving(MODELS, TEXTS)


def folder_of(name: str) -> Path:
    """The folder that `from_pretrained` of transformers reads; nothing is downloaded."""
    if name not in NAMES:
        near = did_you_mean(name, NAMES)
        raise InvalidInput(f"Expected one of {', '.join(NAMES)} (got {name!r}).{near}")
    folder = assets_folder() / name
    if not (folder / "config.json").is_file():
        raise WeightsNotFoundError(
            f"Expected the model {name} in {folder} (got no such folder). "
            f"Try make assets ONLY={name} in a clone of greedypig, or set GREEDYPIG_ASSETS to the "
            "folder that holds it."
        )
    return folder
