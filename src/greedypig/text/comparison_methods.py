"""Methods that texts are compared by: ContextCite and attention.

ContextCite (Cohen-Wang et al. 2024) fits a sparse linear model to the values of random sets.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ..core.errors import InvalidType, MissingPackage
from ..core.numbers import check_knobs
from ..core.objective import Objective
from ..core.rounds import Round
from ..core.scorers import OneShot
from .gates import TextObjective


@dataclass(frozen=True)
class ContextCite(OneShot):
    """Weights of a Lasso over `ablations` random sets, each of about half of the features."""

    ablations: int = 64
    penalty: float = 0.01
    name = "context-cite"

    def __post_init__(self) -> None:
        check_knobs(self, "ablations", penalty=(0, 100))

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """The weights of features; what is selected is present in every set."""
        try:
            from sklearn.linear_model import Lasso
        except ImportError as error:
            raise MissingPackage(
                "Expected the package scikit-learn for ContextCite (it is not installed). "
                'Try pip install "greedypig[sklearn]".'
            ) from error
        mask, drawing = round.mask, round.generator(0, 0)
        drawn = torch.rand(1, self.ablations, objective.n, generator=drawing) < 0.5
        sets = torch.maximum(drawn.to(mask), mask.unsqueeze(1))
        values = objective.values(sets)[0].double()
        # Sets are standardised, and weights are those of the sets themselves. G itself is fitted;
        # its authors fit the logit of an answer's probability, divided by the number of tokens.
        x, y = sets[0].double().cpu().numpy(), values.cpu().numpy()
        spread = x.std(0) + 1e-12
        fit = Lasso(alpha=self.penalty).fit((x - x.mean(0)) / spread, y)
        return torch.from_numpy(fit.coef_ / spread).to(mask).unsqueeze(0)


@dataclass(frozen=True)
class Attention(OneShot):
    """The attention that a feature's tokens get, mean over layers and heads."""

    name = "attention"

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """The attention to each feature."""
        return as_text(objective, self.name).attention().to(round.mask).unsqueeze(0)


def as_text(objective: Objective, method: str) -> TextObjective:
    """The objective of one side, if it is a text's."""
    if isinstance(objective.plain, TextObjective):
        return objective.plain
    raise InvalidType(
        f"Expected a text for method {method!r} (got another input). Try gp.explain_text."
    )
