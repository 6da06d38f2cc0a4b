"""PyG: Greedy PIG as an algorithm of `torch_geometric.explain.Explainer`.

    explainer = Explainer(model, GreedyPIGExplainer(k=20), explanation_type="model",
                          edge_mask_type="object", model_config=…)
    explanation = explainer(x, edge_index, index=10)

PyG masks *messages*: an edge at 0 passes nothing on, and degrees stay those of the whole graph.
That is how its own algorithms and its fidelity metrics read a mask, and it works for every network
of `MessagePassing` layers, so it is the default here. `reading="edges"` takes the edge out of the
graph instead, for models with an `edge_weight` argument; that is `gp.explain_edges`.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from ..core.algorithms import greedy_pig
from ..core.attribution import Attribution
from ..core.errors import InvalidInput, InvalidType, MissingPackage, NotDifferentiable
from ..core.features import Elements, Features, Groups
from ..core.lockstep import Undisturbed
from ..core.objective import objective
from ..graphs.api import explain_edges, explain_node
from ..graphs.edges import read_graph
from ..graphs.receptive_field import depth_of
from ..graphs.runs import GRADIENTS, NODE_RULE, NODE_STEPS, RATIO
from ..network.frozen import freeze

try:
    from torch_geometric.explain import Explanation
    from torch_geometric.explain.algorithm import ExplainerAlgorithm
    from torch_geometric.explain.algorithm.utils import clear_masks, set_masks
    from torch_geometric.explain.config import (
        ExplanationType,
        MaskType,
        ModelMode,
        ModelReturnType,
        ModelTaskLevel,
    )
    from torch_geometric.nn import MessagePassing
    from torch_geometric.utils import k_hop_subgraph
except ImportError as error:
    raise MissingPackage(
        "Expected the package torch_geometric for greedypig.adapters.pyg (it is not installed). "
        'Try pip install "greedypig[pyg]".'
    ) from error

READINGS = ("messages", "edges")
ROUNDS, MOST_ROUNDS = GRADIENTS // NODE_STEPS, 33
"""Rounds where all edges are ranked, and at most where k of them are asked for."""
log = logging.getLogger(__name__)


class GreedyPIGExplainer(ExplainerAlgorithm):  # type: ignore[misc]
    """Edges in the order in which Greedy PIG takes them, for node, edge and graph level tasks.

    G(S) = −loss(answer with the edges S, target), PyG's own loss of the model's mode. A model's
    classes (explanation_type "model") are explained by its own probabilities instead: G(S) = Σ_c
    p(c) · log p_S(c), which is highest where the answer is the same, not where it is surer.
    The edge mask is 1 for the first edge taken and falls evenly; edges that were not taken, or that
    the answer cannot depend on, are at 0. With rounds=1 the order is that of integrated gradients.

    k: how many edges (pairs of them in an undirected graph) to take; None ranks all.
    rounds: None takes k of them, at most 33; 5 where all edges are ranked.
    undirected: both directions of a pair are taken together; None looks whether the graph is
        symmetric.
    reading: "messages" or "edges"; see the module.
    steps, rule, schedule, ratio, budget, seconds, reach, gain, seed: as in
    `gp.greedy_pig`. After a call `attribution` holds the whole result over the edges that were
    candidates, and `candidates` their columns of edge_index.
    """

    attribution: Attribution | None = None
    candidates: Tensor | None = None

    def __init__(
        self,
        *,
        k: int | None = None,
        rounds: int | None = None,
        steps: int = NODE_STEPS,
        rule: str = NODE_RULE,
        schedule: str | Sequence[int] = "geometric",
        ratio: float | None = None,
        undirected: bool | None = None,
        reading: str = "messages",
        budget: int | None = None,
        seconds: float | None = None,
        reach: float | None = None,
        gain: bool = False,
        seed: int = 0,
    ) -> None:
        super().__init__()
        if reading not in READINGS:
            raise InvalidInput(
                f"Expected reading to be one of {', '.join(READINGS)} (got {reading!r})."
            )
        self.k, self.rounds, self.undirected, self.reading = k, rounds, undirected, reading
        if ratio is None and schedule == "geometric":
            ratio = RATIO
        self.search: dict[str, Any] = {
            "steps": steps, "rule": rule, "schedule": schedule, "ratio": ratio, "budget": budget,
            "seconds": seconds, "reach": reach, "gain": gain, "seed": seed,
        }  # fmt: skip

    def supports(self) -> bool:
        """Edge masks of type object, no node masks; hyperedges and so on are PyG's to refuse."""
        nodes, edges = self.explainer_config.node_mask_type, self.explainer_config.edge_mask_type
        if nodes is not None:
            log.error("GreedyPIGExplainer explains edges: expected node_mask_type None (got %s)",
                      nodes.value)  # fmt: skip
            return False
        if edges != MaskType.object:
            log.error("GreedyPIGExplainer expects edge_mask_type 'object' (got %s)",
                      None if edges is None else edges.value)  # fmt: skip
            return False
        return True

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
        loss = self._asked(model, x, edge_index, target, index, kwargs)

        def value(output: Tensor) -> Tensor:
            return -loss(output if index is None else output[index])

        a: Attribution | None
        if self.reading == "edges":
            self.candidates, a = self._by_edges(model, x, edge_index, value, loss, index, kwargs)
        else:
            self.candidates, a = self._by_messages(model, x, edge_index, value, index, kwargs)
        self.attribution = a
        return Explanation(edge_mask=_spread(a, self.candidates, edge_index.shape[1]))

    def _asked(
        self, model: nn.Module, x: Tensor, edge_index: Tensor, target: Tensor,
        index: int | Tensor | None, kwargs: dict[str, Any],
    ) -> Callable[[Tensor], Tensor]:  # fmt: skip
        """The loss of the outputs in question."""
        own = self.explainer_config.explanation_type == ExplanationType.model
        if not own or self.model_config.mode == ModelMode.regression:
            asked = target if index is None else target[index]
            return lambda output: self._loss(output, asked)
        with Undisturbed(), torch.no_grad():
            full: Tensor = freeze(model)(x, edge_index, **kwargs)
        expected = self._log_probabilities(full if index is None else full[index]).exp()
        return lambda output: -(expected * self._log_probabilities(output)).sum(-1).mean()

    def _log_probabilities(self, output: Tensor) -> Tensor:
        """(…, classes) of what the model returns; two classes of a lone probability or logit."""
        kind = self.model_config.return_type
        binary = self.model_config.mode == ModelMode.binary_classification
        if kind == ModelReturnType.raw:
            lone = torch.stack([torch.zeros_like(output), output], -1) if binary else output
            return lone.log_softmax(-1)
        if kind == ModelReturnType.log_probs:
            return output
        lone = torch.stack([1 - output, output], -1) if binary else output
        return lone.clamp_min(torch.finfo(output.dtype).tiny).log()

    def _loss(self, output: Tensor, target: Tensor) -> Tensor:
        losses = {
            ModelMode.binary_classification: self._loss_binary_classification,
            ModelMode.multiclass_classification: self._loss_multiclass_classification,
            ModelMode.regression: self._loss_regression,
        }
        loss: Tensor = losses[self.model_config.mode](output, target)
        return loss

    def _picks(self, units: int) -> dict[str, Any]:
        if not isinstance(self.search["schedule"], str):
            return {"k": self.k}
        most = units if self.k is None else min(self.k, units)
        rounds = self.rounds or (ROUNDS if self.k is None else MOST_ROUNDS)
        return {"k": most, "rounds": min(rounds, most)}

    def _by_messages(
        self, model: nn.Module, x: Tensor, edge_index: Tensor, value: Callable[[Tensor], Tensor],
        index: int | Tensor | None, kwargs: dict[str, Any],
    ) -> tuple[Tensor, Attribution | None]:  # fmt: skip
        frozen = freeze(model)
        network = frozen.module
        if network is None or not any(isinstance(m, MessagePassing) for m in network.modules()):
            raise InvalidInput(
                "Expected a model with MessagePassing layers (got none), whose messages can be "
                'masked. Try reading="edges" for a model with an edge_weight argument.'
            )
        with Undisturbed():
            # A layer may be called several times, or pass messages on several times itself.
            heard = depth_of(frozen, lambda: _check_answer(network, x, edge_index, value, kwargs))
            hops = max(heard or 0, self._num_hops(network))
            view = self._view(network, x, edge_index, index, kwargs, hops)
            if view.inside.numel() == 0:
                return view.inside, None
            features = _units(x, edge_index[:, view.inside], self.undirected)
            problem = objective(
                lambda masks: torch.stack([value(view.answer(network, mask)) for mask in masks]),
                view.inside.numel(), batch_size=1, dtype=x.dtype, device=x.device,
            )  # fmt: skip
        try:
            return view.inside, greedy_pig(
                problem, features=features, values="end", **self.search,
                **self._picks(features.units),
            )  # fmt: skip
        except NotDifferentiable as error:
            raise InvalidInput(
                "Expected layers whose messages can be masked (got an answer that does not depend "
                "on them). Layers with explain=False are left out by PyG."
            ) from error
        finally:
            clear_masks(network)

    def _view(
        self, network: nn.Module, x: Tensor, edge_index: Tensor,
        index: int | Tensor | None, kwargs: dict[str, Any], hops: int,
    ) -> _View:  # fmt: skip
        """The part of the graph that the answers in question can depend on, if that is told."""
        everything = torch.arange(edge_index.shape[1], device=edge_index.device)
        whole = _View(x, edge_index, everything, torch.ones_like(everything, dtype=x.dtype), kwargs)
        if index is None or self.model_config.task_level != ModelTaskLevel.node:
            return whole
        flow = self._flow(network)
        inside = k_hop_subgraph(index, hops, edge_index, num_nodes=x.shape[0], flow=flow)[3]
        near = _View(x, edge_index, everything[inside], whole.ones, kwargs)
        if kwargs or any(getattr(m, "cached", False) for m in network.modules()):
            return near
        # One hop more, so that every node whose message counts has its whole degree.
        nodes, edges, _, kept = k_hop_subgraph(
            index, hops + 1, edge_index, relabel_nodes=True, num_nodes=x.shape[0], flow=flow
        )
        places = torch.cumsum(kept, 0) - 1
        small = _View(x[nodes], edges, near.inside, whole.ones[: edges.shape[1]], kwargs,
                      places[inside], nodes, x.shape[0])  # fmt: skip
        with torch.no_grad():  # Norms over all nodes see the rest of the graph too: then no cut.
            one, other = (view.answer(network, view.ones[view.spots]) for view in (near, small))
        same = torch.allclose(one[index], other[index], rtol=1e-4, atol=1e-5)
        return small if same else near

    def _by_edges(
        self, model: nn.Module, x: Tensor, edge_index: Tensor, value: Callable[[Tensor], Tensor],
        loss: Callable[[Tensor], Tensor], index: int | Tensor | None, kwargs: dict[str, Any],
    ) -> tuple[Tensor, Attribution | None]:  # fmt: skip
        weight = kwargs.pop("edge_weight", None)
        if "edge_weight" not in inspect.signature(model.forward).parameters:
            raise InvalidInput(
                'Expected a model with an edge_weight argument for reading="edges" (got '
                f'{type(model).__name__} without). Try reading="messages".'
            )
        if edge_index.shape[1] == 0:
            return edge_index[0], None
        features = _units(x, edge_index, self.undirected)
        search = self.search | self._picks(features.units)
        search |= {"undirected": self.undirected, "normalisation": "recomputed"}
        one = self._one_node(model, index, kwargs)
        if one is None:
            a = explain_edges(
                _Called(model, kwargs) if kwargs else model, x, edge_index, weight,
                objective=value, **search,
            )  # fmt: skip
            return torch.arange(edge_index.shape[1], device=edge_index.device), a
        several = isinstance(index, Tensor) and index.dim() > 0
        a = explain_node(
            model, x, edge_index, one, weight, **search,
            objective=lambda rows: -loss(rows if several else rows[0]),
        )  # fmt: skip
        return a.attachments["edges"], a if a.selected else None

    def _one_node(
        self, model: nn.Module, index: int | Tensor | None, kwargs: dict[str, Any]
    ) -> int | None:
        """The node that is explained, if it is one, whose neighbourhood is all that it takes."""
        if index is None or kwargs or self.model_config.task_level != ModelTaskLevel.node:
            return None
        if not any(isinstance(m, MessagePassing) for m in model.modules()):
            return None
        found = torch.as_tensor(index)
        if found.dtype == torch.bool:
            found = torch.nonzero(found).squeeze(1)
        return int(found) if found.numel() == 1 else None


