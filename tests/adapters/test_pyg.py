"""Greedy PIG inside torch_geometric's own Explainer."""

import pytest
import torch
from torch import Tensor, nn

import greedypig as gp

pyg = pytest.importorskip("torch_geometric")
from torch_geometric.data import Batch, Data  # noqa: E402
from torch_geometric.explain import CaptumExplainer, Explainer, GNNExplainer, fidelity  # noqa: E402
from torch_geometric.nn import (  # noqa: E402
    GATConv,
    GCNConv,
    GINConv,
    PairNorm,
    SAGEConv,
    global_add_pool,
)

from greedypig.adapters.pyg import GreedyPIGExplainer  # noqa: E402

MULTI = {"mode": "multiclass_classification", "task_level": "node", "return_type": "raw"}


def made_graph(nodes: int = 24, edges: int = 40, *, seed: int = 0, symmetric: bool = True):
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.combinations(torch.arange(nodes))
    chosen = pairs[torch.randperm(len(pairs), generator=generator)[:edges]].T
    edge_index = torch.cat([chosen, chosen.flip(0)], 1) if symmetric else chosen
    return torch.randn(nodes, 5, generator=generator), edge_index


class Net(nn.Module):
    def __init__(self, layer=GCNConv, *, classes: int = 3, norm: bool = False, **options) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = layer(5, 8, **options), layer(8, classes, **options)
        self.norm = PairNorm() if norm else nn.Identity()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.norm(self.first(x, edge_index).relu())
        return self.second(self.drop(h), edge_index)


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = GCNConv(5, 8), GCNConv(8, 3)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return self.second(self.first(x, edge_index, edge_weight).relu(), edge_index, edge_weight)


