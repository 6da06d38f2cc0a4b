"""What `greedypig explain` prints: a few lines for one photo, a table for many, and --json."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from os import fspath
from pathlib import Path
from statistics import median
from typing import Any

import greedypig as gp

from ..images.api import SHARES
from ..results import verdicts
from ..results.photo_notes import Notes
from ..results.picture import rounds_line, unit_word, units_within, unranked
from ..results.wording import chance, chance_cell, count, kept_settings, listed, setting
from .failures import Failures
from .methods import Search
from .outputs import shown
from .resumable import Paid
from .terminal import BOLD, DIM, UNLIMITED, YELLOW, Terminal, duration

EARLY = (gp.StopReason.GRADIENTS, gp.StopReason.SECONDS)
"""Reasons to stop that leave features unselected."""
EXPECTED = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
"""Reasons to stop that need no mention."""
LIKELIHOOD, JUDGE = "--objective log-likelihood", "a second network (--judge)"
DEFAULT_FOR = {"steady-pig": "default for photos", "sequential-gradient": "default here"}


class Summary:
    """Prints results as they come, and what concerns all of them at the end."""

    def __init__(
        self, terminal: Terminal, names: Mapping[Path, str], args: argparse.Namespace,
        search: Search, *, single: bool,
    ) -> None:  # fmt: skip
        self.terminal, self.names, self.search = terminal, names, search
        self.table = None if single else PhotoTable(
            terminal, list(names.values()), one_class=args.class_ is not None,
            judged=args.judge is not None,
        )  # fmt: skip
        self.done: list[tuple[Path, gp.Attribution, list[Path]]] = []
        self.failures = Failures(terminal.fail, several=not single)
        self.extra: list[Path] = []
        """Files that belong to no photo alone."""
        self._regions: int | None = None
        """How many superpixels --features asked for."""
        kind, _, number = args.features.partition(":")
        if kind == "superpixels":
            self._regions = int(number or gp.superpixels().segments)
        self._small: dict[str, str] = {}
        self._seconds = 0.0
        self._before = 0

    @property
    def pages(self) -> list[tuple[Path, gp.Attribution]]:
        """The pages written, with their results."""
        return [(f, a) for _, a, files in self.done for f in files if f.suffix == ".html"]

    def add(
        self, path: Path, a: gp.Attribution, files: list[Path], seconds: float, before: Paid,
        small: str | None,
    ) -> None:  # fmt: skip
        """Print one result. small: the sizes of a photo that was enlarged a lot."""
        self.failures.release()
        name, notes = self.names[path], Notes.of(a)
        self.done.append((path, a, files))
        self._seconds += seconds
        self._before += before.gradients
        if small is not None:
            self._small[name] = small
        if self.table is None:
            self._block(name, a, notes, files, _cost(a, seconds, before))
            return
        if len(self.done) == 1:
            self.terminal.say(self.terminal.wrapped(method_line(a, self.search)))
        self.table.row(name, a, notes.excess() is not None)

    def stopped(self, name: str) -> str:
        """The message of Ctrl-C during this photo."""
        self.failures.release()
        done = f" after {count(len(self.done), 'photo')}" if self.done else ""
        return f"Stopped at {name}{done}."

    def close(self) -> None:
        """Print the totals of many photos, and notes on single ones."""
        if self.table is not None:
            self._close_table(self.table)
        if self._small:
            self.terminal.note(small_photos(self._small))
        missed = [self.names[path] for path, a, _ in self.done if self._missed(a)]
        if missed:
            self.terminal.note(
                f"--reach {self.search.reach:g} was not met by {', '.join(missed)}: the objective "
                "is below 0 for the whole photo, and a share below 1 is more than that. Try a "
                "share above 1."
            )

    def _missed(self, a: gp.Attribution) -> bool:
        """Was --reach hardly possible, as a share below 1 of a negative value is more than it?"""
        reach = self.search.reach
        below = reach is not None and reach < 1 and a.full_value < 0
        # For a log-likelihood there was a warning beforehand.
        warned = a.settings.get("objective") == "log-likelihood"
        return below and not warned and a.stop is not gp.StopReason.VALUE

    def _close_table(self, table: PhotoTable) -> None:
        terminal, results = self.terminal, [a for _, a, _ in self.done]
        for line in self._below(table, results):
            terminal.say(terminal.wrapped(line))
        notes = {self.names[path]: Notes.of(a) for path, a, _ in self.done}
        lost = [name for name, n in notes.items() if n.fall() is not None]
        if lost:
            terminal.caution(
                f"{count(len(lost), 'explanation does', 'explanations do')} not hold: the "
                f"probability is reached and lost again with more features ({listed(lost)}). Try "
                "another --seed or more --rounds."
            )
        higher = [n for n in notes.values() if n.excess() is not None]
        if higher:
            advised = next((n for n in higher if n.advises_log_likelihood), higher[0])
            text = (
                f"{count(len(higher), 'photo')} with a part of the features that gives a higher "
                f"probability than the whole photo. {_advice(advised)}"
            )
            terminal.caution(text.rstrip())
        if self.failures.all:
            total = len(self.done) + len(self.failures.all)
            terminal.note(
                f"{len(self.failures.all)} of {total} could not be explained: "
                + self.failures.names()
            )

    def _below(self, table: PhotoTable, results: Sequence[gp.Attribution]) -> Iterator[str]:
        """The lines below the table."""
        if results:
            yield ""
            yield self._total(results)
        legend = table.legend(results)
        if legend is not None:
            yield legend
        if results and self._regions is not None:
            made = _span([a.features.units for a in results])
            yield f"{made} regions per photo, {self._regions:,} requested."
        bare: dict[str, list[str]] = {}
        for path, a, _ in self.done:
            if (reason := unranked(a)) is not None:
                bare.setdefault(reason, []).append(self.names[path])
        for reason, names in bare.items():
            yield f"{', '.join(names)}: {reason}"
        for stop in EARLY:
            early = sum(a.stop == stop and unranked(a) is None for a in results)
            if early:
                yield (f"{count(early, 'photo')} stopped early ({stop}): features that were not "
                       "selected are ranked by their last score.")  # fmt: skip
        short = [a for a in results if _beyond_selected(a) and a.stop not in EARLY]
        if short:
            yield (f"{count(len(short), 'photo')} with {_span([a.selected for a in short])} "
                   f"{unit_word(short[0])} selected and more shown: the others are ranked by their "
                   "last score.")  # fmt: skip
        if any(a.about["removed"] for a in results):
            yield "−1 %: with the best 1 % of the features switched off."

    def _total(self, results: Sequence[gp.Attribution]) -> str:
        gradients = sum(a.gradients_used for a in results)
        paid = count(gradients, "gradient")
        if self._before:
            paid = f"{count(gradients - self._before, 'gradient')} ({self._before:,} more before)"
        where = sorted({shown(file.parent) for _, _, files in self.done for file in files})
        pages = "".join(f", all pages from {shown(f)}" for f in self.extra)
        return (f"{count(len(results), 'photo')}, {paid}, {duration(self._seconds)}. Results in "
                f"{', '.join(where)}{pages}")  # fmt: skip

    def _block(
        self, name: str, a: gp.Attribution, notes: Notes, files: list[Path], cost: str
    ) -> None:
        """The lines of a single photo."""
        terminal, about = self.terminal, a.about

        def say(text: str) -> None:
            terminal.say(terminal.wrapped(text, "  ", "    "))

        head = f"{name}: {about['class']}, probability {chance(about['probability'])}"
        terminal.say(terminal.style(terminal.wrapped(head), BOLD))
        if not notes.predicted:
            best, probability = about["predictions"][0]
            say(f"(the network predicts {best}, {chance(probability)})")
        say(method_line(a, self.search))
        self._shares(a)
        if _beyond_selected(a):
            say(_selected(a, self.search.k))
        reason = unranked(a)
        if reason is not None:
            say(f"{reason} So there is no order, curve or picture.")
        if about["removed"]:
            say(_moved(a))
        if "second-opinion" in about["curves"]:
            say(_second(about))
        lost, excess = verdicts.fall(notes), verdicts.excess(notes)
        if lost is not None:
            more = "Try another --seed or more --rounds, and compare what is selected first."
            terminal.caution(f"{lost} {more}", "  ")
        elif excess is not None:
            terminal.caution(f"{excess} {_advice(notes)}".rstrip(), "  ")
        if self._regions is not None:
            say(f"{count(a.features.units, 'region')}, {self._regions:,} requested")
        say(cost)
        say("wrote " + ", ".join(shown(f) for f in files))

    def _shares(self, a: gp.Attribution) -> None:
        """The probability with nothing, and with or without the best features."""
        terminal, about = self.terminal, a.about
        lines = {f"baseline alone ({about['baseline']})": (about["nothing"], "")}
        for words, shares in (
            ("only the best", about["kept"]),
            ("without the best", about["removed"]),
        ):
            for share, probability in shares.items():
                lines[f"{words} {100 * float(share):3g} %"] = probability, _features(a, share)
        first, cells = max(map(len, lines)), [chance_cell(p) for p, _ in lines.values()]
        second = max(map(len, cells))
        for (text, (_, more)), cell in zip(lines.items(), cells, strict=True):
            fits = first + second + len(more) + 7 <= terminal.width
            tail = terminal.style(more, DIM) if fits else ""
            terminal.say(f"  {text:{first}}  {cell:>{second}}  {tail}".rstrip())


_NUMBER = 7
"""Columns of a number."""
_TEXT = 28
"""Columns that photo and class need, both together; a class alone where lines have no end."""
_DISPENSABLE = ("1 %", "5 %", "AUC")
"""Left out, in this order, where the terminal is too narrow for all numbers."""
_AREAS = ("AUC", "judge")
"""Heads of numbers that are no probabilities."""


class PhotoTable:
    """A row for each photo, as wide as the terminal is; the head comes before the first row."""

    def __init__(
        self, terminal: Terminal, names: Sequence[str], *, one_class: bool, judged: bool
    ) -> None:
        self.terminal = terminal
        self.longest = max(map(len, names), default=0)
        self.one_class = one_class
        """Was one class asked for? Then rows name the network's own prediction."""
        self.judged = judged
        self._headed = False

    def row(self, name: str, a: gp.Attribution, higher: bool) -> None:
        """Print one photo. higher: does a part give a higher probability than the whole?"""
        numbers = self._numbers()
        first, second = self._widths(len(numbers))
        if not self._headed:
            self._headed = True
            self._head(a, list(numbers), first, second)
        line = f"{_fit(name, first, os.sep in name)} {self._class(a, second)}"
        for head, number in numbers.items():
            line += f"{_number(head, number(a)):>{_NUMBER}}"
        self.terminal.say(line + (self.terminal.style(" ▲", YELLOW) if higher else ""))

    def legend(self, results: Sequence[gp.Attribution]) -> str | None:
        """What the areas are, and their medians; None without a second network."""
        judged = [a for a in results if _judged(a) is not None]
        if not judged:
            return None
        own, second = (median(area(a) or 0.0 for a in judged) for area in (_own, _judged))
        about = judged[0].about
        return (
            f"AUC {own:.3f} by {about['model']}, {second:.3f} by the judge {about['judge']}: areas "
            "under the " + ("curves, medians." if len(judged) > 1 else "curve.")
        )

    def _numbers(self) -> dict[str, Callable[[gp.Attribution], float | None]]:
        """The numbers there is room for, by their heads; shares are heads without their sign."""
        numbers: dict[str, Callable[[gp.Attribution], float | None]] = {"all": _whole}
        for share in SHARES:
            numbers[f"{100 * share:g} %"] = lambda a, share=share: _at(a, share)  # type: ignore[misc]
        if self.judged:
            numbers |= {"AUC": _own, "judge": _judged}
        for head in _DISPENSABLE:
            if self.terminal.width - _NUMBER * len(numbers) - 3 < _TEXT:
                numbers.pop(head, None)
        return numbers

    def _widths(self, numbers: int) -> tuple[int, int]:
        """Columns of the photo's name and of the class."""
        room = self.terminal.width - _NUMBER * numbers - 3
        first = max(8, min(room // 2, self.longest))
        return first, _TEXT if self.terminal.width == UNLIMITED else max(8, room - first)

    def _head(self, a: gp.Attribution, heads: Sequence[str], first: int, second: int) -> None:
        say, style = self.terminal.say, self.terminal.style
        if self.one_class:
            text = f"{a.about['class']} in every photo, beside the network's own prediction"
            say(style(self.terminal.wrapped(text), BOLD))
        sign = "−" if a.about["removed"] else ""
        signed = [f"{sign}{head}" if head.endswith("%") else head for head in heads]
        label = "prediction" if self.one_class else "class"
        line = f"{'photo':{first}} {_fit(label, second)}"
        say(style(line + "".join(f"{head:>{_NUMBER}}" for head in signed), DIM))

    def _class(self, a: gp.Attribution, width: int) -> str:
        label, more = a.about["class"], ""
        if self.one_class:
            label, probability = a.about["predictions"][0]
            more = f", {probability:.3f}" if width > 15 else ""
        if self.terminal.width == UNLIMITED:  # Nothing is cut: a long class moves its own row.
            return f"{label + more:{width}}"
        return f"{_fit(label, width - len(more)).rstrip() + more:{width}}"


def method_line(a: gp.Attribution, search: Search) -> str:
    """The method that ran, with its knobs, and whether it was chosen by default."""
    name = str(a.settings.get("method"))
    chosen = f" ({DEFAULT_FOR.get(name, 'default')})" if search.name is None else ""
    knobs = setting(kept_settings(a))
    return f"method {name}{chosen}: {knobs}" if knobs else f"method {name}{chosen}"


def _whole(a: gp.Attribution) -> float:
    return float(a.about["probability"])


def _at(a: gp.Attribution, share: float) -> float | None:
    """The probability with that share alone, or without it."""
    probability: float | None = (a.about["removed"] or a.about["kept"]).get(f"{share:g}")
    return probability


def _own(a: gp.Attribution) -> float | None:
    return _area(a.about["curves"].get("softmax") or a.about["curves"].get("deletion"))


def _judged(a: gp.Attribution) -> float | None:
    return _area(a.about["curves"].get("second-opinion"))


def _area(curve: Any) -> float | None:
    return None if curve is None else float(curve["auc"])


def _number(head: str, number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.3f}" if head in _AREAS else chance_cell(number)


def _fit(text: str, width: int, keep_end: bool = False) -> str:
    """Cut or filled up to a width; a path keeps its end."""
    if len(text) > width:
        text = f"…{text[len(text) - width + 1 :]}" if keep_end else f"{text[: width - 1]}…"
    return f"{text:{width}}"


def _span(numbers: Sequence[int]) -> str:
    """The smallest and the largest of some numbers: 4 to 9."""
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _features(a: gp.Attribution, share: str) -> str:
    """How many features a share is: of larger ones those that fit whole."""
    fit, units = units_within(a, float(share)), a.features.units
    if fit == 0:
        one = f"the only {unit_word(a, 1)}" if units == 1 else f"one of {units:,} {unit_word(a)}"
        return f"less than {one}"
    whole = "" if a.features.kind == "elements" else ", whole"
    return f"{fit:,} of {units:,} {unit_word(a, units)}{whole}"


def _beyond_selected(a: gp.Attribution) -> bool:
    """Do the printed shares hold features that were never selected?"""
    shares = a.about["kept"] or a.about["removed"]
    return bool(shares) and a.selected < units_within(a, max(map(float, shares)))


def _selected(a: gp.Attribution, wanted: int | None) -> str:
    """How many were selected where the shares show more, and why not as many as --k names."""
    units = a.features.units
    fewer = "" if wanted is None or a.selected >= wanted else f" (not {wanted:,}: {a.stop})"
    return (f"selected {a.selected:,} of {units:,} {unit_word(a, units)}{fewer}; the others are "
            "ranked by their last score")  # fmt: skip


def _cost(a: gp.Attribution, seconds: float, before: Paid) -> str:
    """Gradients and seconds, now and before, and the reason of an early stop."""
    why = "" if a.stop in EXPECTED else f" ({a.stop})"
    if not before.gradients:
        paid = f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}"
        return f"{paid}{why}; {duration(seconds)} in all"
    earlier = f"{count(before.gradients, 'gradient')} in {duration(before.seconds)} before"
    more = a.gradients_used - before.gradients
    now = f"{more:,} in {duration(a.seconds - before.seconds)} now" if more else "none now"
    return f"{earlier}, {now}{why}; {duration(seconds)} in all now"


def small_photos(small: Mapping[str, str]) -> str:
    """The note on photos that were enlarged a lot; their sizes by name."""
    names = [f"{name} ({sizes})" for name, sizes in small.items()]
    return f"Small photos: details finer than their own pixels mean nothing. {listed(names)}."


def _second(about: Any) -> str:
    curve = about["curves"]["second-opinion"]
    own = about["curves"].get("softmax") or about["curves"]["deletion"]
    whole = curve["values"][0 if about["removed"] else -1]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']}, {curve['auc']:.3f} by the "
        f"judge {curve['judge']}; whole photo: {chance(about['probability'])} and {chance(whole)}"
    )