@dataclass(frozen=True, eq=False)
class _View:
    """A graph, or the part of it that matters, as a function of the masks of its candidates."""

    x: Tensor
    edge_index: Tensor
    inside: Tensor
    """Columns of the caller's edge_index that are candidates."""
    ones: Tensor
    kwargs: dict[str, Any]
    places: Tensor | None = None
    """Where the candidates are in `edge_index`, if not at `inside`."""
    nodes: Tensor | None = None
    """The caller's node of every row of x, where it is a part."""
    count: int = 0

    @property
    def spots(self) -> Tensor:
        """Columns of `edge_index` that the candidates have."""
        return self.inside if self.places is None else self.places

    def answer(self, network: nn.Module, mask: Tensor) -> Tensor:
        """The network's output in the caller's numbering, with these edges at these weights."""
        full = self.ones.index_copy(0, self.spots, mask)
        set_masks(network, full, self.edge_index, apply_sigmoid=False)
        try:
            output: Tensor = network(self.x, self.edge_index, **self.kwargs)
        finally:
            clear_masks(network)
        if self.nodes is None:
            return output
        return output.new_zeros(self.count, *output.shape[1:]).index_copy(0, self.nodes, output)


class _Called(nn.Module):
    """A model with some of its arguments given."""

    def __init__(self, model: nn.Module, kwargs: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.kwargs = model, kwargs

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor) -> Tensor:
        """As `explain_edges` calls it."""
        output: Tensor = self.model(x, edge_index, edge_weight=edge_weight, **self.kwargs)
        return output


