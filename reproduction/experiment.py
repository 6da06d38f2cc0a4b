"""What all reproductions share: settings, results that are kept as they come, a page with files.

Settings and the paper's numbers are in a TOML file of the experiment's name. The work is cut into
tasks, each with a file for its result. The file's name holds a digest of everything that the result
depends on. So a run that was stopped goes on from these files, a larger request only adds to them,
and several processes share the work through them.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import json
import tomllib
from argparse import Namespace
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import sha256
from math import sqrt
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

import torch

from greedypig.core.errors import GreedyPigError, InvalidInput, MissingPackage, did_you_mean
from greedypig.core.layout import Layout
from greedypig.core.methods import with_knobs
from greedypig.network.distributed import ALONE, Group
from greedypig.results.files import write_whole
from greedypig.tensors.methods import choose, within

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Record = dict[str, Any]
CPU = torch.device("cpu")
SCHEMA = 4
"""Version of the files of single results."""
OBJECTIVES = ("softmax", "log-likelihood")
PHOTO = Layout("tensor", ("x",), ((3, 224, 224),))
"""The input of the paper's networks for photos."""
MARK = "Made by `python -m reproduction"


@dataclass(frozen=True)
class Method:
    """A method as it runs in an experiment."""

    name: str
    """Its name in --methods and in files."""
    title: str
    """Its name in tables; the paper's where the paper has it."""
    knobs: Mapping[str, Any]
    """The name of its method and its knobs; empty for what `gp.explain` chooses for photos."""
    paper: Mapping[str, float] = field(default_factory=dict)
    """The paper's numbers."""
    rankings: tuple[str | None, ...] = (None,)
    """How its features are ranked; None is the default of the method."""
    budget: int | None = None
    """Gradients at most; None where that cuts nothing."""

    def __hash__(self) -> int:
        return hash(self.name)

    def run(self, objective: str = OBJECTIVES[0]) -> Any:
        """The method for this objective, within the budget."""
        knobs = dict(self.knobs)
        method = with_knobs(knobs.pop("method"), **knobs) if knobs else choose(PHOTO, objective)
        return method if self.budget is None else within(method, self.budget)

    def within(self, budget: int) -> Method:
        """The same with at most `budget` gradients; its title says so where that changes it."""
        cut = replace(self, budget=budget, title=f"{self.title} (cut)")
        changes = any(cut.run(o) != self.run(o) for o in OBJECTIVES)
        return cut if changes else self


def read_settings(name: str) -> dict[str, Any]:
    """The TOML file of an experiment, its methods as objects."""
    settings = tomllib.loads(Path(__file__).with_name(f"{name}.toml").read_text("utf-8"))
    settings["methods"] = [
        Method(m["name"], m["title"], m["method"], m.get("paper", {}), tuple(m["rankings"]))
        for m in ({"rankings": [None], **method} for method in settings["methods"])
    ]
    return settings


@dataclass(frozen=True)
class Task:
    """One result to measure."""

    item: Any
    """The argument of `measure`: hashable."""
    path: Path
    """The file of the result."""
    label: str
    measure: Callable[[Any], Record]
    name: str = ""
    """How a failure is listed; the label where it is empty."""


@dataclass(frozen=True)
class Table:
    """Our numbers beside the paper's."""

    columns: Mapping[str, str]
    """From a column's key to its heading."""
    rows: Sequence[Mapping[str, Any]]
    formats: Mapping[str, str] = field(default_factory=dict)
    """Format of a column's numbers; three decimals where there is none."""
    digits: int = 3
    """Decimals of standard errors, which are in the column KEY_error."""

    def cell(self, row: Mapping[str, Any], column: str, *, errors: bool = False) -> str:
        """A value as text, with its standard error if there is one; – where there is no value."""
        value = row.get(column)
        if value is None or value == "":
            return "–"
        if isinstance(value, str):
            return value
        error = row.get(f"{column}_error") if errors else None
        text = self.formats.get(column, "{:.3f}").format(value)
        return text if error is None else f"{text} ± {error:.{self.digits}f}"

    def markdown(self) -> list[str]:
        """The lines of the table."""
        texts = {c for row in self.rows for c in self.columns if isinstance(row.get(c), str)}
        lines = ["| " + " | ".join(self.columns.values()) + " |"]
        lines.append("|" + "".join("---|" if c in texts else "---:|" for c in self.columns))
        for row in self.rows:
            cells = [self.cell(row, c, errors=True).replace("|", "\\|") for c in self.columns]
            lines.append("| " + " | ".join(cells) + " |")
        return lines


