"""A run carried out: from where a saved run stopped, saved and shown on the way."""

from __future__ import annotations

import platform
from functools import lru_cache
from os import PathLike, fspath
from pathlib import Path

import torch

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..results import storage

CALLABLES = ("objective", "loss")
"""What may be a function of the user's own; provenance tells it from others."""


def saved_run(
    resume: Attribution | str | PathLike[str] | None, provenance: dict[str, str]
) -> Attribution | None:
    """The saved run to go on from, of the same model, input and functions."""
    if resume is None:
        return None
    saved = resume if isinstance(resume, Attribution) else storage.load(resume)
    for what in ("model", "input", *CALLABLES):
        if saved.provenance.get(what) != provenance.get(what):
            own = " Try the same function, closing over the same values." * (what in CALLABLES)
            raise InvalidInput(
                f"Expected the {what} of the saved run (got another: fingerprints differ).{own}"
            )
    return saved


def check_checkpoint(checkpoint: str | PathLike[str] | None) -> None:
    """Refuse a file in a folder that is not there, before the run rather than after its rounds."""
    if checkpoint is not None and not Path(checkpoint).absolute().parent.is_dir():
        raise InvalidInput(
            f"Expected checkpoint to be a file in a folder that exists "
            f"(got {fspath(checkpoint)!r})."
        )


@lru_cache(maxsize=1)
def versions() -> dict[str, str]:
    """Versions of this package and of what it is built on, for provenance."""
    from greedypig import __version__

    return {
        "greedypig": __version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }
