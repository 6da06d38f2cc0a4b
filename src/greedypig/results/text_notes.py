"""Notes of a text that was explained: the text with its features, the answer, and the values
measured with the best features alone and without them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from math import ceil, exp, log
from typing import ClassVar, NamedTuple

from ..core.attribution import Attribution
from ..core.facts import Facts
from .wording import Caution, chance, chance_cell, count, of_the_rise, percent, shown

SINGULAR = {
    "tokens": "token",
    "words": "word",
    "sentences": "sentence",
    "paragraphs": "paragraph",
    "documents": "document",
    "messages": "message",
    "spans": "span",
}
COLUMNS = {
    "only_area": ("only these ↑", "{:.3f}"),
    "without_area": ("without these ↓", "{:.3f}"),
    "enough": ("enough ↓", "{:,.0f}"),
    "gradients": ("gradients", "{:,.0f}"),
    "forwards": ("forwards", "{:,.0f}"),
    "seconds": ("seconds", "{:,.1f}"),
}
"""What methods are compared by on a text: the heading of a column, and the format of its numbers.
The first two are areas under G over the share of features, best first: only these present, and all
but these. Enough is the smallest number of best features that reaches the output."""
COMPLETE = 0.1
"""Scores whose sum is off by more than this share are doubted."""
NEARLY = 0.8
"""A feature with this share of another one's effect says the same."""
LEVELS = 5
"""Strengths of a colour."""
KNOWN = 0.05
"""An answer whose log-probability gains no more than this for every token, or an output that gains
no more than this share, needs no text."""
IMPROBABLE = -2.5
"""The model would not give an answer with a lower log-probability a token in these words. Where the
text changed little, SmolLM2-135M's own answers and true sentences had −0.2 to −2.1 a token, made-up
sentences and bare words −2.5 to −7.0 (docs/texts.md#words-that-the-model-would-not-say)."""


@dataclass(frozen=True)
class Ranked:
    """One method's features and numbers, in a comparison."""

    order: tuple[int, ...] = ()
    levels: str = ""
    """A digit for each of the first features: how strong its colour is."""
    counts: tuple[int, ...] = ()
    only: tuple[float, ...] = ()
    deleted: tuple[float, ...] = ()
    without: tuple[float, ...] = ()
    only_area: float | None = None
    without_area: float | None = None
    enough: int | None = None
    gradients: int | None = None
    forwards: int | None = None
    seconds: float | None = None

    @property
    def numbers(self) -> dict[str, float]:
        """The numbers of COLUMNS that are known."""
        return {key: v for key in COLUMNS if (v := getattr(self, key)) is not None}


class Piece(NamedTuple):
    """A part of a text, as it is shown."""

    text: str
    place: int = 0
    """In the order of selection, from 1; 0 for what is not selected."""
    feature: int = -1


@dataclass(frozen=True, kw_only=True)
class TextFacts(Facts):
    """Facts about a text that a model was explained on."""

    kind: ClassVar = "text"
    KEYS: ClassVar = {"label": "class", "answer_text": "answer"}
    picture_axes: ClassVar = ()
    flat_names: ClassVar = True
    text: str
    """All that the model reads."""
    spans: tuple[tuple[int, int], ...]
    """Where each feature stands in the text."""
    unit: str
    """What a feature is: "words", "sentences", …"""
    absent: str = "masked"
    """How a feature is absent."""
    label: str = ""
    """A classifier's class."""
    target: int | None = None
    """Its index."""
    probability: float | None = None
    """Probability of the class."""
    predictions: tuple[tuple[str, float], ...] = ()
    """The most probable classes with their probabilities, best first."""
    answer_text: str | None = None
    """What a language model says."""
    answer_span: tuple[int, int] | None = None
    """The part of it that is explained."""
    answer_tokens: int = 0
    """How many tokens that part has."""
    generated: bool = False
    """Did the model say it itself?"""
    cut: bool = False
    """Was the model stopped before its answer ended?"""
    counts: tuple[int, ...] = ()
    """Numbers of best features that were measured once more:"""
    only: tuple[float, ...] = ()
    """G with only these present,"""
    deleted: tuple[float, ...] = ()
    """G with all others cut out of the text,"""
    without: tuple[float, ...] = ()
    """and G without these."""
    enough: int | None = None
    """The fewest of the best features with which G has risen by 95 % of the way to G of all."""
    twins: tuple[tuple[int, int], ...] = ()
    """(feature, selected feature): the first has a good part of the second's effect, and adds
    little to it."""
    twin_shares: tuple[float, ...] = ()
    """The share of the selected feature's effect that each twin has alone."""
    sum_error: float | None = None
    """How far the first round's scores are from adding up, as a share of the rise of G."""
    documents: tuple[tuple[str, int, int], ...] = ()
    """(name, start, end) of the documents of a context that have a name."""
    forwards: int | None = None
    """Forward passes of the search."""
    search_seconds: float | None = None
    """Time of the search, without what was measured afterwards."""
    methods: Mapping[str, Ranked] = field(default_factory=dict)
    """The features by several methods, for a comparison."""

    def feature_word(self, features: str) -> str:
        """The name of one feature."""
        return SINGULAR.get(self.unit) or super().feature_word(features)