def _moved(a: gp.Attribution) -> str:
    """How far the prediction moves as features are switched off: G of a counterfactual."""
    after = rounds_line(a)
    text = "the prediction moves (KL, nats)"
    if after is not None:
        at = [(s, after.get(s)) for s in SHARES]
        moves = [f"{g:.3g} without {100 * s:g} %" for s, g in at if g is not None]
        text += f" by about {', '.join(moves)},"
    return f"{text} by {a.full_value:.3g} without everything"


def _advice(notes: Notes) -> str:
    return verdicts.advice(notes, LIKELIHOOD, JUDGE)


def records(summary: Summary, *, single: bool) -> dict[str, Any]:
    """The object of --json: one photo's record, or those of many."""
    photos = [_record(path, a, files) for path, a, files in summary.done]
    failed = [{"photo": path, "reason": reason} for path, reason in summary.failures.all]
    if single and photos:
        return photos[0]
    files = [file for _, _, files in summary.done for file in files] + summary.extra
    return {"results": photos, "failed": failed, "files": [fspath(file) for file in files]}


def _record(path: Path, a: gp.Attribution, files: Sequence[Path]) -> dict[str, Any]:
    about, notes, reason = a.about, Notes.of(a), unranked(a)
    excess, fall = notes.excess(), notes.fall()
    return {
        "photo": fspath(path),
        **{key: about[key] for key in ("class", "target", "probability", "predictions", "kept",
                                       "removed", "nothing")},
        "excess": None if excess is None else {"share": excess[0], "probability": excess[1]},
        "fall": None if fall is None else fall._asdict(),
        "method": a.settings["method"],
        "order": a.order.tolist() if reason is None else [],
        "note": reason,
        "selected": a.selected,
        "curve": next(iter(about["curves"].values()), None),
        "curves": about["curves"],
        "gradients": a.gradients_used,
        "seconds": a.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings) | {"model": about["model"]},
        "files": [fspath(file) for file in files],
    }  # fmt: skip
