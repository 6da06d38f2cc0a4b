"""How a result was made: what it cost, its settings and rounds, and the call that repeats it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import accumulate
from math import isfinite
from typing import Any

from ..core.attribution import Attribution, is_one_shot
from ..results.photo_notes import Notes
from ..results.picture import unit_word
from ..results.wording import kept_settings, percent, setting

LONGEST = 200
"""Rounds in the table; a longer one says what it leaves out."""
GREEDY = {
    "greedy-pig": "path-integrated gradients (Greedy PIG)",
    "steady-pig": "path-integrated gradients over changing views of the photo (steady-pig, based "
    "on Greedy PIG)",
    "sequential-gradient": "the gradient at the selected features (Sequential Gradient)",
}
"""What greedy methods select features by."""
ARGUMENTS = ("target", "outputs", "baseline", "objective", "k", "seed")
CLASSES = {
    "greedy-pig": "GreedyPIG",
    "steady-pig": "SteadyPIG",
    "sequential-gradient": "SequentialGradient",
    "ig": "IG",
    "guided-ig": "GuidedIG",
    "blur-ig": "BlurIG",
}
"""Methods whose knobs are numbers and names, by their class."""
OF_ROUNDS = ("rounds", "per_round", "schedule", "ratio")
KNOBS = (*OF_ROUNDS, "steps", "rule", "views")


def made(a: Attribution, notes: Notes) -> dict[str, Any]:
    """The last section of a page."""
    word, name = unit_word(a), a.settings.get("method")
    facts = {
        "method": f"{name}: {setting(kept_settings(a))}" if isinstance(name, str) else None,
        "seed": a.settings.get("seed"),
        "gradients": f"{a.gradients_used:,}",
        "seconds": f"{a.seconds:.1f}",
        "stopped because": str(a.stop),
        f"{word} selected": f"{a.selected:,} of {a.features.units:,}",
        "model": notes.model,
        "source": notes.source,
        "baseline": notes.baseline,
    }
    return {
        "facts": _pairs({key: value for key, value in facts.items() if value is not None}),
        "settings": _pairs(a.settings),
        "provenance": _pairs(a.provenance),
        "rounds": _rounds(a),
        "longest": LONGEST,
        "word": word,
        "command": notes.command or _call(a, notes),
        "selected": _selected(a, word),
        "means": name != "random",
    }


def _pairs(mapping: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        (key, value if isinstance(value, str) else json.dumps(value, default=str))
        for key, value in mapping.items()
    ]


def _rounds(a: Attribution) -> list[list[str]]:
    def shown(value: float) -> str:
        return f"{value:.4g}" if isfinite(value) else "not measured"

    rounds = zip(a.picks, accumulate(a.picks), a.values[1:].tolist(), a.totals, strict=True)
    return [
        [str(i), f"{pick:,}", f"{end:,}", percent(end / a.features.units), shown(g), shown(total)]
        for i, (pick, end, g, total) in enumerate(rounds, 1)
    ]


def _selected(a: Attribution, word: str) -> str:
    """How the order came about."""
    name, what = a.settings.get("method"), word.capitalize()
    if name == "random":
        return f"{what} are in a random order, to compare other methods with."
    if is_one_shot(a):
        return f"{what} are ranked once, by their score{f' ({name})' if name else ''}."
    by = GREEDY.get(str(name), "their score in each round")
    return f"{what} are selected greedily by {by}."


def _call(a: Attribution, notes: Notes) -> str:
    """The call with this result's settings."""
    settings, name = a.settings, a.settings.get("method")
    if not isinstance(name, str):
        return "import greedypig as gp\n\na = gp.load(…)    # this result's file"
    lines = ["import greedypig as gp", ""]
    if notes.kind == "image" and notes.model and notes.source:
        lines += [
            "import PIL.Image",
            f"model = gp.models.load({notes.model!r})",
            f"x = model.preprocess(PIL.Image.open({notes.source!r}))",
        ]
    lines += ["a = gp.explain(", "    model, x,"]
    for argument in ARGUMENTS:
        if isinstance(settings.get(argument), str | int | float):
            lines.append(f"    {argument}={settings[argument]!r},")
    unused = OF_ROUNDS if is_one_shot(a) else ()
    knobs = [
        f"{knob}={settings[knob]!r}"
        for knob in KNOBS
        if knob not in unused and isinstance(settings.get(knob), str | int | float | list)
    ]
    method = f"gp.{CLASSES[name]}({', '.join(knobs)})" if name in CLASSES else repr(name)
    lines.append(f"    method={method},")
    if a.features.kind == "groups":
        lines.append("    features=…,  # the groups used here")
    if a.features.kind == "windows":
        state, _ = a.features.state()
        lines.append(f"    features=gp.windows({state['size']}, stride={state['stride']}),")
    return "\n".join([*lines, ")"])
