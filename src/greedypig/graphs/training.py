"""Train the paper's network on a graph: full batch, Adam, early stopping, the same for a seed.

The gradient is written by hand, layer by layer, so that the only sparse work is one product Â·z a
layer on the way forth and back:

    forth   P = Â (H W) + b,   H' = dropout(relu(P))
    back    dW = Hᵀ (Â dP),    db = Σ dP,    dH = (Â dP) Wᵀ,    dP = dH' ⊙ mask ⊙ [P > 0]

(where W widens, P = (Â H) W + b, which is the same and narrower). Training keeps nothing global:
every epoch draws its dropout from a generator of its own, so that a run taken up again from its
file goes on as if it had never stopped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..core.errors import InvalidFile, InvalidInput
from ..core.randomness import Fork
from ..results.files import write_whole
from .gcn import GCN
from .graph import Graph
from .sparse import Adjacency, Matrix, Pattern

LARGE = 50_000
"""From so many nodes on the network is wider and is looked at less often."""
SPARSE = 0.2
"""Share of features that are not 0 up to which they are multiplied as a sparse matrix."""
_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8
_KEY = "greedypig-training"


@dataclass(frozen=True)
class Recipe:
    """How a network is trained."""

    hidden: int = 64
    layers: int = 3
    dropout: float = 0.5
    rate: float = 0.01
    decay: float = 5e-3
    """L2 penalty on the weights of the first layer, as Kipf and Welling have it."""
    epochs: int = 300
    patience: int = 60
    """Epochs without a better validation accuracy (or, at the same, loss) before it stops."""
    every: int = 1
    """Epochs between two looks at the validation nodes."""

    @staticmethod
    def of(graph: Graph, **given: Any) -> Recipe:
        """The usual recipe for a graph of this size; what is given goes first."""
        usual: dict[str, Any] = {}
        if graph.nodes >= LARGE:
            usual = {"hidden": 256, "decay": 0.0, "epochs": 100, "patience": 25, "every": 5}
        return Recipe(**(usual | {k: v for k, v in given.items() if v is not None}))


@dataclass(frozen=True)
class Trained:
    """What training gave."""

    model: GCN
    """In eval mode, no parameter requires a gradient."""
    recipe: Recipe
    epochs: int
    """How many were run."""
    best_epoch: int
    val_accuracy: float


class Training:
    """One run of training that can be stopped after any epoch, kept, and taken up again."""

    def __init__(self, graph: Graph, recipe: Recipe | None = None, *, seed: int = 0) -> None:
        self.graph, self.recipe, self.seed = graph, recipe or Recipe.of(graph), seed
        self._check()
        recipe = self.recipe
        self.model = Fork(seed).call(GCN, graph.x.shape[1], graph.class_count, recipe.hidden,
                                     recipe.layers, recipe.dropout)  # fmt: skip
        self.model.to(graph.x.device).requires_grad_(False).eval()
        self.parameters = dict(self.model.named_parameters())
        self.first = {k: torch.zeros_like(p) for k, p in self.parameters.items()}
        self.second = {k: torch.zeros_like(p) for k, p in self.parameters.items()}
        self.best = {k: p.clone() for k, p in self.parameters.items()}
        self.best_loss, self.best_epoch, self.best_accuracy = float("inf"), 0, 0.0
        self.epoch = 0
        self._net: Layers | None = None

    @property
    def finished(self) -> bool:
        """Is there no epoch left to run?"""
        waited = self.epoch - self.best_epoch
        return self.epoch >= self.recipe.epochs or waited >= self.recipe.patience

    def step(self) -> None:
        """One epoch."""
        graph, recipe = self.graph, self.recipe
        assert graph.y is not None
        assert graph.train is not None
        net = self._layers()
        generator = torch.Generator(device=graph.x.device)
        generator.manual_seed((self.seed + 1) * 1_000_003 + self.epoch)
        logits = net.forth(generator)
        # d(mean cross-entropy of the training nodes) / d logits = (softmax − one-hot) / count.
        slope = torch.zeros_like(logits)
        rows = torch.softmax(logits[graph.train], 1)
        rows[torch.arange(len(rows), device=rows.device), graph.y[graph.train]] -= 1
        slope[graph.train] = rows / len(rows)
        gradients = net.back(slope)
        gradients["weights.0"] += recipe.decay * self.parameters["weights.0"]
        self.epoch += 1
        self._adam(gradients)
        if self.epoch % recipe.every == 0 or self.epoch == recipe.epochs:
            self._look(net)

    def trained(self) -> Trained:
        """The best network so far."""
        for key, parameter in self.parameters.items():
            parameter.copy_(self.best[key])
        return Trained(self.model, self.recipe, self.epoch, self.best_epoch, self.best_accuracy)

    def _layers(self) -> Layers:
        if self._net is None:
            graph = self.graph
            self._net = Layers(self.model, graph.x, propagation(graph))
        return self._net

    def _adam(self, gradients: dict[str, Tensor]) -> None:
        for key, gradient in gradients.items():
            self.first[key].lerp_(gradient, 1 - _BETA1)
            self.second[key].lerp_(gradient.square(), 1 - _BETA2)
            mean = self.first[key] / (1 - _BETA1**self.epoch)
            spread = (self.second[key] / (1 - _BETA2**self.epoch)).sqrt_()
            self.parameters[key].sub_(self.recipe.rate * mean / (spread + _EPSILON))

    def _look(self, net: Layers) -> None:
        """Keep the parameters if the validation nodes like them better."""
        graph = self.graph
        assert graph.y is not None
        assert graph.val is not None
        logits, wanted = net.forth(None)[graph.val], graph.y[graph.val]
        loss = float(torch.nn.functional.cross_entropy(logits.double(), wanted))
        accuracy = float((logits.argmax(1) == wanted).double().mean())
        if (accuracy, -loss) > (self.best_accuracy, -self.best_loss):
            self.best_loss, self.best_accuracy, self.best_epoch = loss, accuracy, self.epoch
            self.best = {k: p.clone() for k, p in self.parameters.items()}

    def _check(self) -> None:
        graph = self.graph
        if graph.y is None or graph.train is None:
            raise InvalidInput(
                f"Expected labels y in {graph.name} to train a network (got none). "
                "Try a model of your own."
            )
        seen = torch.bincount(graph.y[graph.train]).nonzero()
        if len(seen) < 2:
            raise InvalidInput(
                f"Expected at least two classes among the training nodes of {graph.name} "
                f"(got {len(seen)}): there is nothing to tell apart."
            )

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that is needed to go on."""
        tensors = {f"{g}.{k}": t.detach().cpu().contiguous().clone()
                   for g, of in self._groups().items() for k, t in of.items()}  # fmt: skip
        facts = {
            "recipe": asdict(self.recipe), "seed": self.seed, "graph": fingerprint(self.graph),
            "epoch": self.epoch, "best_epoch": self.best_epoch,
            "best_loss": min(self.best_loss, 1e300), "best_accuracy": self.best_accuracy,
        }  # fmt: skip
        write_whole(path, to_bytes(tensors, {_KEY: json.dumps(facts)}))

    def _groups(self) -> dict[str, dict[str, Tensor]]:
        return {"now": dict(self.parameters), "best": self.best, "first": self.first,
                "second": self.second}  # fmt: skip

    def take_up(self, path: str | PathLike[str]) -> bool:
        """Go on from a file of the same training; False if it is another's or cannot be read."""
        try:
            with safe_open(fspath(path), framework="pt") as file:
                facts = json.loads((file.metadata() or {}).get(_KEY, "{}"))
                tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        except (SafetensorError, OSError, ValueError):
            return False
        own = {"recipe": asdict(self.recipe), "seed": self.seed, "graph": fingerprint(self.graph)}
        if any(facts.get(key) != value for key, value in own.items()):
            return False
        device = self.graph.x.device
        for group, of in self._groups().items():
            for key, tensor in of.items():
                tensor.copy_(tensors[f"{group}.{key}"].to(device))
        self.epoch, self.best_epoch = facts["epoch"], facts["best_epoch"]
        self.best_loss, self.best_accuracy = facts["best_loss"], facts["best_accuracy"]
        return True


