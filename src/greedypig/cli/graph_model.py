"""What the graph commands share: the graph, its network, and their results."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import nn

from ..core.attribution import Attribution
from ..core.errors import GreedyPigError, first_line
from ..graphs import Graph, Recipe, Training, load_graph, load_model, save_model
from ..graphs.compression import logits_of
from ..graphs.files import read_tensors
from ..network.from_spec import build
from ..results.wording import count
from . import options, outputs
from .commands import TRAINING
from .failures import Stopped, UsageError, wrong_command
from .resumable import Explain, Session
from .terminal import Bar, Terminal, duration

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


class GraphJob:
    """One call of a graph command: its graph and its folder, then its network and its results.

    ending: of the default folder's name.
    """

    network: Network
    """Known after `find_network`."""

    def __init__(self, args: argparse.Namespace, terminal: Terminal, ending: str) -> None:
        self.args, self.terminal = args, terminal
        self.graph = self._read_graph()
        self.folder = outputs.result_folder(args.out, f"{self.graph.name}-{ending}")

    def _read_graph(self) -> Graph:
        """The graph that the command line names."""
        args, device = self.args, options.device(self.args.device)
        with wrong_command():
            graph = load_graph(
                args.graph,
                nodes=args.nodes,
                label=args.label,
                undirected=not args.directed,
                seed=args.seed,
            )
        if graph.m == 0:
            raise UsageError(f"Expected edges in {graph.name} (got none).")
        return graph.to(device)

    def files(self, *names: str) -> list[Path]:
        """Files of the folder that are free, or greedypig's own."""
        files = [self.folder / name for name in names]
        outputs.refuse_foreign([*files, self.folder / MODEL])
        return files

    def session(self, name: str) -> Session:
        """The session of a result in the folder."""
        (file,) = self.files(name)
        return Session(file, self.args.resume, searching=0.95)

    def names(self) -> dict[str, str]:
        """Source, model and command in the facts of the results."""
        return {
            "command": self.terminal.command_line(),
            "source": Path(self.args.graph).name,
            "model": self.network.name,
        }

    def answer(self, session: Session, explain: Explain, stopped: str) -> Attribution:
        """A result, saved; settings that do not fit are a wrong command."""
        with wrong_command():
            return session.answer(explain, stopped)

    def find_network(self, bar: Bar) -> None:
        """Take the network asked for, else the paper's GCN: trained, or from an earlier run."""
        args, graph = self.args, self.graph
        own = {name: getattr(args, name) for name in TRAINING if getattr(args, name) is not None}
        with wrong_command():
            if args.model is not None or args.weights is not None:
                self.network = self._given_network(list(own))
                self._print_notes()
                return
            training = Training(graph, Recipe.of(graph, **own), seed=args.seed)
        self._print_notes()
        file, partial, name = self.folder / MODEL, self.folder / PARTIAL, training.name
        facts, saved = training.identity(), _facts(file)
        if {k: saved.get(k) for k in facts} == facts:  # Training gives the same again.
            self.network = Network(load_model(file, graph), name, saved, file)
            return
        if args.resume:
            training.take_up(partial)
        bar.label = f"training {name}"
        bar.follow(lambda: training.epoch, training.recipe.epochs)
        try:
            training.finish()
        except KeyboardInterrupt:
            if training.epoch:
                training.save(partial)
            epochs = count(training.epoch, "epoch")
            raise Stopped(f"Stopped while training, after {epochs}.") from None
        facts |= {"epochs": training.epoch, "best_epoch": training.best_epoch}
        facts["val_accuracy"] = training.val_accuracy
        save_model(training.model, file, json.dumps(facts))
        partial.unlink(missing_ok=True)
        self.network = Network(training.model, name, facts, file)

    def _print_notes(self) -> None:
        """What was corrected in the graph, once nothing is wrong with the command."""
        for note in self.graph.notes:
            self.terminal.note(f"{self.graph.name}: {note}")

    def _given_network(self, training: Sequence[str]) -> Network:
        args, graph = self.args, self.graph
        for option in training:
            raise UsageError(
                f"Expected --{option} only for a network trained here (got --model or --weights "
                "beside it)."
            )
        if args.model is None:
            name = f"GCN of {Path(args.weights).name}"
            return Network(load_model(args.weights, graph), name, {}, None)
        model = build(args.model).to(graph.x.device)
        if args.weights is not None:
            try:
                model.load_state_dict(read_tensors(Path(args.weights)))
            except Exception as error:  # Anything may lie in a file of that name.
                raise UsageError(
                    f"Expected the weights of {args.model} in {args.weights} "
                    f"(got: {first_line(error) or type(error).__name__})."
                ) from error
        model.eval().requires_grad_(False)
        try:
            logits_of(model, graph)(None)
        except GreedyPigError:
            raise
        except Exception as error:
            raise UsageError(
                f"Expected {args.model} to take (x, edge_index, edge_weight) "
                f"(got {type(error).__name__}: {first_line(error)})."
            ) from error
        return Network(model, args.model, {}, None)

    def finish(self, a: Attribution, own: dict[str, Any], files: Sequence[Path]) -> None:
        """Print what all graph commands have cost and written, and the object of --json."""
        cost = f"{count(a.gradients_used, 'gradient')} in {duration(a.seconds)}"
        self.terminal.say(f"{cost}; {outputs.wrote(files)}")
        settings = {"model": self.network.name, "seed": self.args.seed}
        self.terminal.result(
            own
            | {
                "method": a.settings["method"],
                "gradients": a.gradients_used,
                "seconds": a.seconds,
                "settings": dict(a.settings) | settings | {"training": self.network.facts},
                "files": [fspath(file) for file in files],
            }
        )


def _facts(file: Path) -> dict[str, Any]:
    """The training facts in a network's file; none where it has none."""
    try:
        with safe_open(fspath(file), framework="pt") as opened:
            facts = json.loads((opened.metadata() or {}).get("greedypig", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}
