"""A text and where its features lie: words, sentences, paragraphs, documents, messages, tokens.

A prompt is one text with a span of characters for each feature. Everything outside of the spans is
always present: the chat template, the question, special tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..core.errors import Argument, InvalidInput, InvalidType, did_you_mean, first_line
from ..core.numbers import whole as whole_number
from ..core.registry import FEATURES, TEXTS, serving
from .models import TextModel

Span = tuple[int, int]
ABBREVIATIONS = (
    "dr mr mrs ms prof rev gen sen rep st vs etc fig no vol approx dept inc ltd co corp jr sr "
    "e.g i.e cf al a.m p.m u.s u.k"
)
"""Words whose full stop ends no sentence."""
_END = re.compile(r"[.!?…؟۔।॥]+[\"'”’)\]]*(?=\s)|[。！？]+[”’」』]*|\n+")
_BEFORE, _AFTER = re.compile(r"[^\s(\[\"“‘]*$"), re.compile(r"\s*(\S?)")
LONGEST_WORD = 40
"""Characters before a full stop that are looked at."""
INTRODUCTION = "Context:\n"
MARK = "\ue000{}\ue001"
"""Stands for a message's text in a template: signs that no text has."""


def words(text: str) -> list[Span]:
    """What stands between spaces."""
    return [m.span() for m in re.finditer(r"\S+", text)]


def paragraphs(text: str) -> list[Span]:
    """What stands between empty lines."""
    return _between(text, [m.end() for m in re.finditer(r"\n[ \t]*\r?\n\s*", text)])


def sentences(text: str) -> list[Span]:
    """Sentences: up to a full stop, question or exclamation mark, or the end of a line.

    No full stop of an abbreviation or initial ends one, nor one before a small letter.
    """
    ends = []
    for mark in _END.finditer(text):
        if text[mark.start()] == ".":
            near = text[max(0, mark.start() - LONGEST_WORD) : mark.start()]
            word, after = _BEFORE.search(near), _AFTER.match(text, mark.end())
            assert word is not None
            assert after is not None
            initial = len(word[0]) == 1 and word[0].isupper()
            if initial or word[0].lower() in ABBREVIATIONS.split() or after[1].islower():
                continue
        ends.append(mark.end())
    return _between(text, ends)


def _between(text: str, ends: Sequence[int]) -> list[Span]:
    """The parts between these places, without the spaces around them."""
    spans = []
    for start, end in zip([0, *ends], [*ends, len(text)], strict=True):
        part = text[start:end]
        if part.strip():
            start += len(part) - len(part.lstrip())
            spans.append((start, start + len(part.strip())))
    return spans


SPLITS: dict[str, Callable[[str], list[Span]]] = {
    "words": words,
    "sentences": sentences,
    "paragraphs": paragraphs,
}
WHOLE = {"documents": "context", "messages": "a chat"}
"""Features that are pieces of the input as they are given, and what they are pieces of."""
NAMES = serving(FEATURES, TEXTS)


@dataclass(frozen=True)
class Prompt:
    """The whole text that the model reads, and the spans of its features in order."""

    text: str
    spans: tuple[Span, ...]
    features: str
    """What a feature is: one of `NAMES`, or "spans"."""
    templated: bool = False
    """Does the text hold its special tokens already, by a chat template?"""
    given: str = "text"
    """What it was made from: "text", "chat" or "context"."""

    @property
    def names(self) -> list[str]:
        """The text of each feature."""
        return [self.text[start:end] for start, end in self.spans]

    def without_absent(self, present: Sequence[bool]) -> str:
        """The text with absent features cut out, each with the spaces behind it."""
        kept, last = "", 0
        for (start, end), here in zip(self.spans, present, strict=True):
            if not here:
                kept += self.text[last:start]
                following = self.text[end:].lstrip(" \t")
                if following[:1] in ("", "\r", "\n"):  # No space is left at the end of a line,
                    kept = kept.rstrip(" \t")
                    if kept.endswith("\n"):  # nor an empty line.
                        following = following.removeprefix("\r")[1:]
                last = len(self.text) - len(following)
        return kept + self.text[last:]

    def ids(self, model: TextModel, text: str | None = None) -> Tensor:
        """(tokens,) of the text, or of another one of the same kind."""
        return self._encoded(model, text)[0]

    def _encoded(self, model: TextModel, text: str | None = None) -> tuple[Tensor, list[Span]]:
        encoded = model.tokenizer(
            self.text if text is None else text,
            add_special_tokens=not self.templated,
            return_offsets_mapping=True,
            verbose=False,
        )
        ids = torch.tensor(encoded["input_ids"], dtype=torch.long, device=model.device)
        return ids, [tuple(pair) for pair in encoded["offset_mapping"]]

    def tokens(self, model: TextModel) -> tuple[Tensor, Tensor]:
        """(tokens,) ids and (tokens,) the feature that each token belongs to, −1 for none.

        A token that reaches over several features belongs to the one it begins in, its leading
        spaces aside.
        """
        ids, offsets = self._encoded(model)
        owners, feature = [], 0
        for start, end in offsets:
            part = self.text[start:end]
            place = start + len(part) - len(part.lstrip())
            if place == end:  # Spaces alone.
                place = start
            while feature < len(self.spans) and self.spans[feature][1] <= place:
                feature += 1
            first = end if part.strip() else place + 1
            inside = feature < len(self.spans) and self.spans[feature][0] < first
            owners.append(feature if inside and start < end else -1)
        return ids, torch.tensor(owners, device=ids.device)


