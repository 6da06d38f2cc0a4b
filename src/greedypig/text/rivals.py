"""Methods that texts are compared by: ContextCite and attention weights.

ContextCite (Cohen-Wang et al. 2024) fits a sparse linear model to the values of random sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import InvalidType, MissingPackage
from ..core.methods import METHODS
from ..core.numbers import check_knobs
from ..core.objective import Objective
from .gates import TextObjective


@dataclass(frozen=True)
class ContextCite:
    """Weights of a Lasso over `ablations` random sets, in which each feature is present by chance."""

    ablations: int = 64
    penalty: float = 0.01
    name = "context-cite"
    cost = 0

    def __post_init__(self) -> None:
        check_knobs(self, "ablations", penalty=(0, 100))

    def __call__(self, objective: Objective, mask: Tensor) -> Tensor:
        """The weights of features; what is selected is present in every set."""
        try:
            from sklearn.linear_model import Lasso
        except ImportError as error:
            raise MissingPackage(
                "Expected the package scikit-learn for ContextCite (it is not installed). "
                'Try pip install "greedypig[sklearn]".'
            ) from error
        drawn = torch.rand(1, self.ablations, objective.n, generator=objective.generator(0)) < 0.5
        sets = torch.maximum(drawn.to(mask), mask.unsqueeze(1))
        values = objective.values(sets)[0].double()
        # As its authors do: sets are standardised, and weights are those of the sets themselves.
        x, y = sets[0].double().cpu().numpy(), values.cpu().numpy()
        spread = x.std(0) + 1e-12
        fit = Lasso(alpha=self.penalty).fit((x - x.mean(0)) / spread, y)
        return torch.from_numpy(fit.coef_ / spread).to(mask).unsqueeze(0)


@dataclass(frozen=True)
class Attention:
    """The attention that a feature's tokens get, mean over layers and heads."""

    name = "attention"
    cost = 0

    def __call__(self, objective: Objective, mask: Tensor) -> Tensor:
        """The attention to each feature."""
        if not isinstance(objective, TextObjective):
            raise InvalidType(
                "Expected a text for method 'attention' (got another input). Try gp.explain_text."
            )
        return objective.attention().to(mask).unsqueeze(0)


METHODS |= {"context-cite": ContextCite, "attention": Attention}
