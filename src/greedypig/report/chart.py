"""Charts as inline SVG, readable without any script: curves over the share kept, bars, legends.

Colours come from the page's style, so they follow light and dark; lines also differ in dashes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import ceil, floor, log10
from typing import Any

from ..results.curve import Curve
from ..results.line_styles import Look, looks
from .markup import escape

WIDTH, HEIGHT = 640, 320
LEFT, RIGHT, TOP, BOTTOM = 56, 38, 14, 52
"""Room around a diagram for its texts, which are larger on a phone."""


@dataclass(frozen=True)
class Chart:
    """One drawing and what the script needs to put its marker on it."""

    svg: str
    data: dict[str, Any]


def line_chart(
    name: str,
    lines: Sequence[Curve],
    labels: Sequence[str],
    *,
    quantity: str,
    full: float | None,
    word: str = "features",
    zoom: bool = False,
    plain: bool = False,
    keep: float | None = None,
    done: str = "kept",
    own: bool = True,
) -> Chart:
    """Curves over the share kept; `full` is drawn as a line and what rises above it is shaded.

    zoom: the scale need not hold 0 (nor 0 to 1). plain: neither shades nor areas. keep: the share
    that was kept, an upright line. done: what happens to the share. own: are they of the result's
    own units, so that a share at which they were measured means as many of them?
    """
    values = [v for line in lines for v in line.values.tolist()] + ([] if full is None else [full])
    low, high, ticks = scale(min(values), max(values), zoom=zoom)

    def x(fraction: float) -> float:
        return round(LEFT + fraction * (WIDTH - LEFT - RIGHT), 2)

    def y(value: float) -> float:
        return round(TOP + (high - value) / (high - low) * (HEIGHT - TOP - BOTTOM), 2)

    tenths = {x(tenth / 10): f"{10 * tenth}&#8239;%" for tenth in range(0, 11, 2)}
    parts = [grid(ticks, y, tenths, (x(0), x(1)), HEIGHT - BOTTOM)]
    if full is not None:
        parts += [] if plain else [_excess(line, full, x, y) for line in lines]
        parts.append(f'<line class="full" x1="{x(0)}" x2="{x(1)}" y1="{y(full)}" y2="{y(full)}"/>')
    if keep is not None:
        parts.append(f'<line class="kept" x1="{x(keep)}" x2="{x(keep)}" y1="{TOP}" '
                     f'y2="{HEIGHT - BOTTOM}"/>')  # fmt: skip
    shown = looks(labels)
    for line, look in zip(lines, shown, strict=True):
        points = " ".join(f"{x(f)},{y(v)}" for f, v in line.points)
        parts.append(f'<polyline class="{line_class(look)}" points="{points}"/>')
    parts.append(
        f'<line class="marker" x1="{x(0)}" x2="{x(0)}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>'
    )
    parts += [f'<circle class="dot c{look.colour}" r="4.5" cx="-9" cy="-9"/>' for look in shown]
    parts.append(
        f'<text class="axis" x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 6}" '
        f'text-anchor="middle">share of the {word} {done}, best first</text>'
    )
    spoken = "; ".join(
        f"{label}: {line.values[0]:.3g} at {line.fractions[0]:.0%}, {_middle(line)}"
        f"{line.values[-1]:.3g} at {line.fractions[-1]:.0%}"
        for label, line in zip(labels, lines, strict=True)
    )
    svg = (
        f'<svg class="chart" id="{name}" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        f'aria-label="{escape(quantity)} over the share {done}. {escape(spoken)}">'
        f"{''.join(parts)}</svg>{_curve_legend(lines, labels, full, plain, keep)}"
    )
    data = {
        "id": name,
        "own": own,
        "box": [LEFT, TOP, WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM],
        "range": [low, high],
        "lines": [
            {"label": label, "x": line.fractions.tolist(), "y": line.values.tolist()}
            for label, line in zip(labels, lines, strict=True)
        ],
    }
    head = f"<figcaption>{escape(quantity)}</figcaption>"
    return Chart(f'<figure class="plot">{head}{svg}<output class="read"></output></figure>', data)


def line_class(look: Look) -> str:
    """The style's classes of a line."""
    return f"line c{look.colour} d{look.dash}"


def scale(low: float, high: float, *, zoom: bool = False) -> tuple[float, float, list[float]]:
    """(low, high, ticks): round numbers around the data; unless zoomed in, probabilities span 0
    to 1 and other scales hold 0."""
    if not zoom:
        if low >= 0 and 0.2 <= high <= 1.0001:
            return 0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]
        low = min(low, 0.0) if low > 0 or high > 0 else low
    span = (high - low) or abs(high) or 1.0
    raw = span / 4
    size = 10 ** floor(log10(raw))
    step = next(size * m for m in (1, 2, 2.5, 5, 10) if size * m >= raw * 0.999)
    first, last = floor(low / step + 1e-9), ceil(high / step - 1e-9)
    last = max(last, first + 1)
    return first * step, last * step, [i * step for i in range(first, last + 1)]


