"""What `greedypig explain` tells: a few lines for one photo, a table for many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import greedypig as gp

from ..notes import Notes
from ..places import rounds_line, unit_word, units_within, unranked
from .asking import SHARES, Found
from .failures import Failures
from .outputs import shown
from .terminal import BOLD, DIM, UNLIMITED, YELLOW, Terminal, count, duration

_NUMBER = 7
"""Columns of a number in the table."""
_CLASS = 28
"""Columns of a class where lines have no end."""
_NARROW = 60
"""Terminals with fewer columns get fewer numbers."""


class Summary:
    """Speaks while photos are done, and remembers what for the end."""

    def __init__(
        self, terminal: Terminal, found: Found, names: Sequence[str], reach: float | None = None
    ) -> None:
        self.terminal = terminal
        self.table = not found.single
        self.total = len(names) + len(found.broken)
        self.done: list[tuple[Path, gp.Attribution, list[Path]]] = []
        self.failures = Failures(terminal.fail, several=not found.single)
        self.extra: list[Path] = []
        self._surer: list[str] = []
        self._reach = reach
        self._beyond: list[str] = []
        self._seconds = 0.0
        self._names = names
        self._headed = False

    @property
    def pages(self) -> list[tuple[Path, gp.Attribution]]:
        """The pages written, with their results."""
        return [(f, a) for _, a, files in self.done for f in files if f.suffix == ".html"]

    def add(self, path: Path, a: gp.Attribution, files: list[Path], seconds: float) -> None:
        """Tell one answer."""
        self.failures.release()
        excess = Notes.of(a).excess()
        self.done.append((path, a, files))
        self._seconds += seconds
        if excess is not None:
            self._surer.append(path.name)
        if self._missed(a):
            self._beyond.append(path.name)
        if self.table:
            self._row(path.name, a, excess is not None)
        else:
            self._block(path.name, a, files, seconds, excess)

    def _missed(self, a: gp.Attribution) -> bool:
        """Could --reach hardly be met, as a share below 1 of a negative value is more than it?"""
        below = self._reach is not None and self._reach < 1 and a.full_value < 0
        # That a log-likelihood cannot is said before anything is done.
        known = a.settings.get("objective") == "log-likelihood"
        return below and not known and a.stop is not gp.StopReason.REACHED

    def broken(self, path: str, error: str | Exception) -> None:
        """Tell one failure."""
        self.failures.add(path, error)

    def stopped(self, name: str, partial: Path | None) -> None:
        """Tell that Ctrl-C came during this photo."""
        self.failures.release()
        kept = "" if partial is None else f" The rounds done are in {shown(partial)}."
        done = f" after {count(len(self.done), 'photo')}" if self.done else ""
        self.terminal.fail(f"Stopped at {name}{done}.{kept}")
        if partial is not None or self.done:
            self.terminal.tell_resume()

    def files(self, files: list[Path]) -> None:
        """Remember files that belong to no photo alone."""
        self.extra += files

    def close(self) -> None:
        """Tell how it went, where there were many."""
        if self._beyond:
            self.terminal.note(
                f"--reach {self._reach:g} was not met by {', '.join(self._beyond)}: the objective "
                "is below 0 for the whole photo, and a share below 1 is more than that. Try a "
                "share above 1."
            )
        if not self.table:
            return
        say, terminal = self.terminal.say, self.terminal
        if self.done:
            gradients = sum(a.gradients_used for _, a, _ in self.done)
            where = {file.parent for _, _, files in self.done for file in files}
            say()
            say(terminal.wrapped(
                f"{count(len(self.done), 'photo')}, {gradients:,} gradients, "
                f"{duration(self._seconds)}. Results in "
                f"{', '.join(sorted(shown(w) for w in where))}"
                + "".join(f", all pages from {shown(f)}" for f in self.extra)
            ))  # fmt: skip
        bare = {reason: [p.name for p, b, _ in self.done if unranked(b) == reason]
                for _, a, _ in self.done if (reason := unranked(a)) is not None}  # fmt: skip
        for reason, names in bare.items():
            say(terminal.wrapped(f"{', '.join(names)}: {reason}"))
        for stop in (gp.StopReason.BUDGET, gp.StopReason.SECONDS):
            early = sum(a.stop == stop and unranked(a) is None for _, a, _ in self.done)
            if early:
                say(terminal.wrapped(f"{count(early, 'photo')} stopped early ({stop}): what was "
                                     "not selected is ranked by its last score."))  # fmt: skip
        if any(a.about["removed"] for _, a, _ in self.done):
            say(terminal.wrapped("−1 %: with its best 1 % of numbers switched off."))
        if self._surer:
            terminal.surer(
                f"{count(len(self._surer), 'photo')} with a part that makes the network more "
                f"certain than the whole photo does. {_advice(self.done[0][1])}"
            )
        if self.failures.all:
            terminal.note(
                f"{len(self.failures.all)} of {self.total} could not be explained: "
                + self.failures.names()
            )

    def _row(self, name: str, a: gp.Attribution, surer: bool) -> None:
        about, terminal = a.about, self.terminal
        shares = [f"{share:g}" for share in SHARES]
        if terminal.width < _NARROW:
            shares = shares[-1:]
        room = terminal.width - _NUMBER * (1 + len(shares)) - 3
        first = max(8, min(room // 2, max(len(n) for n in self._names)))
        second = max(8, room - first)
        label = _fit(about["class"], second)
        if terminal.width == UNLIMITED:  # Nothing is cut; a long class moves its own row alone.
            second, label = _CLASS, f"{about['class']:{_CLASS}}"
        if not self._headed:
            self._headed = True
            sign = "−" if about["removed"] else ""
            heads = ["all", *(f"{sign}{100 * float(s):g} %" for s in shares)]
            line = f"{'photo':{first}} {'class':{second}}"
            terminal.say(terminal.style(line + "".join(f"{h:>{_NUMBER}}" for h in heads), DIM))
        told = about["removed"] or about["kept"]
        numbers = [f"{about['probability']:.3f}"]
        numbers += [f"{told[s]:.3f}" if s in told else "–" for s in shares]
        line = f"{_fit(name, first)} {label}"
        line += "".join(f"{number:>{_NUMBER}}" for number in numbers)
        terminal.say(line + (terminal.style(" ▲", YELLOW) if surer else ""))

    def _block(
        self, name: str, a: gp.Attribution, files: list[Path], seconds: float,
        excess: tuple[float, float] | None,
    ) -> None:  # fmt: skip
        terminal, about = self.terminal, a.about
        say = terminal.say
        head = f"{name}: {about['class']}, probability {about['probability']:.3f}"
        say(terminal.style(terminal.wrapped(head), BOLD))
        best = about["predictions"][0][0]
        if best != about["class"]:
            say(terminal.wrapped(f"(the network itself says {best}, "
                                 f"{about['predictions'][0][1]:.3f})"))  # fmt: skip
        lines = {f"nothing ({about['baseline']})": (about["nothing"], "")}
        for words, told in (("only", about["kept"]), ("without", about["removed"])):
            for share, probability in told.items():
                line = f"{words} its best {100 * float(share):3g} %"
                lines[line] = (probability, _held(a, share))
        first = max(map(len, lines))
        for text, (probability, more) in lines.items():
            shown_more = more if first + len(more) + 12 <= terminal.width else ""
            say(f"  {text:{first}}  {probability:.3f}  {terminal.style(shown_more, DIM)}".rstrip())
        reason = unranked(a)
        if reason is not None:
            say(terminal.wrapped(f"{reason} So there is no order, curve or picture.", "  ", "    "))
        if about["removed"]:
            say(terminal.wrapped(_moved(a), "  ", "    "))
        if "second-opinion" in about["curves"]:
            say(terminal.wrapped(_second(about), "  ", "    "))
        if excess is not None:
            share, probability = excess
            terminal.surer(
                f"{_percent(share)} of it makes the network more certain ({probability:.3f}) "
                f"than the whole photo does ({about['probability']:.3f}): those {unit_word(a)} "
                f"push it further than the photo itself. {_advice(a)}", "  ")  # fmt: skip
        say(terminal.wrapped(f"{_cost(a)}; {duration(seconds)} in all", "  ", "    "))
        say(terminal.wrapped("wrote " + ", ".join(shown(f) for f in files), "  ", "    "))


def _held(a: gp.Attribution, share: str) -> str:
    """What the network was shown: that many numbers, or the larger units that fit whole."""
    whole = "" if a.features.kind == "elements" else ", whole"
    return f"{units_within(a, float(share)):,} of {a.features.units:,} {unit_word(a)}{whole}"


def _cost(a: gp.Attribution) -> str:
    """What was paid, and why it stopped if that was not the schedule's end."""
    text = f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}"
    usual = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
    return text if a.stop in usual else f"{text} ({a.stop})"


def _second(about: Any) -> str:
    curve = about["curves"]["second-opinion"]
    own = about["curves"].get("softmax") or about["curves"]["deletion"]
    whole = curve["values"][0 if about["removed"] else -1]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']} itself, {curve['auc']:.3f} by "
        f"{curve['judge']}, which was not asked; the whole photo: {about['probability']:.3f} and "
        f"{whole:.3f}"
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


def _advice(a: gp.Attribution) -> str:
    """What to do about a part that outdoes the photo."""
    if a.settings.get("objective") == "log-likelihood":
        return "" if a.about.get("judge") else "Ask another network what it sees: --judge."
    second = "" if a.about.get("judge") else " or ask another network what it sees: --judge"
    return f"To match the photo's own answer use --objective log-likelihood{second}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _fit(text: str, width: int) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return f"{cut:{width}}"