def make_prompt(
    model: TextModel, text: Any, context: Any, question: str | None, features: Any
) -> Prompt:
    """The prompt of `explain_text`'s arguments."""
    whole, pieces, given = _whole_text(model, text, context, question)
    if not pieces:
        raise InvalidInput(f"Expected a {given} with text to explain (got an empty one).")
    try:
        whole.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput(
            f"Expected text that UTF-8 can hold (got half a character at place {error.start:,}). "
            "Try errors='replace' where the text is read."
        ) from error
    if features is None:
        features = "words" if model.kind == "classifier" else "sentences"
        if given == "context" and len(pieces) > 1:
            features = "documents"
    templated = model.kind == "language model" and model.chats
    if isinstance(features, str):
        if features not in NAMES:
            raise InvalidInput(
                f"Expected features to be one of {', '.join(NAMES)}, or a list of texts or "
                f"(start, end) places (got {features!r}).{did_you_mean(features, NAMES)}",
                argument="features",
            )
        if features in WHOLE and WHOLE[features].split()[-1] != given:
            raise InvalidInput(
                f"Expected {WHOLE[features]} for ",
                Argument("features", features),
                f" (got {given}).",
                advice=Argument("features", "sentences"),
            )
        spans = pieces
        if features in SPLITS:
            split = SPLITS[features]
            spans = [(a + s, a + e) for a, b in pieces for s, e in split(whole[a:b])]
        elif features == "tokens":
            _, offsets = Prompt(whole, (), features, templated)._encoded(model)
            inside = [(a, b) for a, b in offsets if any(p <= a and b <= q for p, q in pieces)]
            spans = _disjoint(_trimmed(whole, inside))
        return Prompt(whole, tuple(spans), features, templated, given)
    spaces = len(text) - len(text.lstrip()) if given == "text" else 0
    spans = _given_spans(features, whole, pieces, pieces[0][0] - spaces)
    return Prompt(whole, tuple(spans), "spans", templated, given)


def _trimmed(text: str, spans: Sequence[Span]) -> list[Span]:
    """Spans without the spaces at their ends; those of spaces alone are left out."""
    parts = [(text[a:b], a) for a, b in spans]
    starts = [(part.strip(), a + len(part) - len(part.lstrip())) for part, a in parts]
    return [(a, a + len(part)) for part, a in starts if part]


def _disjoint(spans: Sequence[Span]) -> list[Span]:
    """Spans without those that reach back into the one before: several tokens of one sign."""
    kept: list[Span] = []
    for start, end in spans:
        if not kept or start >= kept[-1][1]:
            kept.append((start, end))
    return kept


def _given_spans(features: Any, whole: str, pieces: Sequence[Span], origin: int) -> list[Span]:
    """Features that the caller lists: texts that stand in the input in this order, or places in a
    text."""
    if not isinstance(features, Sequence) or not features:
        raise InvalidType(
            "Expected features to be a name, or a list of texts or (start, end) places "
            f"(got {type(features).__name__})."
        )
    place, spans = pieces[0][0], []
    for feature in features:
        if isinstance(feature, str):
            start = whole.find(feature, place)
            if start < 0 or not feature:
                raise InvalidInput(
                    f"Expected features that stand in the text in this order (got {feature!r}, "
                    "which was not found after those before it)."
                )
            span = start, start + len(feature)
        else:
            ends = [whole_number(n) for n in feature] if isinstance(feature, Iterable) else []
            if [type(n) for n in ends] != [int, int]:
                raise InvalidType(
                    f"Expected a text or (start, end) for a feature (got {feature!r})."
                )
            span = origin + ends[0], origin + ends[1]
        inside = any(a <= span[0] < span[1] <= b for a, b in pieces)
        if span[0] < place or not inside:
            raise InvalidInput(
                "Expected features in order, without overlap, each inside of the text, or of one "
                f"document or message (got {feature!r})."
            )
        spans.append(span)
        place = span[1]
    return spans


