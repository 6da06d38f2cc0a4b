"""Methods side by side: the table and the curves that terminal, pages, figures and notebooks show,
and the rows that `greedypig compare` makes of results on photos.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import Any

from ..core.attribution import Attribution
from .curve import Curve, aligned, median_curve
from .input_notes import COMPARED, SECOND, InputNotes, MethodRow
from .picture import compared_pictures
from .wording import count, kept_settings, setting

CURVES = {"softmax": "curve", "loss": "loss", SECOND: "second"}
"""From a curve of a result to that of a `MethodRow`."""
AREAS = {"softmax": "sic_auc", "loss": "lic_auc", SECOND: "second_opinion_auc"}


@dataclass(frozen=True)
class MethodTable:
    """Numbers by method."""

    columns: Mapping[str, tuple[str, str]]
    """By key: the heading, whose arrow says what is better, and the format of the numbers."""
    rows: Mapping[str, Mapping[str, float]]
    """By method: the numbers that are known, by key."""

    @cached_property
    def keys(self) -> list[str]:
        """The columns that any method has."""
        return [key for key in self.columns if any(key in row for row in self.rows.values())]

    @property
    def heads(self) -> list[str]:
        """The headings."""
        return [self.columns[key][0] for key in self.keys]

    @cached_property
    def cells(self) -> dict[str, list[str]]:
        """By method: the numbers as they are written."""
        return {name: [self._cell(name, key) for key in self.keys] for name in self.rows}

    @cached_property
    def best(self) -> list[str | None]:
        """The best number of each column as it is written; None where none is to be preferred."""
        return [self._best(key) for key in self.keys]

    def _cell(self, name: str, key: str) -> str:
        number = self.rows[name].get(key)
        text = "–" if number is None else self.columns[key][1].format(number)
        return text.replace("-", "−")

    def _best(self, key: str) -> str | None:
        arrow = self.columns[key][0][-1]
        names = [name for name in self.rows if key in self.rows[name]]
        if arrow not in "↑↓" or len(names) < 2:
            return None
        better = max if arrow == "↑" else min
        return self._cell(better(names, key=lambda name: self.rows[name][key]), key)


def compared_curves(methods: Sequence[MethodRow]) -> list[tuple[str, str, dict[str, Curve]]]:
    """(kind, caption, curves by method) of a comparison: "curve", "loss" and "second"."""
    curves = {
        kind: {m.name: line for m in methods if (line := getattr(m, kind)) is not None}
        for kind in ("curve", "loss", "second")
    }
    off = any(line.off for line in curves["curve"].values())
    judges = [line.judge for line in curves["second"].values() if line.judge]
    captions = {
        "curve": "probability with the best features switched off ↓"
        if off
        else "SIC: probability with only the best features ↑",
        "loss": "LIC: distance from the prediction (KL, nats) ↓",
        "second": f"second opinion by {judges[0] if judges else 'another network'} "
        f"{'↓' if off else '↑'}",
    }
    return [(kind, captions[kind], lines) for kind, lines in curves.items() if lines]


def own_row(name: str, a: Attribution, notes: InputNotes) -> MethodRow:
    """One result as a row among those of other methods."""
    curves, line = notes.curves, notes.curve
    areas: dict[str, Any] = {AREAS[kind]: curves[kind].auc for kind in AREAS if kind in curves}
    excess = None
    if line is not None and notes.probability is not None:
        excess = float(line.values.max()) - notes.probability
    return MethodRow(
        name,
        excess=excess,
        gradients=a.gradients_used,
        seconds=a.seconds,
        curve=notes.deletion or line or notes.rounds,
        loss=curves.get("loss"),
        second=curves.get(SECOND),
        **areas,
    )


class PhotoComparison:
    """Results by method and photo; every method has the same photos."""

    def __init__(self, results: Mapping[str, Mapping[Path, Attribution]]) -> None:
        self.results = results
        self.photos = next(iter(results.values()), {})
        """The photos, each with its first result."""
        self.methods = {name: _row(list(photos.values())) for name, photos in results.items()}
        """A row for each method."""
        self.table = MethodTable(COMPARED, {n: m.numbers for n, m in self.methods.items()})

    def alone(self, path: Path) -> PhotoComparison:
        """The comparison on one of the photos."""
        return PhotoComparison({name: {path: of[path]} for name, of in self.results.items()})

    def noted(self) -> Attribution:
        """The first method's result, with the rows and, of one photo, the pictures of all."""
        first, *others = self.photos.values()
        notes: dict[str, Any] = {"comparison": self.methods}
        if others:
            notes["source"] = count(len(self.photos), "photo")
            values = (InputNotes.of(a).probability for a in self.photos.values())
            notes["probability"] = median(value for value in values if value is not None)
            return first.with_notes(notes)
        firsts = [next(iter(photos.values())) for photos in self.results.values()]
        return first.with_notes(notes, **compared_pictures(firsts))

    def setting(self, name: str) -> str:
        """A method's rounds and steps, or noisy copies and theirs, as they were run."""
        first = next(iter(self.results[name].values()))
        return setting(kept_settings(first)) if first.gradients_used else ""


def _row(results: Sequence[Attribution]) -> MethodRow:
    """A method over all photos: areas under median curves, medians of the rest."""
    abouts: list[Any] = [a.about for a in results]
    curves = {kind: line for kind in CURVES if (line := _median(abouts, kind)) is not None}
    peaks = [float(about.curves["softmax"].values.max()) for about in abouts]
    above = [max(0.0, peak - about.probability) for peak, about in zip(peaks, abouts, strict=True)]
    lines: dict[str, Any] = {CURVES[kind]: line for kind, line in curves.items()}
    lines |= {AREAS[kind]: line.auc for kind, line in curves.items()}
    return MethodRow(
        excess=median(above),
        gradients=median(a.gradients_used for a in results),
        seconds=median(a.seconds for a in results),
        kept={share: median(about.kept[share] for about in abouts) for share in abouts[0].kept},
        **lines,
    )


def _median(abouts: Sequence[Any], kind: str) -> Curve | None:
    """The median of one kind of curve, as it was measured over evenly spaced shares."""
    if not all(kind in about.curves for about in abouts):
        return None
    curves = [replace(about.curves[kind], name=kind, area=None) for about in abouts]
    return median_curve(aligned(curves))
