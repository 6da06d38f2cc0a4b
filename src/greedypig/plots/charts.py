"""Curves over the share kept, and bars of the first units by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core.attribution import Attribution
from ..core.errors import InvalidInput
from ..core.numbers import check_count
from ..results.curve import DELETION, Curve, CurveLike
from ..results.photo_notes import Notes
from ..results.picture import rounds_line, strengths, unit_labels, unit_word
from .canvas import (
    EXCESS,
    INK,
    SOFT,
    axes_or,
    check,
    check_order,
    headline,
    labels,
    line_styles,
    plain,
    shorten_name,
    title,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

UNBOUNDED = ("loss", "lic")
"""Curves in nats: lower is better and there is no upper end."""
LONGEST = 56
"""Letters of a curve's name: with its area as wide as the narrowest diagram of a sheet."""


def curve(
    *curves: Attribution | CurveLike | Mapping[str, CurveLike],
    full: float | None = None,
    median: bool = False,
    ax: Axes | None = None,
) -> Axes:
    """One or several curves over the share of features kept (or switched off), each with its AUC.

    curves: anything with `fractions` and `values`; mappings from names to such; results, which
        give the curve in their notes, else G(S) after each round. A single result gives the
        second opinion too, if it has one. A counterfactual's go over the share switched off.
    full: the value of everything. It is drawn as a line and what rises above it is shaded, except
        of a judge's curves, which have a whole of their own; for a single result it is known.
    median: also the pointwise median of all curves, over the union of their fractions.
    """
    lines, known = _lines(curves)
    full = known if full is None else full
    ax = axes_or(ax, 6, 4)
    many = median and len(lines) > 1
    for line, style in zip(lines, line_styles([line.name for line in lines]), strict=True):
        ax.plot(line.fractions, line.values, linewidth=0.8 if many else 1.8,
                alpha=0.45 if many else 1, label=_label(line), **style)  # fmt: skip
    if many:
        line = _median(lines)
        ax.plot(line.fractions, line.values, color=INK, linewidth=2.6, label=_label(line))
    if full is not None:
        _full(ax, lines if not many else [line], full)
    loss = all(line.name.lower() in UNBOUNDED for line in lines)
    ax.set_xlim(0, 1)
    if all(0 <= v <= 1 for line in lines for v in line.values.tolist()):
        ax.set_ylim(0, 1.02)
    elif loss:
        ax.set_ylim(bottom=0)
    ax.xaxis.set_major_formatter(lambda v, _: f"{100 * v:g} %")
    done = "switched off" if all(line.off for line in lines) else "kept"
    if done == "kept" and any(line.off for line in lines):
        done += " (deletion: switched off)"
    labels(ax, f"share of the features {done}, best first", _quantity(lines))
    plain(ax)
    if len(curves) == 1 and isinstance(curves[0], Attribution):
        title(ax, headline(Notes.of(curves[0])))
    columns = legend_columns(ax.get_legend_handles_labels()[1])
    ax.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(0, -0.16),
              borderaxespad=0, ncols=columns)  # fmt: skip
    return ax


def legend_columns(labels: Sequence[str]) -> int:
    """Two for many short labels. A legend that is wider than its diagram would squeeze it."""
    return 2 if len(labels) > 4 and max(map(len, labels)) <= 34 else 1


def _lines(curves: Sequence[Any]) -> tuple[list[Curve], float | None]:
    lines: list[Curve] = []
    full: list[float | None] = []
    for item in curves:
        if isinstance(item, Attribution):
            line, value = curve_of(item)
            second = Notes.of(item).curves.get("second-opinion")
            lines += [line, second] if second is not None and len(curves) == 1 else [line]
            full.append(value)
        elif isinstance(item, Mapping):
            lines += [Curve.of(c, str(name)) for name, c in item.items()]
            full.append(None)
        else:
            lines.append(Curve.of(item))
            full.append(None if lines[-1].name.lower() in UNBOUNDED else lines[-1].full)
    if not lines:
        raise InvalidInput("Expected at least one curve or result (got none).")
    return lines, full[0] if len(full) == 1 else None


def curve_of(a: Attribution) -> tuple[Curve, float | None]:
    """A result's own curve and the value of everything on it."""
    notes = Notes.of(a)
    own = notes.deletion or notes.curve
    if own is not None:
        return own, notes.probability
    line = rounds_line(a)
    if line is None:
        raise InvalidInput(
            "Expected a curve in the notes or measured values (got a result with neither). "
            "Try a.with_notes({'curves': …})."
        )
    return line, a.full_value if isfinite(a.full_value) else None


