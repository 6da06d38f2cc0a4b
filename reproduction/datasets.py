"""The tables on which selections are compared: generated, brought by `make assets`, or one's own.

A ground knows its columns, how they are encoded (one pass, kept in the results' folder), and how
its rows are split into those that are learned from and those that judge.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from greedypig.core.errors import InvalidFile, InvalidInput
from greedypig.images.networks.assets_folder import assets_folder
from greedypig.tables import CRITEO, Batches, Reading, Survey, Table, open_table, survey
from greedypig.tables.synthetic import CriteoShaped

from . import cache
from .cache import Shelf
from .request import Request
from .settings import Settings, digest

LABELS = ("label", "Label", "target", "y")
"""What a label is called where nobody says."""


@dataclass(frozen=True)
class Plan:
    """How often what is repeated on a table."""

    models: int
    """Networks, each of a seed of its own."""
    selections: int
    """Selection seeds for each network."""
    retrainings: int
    """Fresh networks for each chosen set of columns and split."""
    splits: int
    """Different splits of the rows; network m has split m modulo this."""
    valid: float
    """Share of the rows that judge."""


@dataclass(frozen=True, eq=False)
class Ground:
    """A table that is ready to be learned from."""

    name: str
    """A word that serves as a folder's name too."""
    title: str
    table: Table
    survey: Survey
    plan: Plan
    batch_size: int
    truth: CriteoShaped | None = None

    @property
    def names(self) -> list[str]:
        """The columns, in the order of a network's gates."""
        return self.survey.schema.names

    @property
    def key(self) -> str:
        """A digest of what the rows are, as far as a pass over them tells."""
        schema = self.survey.schema
        numbers = [(c.name, c.mean, c.deviation, c.log) for c in schema.numbers]
        categories = [(c.name, c.size, c.values[:100]) for c in schema.categories]
        return digest(self.survey.rows, numbers, categories, schema.label.name,
                      schema.label.mean, self.plan.valid, self.batch_size)  # fmt: skip

    def train(self, split: int) -> Batches:
        """The rows to learn from."""
        return self._batches("train", split)

    def valid(self, split: int) -> Batches:
        """The rows that judge."""
        return self._batches("valid", split)

    def split_of(self, model: int) -> int:
        """Which split a network has."""
        return model % self.plan.splits

    def _batches(self, part: Any, split: int) -> Batches:
        return Batches(
            self.table, self.survey, batch_size=self.batch_size, part=part,
            share=self.plan.valid, split_seed=split, seed=split,
        )  # fmt: skip


def open_ground(name: str, request: Request, settings: Settings, shelf: Shelf) -> Ground:
    """The table called `name`: "generated", one of `make assets`, or a path."""
    more = settings.more
    known = {**more["table"], **more.get(name, {})}
    truth = None
    label: str | None
    if name == "generated":
        rows = request.tables.rows or known["rows"]
        loyalty = request.tables.loyalty
        loyalty = known["loyalty"] if loyalty is None else loyalty
        truth = CriteoShaped(rows, seed=request.seed, loyalty=loyalty)
        place = str(_generated(truth, shelf, request))
        label = truth.label
        title = f"{known['title']}, {rows:,} rows, copies {loyalty:g} like their source"
    elif "file" in known:
        place = str(assets_folder() / "tables" / known["file"])
        if not Path(place).is_file():
            raise InvalidInput(
                f"Expected the table {name} of `make assets` (it is not there). "
                "Try make assets, --tables generated, or the path of a table."
            )
        label, title = known["label"], known["title"]
    else:
        place, label = name, request.tables.label
        name = title = Path(name).name.split(".")[0] or "table"
    table = open_table(place)
    label = label or _label_of(table)
    table = table.without([c for c in known.get("drop", ()) if c in table.kinds])
    found = _surveyed(table, label, shelf, request)
    if truth is None:
        title = f"{title}, {found.total:,} rows"
    return Ground(name, title, table, found, _plan(known, request), more["batch_size"], truth)


def _plan(known: Mapping[str, Any], request: Request) -> Plan:
    asked = request.tables
    models = asked.models or known["models"]
    return Plan(
        models, asked.selections or known["selections"],
        asked.retrainings or known["retrainings"], known.get("splits", models), known["valid"],
    )  # fmt: skip


def _label_of(table: Table) -> str:
    for name in LABELS:
        if name in table.kinds:
            return name
    raise InvalidInput(
        f"Expected a label in {table.source}, one of {', '.join(LABELS)} (got none). "
        "Try --label NAME."
    )


def _generated(truth: CriteoShaped, shelf: Shelf, request: Request) -> Path:
    """The generated rows as a file; made once."""
    place = shelf.folder / f"generated-{truth.rows}-{truth.seed}-{truth.loyalty:g}.parquet"
    if request.group.first and not place.exists():
        shelf.folder.mkdir(parents=True, exist_ok=True)
        request.progress("making rows", 0, 1)
        truth.write(place)
    request.group.barrier()
    return place


def reading_of(table: Table) -> Reading:
    """Columns called as Criteo's are read so: counts by their logarithm, hashes as categories."""
    counts = tuple(c for c in CRITEO[1:14] if c in table.kinds)
    hashes = tuple(c for c in CRITEO[14:] if c in table.kinds)
    if len(counts) + len(hashes) < len(table.kinds) - 1:
        return Reading()
    return Reading(categorical=hashes, numeric=counts, log=counts)


def _surveyed(table: Table, label: str, shelf: Shelf, request: Request) -> Survey:
    """The survey of a table, kept for the next time; every process reads the same one."""
    sizes = [(f.path.name, f.path.stat().st_size, f.path.stat().st_mtime_ns) for f in table.files]
    place = shelf.place("tables", "survey", sizes, sorted(table.kinds), label)
    if request.group.first and cache.read(place) is None:
        request.progress("reading the table once", 0, 1)
        made = survey(table, label, reading_of(table))
        cache.write(place, {"survey": made.to_json()})
    request.group.barrier()
    kept = cache.read(place)
    if kept is None:
        raise InvalidFile(f"Expected the survey of {table.source} in {place} (got none).")
    return Survey.from_json(kept["survey"])
