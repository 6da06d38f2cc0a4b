"""One file per result: tensors as safetensors, everything else as JSON in its header.

Reading never runs code: safetensors holds numbers only, and the JSON is data. A digest covers all
that is in the file. A file of another schema is refused.
"""

from __future__ import annotations

import json
import os
from math import isnan, nan
from os import PathLike, fspath
from typing import Any

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

SCHEMA = 3
KEY = "greedypig"
CHECK = "digest"
ATTACHMENTS = "attachments."
REFUSED = (SafetensorError, OSError, LookupError, TypeError, ValueError, RuntimeError)
"""Errors that a file of another kind leads to."""
TENSORS = ("order", "feature_scores", "values", "last_scores")
SCORES = ("first_scores", "score_sums")
"""Tensors that a result may lack."""


PLAIN = ("selected", "gradients_used", "seconds", "settings", "provenance", "about")
"""Fields of a result that JSON holds as they are."""


def save(attribution: Attribution, path: str | PathLike[str]) -> None:
    """Write `attribution` to `path`, whole or not at all."""
    a = attribution
    features, feature_tensors = a.features.state()
    record = {name: getattr(a, name) for name in PLAIN} | {
        "schema": SCHEMA,
        "picks": a.picks,
        "forwards_used": a.forwards_used,
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
            record = json.loads((file.metadata() or {})[KEY])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118
        return _build(record, tensors)
    except REFUSED as error:
        raise InvalidFile(
            f"Expected a greedypig result in {name!r} (got a file that is damaged or of another "
            f"kind: {type(error).__name__}: {error})."
        ) from error


def _build(record: dict[str, Any], tensors: dict[str, Tensor]) -> Attribution:
    if record["schema"] != SCHEMA:
        raise InvalidInput(
            f"Expected schema {SCHEMA} (got {record['schema']}). Try the greedypig that wrote it."
        )
    if record.pop(CHECK) != digest(dict(sorted(tensors.items())), json.dumps(record)):
        raise InvalidInput("Expected the file as it was written (got one whose digest differs).")
    layout = record["layout"]
    plain: dict[str, Any] = {name: record[name] for name in PLAIN}
    plain |= {name: tensors[name] for name in TENSORS}
    plain |= {name: tensors.get(name) for name in SCORES}
    return Attribution(
        **plain,
        picks=tuple(record["picks"]),
        forwards_used=record.get("forwards_used", 0),  # Files of version 0.2 do not say.
        full_value=_number(record["full_value"]),
        totals=tuple(_number(total) for total in record["totals"]),
        stop=StopReason[record["stop"]],
        features=_features(record["features"], tensors),
        layout=Layout(layout["kind"], tuple(layout["names"]), tuple(map(tuple, layout["shapes"]))),
        attachments={
            key.removeprefix(ATTACHMENTS): tensor
            for key, tensor in tensors.items()
            if key.startswith(ATTACHMENTS)
        },
    )


def _features(settings: dict[str, Any], tensors: dict[str, Tensor]) -> Features:
    kind, names = settings["kind"], settings["names"]
    if kind == "elements":
        return Elements(settings["n"], names)
    if kind == "groups":
        return Groups(tensors["features.ids"], names)
    options = {key: settings[key] for key in ("shape", "size", "axes", "stride")}
    return Windows(**options, names=names)


def _number(value: float | None) -> float:
    """JSON has no NaN; null stands for it."""
    return nan if value is None else value
