"""One file per result: tensors as safetensors, everything else as JSON in its header.

Reading never runs code: safetensors holds numbers only, and the JSON is data. A digest covers all
that is in the file. A file of another schema is refused.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan, nan
from os import PathLike, fspath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..core.attribution import Attribution, check_attachment
from ..core.errors import InvalidFile, InvalidInput
from ..core.features import Elements, Features, Groups, Windows
from ..core.layout import Layout
from ..core.stopping import StopReason
from ..network.fingerprint import digest
from .files import write_whole
from .reader import Count, Positive, read

SCHEMA = 3
KEY = "greedypig"
CHECK = "digest"
ATTACHMENTS = "attachments."
REFUSED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RuntimeError)
"""Errors that a file of another kind leads to."""
TENSORS = ("order", "unit_scores", "values", "last_scores")
SCORES = ("first_scores", "score_sums")
"""Tensors that a result may lack."""


@dataclass(frozen=True)
class Header:
    """The JSON of a file: the fields of an `Attribution` that are no tensors."""

    schema: Positive
    selected: Count
    full_value: float | None
    """None for a number that was not measured, as JSON has no NaN."""
    picks: tuple[Positive, ...]
    totals: tuple[float | None, ...]
    gradients_used: Count
    seconds: float
    stop: str
    features: Mapping[str, Any]
    layout: Layout
    settings: Mapping[str, Any]
    provenance: Mapping[str, Any]
    about: Mapping[str, Any]


PLAIN = ("selected", "picks", "gradients_used", "seconds", "settings", "provenance", "about")
"""Fields of a result that JSON holds as they are."""


def save(attribution: Attribution, path: str | PathLike[str]) -> None:
    """Write `attribution` to `path`, whole or not at all."""
    a = attribution
    features, feature_tensors = a.features.state()
    record = {name: getattr(a, name) for name in PLAIN} | {
        "schema": SCHEMA,
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
    try:
        with safe_open(name, framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        raise InvalidFile(
            f"Expected a greedypig result in {name!r} (got a file that is corrupt, truncated or "
            f"of another kind: {error})."
        ) from error
    if KEY not in metadata:
        raise InvalidFile(
            f"Expected a greedypig result in {name!r} (got a safetensors file of something else)."
        )
    try:
        record = json.loads(metadata[KEY], parse_constant=_refuse)
        return _build(record, tensors)
    except REFUSED as error:
        raise InvalidFile(
            f"Expected a whole greedypig result in {name!r} (got {type(error).__name__}: {error})."
        ) from error


def _build(record: dict[str, Any], tensors: dict[str, Tensor]) -> Attribution:
    seal = record.pop(CHECK)
    header = read(Header, record, "the header")
    if header.schema != SCHEMA:
        raise InvalidInput(
            f"Expected schema {SCHEMA} (got {header.schema}). Try the greedypig that wrote it."
        )
    if seal != digest(dict(sorted(tensors.items())), json.dumps(record)):
        raise InvalidInput("Expected the file as it was written (got one whose digest differs).")
    plain: dict[str, Any] = {name: getattr(header, name) for name in PLAIN}
    plain |= {name: tensors[name] for name in TENSORS}
    plain |= {name: tensors.get(name) for name in SCORES}
    a = Attribution(
        **plain,
        full_value=_number(header.full_value),
        totals=tuple(_number(total) for total in header.totals),
        stop=StopReason[header.stop],
        features=_features(header.features, tensors),
        layout=header.layout,
        attachments={
            key.removeprefix(ATTACHMENTS): tensor
            for key, tensor in tensors.items()
            if key.startswith(ATTACHMENTS)
        },
    )
    _check(a)
    return a


def _check(a: Attribution) -> None:
    """The parts fit together: a file edited by hand must not surprise later code."""
    units, layout = a.features.units, a.layout
    names, shapes = len(set(layout.names)), layout.shapes
    known = layout.kind in ("tuple", "dict") or (layout.kind == "tensor" and names == 1)
    sized = all(d >= 0 for shape in shapes for d in shape)
    if not known or not sized or not names == len(layout.names) == len(shapes):
        raise InvalidInput(
            f"a layout {layout.kind!r:.40} of {names} names and {len(shapes)} shapes"
        )
    if layout.n != a.features.n:
        raise InvalidInput(f"a layout of {layout.n} elements with features over {a.features.n}")
    for name in ("unit_scores", "last_scores", *SCORES):
        tensor = getattr(a, name)
        if tensor is None:
            continue
        if tensor.shape != (units,) or not tensor.is_floating_point():
            raise InvalidInput(f"{name} {tensor.dtype} {tuple(tensor.shape)} for {units} units")
    if a.order.dtype != torch.long or not torch.equal(a.order.sort().values, torch.arange(units)):
        raise InvalidInput("an order that is not a permutation of the units")
    if a.values.shape != (len(a.picks) + 1,) or a.values.dtype != torch.float64:
        raise InvalidInput(f"values {tuple(a.values.shape)} for {len(a.picks)} rounds")
    if len(a.totals) != len(a.picks):
        raise InvalidInput(f"{len(a.totals)} totals for {len(a.picks)} rounds")
    if sum(a.picks) != a.selected or a.selected > units:
        raise InvalidInput(f"picks that do not add up to the {a.selected} selected units")
    for name, tensor in a.attachments.items():
        check_attachment(name, tensor)


def _features(settings: Mapping[str, Any], tensors: dict[str, Tensor]) -> Features:
    kind, texts = settings["kind"], settings["names"]
    names = None if texts is None else read(tuple[str, ...], texts, "names of features")
    if kind == "elements":
        return Elements(read(int, settings["n"], "n"), names)
    if kind == "groups":
        return Groups(tensors["features.ids"], names)
    if kind == "windows":
        return Windows(
            read(tuple[Positive, ...], settings["shape"], "shape"),
            settings["size"],
            axes=settings["axes"],
            stride=settings["stride"],
            names=names,
        )
    raise InvalidInput(f"unknown features {kind!r:.60}")


def _refuse(constant: str) -> float:
    raise InvalidInput(f"Expected finite numbers (got {constant}).")


def _number(value: float | None) -> float:
    """JSON has no NaN; null stands for it."""
    return nan if value is None else value
