"""pyarrow, imported where it is used; and its columns as numbers, texts and classes."""

from __future__ import annotations

import importlib
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.errors import MissingPackage

HUGE = 1e90
"""Numbers beyond count as infinite."""


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
    """ "text", "number" or "other", which cannot be used: the kind of an Arrow type."""
    types = arrow("types")
    if types.is_dictionary(of):
        return kind_of(of.value_type)
    if types.is_string(of) or types.is_large_string(of) or types.is_string_view(of):
        return "text"
    is_plain = types.is_primitive(of) or types.is_decimal(of) or types.is_null(of)
    return "number" if is_plain and not types.is_interval(of) else "other"


def as_numbers(column: Any) -> tuple[NDArray[np.float64], int, str]:
    """float64 values, NaN where there is no number; how many texts are no numbers; one of them."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    if types.is_dictionary(column.type) and types.is_string(column.type.value_type):
        texts = as_texts(column)  # Each different text is parsed once.
        of_texts, _, example = as_numbers(texts.dictionary)
        values = in_rows(texts, of_texts, np.nan)
        return values, int(np.isnan(values).sum()) - texts.null_count, example
    column = _plain(column)
    if types.is_string(column.type) or types.is_large_string(column.type):
        column = pc.utf8_trim_whitespace(column)
        try:
            column = pc.cast(column, pa.float64())
        except pa.ArrowInvalid:
            return _forgiving(column)
    elif types.is_temporal(column.type):
        width = column.type.bit_width
        column = pc.cast(pc.cast(column, pa.int32() if width == 32 else pa.int64()), pa.float64())
    elif types.is_boolean(column.type) or types.is_null(column.type):
        column = pc.cast(pc.cast(column, pa.int8()), pa.float64())
    else:
        column = pc.cast(column, pa.float64(), safe=False)
    return _bounded(column), 0, ""


def _forgiving(column: Any) -> tuple[NDArray[np.float64], int, str]:
    pa, pc = arrow(), arrow("compute")
    number = r"^[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf|Inf|infinity|nan|NaN)$"
    fits = pc.fill_null(pc.match_substring_regex(column, number), True)
    odd = pc.filter(column, pc.invert(fits))
    example = odd[0].as_py() if len(odd) else ""
    numbers = pc.if_else(fits, column, pa.scalar(None, column.type))
    # Arrow's cast knows no leading plus.
    values = pc.cast(pc.utf8_ltrim(numbers, "+"), pa.float64())
    return _bounded(values), len(odd), example


def _bounded(column: Any) -> NDArray[np.float64]:
    """Numbers whose cube would overflow, a mark of nothing in most tables, are infinite."""
    values = np.asarray(column.to_numpy(zero_copy_only=False), np.float64)
    huge = np.abs(values) > HUGE
    return np.where(huge, np.copysign(np.inf, values), values) if huge.any() else values


def as_texts(column: Any) -> Any:
    """A dictionary-encoded array of strings; nothing there is null."""
    pa, pc, types = arrow(), arrow("compute"), arrow("types")
    column = _one_chunk(column)
    if not types.is_dictionary(column.type):
        if not types.is_string(column.type):
            column = pc.cast(column, pa.string())
        return pc.dictionary_encode(column)
    if types.is_string(column.type.value_type):
        return column
    return pc.dictionary_encode(pc.cast(_plain(column), pa.string()))


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


def _plain(column: Any) -> Any:
    column = _one_chunk(column)
    encoded = arrow("types").is_dictionary(column.type)
    return column.dictionary_decode() if encoded else column


def _one_chunk(column: Any) -> Any:
    if not isinstance(column, arrow().ChunkedArray):
        return column
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def without_views(column: Any) -> Any:
    """Texts as strings rather than views, as polars writes them: Arrow computes little on views."""
    pa, types = arrow(), arrow("types")
    if types.is_string_view(column.type):
        return column.cast(pa.string())
    if not (types.is_dictionary(column.type) and types.is_string_view(column.type.value_type)):
        return column
    chunks = [
        pa.DictionaryArray.from_arrays(chunk.indices, chunk.dictionary.cast(pa.string()))
        for chunk in column.chunks
    ]
    return pa.chunked_array(chunks, pa.dictionary(column.type.index_type, pa.string()))
