"""Any model on any tensors: `gp.explain`, `gp.explain_many`, methods, baselines, objectives."""

from .api import Job, explain, explain_many
from .inputs import Example, Model, ModelObjective
from .methods import FOR_COLUMNS, FOR_EDGES, choose, within
from .pictures import BlurIG, Superpixels, grid, pixels, superpixels, tokens, windows
from .steady import SteadyPIG
from .targets import Margin, Target, margin

__all__ = [
    "FOR_COLUMNS", "FOR_EDGES", "BlurIG", "Example", "Job", "Margin", "Model", "ModelObjective",
    "SteadyPIG", "Superpixels", "Target", "choose", "explain", "explain_many", "grid", "margin",
    "pixels", "superpixels", "tokens", "windows", "within",
]  # fmt: skip
