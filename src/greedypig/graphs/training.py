"""Train the paper's network on a graph: full batch, Adam, early stopping, the same for a seed.

Every epoch draws its dropout from a generator of its own, so a run that goes on from its file gives
the same network as one that never stopped. Global random state is not touched.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor
from torch.nn import functional

from ..core.errors import Argument, InvalidFile, InvalidInput
from ..network.fingerprint import digest
from ..network.randomness import Fork
from ..results.files import is_ours, write_whole
from ..types import PathOrText
from .files import read_tensors
from .gcn import GCN
from .graph import Graph
from .propagation import Adjacency, Normalised

LARGE = 50_000
"""From so many nodes on the network is wider and is validated less often."""
SPARSE = 0.2
"""Share of features that are not 0 up to which they are multiplied as a sparse matrix."""
MODEL, PARTIAL = "model.safetensors", "model.partial.pt"
"""The files of a folder: the network, and the state of a training that was stopped."""
PROGRESS = ("best", "epoch", "best_epoch", "best_loss", "val_accuracy")
"""Attributes of a `Training` that its file holds."""


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
    """Epochs between two validations."""

    @staticmethod
    def of(graph: Graph, **given: Any) -> Recipe:
        """The usual recipe for a graph of this size; what is given goes first."""
        usual: dict[str, Any] = {}
        if graph.nodes >= LARGE:
            usual = {"hidden": 256, "decay": 0.0, "epochs": 100, "patience": 25, "every": 5}
        return Recipe(**(usual | {k: v for k, v in given.items() if v is not None}))


class Training:
    """One run of training that can be stopped after any epoch, saved, and continued.

    After `finish`, `model` is the network that did best on the validation nodes, in eval mode and
    without parameter gradients.
    """

    def __init__(self, graph: Graph, recipe: Recipe | None = None, *, seed: int = 0) -> None:
        self.graph, self.recipe, self.seed = graph, recipe or Recipe.of(graph), seed
        if graph.y is None or graph.train is None:
            raise InvalidInput(
                f"Expected labels y in {graph.name} to train a network (got none). "
                "Try a model of your own."
            )
        if torch.bincount(graph.y[graph.train]).count_nonzero() < 2:
            raise InvalidInput(
                f"Expected at least two classes among the training nodes of {graph.name} (got 1)."
            )
        self.y, own = graph.y, self.recipe
        sizes = (graph.x.shape[1], graph.class_count, own.hidden, own.layers, own.dropout)
        self.model: GCN = Fork(seed).call(GCN, *sizes).to(graph.x.device)
        first, *rest = self.model.parameters()
        groups: list[dict[str, Any]] = [
            {"params": [first], "weight_decay": own.decay},
            {"params": rest},
        ]
        self.adam = torch.optim.Adam(groups, lr=own.rate)
        self.best = self._state()
        self.best_loss, self.best_epoch, self.val_accuracy = float("inf"), 0, 0.0
        self.epoch = 0
        self.matrix, self.x = graph_matrix(graph), features_of(graph)

    @property
    def name(self) -> str:
        """GCN 1433-64-64-7: the widths of the network's layers."""
        first, *rest = (weight.shape for weight in self.model.weights)
        return f"GCN {'-'.join(map(str, (*first, *(shape[1] for shape in rest))))}"

    @property
    def finished(self) -> bool:
        """Is there no epoch left to run?"""
        waited = self.epoch - self.best_epoch
        return self.epoch >= self.recipe.epochs or waited >= self.recipe.patience

    def step(self) -> None:
        """One epoch."""
        train = self.graph.train
        self.model.train()
        generator = Fork((self.seed + 1) * 1_000_003 + self.epoch)
        with torch.enable_grad():
            logits = generator.call(self.model.propagate, self.x, self.matrix)
            self.adam.zero_grad()
            loss = functional.cross_entropy(logits[train], self.y[train])
            loss.backward()  # type: ignore[no-untyped-call]
        self.adam.step()
        self.epoch += 1
        if self.epoch % self.recipe.every == 0 or self.epoch == self.recipe.epochs:
            self._validate()

    def finish_in(self, folder: PathOrText, *, resume: bool = True) -> Training:
        """`finish`, with the network written to the folder; one that this training has written
        there before is taken.

        resume: go on with a training that was stopped there by Ctrl-C.
        """
        file, partial = Path(folder) / MODEL, Path(folder) / PARTIAL
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.exists() and not is_ours(file):
            raise InvalidInput(
                f"Expected {file} to be free, or a file of greedypig (got another, which is left "
                "alone).",
                advice=Argument("folder", "FOLDER"),
            )
        saved, identity = _facts(file), self.identity()
        if {name: saved.get(name) for name in identity} == identity:
            self.model = load_model(file, self.graph)  # Training gives the same again.
            self.epoch, self.best_epoch = saved["epochs"], saved["best_epoch"]
            self.val_accuracy = saved["val_accuracy"]
            return self
        if resume:
            self.take_up(partial)
        try:
            self.finish()
        except KeyboardInterrupt:
            if self.epoch:
                self.save(partial)
            raise
        save_model(self.model, file, json.dumps(self.facts()))
        partial.unlink(missing_ok=True)
        return self

    def finish(self) -> Training:
        """All epochs that are left; then `model` is the best network."""
        while not self.finished:
            self.step()
        self.model.load_state_dict(self.best)
        self.model.eval().requires_grad_(False)
        return self

    def _validate(self) -> None:
        """Keep the parameters if they do better on the validation nodes."""
        val = self.graph.val
        with torch.no_grad():
            logits, y = self.model.eval().propagate(self.x, self.matrix)[val], self.y[val]
        loss = float(functional.cross_entropy(logits.double(), y))
        accuracy = float((logits.argmax(1) == y).double().mean())
        if (accuracy, -loss) > (self.val_accuracy, -self.best_loss):
            self.best_loss, self.val_accuracy, self.best_epoch = loss, accuracy, self.epoch
            self.best = self._state()

    def _state(self) -> dict[str, Tensor]:
        return {k: t.clone() for k, t in self.model.state_dict().items()}

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that is needed to continue."""
        content = {name: getattr(self, name) for name in PROGRESS}
        content |= {"model": self.model.state_dict(), "adam": self.adam.state_dict()}
        content["run"] = self.identity()
        write_whole(path, lambda file: torch.save(content, file))

    def take_up(self, path: str | PathLike[str]) -> bool:
        """Continue from a file of the same training; False if it is another's or unreadable."""
        try:
            with open(path, "rb") as file:
                content = torch.load(file, map_location=self.graph.x.device, weights_only=True)
            if content["run"] != self.identity():
                return False
        except Exception:  # A damaged or foreign file can fail in any step.
            return False
        self.model.load_state_dict(content["model"])
        self.adam.load_state_dict(content["adam"])
        for name in PROGRESS:
            setattr(self, name, content[name])
        return True

    def identity(self) -> dict[str, Any]:
        """All that the trained network depends on."""
        return {"recipe": asdict(self.recipe), "seed": self.seed, "graph": fingerprint(self.graph)}

    def facts(self) -> dict[str, Any]:
        """How the network was trained, as its file says."""
        result = {"epochs": self.epoch, "best_epoch": self.best_epoch}
        return self.identity() | result | {"val_accuracy": self.val_accuracy}