def train(
    graph: Graph,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    progress: Callable[[Training], object] | None = None,
) -> Trained:
    """The paper's three-layer GCN, trained on a graph.

    recipe: widths and rates; None takes the usual ones for the graph's size.
    progress: called after every epoch.
    """
    run = Training(graph, recipe, seed=seed)
    while not run.finished:
        run.step()
        if progress is not None:
            progress(run)
    return run.trained()


Product = tuple[Matrix, Matrix]
"""Â and Âᵀ."""


def propagation(graph: Graph, edges: Tensor | None = None) -> Product:
    """Of the graph, or of some of its edges (ids of `graph.edges`) alone."""
    if edges is None:
        index, weight = graph.edge_index, graph.edge_weight
    else:
        index, weight = graph.part(edges), graph.part_weight(edges)
    if weight is None:
        weight = torch.ones(index.shape[1], device=index.device)
    found = Adjacency(index, graph.nodes, mirrored=graph.undirected)
    return found.normalised(weight.float())


class Layers:
    """A GCN on one graph, with its gradient by hand."""

    def __init__(self, model: GCN, x: Tensor, product: Product) -> None:
        self.model, self.x, self.product = model, x, product
        self.sparse = SparseInput.of(x) if not widens(model.gcn_layers()[0][0]) else None
        self._kept: list[tuple[Tensor | Matrix, Tensor, Tensor | None]] = []
        self._plain: Tensor | None = None

    def forth(self, generator: torch.Generator | None, *, reuse: bool = True) -> Tensor:
        """Logits; with a generator in training mode, keeping what the way back needs.

        reuse: Â x of an earlier call still holds.
        """
        layers, there = self.model.gcn_layers(), self.product[0]
        rate = self.model.dropout.p if generator is not None else 0.0
        self._kept = []
        h, mask = self.x, None
        for i, (weight, bias) in enumerate(layers):
            kept: Tensor | Matrix
            if i == 0 and self.sparse is not None:
                values = _dropped(self.sparse.values, rate, generator)[0]
                p = there.times(self.sparse.rows.times(weight, values))
                kept = self.sparse.turned(values)
            else:
                h, mask = _dropped(h, rate, generator)
                if widens(weight):
                    fixed = i == 0 and mask is None and reuse
                    kept = self._spread_x() if fixed else there.times(h)
                    p = kept @ weight
                else:
                    kept = h
                    p = there.times(h @ weight)
            p = p if bias is None else p.add_(bias)
            if generator is not None:
                self._kept.append((kept, p, mask))
            h = p.relu()
        return p

    def back(self, slope: Tensor) -> dict[str, Tensor]:
        """Gradients of the parameters by name, from that of the last logits."""
        layers, back = self.model.gcn_layers(), self.product[1]
        gradients: dict[str, Tensor] = {}
        for i in range(len(layers) - 1, -1, -1):
            (weight, _), (kept, _, mask) = layers[i], self._kept[i]
            gradients[f"biases.{i}"] = slope.sum(0)
            if widens(weight) and isinstance(kept, Tensor):
                gradients[f"weights.{i}"] = kept.T @ slope
                down = back.times(slope @ weight.T) if i else None
            else:
                spread = back.times(slope)
                turned = kept.times(spread) if isinstance(kept, Matrix) else kept.T @ spread
                gradients[f"weights.{i}"] = turned
                down = spread @ weight.T if i else None
            if down is not None:
                slope = down.mul_(self._kept[i - 1][1] > 0)
                slope = slope if mask is None else slope.mul_(mask)
        return gradients

    def _spread_x(self) -> Tensor:
        """Â x, which no epoch changes."""
        if self._plain is None:
            self._plain = self.product[0].times(self.x)
        return self._plain


