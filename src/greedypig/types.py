"""What the arguments of the public functions may be, named once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TypeAlias, Union

from torch import Tensor

from .core.attribution import Attribution
from .core.carry_out import PathOrText
from .core.features import Features
from .core.layout import Layout
from .core.maximize import SetFunctionLike
from .core.methods import MethodLike
from .core.progress import ProgressLike
from .core.two_sided import TwoSided

if TYPE_CHECKING:
    from .tensors.targets import Margin

Model: TypeAlias = Callable[..., object]
"""A module, or any function from a batch to logits."""
Inputs: TypeAlias = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""One example: a tensor, or several by position or name."""
Fixed: TypeAlias = Tensor | Sequence[object] | Mapping[str, object] | None
"""Inputs that are passed along and not explained, by position after x or by name."""
Ranking: TypeAlias = Attribution | Inputs
"""A result, a permutation of an input's values, best first, or scores shaped like the input."""
Target: TypeAlias = int | str | None
"""A class by number, or by name where names are known; None for the predicted one."""
Baseline: TypeAlias = (
    float | str | Tensor | Callable[[Tensor], Tensor] | Sequence["Baseline"] | None
)
"""What an absent feature looks like: a number, a name, a tensor, a function, several averaged."""
ObjectiveLike: TypeAlias = Union[str, TwoSided, "Margin", Callable[[Tensor], Tensor], None]
"""An objective by name, `gp.margin`, `gp.two_sided`, or a function from logits to one number."""
FeaturesLike: TypeAlias = (
    str | Features | Tensor | Sequence[object] | Mapping[str, object] | Callable[[Layout], Features]
)
"""Features by name, as an object such as `gp.grid(8)`, or as group ids shaped like x."""
Seed: TypeAlias = int | tuple[int, int]
"""The seed of everything random, or (seed, place): the random numbers of the example with this
place in a call of `gp.explain_many` with this seed."""
BatchSize: TypeAlias = int | Literal["auto"]
"""Rows evaluated at once."""

__all__ = [
    "Baseline",
    "BatchSize",
    "FeaturesLike",
    "Fixed",
    "Inputs",
    "MethodLike",
    "Model",
    "ObjectiveLike",
    "PathOrText",
    "ProgressLike",
    "Ranking",
    "Seed",
    "SetFunctionLike",
    "Target",
]