def _middle(line: Curve) -> str:
    value = line.get(0.1)
    return "" if value is None else f"{value:.3g} at 10%, "


def grid(
    ticks: Sequence[float], y: Callable[[float], float], below: Mapping[float, str],
    ends: tuple[float, float], bottom: float,
) -> str:  # fmt: skip
    """The lines and numbers of the values, and the texts below the diagram by their places.

    ends: the diagram's left and right end. bottom: its lower end.
    """
    parts = []
    for tick in ticks:
        parts.append(
            f'<line class="grid" x1="{ends[0]}" x2="{ends[1]}" y1="{y(tick)}" y2="{y(tick)}"/>'
            f'<text class="tick" x="{ends[0] - 8}" y="{y(tick) + 4}" text-anchor="end">'
            f"{tick:.4g}</text>"
        )
    for place, text in below.items():
        parts.append(
            f'<text class="tick" x="{place}" y="{bottom + 20}" text-anchor="middle">{text}</text>'
        )
    return "".join(parts)


def _excess(line: Curve, full: float, x: Any, y: Any) -> str:
    """The area between the curve and `full`, where the curve is above it.

    None of a judge's curve: `full` is the explained network's value.
    """
    if line.judge is not None:
        return ""
    points = line.points
    outline = [points[0]]
    for (f0, v0), (f1, v1) in pairwise(points):
        if (v0 - full) * (v1 - full) < 0:
            outline.append((f0 + (f1 - f0) * (full - v0) / (v1 - v0), full))
        outline.append((f1, v1))
    if all(v <= full for _, v in outline):
        return ""
    above = " ".join(f"{x(f)},{y(max(v, full))}" for f, v in outline)
    ends = f"{x(outline[-1][0])},{y(full)} {x(outline[0][0])},{y(full)}"
    return f'<polygon class="excess" points="{above} {ends}"/>'


def _curve_legend(
    lines: Sequence[Curve], labels: Sequence[str], full: float | None, plain: bool,
    keep: float | None,
) -> str:  # fmt: skip
    items = [
        (stroke(line_class(look)), label, None if plain else f"area {line.auc:.3f}")
        for label, line, look in zip(labels, lines, looks(labels), strict=True)
    ]
    if full is not None:
        items.append((stroke("full"), "everything", f"{full:.3f}"))
        own = [value for line in lines if line.judge is None for value in line.values.tolist()]
        if not plain and any(value > full + 0.01 for value in own):
            area = '<rect class="excess" width="28" height="8"/>'
            items.append((area, "more than everything gives", None))
    if keep is not None:
        upright = '<line class="kept" x1="14" x2="14" y1="0" y2="8"/>'
        items.append((upright, "kept", f"{100 * keep:g}\u202f%"))
    return legend(items)


def stroke(style: str) -> str:
    """A legend's sample of a line."""
    return f'<line class="{style}" x1="0" x2="28" y1="4" y2="4"/>'


def legend(items: Sequence[tuple[str, str, str | None]], box: str = "0 0 28 8") -> str:
    """A chart's legend: for each item a sample (SVG, "" for none), a name, and a small text."""
    kind = "sample" if box == "0 0 28 8" else "sample dot-sample"
    rows = []
    for sample, name, small in items:
        mark = f'<svg class="{kind}" viewBox="{box}" aria-hidden="true">{sample}</svg>'
        tail = "" if small is None else f" <small>{escape(small)}</small>"
        rows.append(f"<li>{mark if sample else ''}{escape(name)}{tail}</li>")
    return f'<ul class="legend">{"".join(rows)}</ul>'


def bar_chart(labels: Sequence[str], lengths: Sequence[float], texts: Sequence[str]) -> str:
    """Rows of a name, a bar to the left or right of zero, and its number."""
    low, high = min(0.0, *lengths, 0.0), max(0.0, *lengths, 0.0)
    span = (high - low) or 1.0
    zero = 100 * -low / span
    rows = []
    for label, length, text in zip(labels, lengths, texts, strict=True):
        width = max(100 * abs(length) / span, 0.4)
        start = zero - width if length < 0 else zero
        kind = "down" if length < 0 else "up"
        rows.append(
            f'<tr><th scope="row">{escape(label)}</th>'
            '<td><svg class="bar" viewBox="0 0 100 6" '
            f'preserveAspectRatio="none" aria-hidden="true"><rect class="{kind}" '
            f'x="{start:.2f}" width="{width:.2f}" height="6"/></svg></td>'
            f'<td class="num">{escape(text)}</td></tr>'
        )
    return f'<table class="bars"><tbody>{"".join(rows)}</tbody></table>'
