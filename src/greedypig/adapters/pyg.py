"""PyG: Greedy PIG as an algorithm of `torch_geometric.explain.Explainer`.

    explainer = Explainer(model, GreedyPIGExplainer(k=20), explanation_type="model",
                          edge_mask_type="object", model_config=…)
    explanation = explainer(x, edge_index, index=10)

PyG masks *messages*: an edge at 0 passes nothing on, and degrees stay those of the whole graph.
That is what a mask means to its own algorithms and fidelity metrics, and it works for every network
of `MessagePassing` layers, so it is the default here (normalisation="kept"). "recomputed" removes
the edge from the graph instead, for models with an `edge_weight` argument, as `gp.explain_edges`
does.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ..compat import explainer_loss
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, MissingPackage
from ..core.stopping import Stop
from ..graphs.api import explain_edges, explain_node
from ..graphs.edge_model import NORMALISATIONS
from ..graphs.edges import index_edges, read_graph
from ..graphs.methods import FOR_MESSAGES, FOR_SOME_MESSAGES
from ..network.frozen import freeze
from ..types import MethodLike

try:
    from torch_geometric.explain import Explanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm
    from torch_geometric.explain.config import (
        ExplanationType,
        MaskType,
        ModelMode,
        ModelReturnType,
        ModelTaskLevel,
    )
    from torch_geometric.nn import MessagePassing
except ImportError as error:
    raise MissingPackage(
        "Expected the package torch_geometric for greedypig.adapters.pyg (it is not installed). "
        'Try pip install "greedypig[pyg]".'
    ) from error

log = logging.getLogger(__name__)


class GreedyPIGExplainer(ExplainerAlgorithm):  # type: ignore[misc]
    """Edges by Greedy PIG: each round takes the edges with the largest integrated gradients.

    It maximises G(S) = −loss(model with the edges S, target), PyG's own loss of the model's mode. A
    model's classes (explanation_type "model") are explained by its own probabilities instead:
    G(S) = Σ_c p(c) · log p_S(c), which is highest where the output is the same, not where it is
    surer. The edge mask is 1 for the first edge taken and falls evenly; edges that were not taken,
    or that the output cannot depend on, are at 0. method=gp.IG(50) gives integrated gradients.

    method: a name or a method such as gp.GreedyPIG(rounds=20). None takes 20 nodes of
        "gauss-legendre" in k rounds, at most 33; in 5 where all edges are ranked.
    k: how many edges (pairs of them in an undirected graph) to take; None ranks all.
    undirected: both directions of a pair are taken together; None looks whether the graph is
        symmetric.
    normalisation: "kept" masks messages, "recomputed" removes edges; see the module.
    stop, seed: as in `gp.explain`. After a call `attribution` holds the whole result over the edges
    that were candidates, and `candidates` their columns of edge_index.
    """

    attribution: Attribution | None = None
    candidates: Tensor | None = None

    def __init__(
        self,
        *,
        method: MethodLike | None = None,
        k: int | None = None,
        stop: Stop | None = None,
        undirected: bool | None = None,
        normalisation: str = "kept",
        seed: int = 0,
    ) -> None:
        super().__init__()
        if normalisation not in NORMALISATIONS:
            raise InvalidInput(
                f"Expected normalisation to be one of {', '.join(NORMALISATIONS)} "
                f"(got {normalisation!r})."
            )
        if method is None:
            method = FOR_MESSAGES if k is None else FOR_SOME_MESSAGES
        self.k, self.undirected, self.normalisation = k, undirected, normalisation
        self.search: dict[str, Any] = {"method": method, "stop": stop, "seed": seed}

    def supports(self) -> bool:
        """Edge masks of type object, no node masks; hyperedges and so on are PyG's to refuse."""
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        fits = nodes is None and edges == MaskType.object
        if not fits:
            log.error(
                "GreedyPIGExplainer explains edges: expected node_mask_type None and "
                "edge_mask_type 'object' (got %s and %s)",
                getattr(nodes, "value", None),
                getattr(edges, "value", None),
            )
        return fits

    def forward(
        self,
        model: nn.Module,
        x: Tensor,
        edge_index: Tensor,
        *,
        target: Tensor,
        index: int | Tensor | None = None,
        **kwargs: Any,
    ) -> Explanation:
        """Called by `Explainer`; see torch_geometric."""
        if isinstance(x, dict) or isinstance(edge_index, dict):
            raise InvalidType("Expected a homogeneous graph (got dicts of node and edge types).")
        count = edge_index.shape[1]
        self.candidates, self.attribution = torch.arange(count, device=edge_index.device), None
        mask = torch.zeros(count, device=edge_index.device)
        if count:
            loss = self._loss_of(lambda: freeze(model)(x, edge_index, **kwargs), target, index)
            nodes = None if index is None else self._nodes(model, index)
            weighted = "edge_weight" in inspect.signature(model.forward).parameters
            if self.normalisation == "recomputed" and not weighted:
                raise InvalidInput(
                    'Expected a model with an edge_weight argument for normalisation="recomputed" '
                    f'(got {type(model).__name__} without). Try normalisation="kept".'
                )
            weight = kwargs.pop("edge_weight", None) if weighted else None
            graph = (_Called(model, kwargs, weighted=weighted), x, edge_index, weight)
            a = self._explain(graph, loss, index, None if kwargs else nodes)
            self.candidates = a.attachments.get("edges", self.candidates)
            if a.selected:
                self.attribution = a
                mask[self.candidates] = _importance(a).to(mask)
        return Explanation(edge_mask=mask)

    def _explain(
        self, graph: tuple[Any, ...], loss: Callable[[Tensor], Tensor], index: Any, nodes: Any
    ) -> Attribution:
        """All edges explained, or those that reach the nodes in question."""
        model, x, edge_index, weight = graph
        removing = self.normalisation == "recomputed"
        search = self.search | {"normalisation": self.normalisation}
        if nodes is not None and not (removing and len(nodes) > 1):
            several = isinstance(index, Tensor) and index.dim() > 0
            search["objective"] = lambda rows: -loss(rows if several else rows[0])
            node = nodes if len(nodes) > 1 else int(nodes)
            indexed = index_edges(x, edge_index, weight, undirected=self.undirected)
            return explain_node(model, x, indexed, node, k=self.k, connected=removing, **search)
        count = read_graph(x, edge_index, weight, self.undirected).features().count
        search["objective"] = lambda output: -loss(output if index is None else output[index])
        k = None if self.k is None else min(self.k, count)
        search["undirected"] = self.undirected
        return explain_edges(model, x, edge_index, weight, k=k, **search)

    def _nodes(self, model: nn.Module, index: int | Tensor) -> Tensor | None:
        """The nodes that are explained, where their neighbourhood is all that it takes."""
        if self.model_config.task_level != ModelTaskLevel.node:
            return None
        if not any(isinstance(m, MessagePassing) for m in model.modules()):
            return None
        nodes = torch.as_tensor(index).reshape(-1)
        return torch.nonzero(nodes).squeeze(1) if nodes.dtype == torch.bool else nodes

    def _loss_of(
        self, output: Callable[[], Tensor], target: Tensor, index: int | Tensor | None
    ) -> Callable[[Tensor], Tensor]:
        """The loss of the outputs in question; output: that of the model on the full graph."""
        own = self.explainer_config.explanation_type == ExplanationType.model
        mode = self.model_config.mode
        if not own or mode == ModelMode.regression:
            asked = target if index is None else target[index]
            loss = explainer_loss(self, mode.value)
            return lambda output: loss(output, asked)
        with torch.inference_mode(False), torch.no_grad():
            full = output()
        expected = self._log_probabilities(full if index is None else full[index]).exp()
        return lambda output: -(expected * self._log_probabilities(output)).sum(-1).mean()

    def _log_probabilities(self, output: Tensor) -> Tensor:
        """(…, classes) of what the model returns; two classes of a lone probability or logit."""
        kind = self.model_config.return_type
        if kind == ModelReturnType.log_probs:
            return output
        raw = kind == ModelReturnType.raw
        if self.model_config.mode == ModelMode.binary_classification:
            other = torch.zeros_like(output) if raw else 1 - output
            output = torch.stack([other, output], -1)
        if raw:
            return output.log_softmax(-1)
        return output.clamp_min(torch.finfo(output.dtype).tiny).log()


class _Called(nn.Module):
    """A model with its further arguments given, called as `explain_edges` calls it."""

    def __init__(self, model: nn.Module, kwargs: dict[str, Any], *, weighted: bool) -> None:
        super().__init__()
        self.model, self.kwargs, self.weighted = model, kwargs, weighted

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The model's output."""
        weight = {"edge_weight": edge_weight} if self.weighted else {}
        output: Tensor = self.model(x, edge_index, **weight, **self.kwargs)
        return output


def _importance(a: Attribution) -> Tensor:
    """(n,) 1 for the first feature, then evenly down; equal for equal scores of a round, 0 for
    features that were not selected and for scores of 0."""
    first = a.order[a.features.first_rank(a.order)]
    return (1 - a.shared_positions()[first] / a.selected).clamp_min(0)


__all__ = ["GreedyPIGExplainer"]
