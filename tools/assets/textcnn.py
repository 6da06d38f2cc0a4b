"""A TextCNN for film reviews out of an ONNX file: its weights as safetensors, its words as lines.

ONNX is Protocol Buffers. Only the tensors of a file are wanted, and for those a reader of the wire
format's few rules will do: a key (field number and type) and a value, again and again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from greedypig.core.errors import InvalidFile

__all__ = ["weights", "words"]

_GRAPH, _INITIALIZER = 7, 5  # fields of ModelProto and GraphProto
_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9  # fields of TensorProto
_FLOAT = 1


def weights(network: bytes) -> bytes:
    """A safetensors file of the float32 tensors that the ONNX file holds, under their names."""
    state: dict[str, Tensor] = {}
    try:
        for field, graph in _fields(memoryview(network)):
            if field == _GRAPH and isinstance(graph, memoryview):
                for inner, tensor in _fields(graph):
                    if inner == _INITIALIZER and isinstance(tensor, memoryview):
                        name, value = _tensor(tensor)
                        state[name] = value
    except (IndexError, UnicodeDecodeError) as error:
        raise InvalidFile(f"Expected an ONNX file (got {error}).") from error
    if not state:
        raise InvalidFile("Expected an ONNX file with weights (got none in it).")
    return save(state, {"format": "pt"})


def words(vectors: bytes) -> bytes:
    """The first word of every line: line i is the word of row i of the embedding."""
    lines = vectors.decode().split("\n")
    return "".join(f"{line.split(' ', 1)[0]}\n" for line in lines if line).encode()


def _tensor(message: memoryview) -> tuple[str, Tensor]:
    shape: list[int] = []
    name, raw, kind = "", b"", 0
    for field, value in _fields(message):
        if field == _DIMS:
            shape += [value] if isinstance(value, int) else list(_varints(value))
        elif field == _TYPE and isinstance(value, int):
            kind = value
        elif field == _NAME and isinstance(value, memoryview):
            name = bytes(value).decode()
        elif field == _RAW and isinstance(value, memoryview):
            raw = bytes(value)
    if kind != _FLOAT or len(raw) != 4 * math.prod(shape):
        raise InvalidFile(
            f"Expected float32 of shape {tuple(shape)} for {name!r} (got type {kind} and "
            f"{len(raw)} bytes)."
        )
    return name, torch.from_numpy(np.frombuffer(raw, "<f4").reshape(shape).copy())


def _fields(message: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """The fields of a message: its number, and a number or the bytes of the value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == 2:
            length, at = _varint(message, at)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise InvalidFile(f"Expected an ONNX file (got a field of the unknown kind {kind}).")
        if at + length > len(message):
            raise InvalidFile("Expected an ONNX file (got one that is cut off).")
        yield key >> 3, message[at : at + length]
        at += length


def _varints(message: memoryview) -> Iterator[int]:
    at = 0
    while at < len(message):
        value, at = _varint(message, at)
        yield value


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    """A number in groups of seven bits, the lowest first; the eighth bit says that more follow."""
    value = shift = 0
    while True:
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