def train(
    graph: Graph,
    recipe: Recipe | None = None,
    *,
    seed: int = 0,
    folder: PathOrText | None = None,
) -> Training:
    """The paper's three-layer GCN, trained on a graph: `train(graph).model`.

    recipe: widths and rates; None takes the usual ones for the graph's size.
    folder: keeps the network, or the state of a training that was stopped by Ctrl-C: the same call
        goes on from there.
    """
    training = Training(graph, recipe, seed=seed)
    return training.finish() if folder is None else training.finish_in(folder)


def graph_matrix(graph: Graph) -> Normalised:
    """Â of the graph."""
    return Adjacency(graph.edge_index, graph.nodes).normalised(graph.edge_weight)


def features_of(graph: Graph) -> Tensor:
    """x, as a sparse matrix where most of it is 0."""
    few = graph.x.count_nonzero() <= SPARSE * graph.x.numel()
    return graph.x.to_sparse_coo().coalesce() if few else graph.x  # type: ignore[no-untyped-call]


def fingerprint(graph: Graph) -> str:
    """A digest of all that a network trained on the graph depends on."""
    names = ("x", "edges", "y", "train", "val", "test", "weight")
    parts = {name: getattr(graph, name) for name in names}
    return digest({k: t for k, t in parts.items() if t is not None}, str(graph.undirected))


def save_model(model: GCN, path: str | PathLike[str], facts: str = "GCN") -> None:
    """Save the weights of a GCN as safetensors; `load_model` builds the network from them.

    facts: text for the file's header.
    """
    tensors = {k: t.detach().cpu().contiguous().clone() for k, t in model.state_dict().items()}
    write_whole(path, to_bytes(tensors, {"greedypig": facts}))


def _facts(file: Path) -> dict[str, Any]:
    """The training facts in a network's file; none where it has none."""
    try:
        with safe_open(fspath(file), framework="pt") as opened:
            facts = json.loads((opened.metadata() or {}).get("greedypig", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def load_model(path: str | PathLike[str], graph: Graph) -> GCN:
    """The GCN whose weights a file holds (of `save_model`, or a torch state dict)."""
    where = Path(fspath(path))
    try:
        state = read_tensors(where)
        weights = [state[f"weights.{i}"] for i in range(max(len(state) // 2, 1))]
        widths = [weights[0].shape[0], *(w.shape[1] for w in weights)]
        model = GCN(widths[0], widths[-1], widths[1], len(weights))
        model.load_state_dict(state)
    except FileNotFoundError:
        raise
    except Exception as error:  # A damaged or foreign file can fail in any step.
        raise InvalidFile(
            f"Expected the weights of a GCN in {where.name} (got {type(error).__name__})."
        ) from error
    if widths[0] != graph.x.shape[1]:
        raise InvalidInput(
            f"Expected weights for the {graph.x.shape[1]:,} features of {graph.name} "
            f"(got {widths[0]:,} in {where.name})."
        )
    return model.to(graph.x.device).eval().requires_grad_(False)