class OneMessage(nn.Module):
    """The logit of class 1 is the sum of the neighbours' only feature: a modular function."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = SAGEConv(1, 1, aggr="sum", bias=False, root_weight=False)
        nn.init.ones_(self.layer.lin_l.weight)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.layer(x, edge_index)


def explainer(model: nn.Module, algorithm, config=MULTI, kind: str = "model", **more) -> Explainer:
    return Explainer(
        model,
        algorithm,
        explanation_type=kind,
        model_config=config,
        edge_mask_type="object",
        **more,
    )


def test_a_sum_of_messages_is_explained_by_the_largest():
    # Regression on Σ x_u: with target 6 the largest messages come nearest to it first.
    x = torch.tensor([[0.0], [3.0], [1.0], [2.0]])
    edge_index = torch.tensor([[1, 2, 3], [0, 0, 0]])
    config = {"mode": "regression", "task_level": "node", "return_type": "raw"}
    algorithm = GreedyPIGExplainer(method=gp.GreedyPIG(rounds=3, steps=20, rule="gauss-legendre"))
    found = explainer(OneMessage(), algorithm, config)(x, edge_index, index=0)
    assert torch.allclose(found.edge_mask, torch.tensor([1, 1 / 3, 2 / 3]))
    assert algorithm.attribution.values.tolist() == pytest.approx([-36, -9, -1, 0], abs=1e-5)


@pytest.mark.parametrize("layer", [GCNConv, SAGEConv, GATConv])
@pytest.mark.parametrize("kind", ["model", "phenomenon"])
def test_any_layer_of_messages_will_do(layer, kind):
    x, edge_index = made_graph()
    model = Net(layer)
    given = {} if kind == "model" else {"target": torch.arange(24) % 3}
    algorithm = GreedyPIGExplainer(method=gp.GreedyPIG(rounds=5))
    found = explainer(model, algorithm, kind=kind)(x, edge_index, **given)
    assert found.validate(raise_on_error=True)
    mask = found.edge_mask
    assert mask.max() == 1
    assert torch.equal(mask[:40], mask[40:])  # Both directions of a pair stand or fall together.
    assert mask[:40].unique().numel() == 40


def own_value(logits: Tensor) -> float:
    """Σ_c p(c) · log p(c), the mean over rows: the highest value that an answer can have."""
    return float((logits.softmax(-1) * logits.log_softmax(-1)).sum(-1).mean())


def test_the_whole_graph_gives_the_model_s_own_answer():
    x, edge_index = made_graph()
    model = Net().eval()
    algorithm = GreedyPIGExplainer(method=gp.GreedyPIG(rounds=4))
    explainer(model, algorithm)(x, edge_index)
    full = own_value(model(x, edge_index))
    assert algorithm.attribution.full_value == pytest.approx(full, abs=1e-5)
    classes = model(x, edge_index).log_softmax(1).max(1)
    explainer(model, algorithm, kind="phenomenon")(x, edge_index, target=classes.indices)
    likelihood = float(classes.values.mean())
    assert algorithm.attribution.full_value == pytest.approx(likelihood, abs=1e-5)


def test_a_node_is_explained_by_what_it_can_see():
    x, edge_index = made_graph(60, 120, symmetric=False)
    node = int(edge_index[1].bincount().argmax())
    model = Net().eval()
    method = gp.GreedyPIG(rounds=6, schedule="equal")
    part = GreedyPIGExplainer(method=method, undirected=False)
    found = explainer(model, part)(x, edge_index, index=node)
    inside = part.candidates
    assert 0 < inside.numel() < 120
    scores = part.attribution.feature_scores
    assert torch.equal(found.edge_mask[inside] > 0, scores != 0)
    assert int((found.edge_mask > 0).sum()) == int((scores != 0).sum())
    # On the whole graph: the same first scores, and 0 for the edges that the node cannot see.
    whole = gp.explain_edges(
        model,
        x,
        edge_index,
        nodes=[node],
        objective="log-likelihood",
        method=method,
        undirected=False,
        normalisation="kept",
    )
    first = whole.first_scores.clone()
    assert torch.allclose(part.attribution.first_scores, first[inside], atol=1e-6)
    first[inside] = 0
    assert first.abs().max() == 0


def test_norms_over_all_nodes_are_not_cut():
    x, edge_index = made_graph(60, 80)
    model = Net(norm=True).eval()
    algorithm = GreedyPIGExplainer(method=gp.GreedyPIG(rounds=3))
    explainer(model, algorithm)(x, edge_index, index=7)
    full = own_value(model(x, edge_index)[7])
    assert algorithm.attribution.full_value == pytest.approx(full, abs=1e-5)


class Tied(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.layer = GCNConv(5, 5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        for _ in range(3):
            x = self.layer(x, edge_index).tanh()
        return x


def test_a_layer_that_is_called_again_is_heard_as_far_as_it_reaches():
    path = torch.stack([torch.arange(9), torch.arange(1, 10)])
    x, edge_index = made_graph(10)[0], torch.cat([path, path.flip(0)], 1)
    model, algorithm = Tied().eval(), GreedyPIGExplainer(method=gp.GreedyPIG(rounds=3))
    explainer(model, algorithm)(x, edge_index, index=0)
    assert sorted(algorithm.candidates.tolist()) == [0, 1, 2, 9, 10, 11]
    full = own_value(model(x, edge_index)[0])
    assert algorithm.attribution.full_value == pytest.approx(full, abs=1e-5)


def test_a_node_without_edges_has_an_empty_answer():
    x, _ = made_graph()
    edge_index = torch.tensor([[1, 2], [2, 1]])
    found = explainer(Net(), GreedyPIGExplainer())(x, edge_index, index=0)
    assert found.edge_mask.tolist() == [0, 0]
    none = torch.empty(2, 0, dtype=torch.long)
    for model, normalisation in ((Net(), "kept"), (Weighted(), "recomputed")):
        found = explainer(model, GreedyPIGExplainer(normalisation=normalisation))(x, none)
        assert found.edge_mask.shape == (0,)


def test_one_round_is_integrated_gradients():
    pytest.importorskip("captum")
    x, edge_index = made_graph(symmetric=False)
    model = Net().eval()
    config = MULTI | {"return_type": "raw"}
    ours = GreedyPIGExplainer(method=gp.IG(50, "gauss-legendre"), undirected=False)
    classes = model(x, edge_index).argmax(1)
    explainer(model, ours, config, kind="phenomenon")(x, edge_index, index=3, target=classes)

    class LogProbabilities(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = model

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return torch.log_softmax(self.net(x, edge_index), 1)

    theirs = CaptumExplainer("IntegratedGradients", n_steps=50)
    peer = explainer(LogProbabilities(), theirs, MULTI | {"return_type": "log_probs"})
    expected = peer(x, edge_index, index=3).edge_mask
    scores = torch.zeros(40).index_copy(0, ours.candidates, ours.attribution.scores)
    assert torch.allclose(scores, expected.float(), atol=1e-5)


def test_a_single_logit_or_probability_is_explained_by_its_own_probability():
    x, edge_index = made_graph()
    model = Net(classes=1).eval()

    class Flat(nn.Module):
        def __init__(self, probability: bool) -> None:
            super().__init__()
            self.net, self.probability = model, probability

        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            logit = self.net(x, edge_index).squeeze(1)
            return logit.sigmoid() if self.probability else logit

    p = model(x, edge_index).squeeze(1).sigmoid()[3]
    full = float(p * p.log() + (1 - p) * (1 - p).log())
    for kind in ("raw", "probs"):
        algorithm = GreedyPIGExplainer(k=2)
        config = {"mode": "binary_classification", "task_level": "node", "return_type": kind}
        explainer(Flat(kind == "probs"), algorithm, config)(x, edge_index, index=3)
        assert algorithm.attribution.full_value == pytest.approx(full, abs=1e-5)


@pytest.mark.slow
def test_edges_can_be_taken_out_of_the_graph_instead():
    x, edge_index = made_graph()
    model = Weighted().eval()
    algorithm = GreedyPIGExplainer(normalisation="recomputed")
    found = explainer(model, algorithm)(x, edge_index)
    method = gp.GreedyPIG(rounds=5, steps=20, rule="gauss-legendre", ratio=20)
    direct = gp.explain_edges(model, x, edge_index, method=method, objective="log-likelihood")
    assert algorithm.attribution.order[:5].tolist() == direct.order[:5].tolist()
    assert torch.equal(found.edge_mask[:40], found.edge_mask[40:])
    algorithm = GreedyPIGExplainer(k=4, normalisation="recomputed")
    one = explainer(model, algorithm)(x, edge_index, index=3)
    direct = gp.explain_node(model, x, edge_index, 3, k=4, objective="log-likelihood")
    taken = direct.attachments["edges"][direct.mask(4)]
    assert torch.nonzero(one.edge_mask).squeeze(1).tolist() == sorted(taken.tolist())
    with pytest.raises(gp.InvalidInput, match=r'Try normalisation="kept"'):
        explainer(Net(), GreedyPIGExplainer(normalisation="recomputed"))(x, edge_index)


@pytest.mark.slow
def test_k_edges_are_kept_and_fidelity_can_be_measured():
    x, edge_index = made_graph(40, 90)
    model = Net().eval()
    asked = explainer(model, GreedyPIGExplainer(k=12))
    found = asked(x, edge_index)
    assert int((found.edge_mask > 0).sum()) == 24
    assert found.get_explanation_subgraph().edge_index.shape[1] == 24
    hard = asked_hard(model)(x, edge_index)
    assert sorted(hard.edge_mask.unique().tolist()) == [0, 1]
    best = fidelity(asked, hard)[1]
    hard.edge_mask = 1 - hard.edge_mask
    hard.edge_mask[torch.randperm(180, generator=torch.Generator().manual_seed(0))[24:]] = 0
    assert best < fidelity(asked, hard)[1]
    everything = explainer(model, GreedyPIGExplainer(), threshold_config=("topk_hard", 180))
    assert fidelity(everything, everything(x, edge_index))[1] == 0


def asked_hard(model: nn.Module) -> Explainer:
    return explainer(model, GreedyPIGExplainer(k=12), threshold_config=("topk_hard", 24))


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.layer = GINConv(nn.Linear(5, 8))
        self.last = nn.Linear(8, 1)

    def forward(self, x: Tensor, edge_index: Tensor, batch: Tensor) -> Tensor:
        return self.last(global_add_pool(self.layer(x, edge_index).relu(), batch)).sigmoid()


def test_graphs_as_a_whole_are_explained_too():
    parts = [Data(*made_graph(8, 10, seed=s)) for s in range(3)]
    batch = Batch.from_data_list(parts)
    config = {"mode": "binary_classification", "task_level": "graph", "return_type": "probs"}
    algorithm = GreedyPIGExplainer(method=gp.GreedyPIG(rounds=6))
    found = explainer(GraphNet(), algorithm, config)(
        batch.x, batch.edge_index, batch=batch.batch, index=1
    )
    own = batch.batch[batch.edge_index[0]] == 1
    assert own[found.edge_mask.argmax()]
    assert algorithm.attribution.scores[own].abs().min() > 0
    assert algorithm.attribution.scores[~own].abs().max() == 0  # Other graphs have no say.


def test_the_caller_s_model_is_as_it_was():
    x, edge_index = made_graph()
    model = Net().train()
    before = {k: v.clone() for k, v in model.state_dict().items()}
    explainer(model, GreedyPIGExplainer(method=gp.GreedyPIG(rounds=2)))(x, edge_index, index=2)
    assert model.training
    assert all(m.training for m in model.modules())
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert model.first.explain is None
    assert all(p.grad is None and p.requires_grad for p in model.parameters())


def test_what_it_cannot_do_is_said():
    x, edge_index = made_graph()
    with pytest.raises(ValueError, match="does not support"):
        Explainer(
            Net(),
            GreedyPIGExplainer(),
            explanation_type="model",
            model_config=MULTI,
            node_mask_type="attributes",
            edge_mask_type="object",
        )
    with pytest.raises(ValueError, match="does not support"):
        Explainer(
            Net(),
            GreedyPIGExplainer(),
            explanation_type="model",
            model_config=MULTI,
            node_mask_type="object",
        )
    with pytest.raises(gp.InvalidInput, match="Expected normalisation to be one of"):
        GreedyPIGExplainer(normalisation="nodes")

    class Plain(nn.Module):
        def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
            return x[:, :3]

    with pytest.raises(gp.InvalidInput, match="layers of PyG"):
        explainer(Plain(), GreedyPIGExplainer())(x, edge_index)


def test_a_model_that_gnnexplainer_has_explained_gives_the_same_answer():
    x, edge_index = made_graph()
    model = Net().eval()

    def best(algorithm):
        kinds = {"explanation_type": "model", "edge_mask_type": "object"}
        explainer = Explainer(model, algorithm, model_config=MULTI, **kinds)
        return explainer(x, edge_index, index=3).edge_mask

    before = best(GreedyPIGExplainer(k=4))
    best(GNNExplainer(epochs=2))
    assert torch.equal(best(GreedyPIGExplainer(k=4)), before)


class Pooled(nn.Module):
    """A layer from nodes to nodes, and one from all nodes to the one of the graph, as AttentiveFP
    of PyG has them: the second one's messages are no edges of the graph."""

    def __init__(self) -> None:
        super().__init__()
        self.nodes, self.pool = OneMessage().layer, OneMessage().layer
        self.pool.explain = False

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        here = torch.arange(len(x))
        total = self.pool(
            (self.nodes(x, edge_index), x[:1]), torch.stack([here, 0 * here]), size=(len(x), 1)
        )
        return torch.cat([0 * total, total], 1)


def test_layers_that_do_not_explain_are_left_alone():
    x = torch.tensor([[1.0], [3.0], [2.0], [5.0]])
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
    algorithm = GreedyPIGExplainer(method="ig", undirected=False)
    mask = explainer(Pooled(), algorithm, MULTI | {"task_level": "graph"})(x, edge_index).edge_mask
    assert mask.argsort(descending=True).tolist() == [3, 1, 2, 0]  # By what the edge brings.