@dataclass(frozen=True, eq=False)
class SparseInput:
    """Features of which most are 0, by nodes and by columns."""

    rows: Pattern
    columns: Pattern
    values: Tensor
    """Of the entries, by rows."""

    @staticmethod
    def of(x: Tensor) -> SparseInput | None:
        """None where the features are mostly there."""
        row, column = x.nonzero(as_tuple=True)
        if len(row) > SPARSE * x.numel():
            return None
        rows, columns = Pattern.of(row, column, x.shape[0]), Pattern.of(column, row, x.shape[1])
        return SparseInput(rows, columns, x[row, column])

    def turned(self, values: Tensor) -> Matrix:
        """The transpose with these values of the entries."""
        return Matrix(self.columns, values[self.columns.slots])


def widens(weight: Tensor) -> bool:
    """Is it cheaper to spread a layer's input than its output?"""
    return weight.shape[0] <= weight.shape[1]


def _dropped(
    h: Tensor, rate: float, generator: torch.Generator | None
) -> tuple[Tensor, Tensor | None]:
    if generator is None or rate == 0:
        return h, None
    mask = torch.empty_like(h).bernoulli_(1 - rate, generator=generator).div_(1 - rate)
    return h * mask, mask


def fingerprint(graph: Graph) -> str:
    """A digest of all that a network trained on the graph depends on."""
    from ..network.fingerprint import digest

    parts = {"x": graph.x, "edges": graph.edges, "y": graph.y, "train": graph.train,
             "val": graph.val, "test": graph.test, "weight": graph.weight}  # fmt: skip
    return digest({k: t for k, t in parts.items() if t is not None}, str(graph.undirected))


def save_model(model: GCN, path: str | PathLike[str], facts: str = "GCN") -> None:
    """The weights of a GCN as safetensors; `load_model` builds the network again from them.

    facts: kept in the file's header.
    """
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in model.state_dict().items()}
    write_whole(path, to_bytes(tensors, {"greedypig": facts}))


def load_model(path: str | PathLike[str], graph: Graph) -> GCN:
    """The GCN whose weights a file holds (of `save_model`, or a torch state dict)."""
    where = Path(fspath(path))
    try:
        if where.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: Any = load_file(where)
        else:
            state = torch.load(where, map_location="cpu", weights_only=True)
        weights = [state[f"weights.{i}"] for i in range(max(len(state) // 2, 1))]
    except FileNotFoundError:
        raise
    except Exception as error:  # A damaged or foreign file can fail in any step.
        raise InvalidFile(
            f"Expected the weights of a GCN in {where.name} (got {type(error).__name__})."
        ) from error
    widths: Sequence[int] = [weights[0].shape[0], *(w.shape[1] for w in weights)]
    if widths[0] != graph.x.shape[1]:
        raise InvalidInput(
            f"Expected weights for the {graph.x.shape[1]:,} features of {graph.name} "
            f"(got {widths[0]:,} in {where.name})."
        )
    hidden = widths[1] if len(weights) > 1 else 1
    model = GCN(widths[0], widths[-1], hidden, len(weights))
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise InvalidFile(f"Expected the weights of a GCN in {where.name} (got others).") from error
    return model.to(graph.x.device).eval().requires_grad_(False)
