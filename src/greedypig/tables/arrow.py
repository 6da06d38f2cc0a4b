"""pyarrow where it is used: one place that imports it, and says how to get it."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

from ..core.errors import MissingPackage


@lru_cache
def arrow(module: str = "") -> Any:
    """pyarrow, or one of its modules: arrow("parquet")."""
    try:
        return importlib.import_module(f"pyarrow.{module}" if module else "pyarrow")
    except ImportError as error:
        raise MissingPackage(
            "Expected the package pyarrow for tables (it is not installed). "
            'Try pip install "greedypig[tables]".'
        ) from error
