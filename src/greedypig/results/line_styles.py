"""Line styles: a known method has one colour and dash by its name, in every figure and page.

A style is a pair of indices: `plots` and `report` each have a palette of eight colours, Okabe and
Ito's, and of five dashes.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import NamedTuple


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
"""Titles of methods in the tables of the paper, where they are not the names without hyphens."""
ALL = [Look(i % 8, i % 5) for i in range(40)]
"""Every style once."""


def looks(names: Sequence[str]) -> list[Look]:
    """A style for each line: a known method's own, and for the others those that are left."""
    styles: dict[int, Look] = {}
    for i, name in enumerate(names):
        key = name.lower().removesuffix(" (cut)")
        look = KNOWN.get(TITLES.get(key, key)) or KNOWN.get(key.replace(" ", "-"))
        if look is not None and look not in styles.values():
            styles[i] = look  # A second line of the same name gets another style.
    colours = {look.colour for look in styles.values()}
    left = [look for look in ALL if look not in styles.values()]
    others = cycle(sorted(left, key=lambda look: look.colour in colours))
    return [styles[i] if i in styles else next(others) for i in range(len(names))]
