"""What `greedypig explain` tells: a few lines for one photo, a table for many."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import greedypig as gp

from ..results.photo_notes import Notes
from ..results.picture import rounds_line, unit_word, units_within, unranked
from ..results.wording import chance, chance_cell, count, listed
from .explain_table import PhotoTable
from .failures import Failures
from .outputs import shown
from .photo_job import SHARES, Found, Opened
from .resumable import Paid
from .terminal import BOLD, DIM, Terminal, duration

EARLY = (gp.StopReason.BUDGET, gp.StopReason.SECONDS)
"""Ends that the schedule did not foresee."""


class Summary:
    """Speaks while photos are done, and remembers what for the end."""

    def __init__(
        self, terminal: Terminal, found: Found, args: argparse.Namespace, features: Any
    ) -> None:
        self.terminal = terminal
        self.found = found
        self.table = None if found.single else PhotoTable(
            terminal, list(found.names.values()), one_class=args.class_ is not None,
            judged=args.judge is not None,
        )  # fmt: skip
        self.total = len(found.files) + len(found.broken)
        self.done: list[tuple[Path, gp.Attribution, list[Path]]] = []
        self.failures = Failures(terminal.fail, several=not found.single)
        self.extra: list[Path] = []
        self._surer: list[gp.Attribution] = []
        self._lost: list[str] = []
        self._reach: float | None = args.reach
        self._k: int | None = args.k
        self._asked: int | None = getattr(features, "segments", None)
        self._beyond: list[str] = []
        self._small: dict[str, Opened] = {}
        self._seconds = 0.0
        self._before = 0

    @property
    def pages(self) -> list[tuple[Path, gp.Attribution]]:
        """The pages written, with their results."""
        return [(f, a) for _, a, files in self.done for f in files if f.suffix == ".html"]

    def add(
        self, path: Path, a: gp.Attribution, files: list[Path], seconds: float, before: Paid,
        opened: Opened,
    ) -> None:  # fmt: skip
        """Tell one answer, and remember what is told of all at the end."""
        self.failures.release()
        name, notes = self.found.names[path], Notes.of(a)
        excess = notes.excess()
        self.done.append((path, a, files))
        self._seconds += seconds
        self._before += before.gradients
        if excess is not None:
            self._surer.append(a)
        if notes.fall() is not None:
            self._lost.append(name)
        if self._missed(a):
            self._beyond.append(name)
        if opened.enlarged:
            self._small[name] = opened
        if self.table is not None:
            self.table.row(name, a, excess is not None)
        else:
            self._block(name, a, notes, files, _cost(a, seconds, before))

    def _missed(self, a: gp.Attribution) -> bool:
        """Could --reach hardly be met, as a share below 1 of a negative value is more than it?"""
        below = self._reach is not None and self._reach < 1 and a.full_value < 0
        # That a log-likelihood cannot is said before anything is done.
        known = a.settings.get("objective") == "log-likelihood"
        return below and not known and a.stop is not gp.StopReason.REACHED

    def broken(self, path: str, error: str | Exception) -> None:
        """Tell one failure."""
        self.failures.add(path, error)

    def stopped(self, name: str) -> str:
        """That Ctrl-C came during this photo; what was held back is told."""
        self.failures.release()
        done = f" after {count(len(self.done), 'photo')}" if self.done else ""
        return f"Stopped at {name}{done}."

    def files(self, files: list[Path]) -> None:
        """Remember files that belong to no photo alone."""
        self.extra += files

    def close(self) -> None:
        """Tell how it went, where there were many, and what to take notice of."""
        if self.table is not None:
            self._close_table(self.table)
        if self._small:
            self.terminal.note(small_photos(self._small))
        if self._beyond:
            self.terminal.note(
                f"--reach {self._reach:g} was not met by {', '.join(self._beyond)}: the objective "
                "is below 0 for the whole photo, and a share below 1 is more than that. Try a "
                "share above 1."
            )

    def _close_table(self, table: PhotoTable) -> None:
        terminal, done = self.terminal, [a for _, a, _ in self.done]
        for line in self._below(table, done):
            terminal.say(terminal.wrapped(line))
        if self._lost:
            terminal.surer(
                f"{count(len(self._lost), 'photo')} whose probability is reached and lost again "
                f"with more features ({listed(self._lost)}): such an explanation does not hold. "
                "Try another --seed or more --rounds."
            )
        if self._surer:
            terminal.surer(
                f"{count(len(self._surer), 'photo')} with a part that makes the network more "
                f"certain than the whole photo does. {_advice(self._surer)}".rstrip()
            )
        if self.failures.all:
            terminal.note(
                f"{len(self.failures.all)} of {self.total} could not be explained: "
                + self.failures.names()
            )

    def _below(self, table: PhotoTable, done: Sequence[gp.Attribution]) -> Iterator[str]:
        """The lines below the table."""
        if done:
            yield ""
            yield self._total(done)
        legend = table.legend(done)
        if legend is not None:
            yield legend
        if done and self._asked is not None:
            least, most = (f(a.features.units for a in done) for f in (min, max))
            few = count(least, "region") if least == most else f"{least:,} to {most:,} regions"
            yield f"{few} a photo, {self._asked:,} asked for."
        bare = {reason: [self.found.names[p] for p, b, _ in self.done if unranked(b) == reason]
                for a in done if (reason := unranked(a)) is not None}  # fmt: skip
        for reason, names in bare.items():
            yield f"{', '.join(names)}: {reason}"
        for stop in EARLY:
            early = sum(a.stop == stop and unranked(a) is None for a in done)
            if early:
                yield (f"{count(early, 'photo')} stopped early ({stop}): what was not selected is "
                       "ranked by its last score.")  # fmt: skip
        short = [a for a in done if _beyond_selected(a) and a.stop not in EARLY]
        if short:
            least, most = (f(a.selected for a in short) for f in (min, max))
            told = f"{least:,}" if least == most else f"{least:,} to {most:,}"
            yield (f"{count(len(short), 'photo')} with {told} {unit_word(short[0], most)} selected "
                   "and more shown: beyond those by the last score.")  # fmt: skip
        if any(a.about["removed"] for a in done):
            yield "−1 %: with its best 1 % of numbers switched off."

    def _total(self, done: Sequence[gp.Attribution]) -> str:
        gradients = sum(a.gradients_used for a in done)
        paid = count(gradients, "gradient")
        if self._before:
            paid = f"{count(gradients - self._before, 'gradient')} ({self._before:,} more before)"
        where = sorted({shown(file.parent) for _, _, files in self.done for file in files})
        pages = "".join(f", all pages from {shown(f)}" for f in self.extra)
        return (f"{count(len(done), 'photo')}, {paid}, {duration(self._seconds)}. Results in "
                f"{', '.join(where)}{pages}")  # fmt: skip

    def _block(
        self, name: str, a: gp.Attribution, notes: Notes, files: list[Path], cost: str
    ) -> None:
        terminal, about = self.terminal, a.about
        say = terminal.say
        head = f"{name}: {about['class']}, probability {chance(about['probability'])}"
        say(terminal.style(terminal.wrapped(head), BOLD))
        if not notes.predicted:
            best, probability = about["predictions"][0]
            say(terminal.wrapped(f"(the network itself says {best}, {chance(probability)})"))
        lines = {f"nothing ({about['baseline']})": (about["nothing"], "")}
        for words, told in (("only", about["kept"]), ("without", about["removed"])):
            for share, probability in told.items():
                line = f"{words} its best {100 * float(share):3g} %"
                lines[line] = (probability, _held(a, share))
        first, cells = max(map(len, lines)), [chance_cell(p) for p, _ in lines.values()]
        second = max(map(len, cells))
        for (text, (_, more)), cell in zip(lines.items(), cells, strict=True):
            shown_more = more if first + second + len(more) + 7 <= terminal.width else ""
            shown_more = terminal.style(shown_more, DIM)
            say(f"  {text:{first}}  {cell:>{second}}  {shown_more}".rstrip())
        if _beyond_selected(a):
            say(terminal.wrapped(_selected(a, self._k), "  ", "    "))
        reason = unranked(a)
        if reason is not None:
            say(terminal.wrapped(f"{reason} So there is no order, curve or picture.", "  ", "    "))
        if about["removed"]:
            say(terminal.wrapped(_moved(a), "  ", "    "))
        if "second-opinion" in about["curves"]:
            say(terminal.wrapped(_second(about), "  ", "    "))
        fall, excess = notes.fall(), notes.excess()
        if fall is not None:
            terminal.surer(
                f"This explanation does not hold: {_percent(fall.reached_at)} of the features "
                f"give {chance(fall.reached)}, {_percent(fall.lost_at)} give {chance(fall.lost)}. "
                "Try another --seed or more --rounds, and compare what is selected first.", "  "
            )  # fmt: skip
        elif excess is not None:
            share, probability = excess
            terminal.surer(
                f"already {_percent(share)} of it makes the network more certain "
                f"({chance(probability)}) than the whole photo does "
                f"({chance(about['probability'])}): those {unit_word(a)} push it further than the "
                f"photo itself. {_advice([a])}".rstrip(), "  ")  # fmt: skip
        if self._asked is not None:
            made = f"{count(a.features.units, 'region')} made, {self._asked:,} asked for"
            say(terminal.wrapped(made, "  ", "    "))
        say(terminal.wrapped(cost, "  ", "    "))
        say(terminal.wrapped("wrote " + ", ".join(shown(f) for f in files), "  ", "    "))


def _held(a: gp.Attribution, share: str) -> str:
    """What the network was shown: that many numbers, or the larger units that fit whole."""
    held, units = units_within(a, float(share)), a.features.units
    if held == 0:
        one = f"the only {unit_word(a, 1)}" if units == 1 else f"one of {units:,} {unit_word(a)}"
        return f"less than {one}"
    whole = "" if a.features.kind == "elements" else ", whole"
    return f"{held:,} of {units:,} {unit_word(a, units)}{whole}"


def _beyond_selected(a: gp.Attribution) -> bool:
    """Do the shares told hold units that were never selected?"""
    told = a.about["kept"] or a.about["removed"]
    return bool(told) and a.selected < units_within(a, max(map(float, told)))


def _selected(a: gp.Attribution, wanted: int | None) -> str:
    """How many were selected where the shares show more, and why not as many as --k names."""
    units = a.features.units
    fewer = "" if wanted is None or a.selected >= wanted else f" (not {wanted:,}: {a.stop})"
    return (f"selected {a.selected:,} of {units:,} {unit_word(a, units)}{fewer}; beyond that by "
            "the last score")  # fmt: skip


def _cost(a: gp.Attribution, seconds: float, before: Paid) -> str:
    """What was paid, now and before, and why it stopped if that was not the schedule's end."""
    usual = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
    why = "" if a.stop in usual else f" ({a.stop})"
    if not before.gradients:
        paid = f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}"
        return f"{paid}{why}; {duration(seconds)} in all"
    earlier = f"{count(before.gradients, 'gradient')} in {duration(before.seconds)} before"
    more = a.gradients_used - before.gradients
    now = f"{more:,} in {duration(a.seconds - before.seconds)} now" if more else "none now"
    return f"{earlier}, {now}{why}; {duration(seconds)} in all now"


