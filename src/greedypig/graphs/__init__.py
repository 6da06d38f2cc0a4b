"""Graphs for node classification: read, generate, train the paper's network, compress, compare.

graph = load_graph("graph.npz")         # or tensors, CSV, Parquet, an OGB folder
model = train(graph).model              # the paper's three-layer GCN
"""

from __future__ import annotations

from .files import load_graph, save_graph
from .graph import Graph, make_graph
from .synthetic import ARXIV, generate
from .training import Recipe, Training, load_model, save_model, train

__all__ = [
    "ARXIV",
    "Graph",
    "Recipe",
    "Training",
    "generate",
    "load_graph",
    "load_model",
    "make_graph",
    "save_graph",
    "save_model",
    "train",
]
