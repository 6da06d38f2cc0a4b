"""One file per result: tensors as safetensors, everything else as JSON in its header.

Reading never runs code: safetensors holds numbers only, and the JSON is data. A digest covers all
that is in the file. A file of another schema is refused, and so is one whose fields do not fit
each other: a stranger may have written it, with a digest that is right.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isnan, nan, prod
from os import PathLike, fspath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..core.attribution import Attribution, check_attachment
from ..core.errors import GreedyPigError, InvalidFile, InvalidInput, first_line
from ..core.features import Elements, Features, Groups, Windows
from ..core.layout import Layout
from ..core.records import read
from ..core.stopping import StopReason
from ..network.fingerprint import digest
from .files import write_whole
from .kinds import facts_of

SCHEMA = 3
KEY = "greedypig"
CHECK = "digest"
ATTACHMENTS = "attachments."
REFUSED = (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError)
"""Errors that a file of another kind leads to."""
TENSORS = ("order", "feature_scores", "values", "last_scores")
SCORES = ("first_scores", "score_sums")
"""Tensors that a result may lack."""


COSTS = ("gradients_used", "forwards_used", "seconds")
PLAIN = ("selected", *COSTS, "settings", "provenance")
"""Fields of a result that JSON holds as they are."""


def save(attribution: Attribution, path: str | PathLike[str]) -> None:
    """Write `attribution` to `path`, whole or not at all."""
    a = attribution
    features, feature_tensors = a.features.state()
    record = {name: getattr(a, name) for name in PLAIN} | {
        "schema": SCHEMA,
        "about": a.about.record(),
        "picks": a.picks,
        "full_value": None if isnan(a.full_value) else a.full_value,
        "totals": [None if isnan(total) else total for total in a.totals],
        "stop": a.stop.name,
        "features": features,
        "layout": {"kind": a.layout.kind, "names": a.layout.names, "shapes": a.layout.shapes},
    }
    tensors = {name: getattr(a, name) for name in (*TENSORS, *SCORES)}
    tensors |= {f"features.{name}": tensor for name, tensor in feature_tensors.items()}
    for name, tensor in a.attachments.items():
        check_attachment(name, tensor)
        tensors[ATTACHMENTS + name] = tensor
    try:
        text = json.dumps(record, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFile(
            f"Expected settings and notes that JSON can hold (got: {error})."
        ) from error
    whole = {
        name: tensor.detach().cpu().contiguous().clone()
        for name, tensor in sorted(tensors.items())
        if tensor is not None
    }
    # The digest is in the JSON, because safetensors writes several texts in any order and equal
    # results are to be equal files.
    sealed = json.dumps({**record, CHECK: digest(whole, text)})
    write_whole(path, to_bytes(whole, metadata={KEY: sealed}))


def load(path: str | PathLike[str]) -> Attribution:
    """Read a result written by `Attribution.save`; anything else is refused with a reason."""
    name = fspath(path)
    if not os.path.exists(name):
        raise FileNotFoundError(f"Expected a result file at {name!r} (there is none).")
    if not os.path.isfile(name):  # Opening a pipe would wait for ever.
        got = "a folder" if os.path.isdir(name) else "no file"
        raise InvalidFile(f"Expected a result file at {name!r} (got {got}). Try a .gpig file.")
    try:
        with safe_open(name, framework="pt") as file:
            record = json.loads((file.metadata() or {})[KEY])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return _build(record, tensors, repr(name))
    except GreedyPigError as error:
        raise InvalidFile(str(error)) from error
    except REFUSED as error:
        raise InvalidFile(
            f"Expected a greedypig result in {name!r} (got a file that is damaged or of another "
            f"kind: {type(error).__name__}: {error})."
        ) from error


@dataclass(frozen=True)
class _Features:
    """`Features.state`, as JSON holds it; the last four are those of windows."""

    kind: str
    n: int
    names: tuple[str, ...] | None = None
    shape: tuple[int, ...] = ()
    size: int = 0
    axes: tuple[int, ...] = ()
    stride: int = 0

    def restored(self, layout: Layout, tensors: Mapping[str, Tensor]) -> Features:
        """The features; whatever is wrong with the record is one of the errors REFUSED."""
        boxed = prod(self.shape) if self.kind == "windows" else self.n
        if not boxed == self.n == layout.n:  # Before windows take memory.
            raise InvalidInput(f"Expected the layout's {layout.n} values (got {boxed}).")
        if self.kind == "elements":
            return Elements(self.n, self.names)
        if self.kind == "groups":
            return Groups(tensors["features.ids"], self.names)
        if self.kind == "windows":
            shape, size, axes, stride = self.shape, self.size, self.axes, self.stride
            return Windows(shape, size, axes=axes, stride=stride, names=self.names)
        raise InvalidInput(f"Expected elements, groups or windows (got {self.kind!r:.60}).")


@dataclass(frozen=True)
class _Record:
    """What JSON holds of a result; null stands for NaN."""

    selected: int
    picks: tuple[int, ...]
    gradients_used: int
    seconds: float
    settings: dict[str, Any]
    provenance: dict[str, Any]
    about: dict[str, Any]
    full_value: float | None
    totals: tuple[float | None, ...]
    stop: str
    features: _Features
    layout: Layout
    forwards_used: int = 0


def _build(record: dict[str, Any], tensors: dict[str, Tensor], where: str) -> Attribution:
    """The result; where: the file's name, for errors."""
    if record["schema"] != SCHEMA:
        raise InvalidInput(
            f"Expected schema {SCHEMA} in {where} (got {record['schema']!r:.60}). "
            "Try the greedypig that wrote it."
        )
    if record.pop(CHECK) != digest(dict(sorted(tensors.items())), json.dumps(record)):
        raise InvalidInput(f"Expected {where} as it was written (got another digest).")
    r = read(_Record, record, where)
    attachments = {
        key.removeprefix(ATTACHMENTS): tensor
        for key, tensor in tensors.items()
        if key.startswith(ATTACHMENTS)
    }
    try:
        features = r.features.restored(r.layout, tensors)
        for name, tensor in attachments.items():
            check_attachment(name, tensor)
    except REFUSED as error:
        raise InvalidInput(
            f"Expected features and attachments in {where} as they were saved "
            f"(got others: {first_line(error)})"
        ) from error
    for field, fits, expected, got in _checks(r, features, tensors):
        if not fits:
            raise InvalidInput(f"Expected {field} in {where} to be {expected} (got {got!s:.60}).")
    values = {name: getattr(r, name) for name in PLAIN}
    values |= {name: tensors.get(name) for name in (*TENSORS, *SCORES)}
    return Attribution(
        **values,
        about=facts_of(r.about),
        picks=r.picks,
        full_value=nan if r.full_value is None else r.full_value,
        totals=tuple(nan if total is None else total for total in r.totals),
        stop=StopReason[r.stop],
        features=features,
        layout=r.layout,
        attachments=attachments,
    )