def small_photos(found: Mapping[str, Opened]) -> str:
    """That photos were enlarged a lot, by their names."""
    height, width = next(iter(found.values())).x.shape[-2:]
    names = [f"{name} ({o.width}×{o.height})" for name, o in found.items()]
    return (
        f"Enlarged to the network's {width}×{height} pixels, so that details finer than the "
        f"photo's own pixels mean nothing: {listed(names)}."
    )


def _second(about: Any) -> str:
    curve = about["curves"]["second-opinion"]
    own = about["curves"].get("softmax") or about["curves"]["deletion"]
    whole = curve["values"][0 if about["removed"] else -1]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']} itself, {curve['auc']:.3f} by "
        f"{curve['judge']}, which was not asked; the whole photo: "
        f"{chance(about['probability'])} and {chance(whole)}"
    )


def _moved(a: gp.Attribution) -> str:
    """How far the answer goes as features are switched off: G of a counterfactual."""
    after = rounds_line(a)
    text = "the answer moves (KL, nats)"
    if after is not None:
        at = [(s, after.at(s)) for s in SHARES]
        told = [f"{g:.3g} without {100 * s:g} %" for s, g in at if g is not None]
        text += f" by about {', '.join(told)},"
    return f"{text} by {a.full_value:.3g} without everything"


def _advice(surer: Sequence[gp.Attribution]) -> str:
    """What to do about parts that outdo their photos.

    The log-likelihood is about the network's own answer: of use where that is what was explained.
    """
    judged = bool(surer[0].about.get("judge"))
    matched = surer[0].settings.get("objective") == "log-likelihood"
    if matched or not any(Notes.of(a).predicted for a in surer):
        return "" if judged else "Ask another network what it sees: --judge."
    second = "" if judged else " or ask another network what it sees: --judge"
    return f"To match the photo's own answer use --objective log-likelihood{second}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"
