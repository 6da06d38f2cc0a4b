"""The notes of a text's explanation: the text with its features, the answer, and what was measured
with the best features alone and without them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import exp, log
from typing import ClassVar

from ..core.attribution import Attribution
from .reader import read
from .wording import chance, count, shown

KIND = "text"
SINGULAR = {
    "tokens": "token",
    "words": "word",
    "sentences": "sentence",
    "paragraphs": "paragraph",
    "documents": "document",
    "messages": "message",
    "spans": "part",
}
KNOWN = 0.1
"""An answer that gains no more than this share of its log-probability needs no context."""


@dataclass(frozen=True)
class TextNotes:
    """What a text's page is drawn from, checked."""

    KEYS: ClassVar = {"label": "class"}
    text: str
    """All that the model reads."""
    spans: tuple[tuple[int, int], ...]
    """Where each feature stands in the text."""
    unit: str
    """What a feature is: "words", "sentences", …"""
    absent: str = "masked"
    model: str | None = None
    label: str | None = None
    """A classifier's class."""
    probability: float | None = None
    predictions: tuple[tuple[str, float], ...] = ()
    answer_text: str | None = None
    """What a language model says."""
    answer_span: tuple[int, int] | None = None
    """The part of it that is explained."""
    generated: bool = False
    """Did the model say it itself?"""
    counts: tuple[int, ...] = ()
    """Numbers of best features that were measured once more:"""
    only: tuple[float, ...] = ()
    """G with only these present,"""
    deleted: tuple[float, ...] = ()
    """G with all others cut out of the text,"""
    without: tuple[float, ...] = ()
    """and G without these."""
    enough: int | None = None
    """The smallest number of best features that reaches the output."""
    reach: float = 0.95
    twins: tuple[tuple[int, int], ...] = ()
    """(feature, selected feature that it can stand in for)."""
    order: tuple[int, ...] = ()
    objective: str = ""
    methods: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """The order of features by other methods, for a comparison."""

    @staticmethod
    def of(a: Attribution) -> TextNotes | None:
        """Read and check the notes; None for a result that is not of a text."""
        if a.about.get("kind") != KIND:
            return None
        notes = read(TextNotes, {**a.about, "answer_text": a.about.get("answer")}, "the notes")
        order, objective = tuple(a.order.tolist()), str(a.settings.get("objective", ""))
        return replace(notes, order=order, objective=objective)

    @property
    def names(self) -> list[str]:
        """The text of each feature."""
        return [self.text[start:end] for start, end in self.spans]

    @property
    def explained(self) -> str:
        """The class, or the explained part of the answer."""
        if self.answer_text is None:
            return self.label or "the output"
        start, end = self.answer_span or (0, len(self.answer_text))
        return self.answer_text[start:end]

    @property
    def is_log(self) -> bool:
        """Is G a log-probability?"""
        return self.objective == "log-probability"

    def value(self, g: float) -> str:
        """G in words: a log-probability as the probability too."""
        if self.objective == "softmax":
            return chance(g)
        return f"{shown(exp(g), 2)} (log {shown(g, 3)})" if self.is_log else shown(g, 3)

    def at(self, values: tuple[float, ...], k: int) -> float | None:
        """The measured value of the first k features."""
        return dict(zip(self.counts, values, strict=False)).get(k)

    def unit_of(self, number: int) -> str:
        """3 sentences"""
        one = SINGULAR.get(self.unit, self.unit)
        return count(number, one)

    def answer(self) -> str:
        """2 of 14 sentences are enough for “…” (probability 0.31, all 0.33)."""
        total, what = len(self.spans), f"“{_short(self.explained)}”"
        if not self.counts:
            return f"The first of {self.unit_of(total)} for {what}: “{_short(self._name(0))}”."
        full = self.value(self.only[-1])
        if self.needs_nothing:
            bare = self.value(self.only[0])
            return (
                f"{what} needs none of the {self.unit_of(total)}: {bare} without them, {full} with."
            )
        if not self.enough:
            return f"No smaller part than all {self.unit_of(total)} is enough for {what} ({full})."
        value = self.at(self.only, self.enough)
        verb = "is" if self.enough == 1 else "are"
        part = f"{self.enough:,} of {self.unit_of(total)} {verb} enough for {what}"
        named = f": “{_short(self._name(0))}”" if self.enough == 1 else ""
        return f"{part} ({self.value(value or 0.0)}, all {full}){named}."

    @property
    def needs_nothing(self) -> bool:
        """Is the output nearly the same without any feature?"""
        if len(self.only) < 2:
            return False
        bare, full = self.only[0], self.only[-1]
        least = max(log(2), KNOWN * abs(bare)) if self.is_log else KNOWN * abs(full)
        return full - bare < least

    def cautions(self) -> list[str]:
        """Why the result is to be doubted."""
        lines = []
        if self.needs_nothing and self.answer_text is not None:
            lines.append(
                "The answer hardly depends on the text: the model knew it, or made it up. "
                "An order of features says little here."
            )
        elif self.needs_nothing:
            lines.append("The output hardly depends on the text; an order of features says little.")
        only = self.at(self.only, self.enough or -1)
        gone = self.at(self.deleted, self.enough or -1)
        if only is not None and gone is not None and self.absent != "deleted":
            bare, full = self.only[0], self.only[-1]
            if gone < bare + (only - bare) / 2 and full > bare:
                lines.append(
                    f"With the rest really deleted the value is {self.value(gone)}, not "
                    f"{self.value(only)} as with the rest masked: the two do not agree here."
                )
        return lines

    def twin_lines(self) -> list[str]:
        """“…” says the same as “…”."""
        names = self.names
        return [
            f"“{_short(names[j])}” says the same as “{_short(names[i])}”." for j, i in self.twins
        ]

    def _name(self, place: int) -> str:
        return self.names[self.order[place]]


def _short(text: str, most: int = 80) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"
