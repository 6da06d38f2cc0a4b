"""Text tables in pieces: where blocks of whole lines begin and end, in plain files and in gzip.

A gzip stream can only be read from its beginning, unless the decompressor's state is kept. So the
one pass that finds the blocks keeps a copy of it (some 40 kB) before every one, and each block can
then be read on its own, in any order.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import InvalidFile

BLOCK = 1 << 23
"""Bytes of text in a piece, about."""
_FEED = 1 << 16
_NEWLINE, _QUOTE = 10, 34
_LONGEST = 16
"""A line longer than this many blocks is no table's."""


@dataclass(frozen=True)
class Block:
    """Whole lines: `length` bytes of text from `start`."""

    start: int
    length: int


class Plain:
    """Text as it is in the file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def stream(self, size: int) -> Iterator[bytes]:
        """All of it, `size` bytes at a time."""
        with self.path.open("rb") as file:
            while chunk := file.read(size):
                yield chunk

    def read(self, block: Block) -> bytes:
        """One block's bytes."""
        with self.path.open("rb") as file:
            file.seek(block.start)
            return file.read(block.length)


@dataclass(frozen=True)
class _State:
    """Where in the text and in the file a decompressor stands, and a copy of it."""

    text: int
    offset: int
    decompressor: Any


class Gzip:
    """Text that is packed by gzip, in one member or several."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._states: list[_State] = []

    def stream(self, size: int) -> Iterator[bytes]:
        """All of it, and states are kept on the way."""
        self._states = [_State(0, 0, zlib.decompressobj(wbits=31))]
        text = 0
        for chunk, state in self._unpack(self._states[0], size):
            text += len(chunk)
            yield chunk
            self._states.append(_State(text, state.offset, state.decompressor))

    def read(self, block: Block) -> bytes:
        """One block's bytes, from the nearest state before it."""
        near = max((s for s in self._states if s.text <= block.start), key=lambda s: s.text)
        skip, parts, have = block.start - near.text, [], 0
        for chunk, _ in self._unpack(near, _FEED * 16):
            part = chunk[skip : skip + block.length - have]
            skip = max(0, skip - len(chunk))
            parts.append(part)
            have += len(part)
            if have == block.length:
                break
        return b"".join(parts)

    def _unpack(self, start: _State, size: int) -> Iterator[tuple[bytes, _State]]:
        """Chunks of `size` bytes, each with the state behind it."""
        unpacker, offset = start.decompressor.copy(), start.offset
        with self.path.open("rb") as file:
            while True:
                parts, have, ended = [], 0, False
                while have < size and not ended:
                    file.seek(offset)
                    fed = file.read(_FEED)
                    if unpacker.eof:  # Another member may follow, or zeros that pad the file.
                        rest = fed.lstrip(b"\0")
                        offset += len(fed) - len(rest)
                        ended = not fed
                        if rest:
                            unpacker = zlib.decompressobj(wbits=31)
                        continue
                    if not fed:
                        raise self._damaged("it ends too early")
                    try:
                        got = unpacker.decompress(fed, size - have)
                    except zlib.error as error:
                        raise self._damaged(str(error)) from error
                    offset += len(fed) - len(unpacker.unconsumed_tail) - len(unpacker.unused_data)
                    parts.append(got)
                    have += len(got)
                if have:
                    yield b"".join(parts), _State(0, offset, unpacker.copy())
                if ended:
                    return

    def _damaged(self, why: str) -> InvalidFile:
        return InvalidFile(
            f"Expected a whole gzip file at {self.path} (got one that is cut off or damaged: "
            f"{why}). Try packing it again, or leave it out."
        )


def blocks(source: Plain | Gzip, *, quotes: bool, size: int = BLOCK) -> Iterator[Block]:
    """The text in blocks of whole lines; a newline between quotes does not end a line."""
    start, held, inside, pending = 0, 0, False, 0
    for chunk in source.stream(size):
        signs = np.frombuffer(chunk, np.uint8)
        ends = np.flatnonzero(signs == _NEWLINE)
        if quotes:
            marks = np.flatnonzero(signs == _QUOTE)
            if len(marks) or inside:
                # A newline is a line's end where an even number of quotes lies before it.
                before = np.searchsorted(marks, ends) + int(inside)
                ends = ends[before % 2 == 0]
                inside = bool((len(marks) + int(inside)) % 2)
        if not len(ends):
            held += len(chunk)
            pending += 1
            if pending >= _LONGEST:
                raise InvalidFile(
                    f"Expected lines of a table in {source.path} (got one of more than "
                    f"{held >> 20} MB). Try closing its quotes, or another separator."
                )
            continue
        cut = int(ends[-1]) + 1
        yield Block(start, held + cut)
        start, held, pending = start + held + cut, len(chunk) - cut, 0
    if held:
        yield Block(start, held)  # The last line may have no newline.