@dataclass(frozen=True, kw_only=True)
class TextNotes(TextFacts):
    """The notes of a text."""

    order: tuple[int, ...] = ()
    selected: int = 0
    asked: int | None = None
    """How many features were asked for, if a number was."""
    levels: str = ""
    """How strong the colour of each selected feature is, a digit for each."""

    @classmethod
    def of(cls, a: Attribution) -> TextNotes:
        """The notes of a result of `explain_text`."""
        objective, k = str(a.settings.get("objective", "")), a.settings.get("k")
        derived = {
            "order": tuple(a.order.tolist()),
            "selected": a.selected,
            "asked": k if type(k) is int else None,
            "levels": _levels(a),
            "objective": objective.removeprefix("two-sided "),  # What was measured is its g.
        }
        return cls(**{**vars(a.about), **derived})

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

    @property
    def removing(self) -> bool:
        """Are features removed from the text, rather than shown alone?"""
        return self.objective == "counterfactual"

    @property
    def measured(self) -> dict[str, tuple[float, ...]]:
        """What was measured at the counts, by its title."""
        if self.removing:
            titles = ("without these", "really deleted", "only these")
        else:
            titles = ("only these", "the rest deleted", "without these")
        return dict(zip(titles, (self.only, self.deleted, self.without), strict=True))

    @property
    def quantity(self) -> str:
        """What G is."""
        if self.is_log:
            return "log-probability"
        return "probability" if self.objective == "softmax" else self.objective or "G"

    @property
    def what(self) -> str:
        """What G is the value of."""
        if self.answer_text is not None:
            return "the answer"
        return f"“{self.label}”" if self.label else "the output"

    @property
    def start(self) -> int:
        """How many of the best features are shown at first."""
        return self.asked or self.enough or min(self.selected or len(self.order), 5)

    def value(self, g: float) -> str:
        """G in words: a log-probability as the probability, unless that is very small."""
        if self.objective == "softmax" or (self.is_log and exp(g) >= 0.001):
            return chance(exp(g) if self.is_log else g)
        return f"log p {shown(g, 3)}" if self.is_log else shown(g, 3)

    def cell(self, g: float) -> str:
        """G in a table, where all values are of one kind."""
        return chance_cell(g) if self.objective == "softmax" else shown(g, 3)

    def name(self, feature: int, most: int = 80) -> str:
        """A feature's text in one line, not longer than this."""
        start, end = self.spans[feature]
        return shortened(self.text[start:end], most)

    def document(self, feature: int) -> str:
        """The name of the document that holds a feature; "" where it has none."""
        place = self.spans[feature][0]
        return next((name for name, a, b in self.documents if a <= place < b), "")

    def passage(self, chosen: Sequence[int], room: int | None = None) -> list[Piece]:
        """The explained text in pieces, the chosen features with their places.

        room: characters around chosen features; what lies further away is left out.
        """
        places = {feature: place for place, feature in enumerate(chosen, 1)}
        pieces, last = [], self.spans[0][0]
        for feature, (start, end) in enumerate(self.spans):
            if feature in places:
                part = Piece(self.text[start:end], places[feature], feature)
                pieces += [Piece(self.text[last:start]), part]
                last = end
        pieces.append(Piece(self.text[last : self.spans[-1][1]]))
        if room is None:
            return [piece for piece in pieces if piece.text]
        ends = {0: "first", len(pieces) - 1: "last"}
        cut = [
            Piece(_cut(p.text, room if not p.place else 6 * room, ends.get(i, "")), *p[1:])
            for i, p in enumerate(pieces)
        ]
        return [piece for piece in cut if piece.text]

    def at(self, values: tuple[float, ...], k: int) -> float | None:
        """The measured value of the first k features."""
        return dict(zip(self.counts, values, strict=False)).get(k)

    def unit_of(self, number: int) -> str:
        """3 sentences"""
        one = SINGULAR.get(self.unit, self.unit)
        return count(number, one)

    def rows(self) -> list[list[str]]:
        """What was measured, by the number of best features."""
        columns = [self.counts, *self.measured.values()]
        rows = zip(*columns, strict=False)
        cells = [[f"{int(k):,}", *(self.cell(value) for value in values)] for k, *values in rows]
        return [["best", *self.measured], *cells]

    def answer(self) -> str:
        """2 of 14 sentences are enough for “…” (95 % of the rise: 0.31, all 0.33)."""
        total, what = len(self.spans), f"“{shortened(self.explained)}”"
        if not self.counts:
            return f"The first of {self.unit_of(total)} for {what}: “{self.name(self.order[0])}”."
        full = self.value(self.only[-1])
        if self.removing:
            part = f"Without {self.start:,} of {self.unit_of(total)}"
            moved = self.at(self.only, self.start)
            moved = self.only[-1] if moved is None else moved
            return f"{part}, the prediction moves by {shown(moved, 3)} (without all by {full})."
        if self.needs_nothing:
            bare, parts = self.value(self.only[0]), self.unit_of(total)
            if self.improbable:
                ends = f"{bare} without, {full} with"
                return f"{what} is improbable without the {parts} and with them: {ends}."
            return f"{what} needs none of the {parts}: {bare} without them, {full} with."
        if self.asked and (self.enough or len(self.spans)) > self.asked:
            verb, value = "gives" if self.asked == 1 else "give", self.at(self.only, self.asked)
            part = f"The best {self.asked:,} of {self.unit_of(total)} {verb} {what}"
            return f"{part} {self.value(value or 0.0)} (all {full})."
        if not self.enough:
            return f"No smaller part than all {self.unit_of(total)} is enough for {what} ({full})."
        value = self.at(self.only, self.enough)
        verb = "is" if self.enough == 1 else "are"
        part = f"{self.enough:,} of {self.unit_of(total)} {verb} enough for {what}"
        named = f": “{self.name(self.order[0])}”" if self.enough == 1 else ""
        return f"{part} ({of_the_rise()}: {self.value(value or 0.0)}, all {full}){named}."

    @property
    def needs_nothing(self) -> bool:
        """Is the output nearly the same without any feature?"""
        if len(self.only) < 2:
            return False
        tokens = self.answer_tokens if self.is_log else None
        return needs_nothing(self.only[0], self.only[-1], tokens)

    @property
    def improbable(self) -> bool:
        """Would the model not give the answer in these words, with the text or without it?"""
        if not (self.needs_nothing and self.is_log and self.answer_tokens) or self.generated:
            return False
        return max(self.only[0], self.only[-1]) < IMPROBABLE * self.answer_tokens

    def cautions(self, answer: str = "answer=") -> list[Caution]:
        """Reasons to doubt the result; answer: how a person gives an answer."""
        return [Caution(line) for line in self._doubts(answer)]

    def _doubts(self, answer: str) -> list[str]:
        lines = []
        if self.cut:
            lines.append(
                "The model was stopped before its answer ended. Give a shorter answer, or explain "
                "one of its sentences."
            )
        if self.improbable:
            each = shown(self.only[-1] / self.answer_tokens, 2)
            lines.append(
                f"The model would not give this answer in these words, with the {self.unit} or "
                f"without them: log-probability {each} a token. Give a whole sentence, or leave "
                f"out {answer} to explain the model's own answer."
            )
        elif self.needs_nothing and self.answer_text is not None:
            lines.append(
                "The answer hardly depends on the text: the model knew it, or made it up. "
                "An order of features says little here."
            )
        elif self.needs_nothing and self.only[-1] < self.only[0] - KNOWN * abs(self.only[0]):
            lines.append(
                f"The text speaks against {self.what}: {self.value(self.only[0])} without it, "
                f"{self.value(self.only[-1])} with it. The first features are those that speak for "
                "it most."
            )
        elif self.needs_nothing:
            lines.append("The output hardly depends on the text; an order of features says little.")
        if self.sum_error is not None and self.sum_error > COMPLETE and not self.needs_nothing:
            lines.append(
                f"The scores add up to the rise of the output only within "
                f"{percent(self.sum_error)}: trust their order more than their sizes."
            )
        best = self.enough or self.selected
        only, gone = self.at(self.only, best), self.at(self.deleted, best)
        if only is None or gone is None or self.absent == "deleted":
            return lines
        if abs(gone - only) > (self.only[-1] - self.only[0]) / 2 > 0:
            lines.append(
                f"With the rest really deleted the value is {self.value(gone)}, not "
                f"{self.value(only)} as with the rest masked: the two do not agree here."
            )
        return lines

    def ranked(self, a: Attribution, common: set[int]) -> Ranked:
        """The result as a row among those of other methods. common: counts that all measured."""
        return Ranked(
            self.order,
            self.levels,
            self.counts,
            self.only,
            self.deleted,
            self.without,
            only_area=_area(self.counts, self.only, common),
            without_area=_area(self.counts, self.without, common),
            enough=self.enough,
            gradients=a.gradients_used,
            forwards=self.forwards,
            seconds=a.seconds,
        )

    def compared_by(self) -> str:
        """What the numbers of a comparison mean."""
        return (
            f"Only these, without these: the mean {self.quantity} over the share of {self.unit}, "
            "best first (areas under the curves). Enough: the fewest that reach "
            f"{of_the_rise()} from nothing to everything. A gradient costs about "
            "three forward passes."
        )

    def first(self, row: Ranked, most: int = 200) -> str:
        """A method's first features, as many as fit; documents by name, where they have one."""
        whole = self.unit == "documents"
        names = [
            f"{i} {(whole and self.document(f)) or self.name(f, 30)}"
            for i, f in enumerate(row.order[:12], 1)
        ]
        while len(names) > 1 and len(" · ".join(names)) > most:
            names.pop()
        return " · ".join(names)

    def twin_verbs(self) -> list[tuple[int, int, str]]:
        """(feature, selected feature, how the first relates to the second).

        A source says the same if it has nearly the whole effect. One that is itself among what is
        enough adds something, so it only repeats a part.
        """
        if self.answer_text is None:
            return [(j, i, "can replace") for j, i in self.twins]
        shares = self.twin_shares or (1.0,) * len(self.twins)
        needed, verbs = self.order[: self.enough or 0], []
        for (j, i), share in zip(self.twins, shares, strict=False):
            same = share >= NEARLY and j not in needed
            verbs.append((j, i, "says the same as" if same else "repeats part of"))
        return verbs

    def twin_lines(self) -> list[str]:
        """“…” says the same as “…”."""
        pairs = [(self._quoted(j), verb, self._quoted(i)) for j, i, verb in self.twin_verbs()]
        return [f"{'Another ' * (j == i)}{j} {verb} {i}." for j, verb, i in pairs]

    def _quoted(self, feature: int) -> str:
        """A feature's text, with its document where that has a name."""
        document = self.document(feature)
        return f"“{self.name(feature)}”" + f" ({document})" * bool(document)