def _whole_text(
    model: TextModel, text: Any, context: Any, question: str | None
) -> tuple[str, list[Span], str]:
    """The whole text, the pieces of it that are explained, and what was given: "text", "chat" or
    "context"."""
    if context is not None:
        documents = [context] if isinstance(context, str) else context
        if text is not None and question is not None:
            raise InvalidInput("Expected a text or a question beside context= (got both).")
        question = question if question is not None else text
        if model.kind == "classifier":
            raise InvalidInput(
                "Expected a text for a classifier (got a context and a question, which are for "
                "language models)."
            )
        if not isinstance(question, str) or not question.strip():
            raise InvalidInput("Expected a question beside the context (got none).")
        if not isinstance(documents, Sequence) or not all(isinstance(d, str) for d in documents):
            kinds = {type(d).__name__ for d in documents} if isinstance(documents, list) else set()
            got = f"list of {', '.join(sorted(kinds))}" if kinds else type(documents).__name__
            raise InvalidType(f"Expected the context as texts, one or a list of them (got {got}).")
        content, pieces = INTRODUCTION, []
        for each in (d.strip() for d in documents if d.strip()):
            pieces.append((len(content), len(content) + len(each)))
            content += each + "\n"
        content += f"\nQuestion: {question.strip()}"
        if not model.chats:
            return f"{content}\nAnswer:", pieces, "context"
        whole, ((start, _),) = _chat(model, [{"role": "user", "content": content}])
        return whole, [(start + a, start + b) for a, b in pieces], "context"
    if question is not None:
        raise InvalidInput("Expected context= beside question= (got none).")
    if isinstance(text, str):
        if not text.strip():
            return text, [], "text"
        if model.kind == "classifier" or not model.chats:
            return text, _trimmed(text, [(0, len(text))]), "text"
        return *_chat(model, [{"role": "user", "content": text.strip()}]), "text"
    if isinstance(text, Sequence) and all(isinstance(m, Mapping) for m in text) and text:
        return *_chat(model, [_plain(message) for message in text]), "chat"
    raise InvalidType(
        "Expected a text, a chat as a list of messages {'role': …, 'content': …}, or context= and "
        f"question= (got {type(text).__name__})."
    )


def _chat(model: TextModel, messages: Sequence[Mapping[str, str]]) -> tuple[str, list[Span]]:
    """The messages by the tokenizer's template, and where their contents stand in it."""
    if not model.chats or model.kind == "classifier":
        raise InvalidInput(
            f"Expected a language model with a chat template for a chat (got {model.name}). "
            "Try the text as one string."
        )
    try:
        whole, rest = (
            model.tokenizer.apply_chat_template(each, tokenize=False, add_generation_prompt=True)
            for each in ([dict(message) for message in messages], _marked(messages))
        )
    except Exception as error:  # Templates raise errors of their own.
        raise InvalidInput(
            f"Expected messages that the chat template of {model.name} takes (got its error: "
            f"{first_line(error)})."
        ) from error
    text, spans = "", []
    for i, message in enumerate(messages):
        if content := message["content"].strip():
            before, _, rest = rest.partition(MARK.format(i))
            spans.append((len(text + before), len(text + before + content)))
            text += before + content
    if text + rest != whole:
        raise InvalidInput(
            "Expected a chat template that shows messages as they are (got one that changes "
            "them). Try the whole prompt as one string, with a tokenizer without a template."
        )
    return whole, spans


def _plain(message: Mapping[str, Any]) -> dict[str, Any]:
    """The message with its content as one text; it may be a list of parts."""
    content = message.get("content")
    if isinstance(content, Sequence) and not isinstance(content, str):
        parts: list[Any] = [p.get("text") if isinstance(p, Mapping) else None for p in content]
        content = "\n".join(parts) if all(isinstance(part, str) for part in parts) else None
    if "role" not in message or not isinstance(content, str):
        raise InvalidType(
            "Expected messages {'role': …, 'content': …} with texts as content (got keys "
            f"{', '.join(map(str, message))}; content: {type(message.get('content')).__name__})."
        )
    return dict(message) | {"content": content}


def _marked(messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Messages with a mark in the place of their text, which the template's own words may hold
    too; spaces around it stay, as a template may cut them off."""
    marked = []
    for i, message in enumerate(messages):
        content = message["content"].strip()
        text = message["content"].replace(content, MARK.format(i), 1) if content else ""
        marked.append(dict(message) | {"content": text})
    return marked