class Experiment:
    """One run of a reproduction: its options and settings, the results so far, its files."""

    table: Table
    remarks: Sequence[str]
    """The setting, then what differs from the paper's, a sentence or two each."""
    about: Record
    """Model, judge, seed and the like, for --json."""

    def __init__(
        self,
        name: str,
        args: Namespace,
        *,
        command: str = "",
        device: torch.device = CPU,
        group: Group = ALONE,
        progress: Callable[[str, int, int], object] = lambda label, done, total: None,
    ) -> None:
        """args: the options of the command line; command: those that decide what is measured.

        progress: called before every task with its label, tasks done, tasks in all.
        """
        self.name, self.args, self.command = name, args, command or name
        self.settings = read_settings(name)
        words = ("title", "methods", "differs", "paper")
        self.key = digest(sorted((k, v) for k, v in self.settings.items() if k not in words))
        """Digest of the settings that all methods share."""
        self.device, self.group, self.progress = device, group, progress
        self.out, self.seed = Path(args.out), int(args.seed)
        self.budget: int | None = getattr(args, "budget", None)
        self.cut = False
        self.failed: dict[str, str] = {}
        """What could not be measured, each with the reason."""
        self.files: list[Path] = []

    def methods(self, budget: int | None = None) -> list[Method]:
        """The methods of --methods in the order of the settings, each within the budget."""
        known: list[Method] = self.settings["methods"]
        names = [method.name for method in known]
        wanted = names if self.args.methods is None else self.args.methods
        for name in wanted:
            if name not in names:
                raise InvalidInput(
                    f"Expected methods of {self.name} among {', '.join(names)} (got {name!r})."
                    f"{did_you_mean(name, names)}"
                )
        if not wanted:
            raise InvalidInput(f"Expected methods among {', '.join(names)} (got none).")
        chosen = [method for method in known if method.name in wanted]
        if budget is not None:
            chosen = [method.within(budget) for method in chosen]
        self.cut = any(method.budget is not None for method in chosen)
        return chosen

    # Single results.

    def place(self, folder: str, name: str, *depends: object) -> Path:
        """The file of a single result, given everything that it depends on."""
        file = f"{name}.{digest(SCHEMA, *depends)}.json"
        return self.out / "rows" / self.name / folder / file

    def measure(self, tasks: Iterable[Task]) -> dict[Any, Record]:
        """The results of the tasks by item, those that failed left out.

        Each process does its share of what is not done yet, and waits for the others. A task that
        fails leaves the reason as its result, and is tried again the next time.
        """
        tasks = list(tasks)
        share = self.group.share(tasks)
        for i, task in enumerate(share):
            self.progress(task.label, i, len(share))
            if not self.args.resume or "error" in read_record(task.path):
                _measure(task)
        self.progress("", len(share), len(share))
        self.group.barrier()
        records = {}
        for task in tasks:
            record = read_record(task.path)
            if "error" in record:
                self.failed.setdefault(task.name or task.label, record["error"])
            else:
                records[task.item] = record
        return records

    # Files.

    def csv(
        self, name: str, rows: Iterable[Mapping[str, Any]], *first: str, without: Sequence[str] = ()
    ) -> None:
        """Rows with the union of their columns, `first` before the others."""
        rows = list(rows)
        columns = dict.fromkeys([*first, *(key for row in rows for key in row)])
        names = [column for column in columns if column not in without]
        text = io.StringIO()
        writer = csv.DictWriter(text, names, extrasaction="ignore", lineterminator="\n")
        writer.writeheader()
        for row in rows:
            short = {k: f"{v:.6g}" for k, v in row.items() if isinstance(v, float)}
            writer.writerow({**row, **short})
        self._write(name, text.getvalue())

    def figure(self, name: str, draw: Callable[[], Figure]) -> None:
        """A PNG, where matplotlib is installed."""
        if self.group.first and importlib.util.find_spec("matplotlib") is not None:
            metadata = {"Software": "greedypig"}
            save = partial(draw().savefig, format="png", dpi=130, metadata=metadata)
            self._write(name, save)

    def page(self, table: Table, remarks: Sequence[str], **about: Any) -> None:
        """Write the Markdown page: table, remarks, pictures, failures."""
        first, *others = remarks
        if self.cut:
            others.insert(
                0,
                f"Run with at most {self.budget:,} gradients a method, fewer than the paper's: a "
                "quick look.",
            )
        title, self.table = self.settings["title"], table
        self.remarks = [first, *others, *self.settings["differs"]]
        self.about = {"seed": self.seed, "budget": self.budget} | about
        lines = [f"# {title}", "", f"{MARK} {self.command}`.", "", *table.markdown()]
        lines += ["", *(f"- {remark}" for remark in self.remarks)]
        for picture in (file for file in self.files if file.suffix == ".png"):
            lines += ["", f"![{title}]({picture.name})"]
        if self.failed:
            lines += ["", "Left out, as they could not be read or explained:", ""]
            lines += [f"- {Path(name).name}: {reason}" for name, reason in self.failed.items()]
        self._write(f"{self.name}.md", "\n".join(lines) + "\n")

    def expect(self, results: Mapping[Any, Record] | Sequence[Any]) -> None:
        """Refuse to go on without any result."""
        if not results:
            last = next(reversed(self.failed.values()), "There was nothing to measure.")
            raise InvalidInput(f"Expected at least one result (got none). The last: {last}")

    def _write(self, name: str, content: Any) -> None:
        if self.group.first:
            self.out.mkdir(parents=True, exist_ok=True)
            write_whole(self.out / name, content)
            self.files.append(self.out / name)


def digest(*parts: object) -> str:
    """A short digest for names of files."""
    return sha256("\n".join(map(str, parts)).encode()).hexdigest()[:12]


def read_record(path: Path) -> Record:
    """The result in a file; {"error": reason} of what failed or is not there, or not whole."""
    try:
        record: Record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"error": "It was not measured."}
    return record


def write_record(path: Path, record: Mapping[str, Any]) -> None:
    """Write a result, whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, json.dumps(record, allow_nan=False))


def _measure(task: Task) -> None:
    try:
        write_record(task.path, task.measure(task.item))
    except (MissingPackage, OSError):
        raise
    except Exception as error:
        text = " ".join(str(error).split())[:300]
        kind = "" if isinstance(error, GreedyPigError) else f"{type(error).__name__}: "
        write_record(task.path, {"error": f"{kind}{text}"})


def mean_and_error(values: Sequence[float]) -> tuple[float | None, float | None]:
    """The mean and its standard error, None where there are too few values."""
    if not values:
        return None, None
    return fmean(values), stdev(values) / sqrt(len(values)) if len(values) > 1 else None