def needs_nothing(empty: float, full: float, tokens: int | None) -> bool:
    """Is G nearly the same without any feature as with all, or higher? tokens: those whose
    log-probability G is, if it is one."""
    least = KNOWN * abs(full) if tokens is None else log(1.25) + KNOWN * tokens
    return full - empty < least


def shortened(text: str, most: int = 80) -> str:
    """Text in one line, not longer than this."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else f"{flat[: most - 1].rstrip()}…"


def _cut(text: str, room: int, end: str) -> str:
    """Text of at most about twice this length, cut in the middle, or at an end, between words."""
    if len(text) <= 2 * room + 3:
        return text
    head, tail = text[:room].rstrip(), text[-room:].lstrip()
    head, tail = head.rsplit(None, 1)[0] if head else "", tail.split(None, 1)[-1] if tail else ""
    return {"first": f"… {tail}", "last": f"{head} …"}.get(end, f"{head} … {tail}")


def _levels(a: Attribution) -> str:
    """A digit for each selected feature, by its part of the largest gain; 0 for a loss."""
    gains = a.feature_gains()[a.order[: a.selected]].tolist()
    most = max((gain for gain in gains if gain > 0), default=1.0)
    return "".join(str(max(1, ceil(LEVELS * g / most)) if g >= 0 else 0) for g in gains)


def compared(results: Mapping[str, Attribution]) -> dict[str, Ranked]:
    """The rows of a comparison: results of several methods on one text."""
    measured = {n: notes for n, a in results.items() if (notes := TextNotes.of(a)).counts}
    common = set.intersection(*(set(n.counts) for n in measured.values())) if measured else set()
    return {name: notes.ranked(results[name], common) for name, notes in measured.items()}


def _area(counts: Sequence[int], values: Sequence[float], at: set[int]) -> float | None:
    """The area under the line through the values at these counts, over the share of features."""
    points = [(c, v) for c, v in zip(counts, values, strict=True) if c in at]
    if len(points) < 2:
        return None
    parts = ((b - a) * (v + w) / 2 for (a, v), (b, w) in pairwise(points))
    return sum(parts) / (points[-1][0] - points[0][0])
