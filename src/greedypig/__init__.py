"""greedypig: which few features does a trained model really use?

An explanation is a subset-selection problem: maximise G(S) over small sets S of features. This
package picks them greedily by path-integrated gradients, for any model and any set function.
"""

from __future__ import annotations

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

from .core.attribution import Attribution
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
from .core.methods import Greedy, GreedyPIG, SequentialGradient
from .core.objective import Objective, SetFunction, objective
from .core.quadrature import Rule, rule
from .core.rounds import State
from .core.run import Run as rounds
from .core.run import best_subset, maximize
from .core.scorers import IG, Gradient, GuidedIG, MarginalGains, Random, SmoothIG
from .core.stopping import Stop, StopReason
from .results.storage import load
from .tensors.api import explain, explain_many
from .tensors.pictures import BlurIG, grid, superpixels, windows
from .tensors.steady import SteadyPIG
from .tensors.targets import margin

if TYPE_CHECKING:
    from . import metrics, models, plots, report
    from .adapters.captum import from_captum
    from .adapters.sklearn import FeatureSelector
    from .graphs.api import explain_edges, explain_node
    from .graphs.edges import index_edges
    from .images.api import explain_photo
    from .tables.api import select_features
    from .tables.finetune import mask_finetune

__version__ = "0.2.0"

_LAZY = {
    "FeatureSelector": "adapters.sklearn",
    "explain_edges": "graphs.api",
    "explain_node": "graphs.api",
    "explain_photo": "images.api",
    "from_captum": "adapters.captum",
    "index_edges": "graphs.edges",
    "mask_finetune": "tables.finetune",
    "select_features": "tables.api",
}
"""Names that are imported when they are first used, so that `import greedypig` stays quick."""

__all__ = [
    "IG",
    "Attribution",
    "BlurIG",
    "DiskFull",
    "Elements",
    "FeatureSelector",
    "Features",
    "Gradient",
    "Greedy",
    "GreedyPIG",
    "GreedyPigError",
    "Groups",
    "GuidedIG",
    "InvalidFile",
    "InvalidInput",
    "InvalidType",
    "MarginalGains",
    "MissingPackage",
    "NonFinite",
    "NotDifferentiable",
    "Objective",
    "Random",
    "Rule",
    "SequentialGradient",
    "SetFunction",
    "SmoothIG",
    "State",
    "SteadyPIG",
    "Stop",
    "StopReason",
    "Windows",
    "best_subset",
    "explain",
    "explain_edges",
    "explain_many",
    "explain_node",
    "explain_photo",
    "from_captum",
    "grid",
    "index_edges",
    "load",
    "margin",
    "mask_finetune",
    "maximize",
    "metrics",
    "models",
    "objective",
    "plots",
    "report",
    "rounds",
    "rule",
    "select_features",
    "superpixels",
    "windows",
]


def __getattr__(name: str) -> _Any:
    if name in ("metrics", "models", "plots", "report"):
        return _import_module(f".{name}", __name__)
    if name in _LAZY:
        return getattr(_import_module(f".{_LAZY[name]}", __name__), name)
    raise AttributeError(f"module 'greedypig' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__version__"])
