"""Citation graphs as `.npz` files without pickles, from Cora's text files and planetoid's parts."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .planetoid import citation_arrays, from_pickles


def planetoid_file(parts: Mapping[str, bytes]) -> bytes:
    """A file from planetoid's eight parts."""
    return _npz(from_pickles(parts))


def cora_file(content: bytes, cites: bytes) -> bytes:
    """A file from Cora's own text files; it comes without a split.

    A line of `content` is a paper's id, one 0 or 1 for each word, and the name of its class; a line
    of `cites` two ids. Nodes are in the order of the lines, classes in that of their names.
    """
    lines = [line.split("\t") for line in content.decode().splitlines() if line.strip()]
    index = {fields[0]: i for i, fields in enumerate(lines)}
    classes = sorted({fields[-1] for fields in lines})
    words = np.array([[int(word) for word in fields[1:-1]] for fields in lines], dtype=np.int8)
    rows, cols = words.nonzero()
    pairs = (line.split("\t") for line in cites.decode().splitlines() if line.strip())
    arrays = citation_arrays(
        ((index[u], index[v]) for u, v in pairs),
        (rows, cols, np.ones(len(rows))),
        (words.shape[0], words.shape[1]),
        np.array([classes.index(fields[-1]) for fields in lines]),
    )
    return _npz(arrays)


def _npz(arrays: dict[str, NDArray[Any]]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()