def _units(x: Tensor, edge_index: Tensor, undirected: bool | None) -> Features:
    """Pairs of nodes; of a part of the graph those in one direction only stand alone."""
    graph = read_graph(x, edge_index, None, undirected)
    ids = graph.units
    return Elements(ids.numel()) if int(ids.max()) + 1 == ids.numel() else Groups(ids)


def _check_answer(
    network: nn.Module, x: Tensor, edge_index: Tensor, value: Callable[[Tensor], Tensor],
    kwargs: dict[str, Any],
) -> None:  # fmt: skip
    with torch.no_grad():
        found = value(network(x, edge_index, **kwargs))
    if not bool(torch.isfinite(found)):
        raise InvalidInput("Expected a finite loss on the whole graph (got NaN or infinity).")


def _spread(a: Attribution | None, columns: Tensor, count: int) -> Tensor:
    """(count,) the mask: from 1 for the first unit taken evenly down, equal for equal scores of a
    round, 0 for units not taken and for scores of 0."""
    mask = torch.zeros(count, device=columns.device)
    if a is None:
        return mask
    first = a.order[a.features.first_rank(a.order)]
    ranks = a.shared_positions()[first].to(columns.device)
    taken = (1 - ranks / max(a.selected, 1)).clamp_min(0)
    mask[columns] = taken.to(mask)
    return mask


__all__ = ["GreedyPIGExplainer"]