def _median(lines: list[Curve]) -> Curve:
    """Pointwise over the fractions that every curve covers."""
    every = sorted({f for line in lines for f in line.fractions.tolist()})
    values = {f: [line.get(f) for line in lines] for f in every}
    points = [(f, float(np.median(v))) for f, v in values.items() if None not in v]  # type: ignore[arg-type]
    return Curve.from_points(points, f"median of {len(lines)}")


def _label(line: Curve) -> str:
    name = {"softmax": "probability", DELETION: "probability"}.get(line.name, line.name)
    judge = f" by {line.judge}" if line.judge else ""
    return f"{shorten_name(name + judge, LONGEST)}, AUC {line.auc:.3f}"


def _quantity(lines: list[Curve]) -> str:
    names = {line.name.lower() for line in lines}
    if names <= set(UNBOUNDED):
        return "KL from the whole input's prediction (nats)"
    if names == {"g(s) after each round"}:
        return "G(S)"
    probability = all(0 <= v <= 1 for line in lines for v in line.values.tolist())
    return "probability of the class" if probability else "value"


def _full(ax: Axes, lines: list[Curve], full: float) -> None:
    """The whole input's value as a line, and every curve's excess above it shaded."""
    # Of what is switched off: a deletion begins with everything there, G ends with nothing left.
    whole = "everything" if not lines[0].off or lines[0].name == DELETION else "everything off"
    ax.axhline(full, color=SOFT, linewidth=1, linestyle=(0, (2, 2)), label=f"{whole}: {full:.3f}")
    slack = 0.01 if 0 <= full <= 1 else 1e-9 + 1e-6 * abs(full)
    marked = False
    for line in lines:
        values = line.values.numpy()
        # A judge has a value of its own for the whole; how far a prediction moves has none.
        if line.judge is not None or line.off or values.max() <= full + slack:
            continue
        ax.fill_between(line.fractions, full, values, where=(values > full).tolist(),
                        interpolate=True, color=EXCESS, alpha=0.22, hatch="///", linewidth=0,
                        label=None if marked else "more than the whole input gives")  # fmt: skip
        marked = True


def bars(a: Attribution, *, top: int = 20, ax: Axes | None = None) -> Axes:
    """The first units by name, in order of selection from top to bottom.

    Where every round took one unit and G was measured, a bar is the gain G(S ∪ {i}) − G(S). Else
    it is the score in the round that took the unit, and the colour tells the round: scores of
    different rounds do not compare. A one-shot method has one round, and all its scores do.
    """
    check(a)
    check_count("top", top)
    check_order(a, "plots.bars")
    count = min(top, a.features.units)
    units = a.order[:count].tolist()
    lengths, rounds, quantity = strengths(a, count)
    ax = axes_or(ax, 6, 1.2 + 0.26 * count)
    shades = _shades(rounds)
    places = range(count)
    ax.barh(places, lengths, color=shades, height=0.72)
    ax.axvline(0, color=SOFT, linewidth=0.8)
    ax.set_yticks(places, [shorten_name(label, 32) for label in unit_labels(a, units)])
    ax.set_ylim(count - 0.4, -0.6)
    labels(ax, quantity)
    plain(ax)
    ax.grid(False, axis="y")
    left = a.features.units - count
    tail = f" ({left:,} more not shown)" if left else ""
    title(ax, f"first {count} of {a.features.units:,} {unit_word(a)}{tail}")
    if len(set(rounds)) > 1 and "gain" not in quantity:
        _round_legend(ax, rounds, shades)
    return ax


def _shades(rounds: list[int]) -> list[Any]:
    from matplotlib import colormaps

    last = max(*rounds, 2)
    scale = colormaps["cividis"]
    return [scale(0.85 * (r - 1) / (last - 1)) if r else "#b8b8b8" for r in rounds]


def _round_legend(ax: Axes, rounds: list[int], shades: list[Any]) -> None:
    from matplotlib.patches import Patch

    entries = [
        Patch(color=shade, label=f"round {r}" if r else "not selected; last score")
        for r, shade in dict(zip(rounds, shades, strict=True)).items()
    ]
    if len(entries) > 6:
        entries = entries[:3] + entries[-2:]
    ax.legend(handles=entries, fontsize=8, frameon=False, loc="lower right")
