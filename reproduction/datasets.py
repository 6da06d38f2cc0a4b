"""The tables on which selections are compared: generated, from `make assets`, or given by path.

A dataset knows its columns, how they are encoded (one pass, kept in the results' folder), and how
its rows are split into training and validation rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from greedypig.core.errors import InvalidFile, InvalidInput
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.tables import CRITEO, Batches, Reading, Survey, Table, open_table, survey

from . import cache
from .cache import digest
from .job import Job
from .synthetic import CriteoShaped

LABELS = ("label", "Label", "target", "y")
"""Names of a label, where none is given."""


@dataclass(frozen=True)
class Repeats:
    """How often everything is repeated on a table."""

    models: int
    """Networks, each with its own seed."""
    selections: int
    """Selection seeds for each network."""
    retrainings: int
    """Fresh networks for each selected set of columns."""
    splits: int
    """Different splits of the rows; network m has split m modulo this."""


@dataclass(frozen=True, eq=False)
class Dataset:
    """A table that is ready for training."""

    name: str
    """A word that serves as a folder's name too."""
    title: str
    table: Table
    survey: Survey
    repeats: Repeats
    valid_share: float
    batch_size: int
    truth: CriteoShaped | None = None
    """The generator, where the table is generated."""

    @property
    def names(self) -> list[str]:
        """The columns, in the order of a network's gates."""
        return self.survey.schema.names

    @property
    def key(self) -> str:
        """A digest of the rows, as far as a pass over them tells."""
        schema = self.survey.schema
        numbers = [(c.name, c.mean, c.deviation, c.log) for c in schema.numbers]
        categories = [(c.name, c.size, c.values[:100]) for c in schema.categories]
        return digest(self.survey.rows, numbers, categories, schema.label.name,
                      schema.label.mean, self.valid_share, self.batch_size)  # fmt: skip

    def split_of(self, model: int) -> int:
        """The split of a network."""
        return model % self.repeats.splits

    def rows(self, part: Literal["train", "valid"], model: int) -> Batches:
        """The training or validation rows of a network."""
        split = self.split_of(model)
        return Batches(
            self.table, self.survey, batch_size=self.batch_size, part=part,
            share=self.valid_share, split_seed=split, seed=split,
        )  # fmt: skip


def open_dataset(name: str, job: Job) -> Dataset:
    """The table called `name`: "generated", one of `make assets`, or a path."""
    request = job.request
    known = {**job.more["table"], **job.more.get(name, {})}
    truth, label, title = None, request.label, ""
    if name == "generated":
        rows = request.rows or known["rows"]
        loyalty = known["loyalty"] if request.loyalty is None else request.loyalty
        truth = CriteoShaped(rows, seed=request.seed, loyalty=loyalty)
        path, label = _generated(truth, job), truth.label
        title = f"{known['title']}, {rows:,} rows, copies {loyalty:g} like their source"
    elif "file" in known:
        path, label = assets_folder() / "tables" / known["file"], known["label"]
        if not path.is_file():
            raise InvalidInput(
                f"Expected the table {name} of `make assets` (got none). "
                "Try make assets, --tables generated, or the path of a table."
            )
    else:
        path, name = Path(name), Path(name).name.split(".")[0] or "table"
    table = open_table(str(path))
    label = label or _label_of(table)
    table = table.without([c for c in known.get("drop", ()) if c in table.kinds])
    encoding = _surveyed(table, label, job)
    return Dataset(
        name, title or f"{known.get('title', name)}, {encoding.total:,} rows", table, encoding,
        _repeats(known, job), known["valid"], job.more["batch_size"], truth,
    )  # fmt: skip


def _repeats(known: Mapping[str, Any], job: Job) -> Repeats:
    names = ("models", "selections", "retrainings")
    models, selections, retrainings = (getattr(job.request, n) or known[n] for n in names)
    return Repeats(models, selections, retrainings, known.get("splits", models))


def _label_of(table: Table) -> str:
    for name in LABELS:
        if name in table.kinds:
            return name
    raise InvalidInput(
        f"Expected a label in {table.source}, one of {', '.join(LABELS)} (got none). "
        "Try --label NAME."
    )


def _generated(truth: CriteoShaped, job: Job) -> Path:
    """The generated rows as a file, written once."""
    name = f"generated-{truth.rows}-{truth.seed}-{truth.loyalty:g}.parquet"
    path = job.request.out / "rows" / job.name / name
    if job.request.group.first and not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        job.request.progress("generating rows", 0, 1)
        truth.write(path)
    job.request.group.barrier()
    return path


def reading_of(table: Table) -> Reading:
    """How columns with Criteo's names are read: counts by their logarithm, hashes as categories."""
    counts = tuple(c for c in CRITEO[1:14] if c in table.kinds)
    hashes = tuple(c for c in CRITEO[14:] if c in table.kinds)
    if len(counts) + len(hashes) < len(table.kinds) - 1:
        return Reading()
    return Reading(categorical=hashes, numeric=counts, log=counts)


def _surveyed(table: Table, label: str, job: Job) -> Survey:
    """The survey of a table, kept for the next run; every process reads the same file."""
    sizes = [(f.path.name, f.path.stat().st_size, f.path.stat().st_mtime_ns) for f in table.files]
    path = job.place("tables", "survey", sizes, sorted(table.kinds), label)
    if job.request.group.first and cache.read(path) is None:
        job.request.progress("reading the table once", 0, 1)
        cache.write(path, {"survey": survey(table, label, reading_of(table)).to_json()})
    job.request.group.barrier()
    record = cache.read(path)
    if record is None:
        raise InvalidFile(f"Expected the survey of {table.source} in {path} (got none).")
    return Survey.from_json(record["survey"])
