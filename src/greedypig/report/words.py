"""What a result says in plain words, and the warning where it must not be taken at its word."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite

from ..core.attribution import Attribution, is_one_shot
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


def _tied(share: float) -> str:
    """A percentage that no line break tears apart."""
    return short_percent(share).replace(" ", "\u00a0")


def _of_removal(a: Attribution, notes: Notes) -> str:
    """How far the answer moves as features are switched off."""
    label, gray = escape(notes.label or "its class"), escape(notes.baseline or "the baseline")
    (share, value), *others = notes.removed.items()
    text = (
        f"With <b>{_tied(share)}</b> of the photo’s numbers ({_held(a, share)}) switched off, that "
        f"is at {gray}, the model says <b>{label}</b> with <b>{chance(value)}</b>"
    )
    text += "".join(f", with <b>{_tied(s)}</b> off it is <b>{chance(v)}</b>" for s, v in others)
    if notes.probability is not None:
        text += f"; the whole photo gives <b>{chance(notes.probability)}</b>"
    if isfinite(a.full_value):
        text += f". With everything off the answer moves by {a.full_value:.3g} nats (KL)"
    return text + "."


def _of_picture(a: Attribution, notes: Notes) -> str:
    if notes.removed:
        return _of_removal(a, notes)
    label = escape(notes.label or "its class")
    found = {s: probability_within(a, notes, s) for s in (0.01, 0.05, 0.1)}
    told = [(s, f[0], "" if f[1] else "about ") for s, f in found.items() if f is not None]
    sentences = []
    if told:
        (share, value, about), *others = told
        text = (
            f"With <b>{_tied(share)}</b> of the photo’s numbers ({_held(a, share)}) "
            f"the model says <b>{label}</b> "
            f"with {about}<b>{chance(value)}</b>"
        )
        text += "".join(
            f", with <b>{_tied(s)}</b> it is {about}<b>{chance(v)}</b>" for s, v, about in others
        )
        if notes.probability is not None:
            text += f"; the whole photo gives <b>{chance(notes.probability)}</b>"
        sentences.append(text + ".")
    elif notes.probability is not None:
        sentences.append(
            f"For the whole photo the model says <b>{label}</b> "
            f"with <b>{chance(notes.probability)}</b>."
        )
    needed = notes.needed()
    if needed is not None and needed < 1:
        sentences.append(
            f"From {_needed(needed)} of the numbers on, the probability stays at nine tenths of "
            "the whole photo’s or above."
        )
    if a.features.kind == "elements" and sentences:
        sentences.append("A number is one colour of one pixel.")
    return " ".join(sentences) or _of_units(a, notes)


def _needed(share: float) -> str:
    return f"about {_tied(share)}" if share >= 0.01 else f"less than {_tied(0.01)}"


def _held(a: Attribution, share: float) -> str:
    """What such a share is: that many numbers, or the larger units that fit whole."""
    fit = units_within(a, share)
    if a.features.kind == "elements":
        return f"{fit:,} of {a.features.n:,}"
    return f"as many whole {unit_word(a)} as fit: {fit:,} of {a.features.units:,}"


def _of_units(a: Attribution, notes: Notes) -> str:
    count = min(3, a.features.units)
    labels = unit_labels(a, a.order[:count].tolist())
    names = ", ".join(f"<b>{escape(label)}</b>" for label in labels)
    what = f" for <b>{escape(notes.label)}</b>" if notes.label else ""
    units = f"{a.features.units:,} {unit_word(a, a.features.units)}"
    text = f"The first {count} of {units}{what}: {names}."
    start, end = float(a.values[0]), float(a.values[-1])
    if isfinite(start) and isfinite(end):
        text += (
            f" From nothing to the {a.selected:,} selected, the objective G goes from "
            f"<b>{start:.3g}</b> to <b>{end:.3g}</b>"
        )
        if isfinite(a.full_value):
            text += f"; everything gives <b>{a.full_value:.3g}</b>"
        text += "."
    return text + _direction(a)


def _direction(a: Attribution) -> str:
    """Of a model with one output: how it was read."""
    if a.settings.get("outputs") != "values":
        return ""
    ways = {"increase": "increase it: G is the output",
            "decrease": "decrease it: G is the output times −1"}  # fmt: skip
    way = ways.get(str(a.settings.get("objective")))
    return (
        ""
        if way is None
        else (
            f" The model’s single output is read as a value, and these are the features that {way}."
        )
    )


def warning(a: Attribution, notes: Notes) -> str | None:
    """Where a part makes the model more certain than the whole: what that means, how to check."""
    if notes.removing:
        return None
    lost = _fall_warning(notes)
    if lost is not None:
        return lost
    found = notes.excess()
    if found is None:
        return _plain_warning(a, notes) if notes.curve is None else _bare_warning(notes)
    share, value = found
    text = (
        f"<p><b>More certain than the whole photo.</b> With {_tied(share)} of the numbers the "
        f"model gives {value:.3f}, with all of them {notes.probability:.3f}. Such a part is a "
        "pattern that this network likes; it need not be what it saw in the photo. Do not read "
        "the high value as a better explanation.</p><p>"
    )
    second = notes.curves.get("second-opinion")
    judged = None if second is None else second.get(share)
    if second is not None and judged is not None:
        whole = second.full if second.full is not None else second.get(1.0)
        beside = "" if whole is None else f" ({whole:.3f} for the whole photo)"
        text += (
            f"The check: another network, {escape(second.judge or 'not asked before')}, gives the "
            f"same part {judged:.3f}{beside}. "
        )
    else:
        text += (
            "The check: let another network judge the same parts, a second opinion "
            "(<code>--judge</code>). "
        )
    if notes.objective == "log-likelihood":
        text += "The objective was log-likelihood already, which asks for the photo’s own answer."
    elif notes.advises_log_likelihood:
        text += (
            "Or explain again with <code>--objective log-likelihood</code> (in Python "
            '<code>objective="log-likelihood"</code>), which asks for the photo’s own answer '
            "and not for more."
        )
    return text + "</p>"


def _fall_warning(notes: Notes) -> str | None:
    fall = notes.fall()
    if fall is None:
        return None
    return (
        f"<p><b>This explanation does not hold.</b> With {_tied(fall.reached_at)} of the features "
        f"the probability is {chance(fall.reached)}, with {_tied(fall.lost_at)} it is "
        f"{chance(fall.lost)}, and the whole photo gives {chance(notes.probability or 0)}. Try "
        "another seed or more rounds, and compare what they select first.</p>"
    )


def _bare_warning(notes: Notes) -> str | None:
    bare = notes.bare_excess()
    if bare is None:
        return None
    return (
        f"<p><b>Less certain than without the photo.</b> The bare baseline "
        f"({escape(notes.baseline or 'nothing present')}) already gives {bare:.3f}, the whole "
        f"photo {notes.probability:.3f}: on the whole the photo speaks against this class.</p>"
    )


def _plain_warning(a: Attribution, notes: Notes) -> str | None:
    values = a.values[a.values.isfinite()]
    if not isfinite(a.full_value) or values.numel() == 0:
        return None
    best = float(values.max())
    slack = 0.01 * max(abs(a.full_value), abs(best - float(values.min())))
    if best <= a.full_value + slack:
        return None
    text = (
        f"<p><b>More than everything.</b> Some of the {unit_word(a)} alone give G = {best:.3g}, "
        f"all of them {a.full_value:.3g}: some of those left out work against the answer, or the "
        "part is one that the model merely likes. It is a fact about the model"
    )
    if notes.advises_log_likelihood:
        text += (
            '; compare with <code>objective="log-likelihood"</code>, which asks for the whole '
            "answer"
        )
    return text + ".</p>"


GREEDY = {
    "integrated-gradients": "path-integrated gradients (Greedy PIG)",
    "steady-gradients": "path-integrated gradients over changing views (Greedy PIG over views)",
    "rolling-gradients": "path-integrated gradients rolled over the rounds (Greedy PIG, rolling)",
    "gradient": "the gradient at those taken already (Sequential Gradient)",
}
"""What scorers take features by, round by round."""
TELLS = "The order tells what the <em>model</em> used, not what is true of the world."
SETTING = ("rounds", "steps", "points", "samples", "rule", "schedule", "ratio")
"""What of a method's settings is told in a line; all of them are listed below it."""


