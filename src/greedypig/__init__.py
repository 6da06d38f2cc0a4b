"""greedypig: which few features does a trained model really use?

An explanation is a subset-selection problem: maximise G(S) over small sets S of features. This
package picks them greedily by path-integrated gradients, for any model and any set function.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from . import models
from .core.algorithms import (
    best_subset,
    greedy,
    greedy_pig,
    integrated_gradients,
    iterate_rounds,
    one_shot,
    sequential_gradient,
)
from .core.attribution import Attribution, Round, StopReason
from .core.errors import (
    DiskFull,
    GreedyPigError,
    InvalidFile,
    InvalidInput,
    InvalidType,
    MissingPackage,
    NonFinite,
    NotDifferentiable,
)
from .core.features import Elements, Features, Groups, Windows
from .core.objective import Objective, objective
from .core.quadrature import Rule, rule
from .core.rounds import Rounds
from .core.scorers import (
    Gradient,
    GuidedIG,
    IntegratedGradients,
    RollingGradients,
    Scorer,
    Smooth,
)
from .core.unit_scorers import MarginalGains, RandomOrder
from .graphs.api import explain_edges, explain_node
from .graphs.edge_index import index_edges
from .results.storage import load
from .tables.api import select_features
from .tables.finetune import mask_finetune
from .tensors.api import explain, explain_many
from .tensors.methods import Greedy
from .tensors.pictures import BlurIG, Superpixels, grid, superpixels, windows
from .tensors.steady import SteadyGradients
from .tensors.targets import margin

if TYPE_CHECKING:
    from . import metrics, plots, report

__version__ = "0.1.0"

__all__ = [
    "Attribution", "BlurIG", "DiskFull", "Elements", "FeatureSelector", "Features", "Gradient",
    "Greedy", "GreedyPigError",
    "Groups", "GuidedIG", "IntegratedGradients", "InvalidFile", "InvalidInput", "InvalidType",
    "MarginalGains", "MissingPackage", "NonFinite", "NotDifferentiable", "Objective",
    "RandomOrder", "RollingGradients", "Round", "Rounds", "Rule", "Scorer", "Smooth",
    "SteadyGradients", "StopReason",
    "Superpixels", "Windows", "best_subset", "explain", "explain_edges", "explain_many",
    "explain_node", "from_captum", "greedy", "greedy_pig", "grid", "index_edges",
    "integrated_gradients", "iterate_rounds", "load", "margin", "mask_finetune", "metrics",
    "models", "objective", "one_shot", "plots", "report", "rule", "select_features",
    "sequential_gradient", "superpixels", "windows",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("metrics", "plots", "report"):  # Not needed for an answer: `import` stays quick.
        return import_module(f".{name}", __name__)
    if name == "FeatureSelector":  # scikit-learn, too.
        from .adapters.sklearn import FeatureSelector

        return FeatureSelector
    if name == "from_captum":  # Captum is optional and heavy: imported when asked for.
        from .adapters.captum import from_captum

        return from_captum
    raise AttributeError(f"module 'greedypig' has no attribute {name!r}")
