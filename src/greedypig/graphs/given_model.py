"""A network of the caller's for a graph, by the name of its factory or by its weights."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from torch import nn

from ..core.errors import GreedyPigError, InvalidFile, InvalidInput, first_line
from ..network.from_spec import build
from .compression import logits_of
from .files import read_tensors
from .graph import Graph
from .training import load_model


def given_model(
    graph: Graph, spec: str | None = None, weights: str | PathLike[str] | None = None
) -> nn.Module:
    """The network of a factory "package.module:factory", or the GCN of these weights.

    weights: a file of safetensors or a torch state dict; beside a factory, its network's.
    """
    if spec is None:
        if weights is None:
            raise InvalidInput("Expected a factory or weights (got neither).")
        return load_model(weights, graph)
    model = build(spec).to(graph.x.device)
    if weights is not None:
        try:
            model.load_state_dict(read_tensors(Path(weights)))
        except Exception as error:  # Anything may lie in a file of that name.
            raise InvalidFile(
                f"Expected the weights of {spec} in {fspath(weights)} "
                f"(got: {first_line(error) or type(error).__name__})."
            ) from error
    model.eval().requires_grad_(False)
    try:
        logits_of(model, graph)(None)
    except GreedyPigError:
        raise
    except Exception as error:
        raise InvalidInput(
            f"Expected {spec} to take (x, edge_index, edge_weight) "
            f"(got {type(error).__name__}: {first_line(error)})."
        ) from error
    return model
