"""pyarrow, imported where it is used; and its columns as numbers, texts and classes."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import MissingPackage

HUGE = 1e90
"""Larger numbers count as infinite: they stand for a missing value, and their cubes overflow."""
NUMBER = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|Inf|infinity|nan|NaN)$"


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


def kind_of(of: Any) -> str:
    """ "text", "number" or, of dates and lists, "other": the kind of an Arrow type."""
    types = arrow("types")
    if types.is_dictionary(of):
        return kind_of(of.value_type)
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return "text"
    is_number = any(
        check(of)
        for check in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)
    )
    return "number" if is_number or types.is_null(of) else "other"


def as_texts(column: Any) -> Any:
    """A dictionary-encoded array of strings; missing values are null."""
    pa = arrow()
    if isinstance(column, pa.ChunkedArray):
        column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if not arrow("types").is_dictionary(column.type):
        return column.cast(pa.string()).dictionary_encode()
    # Arrow computes little on views, as polars writes them.
    return pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(pa.string()))


def as_numbers(column: Any) -> tuple[NDArray[np.float64], NDArray[np.bool_], str]:
    """float64 values, NaN where there is no number; which rows hold a text that is none; such a
    text."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if kind_of(column.type) == "text":
        texts = as_texts(column)
        trimmed = pc.utf8_trim_whitespace(texts.dictionary)
        is_number = pc.fill_null(pc.match_substring_regex(trimmed, NUMBER), True)
        # Arrow's cast knows no leading plus.
        plain = pc.utf8_ltrim(pc.if_else(is_number, trimmed, None), "+")
        odd = in_rows(texts, ~np.asarray(is_number, bool), False)
        first = texts.dictionary.filter(pc.invert(is_number))
        values = in_rows(texts, _bounded(plain.cast(pa.float64())), np.nan)
        return values, odd, first[0].as_py() if len(first) else ""
    if types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    values = _bounded(column.cast(pa.float64(), safe=False))
    return values, np.zeros(len(values), bool), ""


def _bounded(column: Any) -> NDArray[np.float64]:
    values = np.array(column.to_numpy(zero_copy_only=False), np.float64)
    huge = np.abs(values) > HUGE
    values[huge] = np.copysign(np.inf, values[huge])
    return values


def as_classes(column: Any) -> Any:
    """`as_texts` of a label: 1, 1.0 and true are one class, whatever type a file gives them."""
    if kind_of(column.type) == "text":
        return as_texts(column)
    pa = arrow()
    values, _, _ = as_numbers(column)
    different, places = np.unique(values, return_inverse=True)
    texts = pa.array([None if np.isnan(v) else f"{v:.15g}" for v in different], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(places.astype(np.int32)), texts)


def in_rows(texts: Any, values: NDArray[Any], missing: Any) -> NDArray[Any]:
    """The value of each row's text; values: one for each different text."""
    places = texts.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    rows: NDArray[Any] = np.append(values, values.dtype.type(missing))[places]
    return rows
