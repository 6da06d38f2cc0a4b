"""The sentences of a page: what a result says, and warnings of results to doubt."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

from ..core.attribution import Attribution, is_one_shot
from ..results import verdicts
from ..results.photo_notes import Notes
from ..results.picture import probability_within, unit_labels, unit_word, units_within, unranked
from ..results.wording import chance, short_percent
from .markup import escape


def summary(a: Attribution, notes: Notes, picture: bool) -> str:
    """One paragraph, as HTML."""
    reason = unranked(a)
    if reason is not None:
        return f"{escape(reason)} So there is no order, curve or picture to show."
    return _of_picture(a, notes) if picture else _of_units(a, notes)


def unbroken(text: str) -> str:
    """Text that no line break divides."""
    return text.replace(" ", "\u00a0")


def _percent(share: float) -> str:
    return unbroken(short_percent(share))


def _of_picture(a: Attribution, notes: Notes) -> str:
    """The probability with, or without, the best features of a picture."""
    if notes.removed:
        shares = [(s, v, "") for s, v in notes.removed.items()]
        how = f"switched off (set to {escape(notes.baseline or 'the baseline')})"
    else:
        within = {s: probability_within(a, notes, s) for s in (0.01, 0.05, 0.1)}
        shares = [(s, p[0], "" if p[1] else "about ") for s, p in within.items() if p is not None]
        how = "present"
    label = escape(notes.label or "its class")
    sentences = []
    if shares:
        (share, value, about), *others = shares
        only = "" if notes.removed else "only "
        text = (
            f"With {only}<b>{_percent(share)}</b> of the features ({_fitting(a, share)}) {how}, "
            f"the model predicts <b>{label}</b> with {about}<b>{chance(value)}</b>"
        )
        text += "".join(
            f", with <b>{_percent(s)}</b> it is {about}<b>{chance(v)}</b>" for s, v, about in others
        )
        if notes.probability is not None:
            text += f"; the whole photo gives <b>{chance(notes.probability)}</b>"
        sentences.append(f"{text}.")
    elif notes.probability is not None:
        sentences.append(
            f"For the whole photo the model predicts <b>{label}</b> "
            f"with <b>{chance(notes.probability)}</b>."
        )
    if notes.removed and isfinite(a.full_value):
        sentences.append(
            f"With everything switched off the prediction moves by {a.full_value:.3g} nats (KL)."
        )
    needed = notes.needed()
    if not notes.removed and needed is not None and needed < 1:
        least = f"about {_percent(needed)}" if needed >= 0.01 else f"less than {_percent(0.01)}"
        sentences.append(
            f"From {least} of the features on, the probability stays at 9/10 of the whole photo’s "
            "or above."
        )
    if a.features.kind == "elements" and sentences:
        sentences.append("A feature is one colour of one pixel.")
    return " ".join(sentences) or _of_units(a, notes)


def _fitting(a: Attribution, share: float) -> str:
    """How many features a share is; of larger ones those that fit whole."""
    fit = units_within(a, share)
    if a.features.kind == "elements":
        return f"{fit:,} of {a.features.n:,}"
    return f"as many whole {unit_word(a)} as fit: {fit:,} of {a.features.units:,}"


def _of_units(a: Attribution, notes: Notes) -> str:
    """The first features by name, and how G grows with them."""
    count = min(3, a.features.units)
    labels = unit_labels(a, a.order[:count].tolist())
    names = ", ".join(f"<b>{escape(label)}</b>" for label in labels)
    what = f" for <b>{escape(notes.label)}</b>" if notes.label else ""
    units = f"{a.features.units:,} {unit_word(a, a.features.units)}"
    text = f"The first {count} of {units}{what}: {names}."
    start, end = float(a.values[0]), float(a.values[-1])
    if isfinite(start) and isfinite(end):
        text += (
            f" The objective G grows from <b>{start:.3g}</b> with nothing to <b>{end:.3g}</b> "
            f"with the {a.selected:,} selected"
        )
        if isfinite(a.full_value):
            text += f"; everything gives <b>{a.full_value:.3g}</b>"
        text += "."
    return text + _direction(a)


def _direction(a: Attribution) -> str:
    """How the single output of a model was read."""
    ways = {"increase": "increase it: G is the output",
            "decrease": "decrease it: G is the output times −1"}  # fmt: skip
    way = ways.get(str(a.settings.get("objective")))
    if a.settings.get("outputs") != "values" or way is None:
        return ""
    return f" The model’s single output is a value, and these are the features that {way}."


def warning(a: Attribution, notes: Notes) -> str | None:
    """Why a result is to be doubted, and how to check it, as HTML; None if there is no reason."""
    if notes.removing:
        return None
    lost = verdicts.fall(notes)
    if lost is not None:
        return _note(lost, "Try another seed or more rounds, and compare what they select first.")
    excess = verdicts.excess(notes)
    if excess is not None:
        return _note(
            excess, "That is a fact about the model; it does not make the explanation better.",
            _second_opinion(notes), verdicts.advice(notes, judge="a second network, as a second "
                                                    "opinion")
        )  # fmt: skip
    if notes.curve is None:
        return _more_than_everything(a, notes)
    bare = verdicts.bare_excess(notes)
    return None if bare is None else _note(bare)


def _note(first: str, *others: str) -> str:
    rest = " ".join(escape(sentence) for sentence in others if sentence)
    return f"<p><b>{escape(first)}</b> {rest}</p>"


def _second_opinion(notes: Notes) -> str:
    """What another network says of the part that gives a higher probability."""
    second, excess = notes.curves.get("second-opinion"), notes.excess()
    value = None if second is None or excess is None else second.get(excess[0])
    if second is None or value is None:
        return ""
    whole = second.full if second.full is not None else second.get(1.0)
    beside = "" if whole is None else f" (the whole photo: {whole:.3f})"
    judge = second.judge or "another network"
    return f"As a second opinion, {judge} gives the same features {value:.3f}{beside}."


def _more_than_everything(a: Attribution, notes: Notes) -> str | None:
    """The same by G, where no curve was measured."""
    values = a.values[a.values.isfinite()]
    if not isfinite(a.full_value) or values.numel() == 0:
        return None
    best = float(values.max())
    slack = 0.01 * max(abs(a.full_value), abs(best - float(values.min())))
    if best <= a.full_value + slack:
        return None
    part = f"Some of the {unit_word(a)}"
    sentence = verdicts.higher(part, f"{best:.3g}", "all of them", f"{a.full_value:.3g}",
                               quantity="G")  # fmt: skip
    return _note(f"{sentence}.", verdicts.advice(notes))


GREEDY = {
    "greedy-pig": "path-integrated gradients (Greedy PIG)",
    "steady-pig": "path-integrated gradients over changing views of the photo (steady-pig, based "
    "on Greedy PIG)",
    "sequential-gradient": "the gradient at the selected features (Sequential Gradient)",
}
"""What greedy methods select features by."""
MEANING = "The order says what the <em>model</em> used, not what is true of the world."
KNOBS = ("rounds", "steps", "views", "samples", "rule", "schedule", "ratio")
"""The settings of a method that are shown in a line; all of them are listed below it."""


def how_selected(a: Attribution, what: str = "Features") -> str:
    """How the order came about and what it says, as HTML."""
    name = _name(a)
    if name == "random":
        return f"{what} are in a random order, to compare other methods with."
    if is_one_shot(a):
        by = f" ({escape(name)})" if name else ""
        return f"{what} are ranked once, by their score{by}. {MEANING}"
    by = f" by {GREEDY[name]}" if name in GREEDY else ", by their score in each round"
    return f"{what} are selected greedily{by}. {MEANING}"


def method_setting(a: Attribution) -> str:
    """The method and its main knobs: steady-pig: rounds 33, views 3, schedule geometric."""
    inner = [a.settings[key] for key in ("scorer", "one_shot") if _is_mapping(a.settings.get(key))]
    known: dict[str, Any] = {k: v for each in inner for k, v in each.items()} | dict(a.settings)
    unused = ("rounds", "schedule", "ratio") if is_one_shot(a) else ()
    knobs = [
        f"{name} {known[name]:g}" if isinstance(known[name], float) else f"{name} {known[name]}"
        for name in KNOBS
        if name not in unused and isinstance(known.get(name), str | int | float)
    ]
    return ": ".join(part for part in (_name(a), ", ".join(knobs)) if part)


def _is_mapping(value: object) -> bool:
    return isinstance(value, Mapping)


def _name(a: Attribution) -> str:
    name = a.settings.get("method")
    return name if isinstance(name, str) else ""
