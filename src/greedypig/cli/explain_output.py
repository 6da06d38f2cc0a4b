"""What `greedypig explain` prints: a few lines for one photo, a table for many, and --json."""

from __future__ import annotations

from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import Any

import greedypig as gp

from ..images.api import SHARES
from ..results import verdicts
from ..results.photo_notes import Notes
from ..results.picture import feature_word, features_within
from ..results.wording import chance, chance_cell, count, kept_settings, listed, setting
from .outputs import shown
from .terminal import BOLD, Terminal, duration

EXPECTED = (gp.StopReason.ALL, gp.StopReason.ROUNDS, gp.StopReason.K)
"""Reasons to stop that need no mention."""
LIKELIHOOD, JUDGE = "--objective log-likelihood", "a second network (--judge)"
UNSTABLE = "Try more --rounds, and compare what is selected first."


def show_photo(terminal: Terminal, a: gp.Attribution, files: Sequence[Path]) -> None:
    """The lines of a single photo."""
    about, notes, total = a.about, Notes.of(a), a.features.count
    head = f"{about['source']}: {about['class']}, probability {chance(about['probability'])}"
    terminal.say(head, BOLD)
    if not notes.predicted:
        best, probability = about["predictions"][0]
        terminal.say(f"(the network predicts {best}, {chance(probability)})", indent=2)
    terminal.say(_method(a), indent=2)
    words = "without the best" if about["removed"] else "only the best"
    whole = "" if a.features.kind == "elements" else ", whole"
    rows = [["", f"baseline alone ({about['baseline']})", chance_cell(about["nothing"]), ""]]
    for share, probability in (about["removed"] or about["kept"]).items():
        features = (
            f"{features_within(a, float(share)):,} of {total:,} {feature_word(a, total)}{whole}"
        )
        label = f"{words} {100 * float(share):3g} %"
        rows.append(["", label, chance_cell(probability), features])
    terminal.table(["", "", "", ""], rows, names=2)
    if a.selected < features_within(a, max(SHARES)):
        terminal.say(
            f"selected {a.selected:,} of {total:,} {feature_word(a, total)}; the others are "
            "ranked by their last score",
            indent=2,
        )
    if "second-opinion" in about["curves"]:
        terminal.say(_second(about), indent=2)
    fall, excess = verdicts.fall(notes), verdicts.excess(notes)
    if fall is not None:
        terminal.caution(f"{fall} {UNSTABLE}", 2)
    elif excess is not None:
        advice = verdicts.advice(notes, LIKELIHOOD, JUDGE)
        terminal.caution(f"{excess} {advice}".rstrip(), 2)
    why = "" if a.stop in EXPECTED else f" ({a.stop})"
    terminal.say(f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}{why}", indent=2)
    terminal.say("wrote " + ", ".join(shown(file) for file in files), indent=2)


def _method(a: gp.Attribution) -> str:
    """The method that ran, with its knobs."""
    return f"method {a.settings.get('method')}: {setting(kept_settings(a))}"


def _second(about: Any) -> str:
    curve = about["curves"]["second-opinion"]
    own = about["curves"].get("softmax") or about["curves"]["deletion"]
    whole = curve["values"][0 if about["removed"] else -1]
    return (
        f"area under the curve: {own['auc']:.3f} by {about['model']}, {curve['auc']:.3f} by the "
        f"judge {curve['judge']}; whole photo: {chance(about['probability'])} and {chance(whole)}"
    )


def show_photos(
    terminal: Terminal, results: Sequence[gp.Attribution], files: Sequence[Path]
) -> None:
    """A row for each photo, and below the table what concerns all of them."""
    if not results:
        return
    terminal.say(_method(results[0]))
    without = "−" if results[0].about["removed"] else ""
    numbers = ["all", *(f"{without}{100 * share:g} %" for share in SHARES)]
    if results[0].about["judge"]:
        numbers += ["AUC", "judge"]
    terminal.table(["photo", "class", *numbers], [_row(a) for a in results], names=2)
    gradients, seconds = sum(a.gradients_used for a in results), sum(a.seconds for a in results)
    where = shown(files[-1] if files[-1].stem == "index" else files[0].parent)
    terminal.say(
        f"{count(len(results), 'photo')}, {count(gradients, 'gradient')}, {duration(seconds)}. "
        f"Results in {where}"
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


def _row(a: gp.Attribution) -> list[str]:
    """The cells of one photo."""
    about, curves = a.about, a.about["curves"]
    mark = "" if Notes.of(a).excess() is None else " ▲"
    shares = (about["probability"], *(about["removed"] or about["kept"]).values())
    cells = [f"{about['source']}{mark}", about["class"], *map(chance_cell, shares)]
    if about["judge"]:
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
