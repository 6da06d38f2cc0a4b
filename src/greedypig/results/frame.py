"""A result as a table: one row for each feature, with its value in the input where it has one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite, nan
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, MissingPackage, did_you_mean
from .labels import feature_labels
from .wording import shown

LIBRARIES = ("pandas", "polars")


def feature_values(a: Attribution) -> Tensor | None:
    """(features,) the input's value of each feature, NaN for one of several values.

    None where no feature has one: the result is of a picture, a graph, a data set or a set
    function, or of groups alone.
    """
    x = a.attachments.get("x")
    if x is None or x.shape != (a.features.n,) or a.features.kind == "windows":
        return None
    owners = a.features.first_rank(torch.arange(a.features.count))
    values = torch.zeros(a.features.count, dtype=torch.float64).index_add_(0, owners, x.double())
    values[torch.bincount(owners, minlength=a.features.count) != 1] = nan
    return None if bool(values.isnan().all()) else values


def valued_labels(
    a: Attribution, indices: Sequence[int], cut: Callable[[str], str] = str
) -> list[str]:
    """Names of features, made shorter by `cut`, with their values in the input: "age = 52"."""
    values, labels = feature_values(a), [cut(label) for label in feature_labels(a, indices)]
    if values is None:
        return labels
    pairs = zip(labels, values[list(indices)].tolist(), strict=True)
    return [f"{name} = {shown(value)}" if isfinite(value) else name for name, value in pairs]


def to_frame(a: Attribution, library: str = "pandas") -> Any:
    """The result as a DataFrame: see `Attribution.to_frame`."""
    return frame(columns(a), library)


def columns(a: Attribution) -> dict[str, list[Any]]:
    """The columns of `Attribution.to_frame` by name."""
    order, values = a.order, feature_values(a)
    table: dict[str, list[Any]] = {
        "feature": order.tolist(),
        "name": feature_labels(a, order.tolist()),
    }
    if values is not None:
        table["value"] = values[order].tolist()
    return table | {
        "rank": list(range(1, a.features.count + 1)),
        "round": [number or None for number in a.feature_rounds()[order].tolist()],
        "score": a.feature_scores[order].tolist(),
        "gain": a.feature_gains()[order].tolist(),
        "contribution": a.feature_contributions()[order].tolist(),
    }


def frame(table: dict[str, list[Any]], library: str) -> Any:
    """Columns as a DataFrame of this library; rounds may be missing and stay whole numbers."""
    if library not in LIBRARIES:
        raise InvalidInput(
            f"Expected library to be 'pandas' or 'polars' (got {library!r})."
            f"{did_you_mean(library, LIBRARIES)}"
        )
    try:
        if library == "polars":
            import polars

            return polars.DataFrame(table)
        import pandas
    except ImportError as error:
        raise MissingPackage(
            f"Expected the package {library} for a DataFrame (it is not installed). "
            f"Try pip install {library}."
        ) from error
    return pandas.DataFrame(table).astype({"round": "Int64"} if "round" in table else {})
