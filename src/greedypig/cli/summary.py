"""What `greedypig explain` tells: a few lines for one photo, a table for many."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import greedypig as gp

from ..notes import Notes
from ..places import unit_word, units_within
from .asking import Found
from .failures import Failures
from .outputs import shown
from .terminal import BOLD, DIM, YELLOW, Terminal, count, duration

_NUMBER = 7
"""Columns of a number in the table."""
_NARROW = 60
"""Terminals with fewer columns get fewer numbers."""


class Summary:
    """Speaks while photos are done, and remembers what for the end."""

    def __init__(self, terminal: Terminal, found: Found, names: Sequence[str]) -> None:
        self.terminal = terminal
        self.table = not found.single
        self.total = len(names) + len(found.broken)
        self.done: list[tuple[Path, gp.Attribution, list[Path]]] = []
        self.failures = Failures(terminal.fail, several=not found.single)
        self.extra: list[Path] = []
        self._surer: list[str] = []
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
        if self.table:
            self._row(path.name, a, excess is not None)
        else:
            self._block(path.name, a, files, seconds, excess)

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
        shares = list(about["kept"])
        if terminal.width < _NARROW:
            shares = shares[-1:]
        room = terminal.width - _NUMBER * (1 + len(shares)) - 3
        first = max(8, min(room // 2, max(len(n) for n in self._names)))
        second = max(8, room - first)
        if not self._headed:
            self._headed = True
            heads = ["all", *(f"{100 * float(s):g} %" for s in shares)]
            line = f"{'photo':{first}} {'class':{second}}"
            terminal.say(terminal.style(line + "".join(f"{h:>{_NUMBER}}" for h in heads), DIM))
        numbers = [about["probability"], *(about["kept"][s] for s in shares)]
        line = f"{_fit(name, first)} {_fit(about['class'], second)}"
        line += "".join(f"{number:{_NUMBER}.3f}" for number in numbers)
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
        nothing = about["curves"]["softmax"]["values"][0]
        lines = {f"nothing ({about['baseline']})": (nothing, "")}
        for share, probability in about["kept"].items():
            lines[f"only its best {100 * float(share):3g} %"] = (probability, _held(a, share))
        first = max(map(len, lines))
        for text, (probability, more) in lines.items():
            shown_more = more if first + len(more) + 12 <= terminal.width else ""
            say(f"  {text:{first}}  {probability:.3f}  {terminal.style(shown_more, DIM)}".rstrip())
        if "second-opinion" in about["curves"]:
            say(terminal.wrapped(_second(about), "  ", "    "))
        if excess is not None:
            share, probability = excess
            terminal.surer(
                f"{_percent(share)} of it makes the network more certain ({probability:.3f}) "
                f"than the whole photo does ({about['probability']:.3f}): those numbers push it "
                f"further than the photo itself. {_advice(a)}", "  ")  # fmt: skip
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
    own = about["curves"]["softmax"]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']} itself, "
        f"{curve['auc']:.3f} by {curve['judge']}, which was not asked"
    )


def _advice(a: gp.Attribution) -> str:
    """What to do about a part that outdoes the photo."""
    if a.settings.get("objective") == "log-likelihood":
        return "Ask another network what it sees in them: --judge."
    second = "" if a.about.get("judge") else " or ask another network what it sees: --judge"
    return f"To match the photo's own answer use --objective log-likelihood{second}."


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _fit(text: str, width: int) -> str:
    cut = text if len(text) <= width else text[: width - 1] + "…"
    return f"{cut:{width}}"
