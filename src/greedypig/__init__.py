"""greedypig: which few features does a trained model really use?

An explanation is a subset-selection problem: maximise G(S) over small sets S of features. This
package picks them greedily by path-integrated gradients, for any model and any set function.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING
from typing import Any as _Any

if TYPE_CHECKING:
    from . import metrics, models, plots, report
    from .adapters.captum import from_captum
    from .adapters.sklearn import FeatureSelector
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
    from .core.maximize import best_subset, maximize, rounds
    from .core.methods import Greedy, GreedyPIG, SequentialGradient, TwoSidedPIG
    from .core.objective import Objective, SetFunction
    from .core.quadrature import Rule, rule
    from .core.rounds import State
    from .core.scorers import (
        IG,
        Gradient,
        GuidedIG,
        LeaveOneOut,
        MarginalGains,
        Random,
        SmoothIG,
    )
    from .core.stopping import Stop, StopReason
    from .core.two_sided import two_sided
    from .graphs.api import edge_columns, explain_edges, explain_node
    from .graphs.edges import index_edges
    from .images.api import explain_photo
    from .images.blur import BlurIG
    from .images.features import grid, superpixels, windows
    from .images.steady import SteadyPIG
    from .network.function import objective
    from .results.storage import load
    from .results.summary import comparison, summary
    from .tables.api import select_features
    from .tables.finetune import mask_finetune
    from .tensors.api import explain, explain_many
    from .tensors.targets import margin
    from .text.api import explain_text, truncate_text
    from .text.comparison_methods import Attention, ContextCite

__version__ = "0.2.0"

_HOMES = {
    "adapters.captum": "from_captum",
    "adapters.sklearn": "FeatureSelector",
    "core.attribution": "Attribution",
    "core.errors": "DiskFull GreedyPigError InvalidFile InvalidInput InvalidType MissingPackage "
    "NonFinite NotDifferentiable",
    "core.features": "Elements Features Groups Windows",
    "core.maximize": "best_subset maximize rounds",
    "core.methods": "Greedy GreedyPIG SequentialGradient TwoSidedPIG",
    "core.objective": "Objective SetFunction",
    "core.quadrature": "Rule rule",
    "core.rounds": "State",
    "core.scorers": "IG Gradient GuidedIG LeaveOneOut MarginalGains Random SmoothIG",
    "core.stopping": "Stop StopReason",
    "core.two_sided": "two_sided",
    "graphs.api": "edge_columns explain_edges explain_node",
    "graphs.edges": "index_edges",
    "images.api": "explain_photo",
    "images.blur": "BlurIG",
    "images.features": "grid superpixels windows",
    "images.steady": "SteadyPIG",
    "network.function": "objective",
    "results.storage": "load",
    "results.summary": "comparison summary",
    "tables.api": "select_features",
    "tables.finetune": "mask_finetune",
    "tensors.api": "explain explain_many",
    "tensors.targets": "margin",
    "text.api": "explain_text truncate_text",
    "text.comparison_methods": "Attention ContextCite",
}
"""Where each public name lives. It is imported when it is first used, so that a program that only
wants to print its help does not wait for torch."""
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}
_ROOMS = ("metrics", "models", "plots", "report")

# Spelled out, as type checkers do not run code.
__all__ = ["explain", "explain_edges", "explain_many", "explain_node", "explain_photo"]
__all__ += ["FeatureSelector", "from_captum", "mask_finetune", "select_features"]
__all__ += ["edge_columns", "explain_text", "index_edges", "truncate_text"]
__all__ += ["IG", "BlurIG", "Gradient", "GuidedIG", "MarginalGains", "Random", "SmoothIG"]
__all__ += ["Attention", "ContextCite", "LeaveOneOut", "TwoSidedPIG"]
__all__ += ["Greedy", "GreedyPIG", "Rule", "SequentialGradient", "SteadyPIG", "margin", "rule"]
__all__ += ["two_sided"]
__all__ += ["Elements", "Features", "Groups", "Windows", "grid", "superpixels", "windows"]
__all__ += ["Objective", "SetFunction", "best_subset", "maximize", "objective", "rounds"]
__all__ += ["Attribution", "State", "Stop", "StopReason", "comparison", "load", "summary"]
__all__ += ["DiskFull", "GreedyPigError", "InvalidFile", "InvalidInput", "InvalidType"]
__all__ += ["MissingPackage", "NonFinite", "NotDifferentiable"]
__all__ += ["metrics", "models", "plots", "report"]


def __getattr__(name: str) -> _Any:
    if name in _ROOMS:
        return _import_module(f".{name}", __name__)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'greedypig' has no attribute {name!r}")
    globals()[name] = value = getattr(_import_module(f".{_MODULE_OF[name]}", __name__), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__doc__", "__version__"])
