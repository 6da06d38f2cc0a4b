"""Line styles: a known method has one colour and dash by its name, in every figure and page.

A style is a pair of indices: `plots` and `report` each have a palette of `COLOURS` colours, Okabe
and Ito's, and of `DASHES` dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple

COLOURS, DASHES = 8, 5


class Look(NamedTuple):
    """A line's indices in the palettes."""

    colour: int
    """0 blue, 1 vermilion, 2 green, 3 pink, 4 sky blue, 5 orange, 6 gray, 7 black."""
    dash: int
    """0 none, 1 long, 2 dots, 3 long and short, 4 short."""


KNOWN = {
    "greedy-pig": Look(0, 0),
    "greedy-pig (paper)": Look(7, 0),
    "greedy-pig (regions)": Look(7, 3),
    "steady-pig": Look(2, 0),
    "sequential-gradient": Look(3, 3),
    "ig": Look(1, 1),
    "smooth-ig": Look(5, 2),
    "blur-ig": Look(2, 4),
    "guided-ig": Look(4, 1),
    "gradient": Look(5, 0),
    "random": Look(6, 2),
}
"""Methods that are often drawn together differ in colour, all others in colour or dash."""


TITLES = {
    "integrated gradients": "ig",
    "pig (integrated gradients)": "ig",
    "greedy pig, our default": "greedy-pig",
    "greedy pig, the paper's setting": "greedy-pig (paper)",
    "random order": "random",
}
"""Titles of methods in the tables of the paper."""


def _key(name: str) -> str:
    """The method that a title such as "Greedy PIG" or "greedy-pig (cut)" means."""
    name = name.lower().removesuffix(" (cut)")
    return TITLES.get(name, name).replace(" ", "-")


_BY_KEY = {_key(name): look for name, look in KNOWN.items()}
ALL = tuple(Look(i % COLOURS, i % DASHES) for i in range(COLOURS * DASHES))
"""Every style once, as the two counts have no common divisor."""


def looks(names: Sequence[str]) -> list[Look]:
    """A style for each line: a known method's own, and for the others those that are left.

    Others take colours that no known method among `names` has, as long as there are any.
    """
    own: dict[Look, int] = {}
    for i, name in enumerate(names):
        look = _BY_KEY.get(_key(name))
        if look is not None:
            own.setdefault(look, i)  # A second line of the same name gets another style.
    colours = {look.colour for look in own}
    left = sorted((look for look in ALL if look not in own), key=lambda k: k.colour in colours)
    known, rest = {i: look for look, i in own.items()}, cycle(left)
    return [known[i] if i in known else next(rest) for i in range(len(names))]
