"""Several results as one: of many inputs (`summary`), or of several methods on one (`comparison`).

summary = gp.summary(gp.explain_many(net, rows, names=columns))
summary.plot()                  # which features matter, over all inputs; to_frame() for numbers
gp.comparison({"greedy-pig": a, "ig": b})
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, overload

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType
from .frame import columns, feature_values, frame

QUANTITIES = ("gain", "contribution", "rank")
"""What a summary shows of each feature."""


@dataclass(frozen=True, eq=False, repr=False)
class Summary(Sequence[Attribution]):
    """Results of many inputs, in order. It is a sequence of them, and a notebook shows it."""

    results: tuple[Attribution, ...]

    @overload
    def __getitem__(self, index: int) -> Attribution: ...
    @overload
    def __getitem__(self, index: slice) -> Summary: ...
    def __getitem__(self, index: int | slice) -> Attribution | Summary:
        if isinstance(index, slice):
            return Summary(self.results[index])
        return self.results[index]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Attribution]:
        return iter(self.results)

    @property
    def alike(self) -> bool:
        """Do all results have the same features, so that they can be compared one by one?"""
        first, *others = self.results or (None,)
        if first is None or first.features.kind == "windows":
            return False
        ids = first.features.first_rank(torch.arange(first.features.count))
        return all(
            a.features.names == first.features.names
            and a.layout == first.layout
            and a.features.count == first.features.count
            and torch.equal(a.features.first_rank(torch.arange(a.features.count)), ids)
            for a in others
        )

    def table(self, by: str = "gain") -> Tensor:
        """(results, features) float64: the gain, contribution or rank (from 1) of every feature.

        Features that were not selected have gain and contribution 0.
        """
        if by not in QUANTITIES:
            raise InvalidInput(f"Expected by to be 'gain', 'contribution' or 'rank' (got {by!r}).")
        if not self.alike:
            raise InvalidInput(
                "Expected results with the same features (got none, or others in some). "
                "Try results of inputs of one shape, with the same features= and names=."
            )
        if by == "rank":
            return torch.stack([torch.argsort(a.order) + 1 for a in self.results]).double()
        quantity = Attribution.feature_gains if by == "gain" else Attribution.feature_contributions
        return torch.stack([quantity(a).double() for a in self.results])

    def values(self) -> Tensor | None:
        """(results, features) the inputs' values of the features; None where they have none."""
        rows = [feature_values(a) for a in self.results]
        known = [row for row in rows if row is not None]
        return torch.stack(known) if known and len(known) == len(rows) else None

    def best(self, by: str = "gain") -> Tensor:
        """(features,) features by what they bring over all results: by rank the lowest mean, else
        the largest mean size."""
        table = self.table(by)
        mean = table.mean(0) if by == "rank" else -table.abs().mean(0)
        return torch.argsort(mean, stable=True)

    def to_frame(self, library: str = "pandas") -> Any:
        """The DataFrames of all results (`Attribution.to_frame`) in one, with a column result."""
        tables = [columns(a) for a in self.results]
        keys = [key for key in (tables[0] if tables else {}) if all(key in t for t in tables)]
        numbers = [i for i, table in enumerate(tables) for _ in table["feature"]]
        joined = {key: [item for table in tables for item in table[key]] for key in keys}
        return frame({"result": numbers, **joined}, library)

    def plot(self, kind: str = "beeswarm", *, by: str = "gain", top: int = 20) -> Any:
        """A matplotlib figure of the features that bring most over all results.

        kind: "beeswarm", a dot for each result, coloured by the feature's value in that input; or
            "bar", the mean over results.
        by: "gain", "contribution" or "rank". top: how many features, at most.
        """
        return import_module("greedypig.plots").summary(self, kind, by=by, top=top)

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("greedypig.report.notebook").summary_html(self)
        return html

    def __repr__(self) -> str:
        seconds = sum(a.seconds for a in self.results)
        return f"Summary({len(self)} results, {seconds:.1f} s)"


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(Mapping[str, Attribution]):
    """Results of several methods on one input, by name. A notebook shows them side by side."""

    results: Mapping[str, Attribution]

    def __getitem__(self, name: str) -> Attribution:
        return self.results[name]

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[str]:
        return iter(self.results)

    def plot(self, *, share: float = 0.1) -> Any:
        """`greedypig.plots.comparison`: pictures, curves and numbers of all methods."""
        return import_module("greedypig.plots").comparison(dict(self.results), share=share)

    def _repr_html_(self) -> str | None:
        html: str | None = import_module("greedypig.report.notebook").comparison_html(self)
        return html

    def __repr__(self) -> str:
        return f"Comparison({', '.join(self.results)})"


def summary(results: Iterable[Attribution]) -> Summary:
    """Many results as one: a list, or what `explain_many` gives. See `Summary`.

    A notebook shows it as a table: the best features over all results, then one row for each.

    Examples:
        >>> xs = torch.tensor([[1.0, 3.0, 2.0], [6.0, 5.0, 4.0]])
        >>> many = gp.summary(gp.explain_many(lambda x: x.sum(1), xs))
        >>> many.best().tolist(), len(many.to_frame())
        ([1, 0, 2], 6)
    """
    if isinstance(results, Mapping):
        raise InvalidType("Expected a list of results (got a mapping). Try gp.comparison.")
    if not isinstance(results, Iterable):
        raise InvalidType(
            f"Expected a list of results, or what gp.explain_many gives (got "
            f"{type(results).__name__}).",
            argument="results",
            advice="Try gp.summary([a]) for a single one.",
        )
    return Summary(tuple(_checked(a) for a in results))


def comparison(results: Mapping[str, Attribution]) -> Comparison:
    """Several methods' results on one input as one. A notebook shows them side by side.

    Examples:
        >>> model, x = torch.nn.Linear(4, 2), torch.randn(4)
        >>> gp.comparison({m: gp.explain(model, x, method=m) for m in ("greedy-pig", "ig")})
        Comparison(greedy-pig, ig)
    """
    if not isinstance(results, Mapping) or not results:
        raise InvalidType(
            f"Expected at least one result by its name (got {type(results).__name__}). "
            "Try gp.comparison({'greedy-pig': a, 'ig': b})."
        )
    return Comparison({str(name): _checked(a) for name, a in results.items()})


def _checked(a: Any) -> Attribution:
    if not isinstance(a, Attribution):
        raise InvalidType(f"Expected results, each an Attribution (got {type(a).__name__}).")
    return a
