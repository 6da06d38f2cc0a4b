"""The answer of `greedypig select`: results with everything that is told of them in their notes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import greedypig as gp

from ..results import table_notes
from ..tables import Batches, Constant, Proof, Schema
from .select_options import Plan


@dataclass(frozen=True, eq=False)
class Found:
    """The answer."""

    result: gp.Attribution
    """Of the first method, with everything in its notes."""
    notes: table_notes.ColumnNotes
    proof: Proof
    others: Mapping[str, gp.Attribution]
    """Results of the other methods that have one."""
    seconds: float
    used: Mapping[str, Any]
    """What was taken where the options say nothing."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What was learned from and judged on, and by which network."""

    schema: Schema
    train: Batches
    valid: Batches
    network: str
    network_loss: float
    constant: Constant | None
    left_out: Sequence[str] = ()
    """Columns that number the rows."""
    warned: Sequence[str] = ()
    """What was warned of on the way."""


def answer(
    plan: Plan, seen: Seen, results: Mapping[str, gp.Attribution],
    orders: Mapping[str, list[list[str]]], proof: Proof, *, source: str, command: str,
    seconds: float,
) -> Found:  # fmt: skip
    """The first method's result with its notes, and the others."""
    method, a = next(iter(results.items()))
    label = seen.schema.label
    about = {
        "label": label.name, "metric": table_notes.METRICS[label.task],
        "train_rows": seen.train.rows, "valid_rows": seen.valid.rows, "seeds": plan.seeds,
        "ks": list(plan.ks),
        "task": label.in_words(),
        "losses": _plain(proof.losses), "accuracies": _plain(proof.accuracies),
        "loss_all": _one(proof.loss_all),
        "accuracy_all": None if proof.accuracy_all is None else _one(proof.accuracy_all),
        "orders": {m: rankings[0] for m, rankings in orders.items()},
        "kinds": _kinds(seen.schema.only(seen.train.schema.names)),
        "network": seen.network, "network_loss": seen.network_loss,
        "constant": None if seen.constant is None else asdict(seen.constant),
        "left_out": list(seen.left_out), "warnings": list(seen.warned),
    }  # fmt: skip
    a = a.with_notes({
        "kind": "table", "source": source, "model": seen.network,
        "baseline": plan.baseline, "objective": seen.train.schema.loss,
        "command": command, table_notes.KEY: about,
    })  # fmt: skip
    notes = table_notes.ColumnNotes.of(a)
    assert notes is not None
    others = {m: r for m, r in results.items() if m != method}
    train = seen.train
    used = {
        "valid_share": train.share if train.part is not None else None,
        "epochs": plan.effort.longest(train), "batch_size": train.batch_size,
    }  # fmt: skip
    return Found(a, notes, proof, others, seconds, used)


def _plain(by_method: Mapping[str, Mapping[int, Any]]) -> dict[str, dict[str, Any]]:
    return {m: {str(k): _one(s) for k, s in by_k.items()} for m, by_k in by_method.items()}


def _one(summary: Any) -> dict[str, float | None]:
    return {"mean": summary.mean, "standard_error": summary.standard_error}


def _kinds(schema: Schema) -> dict[str, str]:
    """Every column in a few words."""
    made = {}
    for number in schema.numbers:
        made[number.name] = ("number" + (", by its logarithm" if number.log else "")
                             + _missing(number.missing))  # fmt: skip
    for category in schema.categories:
        known = len(category.values)
        made[category.name] = f"category of {known:,}{_missing(category.missing)}"
    return made


def _missing(share: float) -> str:
    return f", {100 * share:.2g} % missing" if share > 0 else ""
