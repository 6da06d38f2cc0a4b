"""What a run returns: frozen rounds, and one frozen result that every figure is drawn from."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from math import isfinite
from os import PathLike
from typing import Any

import torch
from torch import Tensor

from .enough import ENOUGH, Fall, find_fall, first_enough
from .errors import Argument, InvalidInput, InvalidType
from .facts import Facts
from .features import Elements, Features, Groups
from .layout import Layout, Tree
from .numbers import check_between, whole
from .stopping import StopReason


def check_attachment(name: str, tensor: Any) -> None:
    """Refuse what is no plain tensor under a plain name."""
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_-]{0,63}", name):
        raise InvalidInput(
            f"Expected a name of at most 64 letters, digits, '_' and '-' (got {name[:80]!r})."
        )
    plain = isinstance(tensor, Tensor) and tensor.layout == torch.strided and tensor.ndim <= 8
    if not plain or tensor.is_complex() or tensor.is_quantized:
        got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else "none"
        raise InvalidType(
            f"Expected {name} to be a dense tensor of real numbers with at most 8 axes (got {got})."
        )


@dataclass(frozen=True, eq=False, repr=False)
class Attribution:
    """Which features, in which order, with what effect. Frozen; see `save` and `load`."""

    order: Tensor
    """(features,) long, a full permutation: in order of selection, then the rest by last score."""
    selected: int
    """How many of `order` were selected before the run stopped."""
    feature_scores: Tensor
    """(features,) the score each had in the round that took it; 0 if never taken."""
    values: Tensor
    """(rounds + 1,) float64: G(∅), then G(S) after each round; NaN where not measured."""
    full_value: float
    """G of everything: the value to compare `values` with."""
    picks: tuple[int, ...]
    """How many features each round took."""
    totals: tuple[float, ...]
    """Sum of all scores in each round; completeness says ≈ G(1) − G(S before the round)."""
    gradients_used: int
    """Gradients paid."""
    seconds: float
    """Time that the search took, the parts of a resumed run together: its rounds, and no checks
    before or after them. Of examples side by side it is a share of their time."""
    stop: StopReason
    """Why it stopped."""
    last_scores: Tensor
    """(features,) every score of the last round; orders the rest, and a resumed run."""
    features: Features
    """What a feature is: a value, a group of them, a window."""
    layout: Layout
    """How values fold back into the caller's tensors."""
    forwards_used: int = 0
    """Forward passes of the search that no gradient was taken of."""
    first_scores: Tensor | None = None
    """(features,) every score of the first of several rounds, where scores are integrals along the
    path to everything, as those of integrated gradients are, or marginal gains."""
    score_sums: Tensor | None = None
    """(features,) every feature's scores summed over the rounds, where scores are integrals;
    `contributions` uses them."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    """The method and all its knobs."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Versions, fingerprints of model and input, and what else tells where this came from."""
    about: Facts = field(default_factory=Facts)
    """Facts for people (names, predictions, curves), of a class for each kind of result. See
    `with_notes`."""
    attachments: Mapping[str, Tensor] = field(default_factory=dict)
    """What figures are drawn on, by name: the input as a picture, say. See `with_notes`."""

    @property
    def method(self) -> str:
        """The name of the method that was run, chosen or given."""
        return str(self.settings.get("method", "unknown method"))

    @property
    def scores(self) -> Tree:
        """Algorithm 1's vector a, shaped like x: each value shows its feature's score.

        Of overlapping features a value shows the first that was taken. For single values
        this is a itself; the sum over features is `feature_scores.sum()`.
        """
        return self.layout.unflatten(self.feature_scores[self._first_feature()])

    @property
    def importance(self) -> Tree:
        """Shaped like x: 1 for the first pick, falling evenly to 0 in the order of selection.

        Picks of one round with equal scores share one value. What was never selected, and what had
        a score of 0, has 0. `contributions` says how much each feature gives.
        """
        if not self.features.count:
            return self.scores
        positions = self.shared_positions()[self._first_feature()].double()
        # Of overlapping features the last may have nothing left that is not taken.
        last = self.features.first_rank(self.order).max().clamp_min(1)
        return self.layout.unflatten((1 - positions / last).clamp_min(0).float())

    def shared_positions(self) -> Tensor:
        """(features,) long: the position in `order`, or that of the round's first equal score.

        It is the number of features for one that was never selected or had a score of 0.
        """
        count = self.features.count
        taken = self.order[: self.selected]
        scores = self.feature_scores[taken]
        rounds = self.feature_rounds()[taken]
        new = torch.ones(self.selected, dtype=torch.bool)
        new[1:] = (scores[1:] != scores[:-1]) | (rounds[1:] != rounds[:-1])
        starts = torch.where(new, torch.arange(self.selected), 0).cummax(0).values
        positions = torch.full((count,), count)
        positions[taken] = torch.where(scores != 0, starts, count)
        return positions

    def contributions(self) -> Tree:
        """Shaped like x: each feature's signed part in G(S) − G(∅), S being what was selected.

        The sum over features is G(S) − G(∅). A feature's part is the mean of its integrals along
        paths from nothing to everything: half of them straight, as in integrated gradients, and
        half by way of what was selected before each of the rounds. Of one round it is the scores.
        What was never selected, and what had a score of 0, has 0. Unlike `importance` it need not
        follow the order. Of overlapping features a value shows the first that was taken. Scores
        that are no integrals (a single gradient, an occlusion) divide the gain in G of the round
        they are of.
        """
        return self.layout.unflatten(self.feature_contributions()[self._first_feature()])

    def feature_contributions(self) -> Tensor:
        """(features,): `contributions` by feature.

        contributions_i = mean over rounds r and over λ in [0, 1] of the integral along the path
        ∅ → λ · 1_{S_r} → 1, S_r being selected before round r. Both ends of the trapezoid rule
        over λ are known: first_i for λ = 0, and round r's score for λ = 1. So
        contributions_i = ½ · (first_i + mean_r scores_{r,i}), where for i in S_r, which moves in
        the part of the path without gradients, first_i is taken for scores_{r,i}. What the sum over
        S lacks of G(S) − G(∅) is added in proportion to the size.
        """
        if len(self.picks) < 2:
            return self.feature_scores
        if self.first_scores is None or self.score_sums is None:
            return self.feature_gains().to(self.feature_scores)
        first, rounds = self.first_scores.double(), len(self.picks)
        selected_for = torch.zeros_like(first)  # How many rounds began with the feature in S.
        left = torch.arange(rounds - 1, -1, -1).repeat_interleave(torch.tensor(self.picks))
        selected_for[self.order[: self.selected]] = left.double()
        mean = (self.score_sums.double() + selected_for * first) / rounds
        parts = torch.where(self.feature_scores != 0, (first + mean) / 2, 0)
        gain = float(self.values[-1] - self.values[0])
        return (_divided(gain, parts) if isfinite(gain) else parts).to(self.feature_scores)

    def feature_gains(self) -> Tensor:
        """(features,) float64: the gain G(S_r) − G(S_{r−1}) of round r, divided among its picks in
        proportion to their scores. Features that were never selected have 0."""
        scores = self.feature_scores.double()
        gains = torch.zeros_like(scores)
        begin = end = 0
        known = float(self.values[0])
        for picks, value in zip(self.picks, self.values[1:].tolist(), strict=True):
            end += picks
            if isfinite(value) and isfinite(known):  # Else with the rounds up to the next value.
                taken = self.order[begin:end]
                gains[taken] = _divided(value - known, scores[taken])
                begin, known = end, value
        left = self.order[begin:end]
        gains[left] = scores[left]  # Where no value is known.
        return gains

    @property
    def fall(self) -> Fall | None:
        """Where G(S) was enough and was lost again in a later round, else None.

        Such an explanation does not hold: more of what it selects takes the output away again. Try
        another seed, more rounds, or objective="log-likelihood".
        """
        counts = torch.tensor([0, *self.picks]).cumsum(0) / max(1, self.features.count)
        return find_fall(counts.tolist(), self.values.tolist(), self.full_value)

    def reach(self, share: float = ENOUGH) -> int | None:
        """How many of the first features are enough: after the first round at which G(S) has risen
        by this share of the way from G(∅) to G of everything. None if it never has, and where G of
        everything is no higher than G(∅)."""
        check_between("share", share, 0, 1)
        counts = [sum(self.picks[:done]) for done in range(len(self.picks) + 1)]
        return first_enough(counts, self.values.tolist(), self.full_value, share)

    def mask(self, k: int) -> Tree:
        """Boolean, shaped like x: the values of the top k features."""
        return self.layout.unflatten(self.features.first_rank(self.order) < self._up_to_all(k))

    def ranking(self) -> Tensor:
        """(n,) long: a full permutation of the values, feature by feature, for curves."""
        return torch.sort(self.features.first_rank(self.order), stable=True).indices

    def top(self, k: int) -> list[Any]:
        """The first k features, at most all, by name; without names by place, else by index.

        A place is a text written as one would index x: x[0, 3, 4] for a value of a picture,
        x[2, :] for a token. For x with one axis the index is the place: 7.
        """
        if not self.picks:
            warnings.warn(
                f"No round was run ({self.stop.value}), so nothing is ranked: features are "
                "listed by index.",
                stacklevel=2,
            )
        return self.names_of(self.order[: self._up_to_all(k)].tolist())

    def _up_to_all(self, k: Any) -> int:
        """The number of features asked for, checked."""
        k = whole(k)
        if type(k) is not int or not 0 <= k <= self.features.count:
            end = f" from 0 to {self.features.count}, the number of features (got {k!r})."
            raise InvalidInput("Expected ", Argument("k"), end)
        return k

    def names_of(self, indices: Sequence[int]) -> list[Any]:
        """What these features are called: by name, else where they lie, else by index.

        A group that is no box is called by its index and the smallest box around it.
        """
        features, shapes = self.features, self.layout.shapes
        if features.names is not None:
            return [features.names[i] for i in indices]
        if len(shapes) == 1 and len(shapes[0]) < 2:
            return list(indices)
        if isinstance(features, Elements):
            return [self.layout.place(i) for i in indices]
        if len(shapes) > 1:  # Groups may then reach over several inputs.
            return list(indices)
        if isinstance(features, Groups):
            boxes = self.layout.boxes(features.ids.cpu(), features.count)
            around = [boxes[i] for i in indices]
        else:
            around = [self._box(i) for i in indices]
        pairs = zip(indices, around, strict=True)
        return [box if exact else f"{i} in {box}" for i, (box, exact) in pairs]

    def _box(self, index: int) -> tuple[str, bool]:
        one = (torch.arange(self.features.count) == index).unsqueeze(0)
        return self.layout.boxes(self.features.mask(one)[0].long() - 1, 1)[0]

    def with_notes(
        self, about: Facts | Mapping[str, Any] | None = None, **tensors: Tensor
    ) -> Attribution:
        """The same result, carrying these facts and tensors besides those it has already.

        about: facts by name, as JSON can hold them. Those that results of this kind have are
            checked and become fields of `about`, all others are in `about.extra`; "kind" changes
            the kind. A `Facts` object takes the place of all facts.

        Notes are kept in the file, so that figures can be drawn from it alone. They take no part
        in the run: neither the order nor a resumed run depends on them.
        """
        if about is not None and not isinstance(about, Facts | Mapping):
            raise InvalidType(f"Expected a mapping of facts (got {type(about).__name__}).")
        for name, tensor in tensors.items():
            check_attachment(name, tensor)
        copies = {name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}
        facts = about if isinstance(about, Facts) else self.about
        if isinstance(about, Mapping):
            facts = import_module("greedypig.results.kinds").changed(self.about, about)
        return replace(self, about=facts, attachments={**self.attachments, **copies})

    def feature_rounds(self) -> Tensor:
        """(features,) long: the round that selected the feature, from 1; 0 if none did."""
        rounds = torch.zeros(self.features.count, dtype=torch.long)
        numbers = torch.arange(1, len(self.picks) + 1)
        numbers = numbers.repeat_interleave(torch.tensor(self.picks, dtype=torch.long))
        rounds[self.order[: self.selected]] = numbers
        return rounds

    # Calls upward: files, tables, figures and pages are made from a result alone. The modules are
    # found by name when they are needed, also for a result that was unpickled.

    def save(self, path: str | PathLike[str]) -> None:
        """Write one file (safetensors + JSON); `greedypig.load` reads it and never runs code."""
        import_module("greedypig.results.storage").save(self, path)

    def to_frame(self, library: str = "pandas") -> Any:
        """A DataFrame with a row for each feature, best first; library: "pandas" or "polars".

        Columns: feature (its index), name, value (in the input, for features of one value), rank
        (from 1), round (from 1; missing if it was not selected), score (in that round), gain
        (the round's gain in G, divided among its picks) and contribution (see `contributions`).
        """
        return import_module("greedypig.results.frame").to_frame(self, library)

    def plot(self, kind: str | None = None, **options: Any) -> Any:
        """A matplotlib figure of the result, which a notebook shows.

        kind: None for all at a glance, "waterfall" (what each feature or round adds to G), "bar",
            "curve"; for pictures "kept", "without", "heatmap", "overlay" or "order".
        options: those of the function of that kind in `greedypig.plots`, such as top=10.
        """
        return import_module("greedypig.plots").plot(self, kind, **options)

    def to_html(self, path: str | PathLike[str]) -> None:
        """Write the page of the result: one HTML file that needs nothing else."""
        import_module("greedypig.report").write(self, path)

    def show(self) -> str:
        """Open the page of the result in a browser. Returns its path, and prints it where there
        is no screen to open a browser on."""
        path: str = import_module("greedypig.report.notebook").show(self)
        return path

    def _repr_html_(self) -> str | None:
        """The result in a notebook; None, which means the plain text, without jinja2."""
        html: str | None = import_module("greedypig.report.notebook").result_html(self)
        return html

    def _first_feature(self) -> Tensor:
        return self.order[self.features.first_rank(self.order)]

    def __repr__(self) -> str:
        rounds = f"{len(self.picks)} round{'s' * (len(self.picks) != 1)}"
        return (
            f"Attribution({self.method}: {self.selected} of {self.features.count} features "
            f"selected in {rounds}, G {float(self.values[0]):.4g} → "
            f"{float(self.values[-1]):.4g} (all: {self.full_value:.4g}), "
            f"{self.gradients_used} gradients, {self.seconds:.1f} s; {self.stop})"
        )


def _divided(total: float, scores: Tensor) -> Tensor:
    """Scores, with what they lack of the total added in proportion to their size."""
    size = scores.abs()
    lack = total - float(scores.sum())
    return scores + lack * size / size.sum().clamp_min(torch.finfo(torch.float64).tiny)


def is_one_shot(a: Attribution) -> bool:
    """Was everything ranked by one round's scores? A round that takes k has made a choice."""
    one = int(a.settings.get("rounds", len(a.picks))) == 1
    return one and a.stop not in (StopReason.K, StopReason.ROUNDS)
