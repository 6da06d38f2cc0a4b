"""What charts show and where it lies; the macros of `templates/parts.html` draw it as inline SVG.

Colours come from the page's style, so they follow light and dark; lines also differ in dashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, floor, log10
from typing import Any

from ..results.curve import Curve
from ..results.input_notes import MUCH
from ..results.line_styles import looks
from ..results.wording import percent, shown, signed

WIDTH, HEIGHT = 640, 326
LEFT, RIGHT, TOP, BOTTOM = 64, 38, 14, 58
"""Room around a diagram for its texts, which are larger on a phone."""
Points = Sequence[tuple[float, float]]
SHARES = {tenth / 10: f"{10 * tenth}\u202f%" for tenth in range(0, 11, 2)}


@dataclass(frozen=True)
class Line:
    """One line of a chart."""

    label: str
    points: Points
    remark: str = ""
    """A small text in the legend."""
    shift: float = 0.0
    """How far the line is drawn to the right, in pixels, beside others at the same places."""
    errors: Sequence[float | None] | None = None
    """The standard error of each point. Lines with errors have their points marked."""
    shaded: bool = False
    """Is the area above the first level shaded?"""


@dataclass(frozen=True)
class Level:
    """A value that the lines are compared with, as a level line."""

    label: str
    value: float
    remark: str = ""
    style: str = "full"


@dataclass(frozen=True)
class Chart:
    """One diagram; x and y are places in it."""

    name: str
    caption: str
    axis: str
    lines: Sequence[Line]
    levels: Sequence[Level] = ()
    below: Mapping[float, str] | None = None
    """Texts under the diagram by their places; shares where there are none."""
    ends: tuple[float, float] = (0.0, 1.0)
    zoom: bool = False
    """May the scale of values leave out 0?"""
    keep: float | None = None
    """The share that was kept: an upright line."""
    snaps: bool = False
    """Are values read at the places of the texts below alone?"""
    counted: str = ""
    """What the places are a number of, where they are no shares."""

    left, right, top, bottom = LEFT, WIDTH - RIGHT, TOP, HEIGHT - BOTTOM
    width, height = WIDTH, HEIGHT

    @cached_property
    def range(self) -> tuple[float, float, list[float]]:
        """The lowest and highest value of the scale, and its ticks."""
        values = [level.value for level in self.levels]
        for line in self.lines:
            errors = line.errors or [None] * len(line.points)
            for (_, value), error in zip(line.points, errors, strict=True):
                values += [value - (error or 0), value + (error or 0)]
        return scale(min(values), max(values), zoom=self.zoom)

    @property
    def ticks(self) -> Mapping[float, str]:
        """The texts below, by their places."""
        return SHARES if self.below is None else self.below

    @property
    def looks(self) -> list[tuple[Line, str, str]]:
        """(line, its colour's class, its dash's class) of every line."""
        styles = looks([line.label for line in self.lines])
        return [
            (line, f"c{style.colour}", f"d{style.dash}")
            for line, style in zip(self.lines, styles, strict=True)
        ]

    def x(self, place: float) -> float:
        """The place of a share (or count) from the left."""
        low, high = self.ends
        return round(LEFT + (place - low) / (high - low) * (self.right - LEFT), 2)

    def y(self, value: float) -> float:
        """The place of a value from the top."""
        low, high, _ = self.range
        return round(TOP + (high - value) / (high - low) * (self.bottom - TOP), 2)

    def corners(self, points: Points, shift: float = 0.0) -> str:
        """Points as SVG writes them."""
        return " ".join(f"{self.x(place) + shift},{self.y(value)}" for place, value in points)

    def excess(self, line: Line) -> Points:
        """The outline between a shaded line and the first level, if the line lies above anywhere;
        what lies below the level is to be clipped."""
        if not line.shaded or not self.levels:
            return ()
        full = self.levels[0].value
        if max(value for _, value in line.points) <= full + MUCH:
            return ()
        return [*line.points, (line.points[-1][0], full), (line.points[0][0], full)]

    @property
    def spoken(self) -> str:
        """The chart in words: three points of every line."""
        texts = []
        for line in self.lines:
            last = len(line.points) - 1
            points = [line.points[i] for i in sorted({0, last // 2, last})]
            values = [f"{shown(v, 3)} at {self.ticks.get(x, percent(x))}" for x, v in points]
            texts.append(f"{line.label}: {', '.join(values)}")
        return f"{self.caption}. {'; '.join(texts)}"

    @property
    def data(self) -> dict[str, Any]:
        """What the script needs to put its marker on the chart."""
        lines = [(line.label, *zip(*line.points, strict=True)) for line in self.lines]
        return {
            "id": self.name,
            "box": [LEFT, TOP, self.right - LEFT, self.bottom - TOP],
            "range": self.range[:2],
            "ends": self.ends,
            "places": sorted(self.ticks) if self.snaps else None,
            "counted": self.counted,
            "lines": [{"label": label, "x": x, "y": y} for label, x, y in lines],
        }


def share_chart(
    name: str,
    caption: str,
    curves: Mapping[str, Curve],
    full: float | None = None,
    *,
    word: str = "features",
    done: str = "kept",
    plain: bool = False,
    **options: Any,
) -> Chart:
    """Curves over the share kept. plain: neither areas nor shades."""
    lines = [
        Line(
            label,
            curve.points,
            "" if plain else f"area {signed(curve.auc)}",
            # A judge's curve has a whole of its own.
            shaded=not plain and curve.judge is None,
        )
        for label, curve in curves.items()
    ]
    levels = [] if full is None else [Level("everything", full, signed(full))]
    axis = f"share of the {word} {done}, best first"
    return Chart(name, caption, axis, lines, levels, **options)


def count_chart(
    name: str,
    caption: str,
    axis: str,
    lines: Sequence[Line],
    levels: Sequence[Level],
    counted: str,
    **options: Any,
) -> Chart:
    """Values over a number of features, from 0 to the last one; about seven numbers are named."""
    last = int(lines[0].points[-1][0])
    step = max(1, round(last / 6))
    below = {float(i): f"{i:,}" for i in (*range(0, last - step // 2, step), last)}
    return Chart(name, caption, axis, lines, levels, below, (0, last), counted=counted, **options)


def scale(low: float, high: float, *, zoom: bool = False) -> tuple[float, float, list[float]]:
    """(low, high, ticks): round numbers around the data; unless zoomed in, the scale holds 0."""
    if not zoom:
        low = min(low, 0.0) if low > 0 or high > 0 else low
        high = 1.0 if 1 < high <= 1.0001 else high
    span = (high - low) or abs(high) or 1.0
    raw = span / 4
    size = 10 ** floor(log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [i * step for i in range(first, last + 1)]
