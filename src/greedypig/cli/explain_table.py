"""The table of `greedypig explain` over many photos: a row for each, as wide as the terminal is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import greedypig as gp

from ..results.wording import chance_cell
from .photo_job import SHARES
from .terminal import BOLD, DIM, UNLIMITED, YELLOW, Terminal

_NUMBER = 7
"""Columns of a number."""
_TEXT = 28
"""Columns that photo and class need, both together; a class alone where lines have no end."""
_DISPENSABLE = ("1 %", "5 %", "AUC")
"""Left out, in this order, where the terminal is too narrow for all numbers."""
_AREAS = ("AUC", "judge")
"""Heads of numbers that are no probabilities."""


class PhotoTable:
    """Prints the head before the first row."""

    def __init__(
        self, terminal: Terminal, names: Sequence[str], *, one_class: bool, judged: bool
    ) -> None:
        self.terminal = terminal
        self.longest = max(map(len, names), default=0)
        self.one_class = one_class
        """Was one class asked for? Then rows tell what the network itself says."""
        self.judged = judged
        self._headed = False

    def row(self, name: str, a: gp.Attribution, surer: bool) -> None:
        """Tell one answer."""
        numbers = self._numbers()
        first, second = self._widths(len(numbers))
        if not self._headed:
            self._headed = True
            self._head(a, list(numbers), first, second)
        line = f"{_fit(name, first, _is_path(name))} {self._class(a, second)}"
        told = {head: _told(head, number(a)) for head, number in numbers.items()}
        line += "".join(f"{text:>{_NUMBER}}" for text in told.values())
        self.terminal.say(line + (self.terminal.style(" ▲", YELLOW) if surer else ""))

    def legend(self, done: Sequence[gp.Attribution]) -> str | None:
        """What the areas are, and their medians; None where nobody else judged."""
        judged = [a for a in done if _judged(a) is not None]
        if not judged:
            return None
        own, second = (median(area(a) or 0.0 for a in judged) for area in (_own, _judged))
        about = judged[0].about
        return (
            f"AUC {own:.3f} by {about['model']} itself, {second:.3f} by the judge, "
            f"{about['judge']}, which was not asked: areas under the "
            + ("curves, medians." if len(judged) > 1 else "curve.")
        )

    def _numbers(self) -> dict[str, Callable[[gp.Attribution], float | None]]:
        """The numbers there is room for, by their heads; shares are heads without their sign."""
        made: dict[str, Callable[[gp.Attribution], float | None]] = {"all": _whole}
        for share in SHARES:
            made[f"{100 * share:g} %"] = lambda a, share=share: _at(a, share)  # type: ignore[misc]
        if self.judged:
            made |= {"AUC": _own, "judge": _judged}
        for head in _DISPENSABLE:
            if self.terminal.width - _NUMBER * len(made) - 3 < _TEXT:
                made.pop(head, None)
        return made

    def _widths(self, numbers: int) -> tuple[int, int]:
        """Columns of the photo's name and of the class."""
        room = self.terminal.width - _NUMBER * numbers - 3
        first = max(8, min(room // 2, self.longest))
        return first, _TEXT if self.terminal.width == UNLIMITED else max(8, room - first)

    def _head(self, a: gp.Attribution, heads: Iterable[str], first: int, second: int) -> None:
        say, style = self.terminal.say, self.terminal.style
        if self.one_class:
            text = f"{a.about['class']} in every photo, beside what the network itself says"
            say(style(self.terminal.wrapped(text), BOLD))
        sign = "−" if a.about["removed"] else ""
        told = [f"{sign}{head}" if head.endswith("%") else head for head in heads]
        label = "network says" if self.one_class else "class"
        line = f"{'photo':{first}} {_fit(label, second)}"
        say(style(line + "".join(f"{head:>{_NUMBER}}" for head in told), DIM))

    def _class(self, a: gp.Attribution, width: int) -> str:
        label, more = a.about["class"], ""
        if self.one_class:
            label, probability = a.about["predictions"][0]
            more = f", {probability:.3f}" if width > 15 else ""
        if self.terminal.width == UNLIMITED:  # Nothing is cut: a long class moves its own row.
            return f"{label + more:{width}}"
        return f"{_fit(label, width - len(more)).rstrip() + more:{width}}"


def _whole(a: gp.Attribution) -> float:
    return float(a.about["probability"])


def _at(a: gp.Attribution, share: float) -> float | None:
    """The probability with that share alone, or without it."""
    found: float | None = (a.about["removed"] or a.about["kept"]).get(f"{share:g}")
    return found


def _own(a: gp.Attribution) -> float | None:
    return _area(a.about["curves"].get("softmax") or a.about["curves"].get("deletion"))


def _judged(a: gp.Attribution) -> float | None:
    return _area(a.about["curves"].get("second-opinion"))


def _area(curve: Any) -> float | None:
    return None if curve is None else float(curve["auc"])


def _told(head: str, number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.3f}" if head in _AREAS else chance_cell(number)


def _is_path(name: str) -> bool:
    return os.sep in name


def _fit(text: str, width: int, keep_end: bool = False) -> str:
    """Cut or filled up to a width; of a path the end tells most."""
    if len(text) > width:
        text = f"…{text[len(text) - width + 1 :]}" if keep_end else f"{text[: width - 1]}…"
    return f"{text:{width}}"
