"""Planetoid's citation graphs: pickles of SciPy matrices, the published ones from Python 2.

They are read by an unpickler that knows arrays, lists and dictionaries and refuses everything else,
so that reading runs no foreign code.
"""

from __future__ import annotations

import collections
import io
import pickle
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from greedypig.core.errors import InvalidFile

PARTS = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")
VALIDATION = 500


class _Csr:
    """Stands in for SciPy's csr_matrix: what was pickled becomes its attributes."""

    indptr: NDArray[Any]
    indices: NDArray[Any]
    data: NDArray[Any]
    _shape: tuple[int, int]

    def entries(self) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
        rows = np.repeat(np.arange(self._shape[0]), np.diff(self.indptr))
        return rows, self.indices, self.data


def _array(*_what: object) -> NDArray[Any]:
    """Stands in for NumPy's _reconstruct: an empty array that __setstate__ fills."""
    return np.ndarray(0, np.int8)


def _from_buffer(
    buffer: bytes, dtype: np.dtype[Any], shape: tuple[int, ...], order: Literal["C", "F"]
) -> NDArray[Any]:
    """Stands in for NumPy's own, which newer pickles use."""
    return np.frombuffer(buffer, dtype).reshape(shape, order=order)


def _encoded(text: str, encoding: str) -> bytes:
    """Stands in for `codecs.encode`, which would take any codec."""
    if encoding != "latin1":
        raise InvalidFile(f"Expected bytes as latin1 (got {encoding!r}).")
    return text.encode("latin1")


_KNOWN: dict[tuple[str, str], Any] = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _array,
    ("numpy._core.multiarray", "_reconstruct"): _array,
    ("numpy.core.numeric", "_frombuffer"): _from_buffer,
    ("numpy._core.numeric", "_frombuffer"): _from_buffer,
    ("scipy.sparse.csr", "csr_matrix"): _Csr,
    ("scipy.sparse._csr", "csr_matrix"): _Csr,
    ("collections", "defaultdict"): collections.defaultdict,
    ("__builtin__", "list"): list,
    ("builtins", "list"): list,
    ("_codecs", "encode"): _encoded,  # How Python 3 writes bytes for Python 2.
}


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _KNOWN:
            raise InvalidFile(f"Expected arrays, lists and numbers only (got {module}.{name}).")
        return _KNOWN[module, name]


def read_pickle(content: bytes) -> Any:
    """What the pickle holds, of arrays, sparse matrices, lists and dictionaries alone."""
    try:
        return _Unpickler(io.BytesIO(content), encoding="latin1").load()
    except InvalidFile:
        raise
    except Exception as error:  # A damaged pickle can fail in any of its steps.
        raise InvalidFile(f"Expected a pickle of arrays (got {error}).") from error


def from_pickles(parts: Mapping[str, bytes]) -> dict[str, NDArray[Any]]:
    """The arrays of a graph from the eight parts `ind.NAME.PART`, by the customary recipe.

    The rows of `tx` belong to the nodes in `test.index`, in that order. Nodes in the range of the
    test indices that are not among them (Citeseer has 15, without any edge) get no features and
    label 0; they are in no part of the split, which is that of Yang et al. (2016).
    """
    content = {part: read_pickle(parts[part]) for part in PARTS if part != "test.index"}
    test = np.array([int(line) for line in parts["test.index"].split()], dtype=np.int64)
    nodes, columns = int(test.max()) + 1, int(content["allx"]._shape[1])
    rows, cols, values = content["allx"].entries()
    test_rows, test_cols, test_values = content["tx"].entries()
    labels = np.zeros((nodes, content["ally"].shape[1]), dtype=np.int64)
    labels[: len(content["ally"])] = content["ally"]
    labels[test] = content["ty"]
    trained = len(content["y"])
    entries = (
        np.concatenate([rows, test[test_rows]]),
        np.concatenate([cols, test_cols]),
        np.concatenate([values, test_values]),
    )
    pairs = ((u, v) for u, neighbours in content["graph"].items() for v in neighbours)
    return citation_arrays(pairs, entries, (nodes, columns), labels.argmax(1)) | {
        "train": np.arange(trained),
        "val": np.arange(trained, trained + VALIDATION),
        "test": np.sort(test),
    }


def citation_arrays(
    pairs: Iterable[tuple[int, int]],
    entries: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    shape: tuple[int, int],
    y: NDArray[Any],
) -> dict[str, NDArray[Any]]:
    """Edges u < v, each once and no loops; features as sorted `entries` (row, column, value)."""
    unique = sorted({(min(u, v), max(u, v)) for u, v in pairs if u != v})
    order = np.lexsort((entries[1], entries[0]))
    return {
        "edges": np.array(unique, dtype=np.int64).reshape(-1, 2).T,
        "x_row": entries[0][order].astype(np.int32),
        "x_col": entries[1][order].astype(np.int32),
        "x_val": entries[2][order].astype(np.float32),
        "x_shape": np.array(shape, dtype=np.int64),
        "y": y.astype(np.int64),
    }