def _checks(
    r: _Record, features: Features, tensors: Mapping[str, Tensor]
) -> Iterator[tuple[str, bool, str, object]]:
    """(field, does it fit the others?, what it should be, what it is) for every field."""
    rounds, count, layout = len(r.picks), features.count, r.layout
    names = len(layout.names)
    is_tree = layout.kind in ("tuple", "dict") or (layout.kind == "tensor" and names == 1)
    is_tree &= len(set(layout.names)) == names == len(layout.shapes) > 0
    is_tree &= all(length >= 0 for shape in layout.shapes for length in shape)
    yield "layout", is_tree, "names and shapes of a tensor, a tuple or a dict", layout
    yield "features", features.n == layout.n, f"over {layout.n} values", features.n
    yield "picks", min(r.picks, default=0) >= 0, "numbers ≥ 0", r.picks
    selected = f"the sum of picks, {sum(r.picks)}, and at most {count}"
    yield "selected", r.selected == sum(r.picks) <= count, selected, r.selected
    yield "totals", len(r.totals) == rounds, f"as many as picks, {rounds}", len(r.totals)
    yield "gradients_used", r.gradients_used >= 0, "≥ 0", r.gradients_used
    yield "seconds", r.seconds >= 0, "≥ 0", r.seconds
    yield "stop", r.stop in StopReason.__members__, "a reason to stop", r.stop
    # A reader compares it with 1, to tell a ranking by one round from a choice.
    planned = r.settings.get("rounds", rounds)
    yield "settings", type(planned) is int, "settings with a whole number of rounds", planned
    order, values = tensors.get("order"), tensors.get("values")
    yield "order", _is_permutation(order, count), f"a permutation of {count} int64", _shown(order)
    fits = values is not None and (values.dtype, *values.shape) == (torch.float64, rounds + 1)
    yield "values", fits, f"{rounds + 1} numbers of float64", _shown(values)
    for name in ("feature_scores", "last_scores", *SCORES):
        scores = tensors.get(name)
        missing = scores is None and name in SCORES
        fits = scores is not None and scores.is_floating_point() and scores.shape == (count,)
        yield name, missing or fits, f"{count} floating-point numbers", _shown(scores)


def _is_permutation(order: Tensor | None, count: int) -> bool:
    if order is None or (order.dtype, *order.shape) != (torch.int64, count):
        return False
    return torch.equal(order.sort().values, torch.arange(count))


def _shown(tensor: Tensor | None) -> str:
    return "none" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}"
