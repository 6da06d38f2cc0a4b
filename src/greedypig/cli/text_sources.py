"""What the words of `greedypig explain-text` mean: texts, files, chats, standard input, and the
documents of a context."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from .failures import UsageError, wrong_command

ENDINGS = (".txt", ".md", ".rst", ".text")
"""Files of a folder that are texts."""


@dataclass(frozen=True)
class Source:
    """One text, chat or context, as the command line gives it."""

    name: str
    """A file's name, else "text"."""
    text: Any = None
    """A text, or a chat."""
    context: tuple[str, ...] | None = None
    documents: tuple[str, ...] = ()
    """The names of the context's texts."""
    question: str | None = None

    @property
    def for_language_model(self) -> bool:
        """Can only a language model read it?"""
        return self.context is not None or not isinstance(self.text, str)


def read_sources(args: argparse.Namespace) -> list[Source]:
    """What the words of the command line mean."""
    if not args.context:
        return [_source(word) for word in args.texts]
    if len(args.texts) > (args.question is None):
        raise UsageError(f"Expected one question beside --context (got {args.texts[-1]!r} too).")
    question = args.question if args.question is not None else "".join(args.texts)
    if not question.strip():
        raise UsageError("Expected a question beside --context (got none). Try --question.")
    files = [file for path in args.context for file in _files(Path(path))]
    texts = {file: read_text(file) for file in files}
    full = {file: text for file, text in texts.items() if text.strip()}
    if not full:
        raise UsageError(f"Expected a text in {', '.join(args.context)} (got empty files).")
    first = Path(args.context[0])
    times = [file.name for file in full]
    names = tuple(f.name if times.count(f.name) == 1 else fspath(f) for f in full)
    name = first.resolve().name or "context"
    return [Source(name, None, tuple(full.values()), names, question)]


def _files(path: Path) -> list[Path]:
    """A file, or the text files of a folder in the order of their names."""
    if path.is_dir():
        texts = (p for p in path.rglob("*") if p.suffix.lower() in ENDINGS and p.is_file())
        inside = sorted(p for p in texts if not p.name.startswith("."))
        if not inside:
            raise UsageError(f"Expected text files ({', '.join(ENDINGS)}) in {path} (got none).")
        return inside
    if not path.exists():
        raise UsageError(f"Expected a file or folder at {path} (got nothing there).")
    return [path]


def _source(word: str) -> Source:
    """A text as it is, or the content of a file."""
    if word == "-":
        return Source("text", _decoded(sys.stdin.buffer.read(), "standard input"))
    if not word.strip():
        raise UsageError("Expected a text to explain (got an empty one).")
    path = Path(word)
    try:
        there = path.is_file()
    except OSError:  # A text that is too long for a name.
        there = False
    if not there:
        if " " not in word and path.is_dir():
            raise UsageError(f"Expected a text or a file (got a folder, {word}). Try --context.")
        if re.fullmatch(r"\S+\.(txt|md|rst|text|json)|\.{0,2}/\S+|\S+/", word):
            raise UsageError(f"Expected a file at {word} (got nothing there).")
        return Source("text", word)
    content = read_text(path)
    if path.suffix.lower() == ".json":
        return Source(path.name, _messages(content, path))
    return Source(path.name, content)


def read_text(path: Path) -> str:
    """The content of a text file."""
    with wrong_command():
        return _decoded(path.read_bytes(), fspath(path))


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"Expected text in UTF-8 in {name} (got another encoding at byte {error.start:,}). "
            "Try iconv -f latin1 -t utf-8."
        ) from error


def _messages(content: str, path: Path) -> list[dict[str, str]]:
    """A chat: a list of messages, or an object that holds it as "messages"."""
    try:
        chat = json.loads(content)
    except (ValueError, RecursionError) as error:  # Nested thousands of times.
        raise UsageError(f"Expected JSON in {path} (got: {error}).") from error
    chat = chat.get("messages") if isinstance(chat, dict) else chat
    messages = chat if isinstance(chat, list) else []
    if not messages or not all(
        isinstance(m, dict) and isinstance(m.get("role"), str) and "content" in m for m in messages
    ):
        raise UsageError(
            f'Expected a chat in {path}, as [{{"role": "user", "content": "…"}}, …] '
            "(got something else)."
        )
    return messages
