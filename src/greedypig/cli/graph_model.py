"""The graph and the network of a graph command: read, built or trained, and saved."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from os import fspath
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from ..core.errors import GreedyPigError
from ..graphs import Graph, Recipe, Training, load_graph, load_model
from ..graphs.training import fingerprint, save_model
from ..images.from_spec import build
from ..results.wording import count
from . import options
from .failures import Stopped, UsageError
from .graph_options import given
from .terminal import Bar, Terminal

MODEL, PARTIAL = "model.safetensors", "model.partial.pt"


@dataclass(frozen=True)
class Network:
    """A network for a graph."""

    model: nn.Module
    name: str
    """Its name in tables."""
    facts: dict[str, Any]
    """How it was trained, for --json; empty for one that was given."""
    file: Path | None
    """Where its weights were written."""


def read_graph(args: argparse.Namespace, terminal: Terminal) -> Graph:
    """The graph that the command line names; corrections to it are printed."""
    device = options.device(args.device)
    try:
        graph = load_graph(
            args.graph, nodes=args.nodes, label=args.label, undirected=not args.directed,
            seed=args.seed,
        )  # fmt: skip
    except (GreedyPigError, FileNotFoundError) as error:
        raise UsageError(str(error)) from error
    if graph.m == 0:
        raise UsageError(f"Expected edges in {graph.name} (got none).")
    for note in graph.notes:
        terminal.note(f"{graph.name}: {note}")
    return graph.to(device)


def network_for(
    graph: Graph, args: argparse.Namespace, folder: Path, terminal: Terminal, bar: Bar
) -> Network:
    """The network asked for, else the paper's GCN: trained, or loaded from an earlier run."""
    if args.model is not None or args.weights is not None:
        knobs = given(args, "hidden", "layers", "epochs")
        if knobs:
            raise UsageError(f"Expected --{next(iter(knobs))} only for a network trained here "
                             "(got --model or --weights beside it).")  # fmt: skip
        try:
            return _given_network(graph, args)
        except (GreedyPigError, FileNotFoundError) as error:
            raise UsageError(str(error)) from error
    for file in (folder / PARTIAL, folder / MODEL):
        terminal.keeps(file, args.resume)
    recipe = Recipe.of(graph, **given(args, "hidden", "layers", "epochs"))
    try:
        training = Training(graph, recipe, seed=args.seed)
    except GreedyPigError as error:
        raise UsageError(str(error)) from error
    widths = [graph.x.shape[1], *[recipe.hidden] * (recipe.layers - 1), graph.class_count]
    name = f"GCN {'-'.join(map(str, widths))}"
    file, facts = folder / MODEL, {"seed": args.seed, "graph": fingerprint(graph),
                                   "recipe": asdict(recipe)}  # fmt: skip
    kept = _facts(file)
    if kept and {k: kept.get(k) for k in facts} == facts:  # Training gives the same again.
        return Network(load_model(file, graph), name, kept, file)
    if args.resume:
        training.take_up(folder / PARTIAL)
    _train(training, folder, name, bar)
    done = training.trained()
    facts |= {"epochs": done.epochs, "best_epoch": done.best_epoch,
              "val_accuracy": done.val_accuracy}  # fmt: skip
    save_model(done.model, file, json.dumps(facts))
    (folder / PARTIAL).unlink(missing_ok=True)
    return Network(done.model, name, facts, file)


def _train(training: Training, folder: Path, name: str, bar: Bar) -> None:
    bar.label = f"training {name}"
    most = training.recipe.epochs
    bar.follow(lambda: training.epoch, most)
    try:
        while not training.finished:
            training.step()
    except KeyboardInterrupt:
        if training.epoch:
            training.save(folder / PARTIAL)
        raise Stopped(f"Stopped while training, after {count(training.epoch, 'epoch')}.") from None


def _given_network(graph: Graph, args: argparse.Namespace) -> Network:
    if args.model is None:
        return Network(
            load_model(args.weights, graph), f"GCN of {Path(args.weights).name}", {}, None
        )
    model = build(args.model).to(graph.x.device)
    if args.weights is not None:
        try:
            model.load_state_dict(_state(Path(args.weights)))
        except GreedyPigError:
            raise
        except Exception as error:  # Anything may lie in a file of that name.
            first = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise UsageError(
                f"Expected the weights of {args.model} in {args.weights} (got: {first})."
            ) from error
    return Network(model.eval().requires_grad_(False), args.model, {}, None)


def _state(path: Path) -> Any:
    if path.suffix == ".safetensors":
        from safetensors.torch import load_file

        return load_file(path)
    return torch.load(path, map_location="cpu", weights_only=True)


def _facts(file: Path) -> dict[str, Any] | None:
    """The training facts in a network's file."""
    try:
        with safe_open(fspath(file), framework="pt") as opened:
            found = json.loads((opened.metadata() or {}).get("greedypig", "null"))
    except (SafetensorError, OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


__all__ = ["Network", "network_for", "read_graph"]