def how_taken(a: Attribution, what: str = "Features") -> str:
    """How the order came about and what it tells, as HTML."""
    settings, scorer = a.settings, _scorer(a)
    if "random" in (settings.get("method"), scorer):
        return f"{what} are in a random order, which tells nothing: a yardstick for other methods."
    if is_one_shot(a):
        name = settings.get("method") or scorer
        by = f" ({escape(name)})" if isinstance(name, str) else ""
        return f"{what} are ranked once, by their score{by}. {TELLS}"
    by = f" by {GREEDY[scorer]}" if scorer in GREEDY else ", by their score in each round"
    return f"{what} are taken greedily{by}. {TELLS}"


def method_setting(a: Attribution) -> str:
    """The method and its main knobs: steady-pig: rounds 20, steps 5, schedule geometric."""
    inner = a.settings.get("scorer")
    known = {**(inner if isinstance(inner, Mapping) else {}), **a.settings}
    unused = ("rounds", "schedule", "ratio") if is_one_shot(a) else ()
    knobs = [
        f"{name} {known[name]:g}" if isinstance(known[name], float) else f"{name} {known[name]}"
        for name in SETTING
        if name not in unused and isinstance(known.get(name), str | int | float)
    ]
    name = a.settings.get("method") or _scorer(a)
    return ": ".join(part for part in (name, ", ".join(knobs)) if part and isinstance(part, str))


def _scorer(a: Attribution) -> str | None:
    """The scorer's name; of one around another the inner one's."""
    found = a.settings.get("scorer")
    found = found.get("scorer") if isinstance(found, Mapping) else found
    return found if isinstance(found, str) else None
