"""What `greedypig explain` prints: a few lines for one photo, a table for many, and --json."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from ..images.api import SHARES
from ..results import verdicts
from ..results.photo_notes import Notes
from ..results.picture import unit_word, units_within
from ..results.wording import chance, chance_cell, count, kept_settings, listed, setting
from .outputs import shown
from .terminal import BOLD, DIM, YELLOW, Terminal, duration

EXPECTED = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
"""Reasons to stop that need no mention."""
LIKELIHOOD, JUDGE = "--objective log-likelihood", "a second network (--judge)"
DEFAULT_FOR = {"steady-pig": "default for photos", "sequential-gradient": "default here"}
UNSTABLE = "Try another --seed or more --rounds, and compare what is selected first."


def show_photo(
    terminal: Terminal, a: gp.Attribution, files: Sequence[Path], *, default: bool
) -> None:
    """The lines of a single photo. default: was the method chosen by what is explained?"""
    about, notes = a.about, Notes.of(a)

    def say(text: str) -> None:
        terminal.say(terminal.wrapped(text, "  ", "    "))

    head = f"{about['source']}: {about['class']}, probability {chance(about['probability'])}"
    terminal.say(terminal.style(terminal.wrapped(head), BOLD))
    if not notes.predicted:
        best, probability = about["predictions"][0]
        say(f"(the network predicts {best}, {chance(probability)})")
    say(method_line(a, default))
    _show_shares(terminal, a)
    if _beyond_selected(a):
        units = a.features.units
        say(
            f"selected {a.selected:,} of {units:,} {unit_word(a, units)}; the others are ranked by "
            "their last score"
        )
    if "second-opinion" in about["curves"]:
        say(_second(about))
    fall, excess = verdicts.fall(notes), verdicts.excess(notes)
    if fall is not None:
        terminal.caution(f"{fall} {UNSTABLE}", "  ")
    elif excess is not None:
        advice = verdicts.advice(notes, LIKELIHOOD, JUDGE)
        terminal.caution(f"{excess} {advice}".rstrip(), "  ")
    why = "" if a.stop in EXPECTED else f" ({a.stop})"
    say(f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}{why}")
    say("wrote " + ", ".join(shown(file) for file in files))


def method_line(a: gp.Attribution, default: bool) -> str:
    """The method that ran, with its knobs, and whether it was chosen by default."""
    name = str(a.settings.get("method"))
    chosen = f" ({DEFAULT_FOR.get(name, 'default')})" if default else ""
    return f"method {name}{chosen}: {setting(kept_settings(a))}"


def _show_shares(terminal: Terminal, a: gp.Attribution) -> None:
    """The probability with nothing, and with or without the best features."""
    about = a.about
    lines = {f"baseline alone ({about['baseline']})": (about["nothing"], "")}
    words = "without the best" if about["removed"] else "only the best"
    for share, probability in (about["removed"] or about["kept"]).items():
        lines[f"{words} {100 * float(share):3g} %"] = probability, _features(a, float(share))
    text_width = max(map(len, lines))
    width = max(len(chance_cell(probability)) for probability, _ in lines.values())
    for text, (probability, features) in lines.items():
        line = f"  {text:{text_width}}  {chance_cell(probability):>{width}}"
        fits = features and len(line) + 2 + len(features) <= terminal.width
        terminal.say(f"{line}  {terminal.style(features, DIM)}" if fits else line)


def _features(a: gp.Attribution, share: float) -> str:
    """How many features a share is: of larger ones those that fit whole."""
    units = a.features.units
    whole = "" if a.features.kind == "elements" else ", whole"
    return f"{units_within(a, share):,} of {units:,} {unit_word(a, units)}{whole}"


def _beyond_selected(a: gp.Attribution) -> bool:
    """Do the printed shares hold features that were never selected?"""
    return a.selected < units_within(a, max(SHARES))


def _second(about: Any) -> str:
    curve = about["curves"]["second-opinion"]
    own = about["curves"].get("softmax") or about["curves"]["deletion"]
    whole = curve["values"][0 if about["removed"] else -1]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']}, {curve['auc']:.3f} by the "
        f"judge {curve['judge']}; whole photo: {chance(about['probability'])} and {chance(whole)}"
    )


def show_photos(
    terminal: Terminal,
    results: Sequence[gp.Attribution],
    files: Sequence[Path],
    args: argparse.Namespace,
) -> None:
    """A row for each photo, and below the table what concerns all of them."""
    if not results:
        return

    def say(text: str) -> None:
        terminal.say(terminal.wrapped(text))

    first = results[0]
    say(method_line(first, args.method is None))
    without = "−" if first.about["removed"] else ""
    names = ["photo", "class", *(["prediction"] if args.class_ is not None else [])]
    numbers = ["all", *(f"{without}{100 * share:g} %" for share in SHARES)]
    numbers += ["AUC", "judge"] if args.judge is not None else []
    terminal.table([*names, *numbers], [_row(terminal, a, args) for a in results], len(names))
    terminal.say()
    gradients, seconds = sum(a.gradients_used for a in results), sum(a.seconds for a in results)
    where = shown(files[-1] if files[-1].stem == "index" else files[0].parent)
    say(
        f"{count(len(results), 'photo')}, {count(gradients, 'gradient')}, {duration(seconds)}. "
        f"Results in {where}"
    )
    if without:
        say("−1 %: with the best 1 % of the features switched off.")
    if args.judge is not None:
        say(f"AUC: area under the curve by {args.model}; judge: the same by {args.judge}.")
    if short := sum(map(_beyond_selected, results)):
        say(
            f"{count(short, 'photo')} with fewer features selected than shown: the others are "
            "ranked by their last score."
        )
    notes = [Notes.of(a) for a in results]
    if lost := [str(n.source) for n in notes if n.fall() is not None]:
        terminal.caution(f"{listed(lost)}: the explanation does not hold. {UNSTABLE}")
    if higher := [n for n in notes if n.excess() is not None]:
        advised = next((n for n in higher if n.advises_log_likelihood), higher[0])
        text = (
            f"{count(len(higher), 'photo')} with a part of the features that gives a higher "
            f"probability than the whole photo. {verdicts.advice(advised, LIKELIHOOD, JUDGE)}"
        )
        terminal.caution(text.rstrip())


def _row(terminal: Terminal, a: gp.Attribution, args: argparse.Namespace) -> list[str]:
    """The cells of one photo."""
    about, curves = a.about, a.about["curves"]
    shares = about["removed"] or about["kept"]
    mark = "" if Notes.of(a).excess() is None else terminal.style(" ▲", YELLOW)
    cells = [f"{about['source']}{mark}", about["class"]]
    if args.class_ is not None:
        best, probability = about["predictions"][0]
        cells.append(f"{best}, {probability:.3f}")
    cells += [chance_cell(about["probability"]), *map(chance_cell, shares.values())]
    if args.judge is not None:
        own = curves.get("softmax") or curves["deletion"]
        cells += [f"{own['auc']:.3f}", f"{curves['second-opinion']['auc']:.3f}"]
    return cells


def record(path: Path, a: gp.Attribution, files: Sequence[Path]) -> dict[str, Any]:
    """The object of --json for one photo."""
    about, notes = a.about, Notes.of(a)
    excess, fall = notes.excess(), notes.fall()
    same = ("class", "target", "probability", "predictions", "kept", "removed", "nothing")
    return {
        "photo": fspath(path),
        **{key: about[key] for key in same},
        "excess": None if excess is None else {"share": excess[0], "probability": excess[1]},
        "fall": None if fall is None else fall._asdict(),
        "method": a.settings["method"],
        "order": a.order.tolist(),
        "selected": a.selected,
        "curve": next(iter(about["curves"].values())),
        "curves": about["curves"],
        "gradients": a.gradients_used,
        "seconds": a.seconds,
        "stop": a.stop.name.lower(),
        "settings": dict(a.settings) | {"model": about["model"]},
        "files": [fspath(file) for file in files],
    }
