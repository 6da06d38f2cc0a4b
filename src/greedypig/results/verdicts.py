"""Sentences about explanations to doubt, with one wording for terminal, pages and figures."""

from __future__ import annotations

from .photo_notes import Notes
from .wording import chance, short_percent

LIKELIHOOD = 'objective="log-likelihood"'
JUDGE = "a second network"


def higher(
    part: str, value: str, whole: str, full: str, *, quantity: str = "probability",
    verb: str = "give",
) -> str:  # fmt: skip
    """13 % of the features give a higher probability (0.994) than the whole photo (0.951)"""
    return f"{part} {verb} a higher {quantity} ({value}) than {whole} ({full})"


def excess(notes: Notes, whole: str = "the whole photo") -> str | None:
    """That a part gives a higher probability than the whole, if one does."""
    point = notes.excess()
    if point is None or notes.probability is None:
        return None
    share, value = point
    part = f"{short_percent(share)} of the features"
    return f"{higher(part, chance(value), whole, chance(notes.probability))}."


def bare_excess(notes: Notes, whole: str = "the whole photo") -> str | None:
    """That the baseline alone gives a higher probability than the whole, if it does."""
    value = notes.bare_excess()
    if value is None or notes.probability is None:
        return None
    part = f"The baseline alone ({notes.baseline or 'no feature present'})"
    sentence = higher(part, chance(value), whole, chance(notes.probability), verb="gives")
    return f"{sentence}: most features count against this class."


def fall(notes: Notes) -> str | None:
    """That the probability is reached and lost again as features are added, if it is."""
    lost = notes.fall()
    if lost is None:
        return None
    return (
        f"This explanation does not hold: {short_percent(lost.reached_at)} of the features give "
        f"{chance(lost.reached)}, {short_percent(lost.lost_at)} give {chance(lost.lost)}."
    )


def advice(notes: Notes, objective: str = LIKELIHOOD, judge: str = JUDGE) -> str:
    """What to do about a part that gives a higher probability; "" where all has been done.

    The log-likelihood is about the model's own prediction, so it is no advice for another class.
    """
    ways = []
    if notes.advises_log_likelihood:
        ways.append(f"use {objective} to match the photo's own prediction")
    if "second-opinion" not in notes.curves:
        ways.append(f"check with {judge}")
    text = ", or ".join(ways)
    return f"{text[:1].upper()}{text[1:]}." if text else ""
