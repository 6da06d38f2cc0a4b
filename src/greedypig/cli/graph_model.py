"""What the graph commands share: the graph, its network, and their results."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from os import fspath
from pathlib import Path
from typing import Any

from torch import nn

from ..core.attribution import Attribution
from ..graphs import Graph, Recipe, Training, load_graph
from ..graphs.given_model import given_model
from ..graphs.training import MODEL
from ..results.wording import count
from . import options, outputs
from .commands import TRAINING
from .failures import Stopped, UsageError, wrong_command
from .resumable import Explain, Session
from .terminal import Bar, Terminal, duration


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
        recipe = {name: getattr(args, name) for name in TRAINING if getattr(args, name) is not None}
        with wrong_command():
            if args.model is not None or args.weights is not None:
                for option in recipe:
                    raise UsageError(
                        f"Expected --{option} only for a network trained here (got --model or "
                        "--weights beside it)."
                    )
                model = given_model(graph, args.model, args.weights)
                name = args.model or f"GCN of {Path(args.weights).name}"
                self.network = Network(model, name, {}, None)
                self._print_notes()
                return
            training = Training(graph, Recipe.of(graph, **recipe), seed=args.seed)
        self._print_notes()
        bar.label = f"training {training.name}"
        bar.follow(lambda: training.epoch, training.recipe.epochs)
        try:
            training.finish_in(self.folder, resume=args.resume)
        except KeyboardInterrupt:
            epochs = count(training.epoch, "epoch")
            raise Stopped(f"Stopped while training, after {epochs}.") from None
        file = self.folder / MODEL
        self.network = Network(training.model, training.name, training.facts(), file)

    def _print_notes(self) -> None:
        """What was corrected in the graph, once nothing is wrong with the command."""
        for note in self.graph.notes:
            self.terminal.note(f"{self.graph.name}: {note}")

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
