"""One file per result: tensors as safetensors, everything else as JSON in its header.

Reading never runs code: safetensors holds numbers only, and the JSON is data. The file says
which schema it was written with; a newer one is refused rather than misread.

Schema 2 added notes: `about` in the JSON, `attachments.<name>` among the tensors. Files of schema 1
have none and are read as before.

Its digest covers all that is in the file, so that a flipped bit is not read as a score; files
without one, of earlier versions, are read unchecked.
"""

from __future__ import annotations

import json
import os
from math import isnan
from os import PathLike, fspath
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from ..core.attribution import Attribution, StopReason, check_attachment
from ..core.errors import GreedyPigError, InvalidFile, InvalidInput
from ..core.features import Elements, Features, Groups, Windows
from ..core.layout import Layout
from ..network.fingerprint import digest
from .files import write_whole

SCHEMA = 2
KEY = "greedypig"
CHECK = "digest"
ATTACHMENTS = "attachments."


def save(attribution: Attribution, path: str | PathLike[str]) -> None:
    """Write `attribution` to `path`, whole or not at all."""
    settings, feature_tensors = attribution.features.state()
    record = {
        "schema": SCHEMA,
        "selected": attribution.selected,
        "full_value": _number(attribution.full_value),
        "picks": list(attribution.picks),
        "totals": [_number(t) for t in attribution.totals],
        "gradients_used": attribution.gradients_used,
        "seconds": attribution.seconds,
        "stop": attribution.stop.name,
        "features": settings,
        "layout": {"kind": attribution.layout.kind, "names": attribution.layout.names,
                   "shapes": attribution.layout.shapes},
        "settings": dict(attribution.settings),
        "provenance": dict(attribution.provenance),
        "about": dict(attribution.about),
    }  # fmt: skip
    tensors = {
        "order": attribution.order,
        "unit_scores": attribution.unit_scores,
        "values": attribution.values,
        "last_scores": attribution.last_scores,
    } | {f"features.{name}": t for name, t in feature_tensors.items()}
    for name, tensor in attribution.attachments.items():
        check_attachment(name, tensor)
        tensors[ATTACHMENTS + name] = tensor
    for name in ("first_scores", "score_sums", "memory"):
        if (extra := getattr(attribution, name)) is not None:
            tensors[name] = extra
    try:
        text = json.dumps(record, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidFile(
            f"Expected settings and notes that JSON can hold (got: {error})."
        ) from error
    whole = {k: v.detach().cpu().contiguous().clone() for k, v in tensors.items()}
    # In the JSON, as safetensors puts several texts down in any order: equal results are to
    # be equal files.
    sealed = json.dumps({**record, CHECK: _digest(whole, text)}, allow_nan=False)
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
        if _whole(record, "schema") > SCHEMA:
            raise InvalidFile(
                f"Expected schema {SCHEMA} or older in {name!r} (got {record['schema']}). "
                "Try a newer greedypig."
            )
        seal = record.pop(CHECK, "")
        if seal and seal != _digest(tensors, json.dumps(record)):
            raise InvalidFile(
                f"Expected a greedypig result in {name!r} as it was written (got one that was "
                "changed or damaged since: its digest differs)."
            )
        return _build(record, tensors)
    except InvalidFile:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError,
            RecursionError, RuntimeError, GreedyPigError) as error:  # fmt: skip
        raise InvalidFile(
            f"Expected a whole greedypig result in {name!r} (got {type(error).__name__}: {error})."
        ) from error


def _digest(tensors: dict[str, Tensor], text: str) -> str:
    return digest(dict(sorted(tensors.items())), text)


def _build(record: dict[str, Any], tensors: dict[str, Tensor]) -> Attribution:
    attribution = Attribution(
        order=tensors["order"],
        selected=_whole(record, "selected", least=0),
        unit_scores=tensors["unit_scores"],
        values=tensors["values"],
        full_value=_back(record["full_value"]),
        picks=tuple(_whole({"picks": p}, "picks") for p in record["picks"]),
        totals=tuple(_back(t) for t in record["totals"]),
        gradients_used=_whole(record, "gradients_used", least=0),
        seconds=_back(_known(record, "seconds")),
        stop=StopReason[record["stop"]],
        last_scores=tensors["last_scores"],
        features=_restore_features(record["features"], tensors),
        layout=_restore_layout(record["layout"]),
        settings=_mapping(record, "settings"),
        provenance=_mapping(record, "provenance"),
        about=_mapping(record, "about") if record["schema"] > 1 else {},
        attachments=_restore_attachments(record, tensors),
        first_scores=tensors.get("first_scores"),
        score_sums=tensors.get("score_sums"),
        memory=tensors.get("memory"),
    )
    _check(attribution)
    return attribution


def _check(a: Attribution) -> None:
    """The parts fit together: a file edited by hand must not surprise later code."""
    units = a.features.units
    if a.layout.n != a.features.n:
        raise InvalidInput(f"a layout of {a.layout.n} elements with features over {a.features.n}")
    for name in ("order", "unit_scores", "last_scores", "first_scores", "score_sums"):
        tensor = getattr(a, name)
        if tensor is None and name in ("first_scores", "score_sums"):
            continue
        if tensor.shape != (units,) or tensor.is_floating_point() == (name == "order"):
            raise InvalidInput(f"{name} {tensor.dtype} {tuple(tensor.shape)} for {units} units")
    memory = a.memory
    if memory is not None and not (memory.shape == (a.features.n,) and memory.is_floating_point()):
        raise InvalidInput(f"memory {memory.dtype} {tuple(memory.shape)}")
    if a.order.dtype != torch.long or not torch.equal(a.order.sort().values, torch.arange(units)):
        raise InvalidInput("an order that is not a permutation of the units")
    if a.values.shape != (len(a.picks) + 1,) or a.values.dtype != torch.float64:
        raise InvalidInput(f"values {tuple(a.values.shape)} for {len(a.picks)} rounds")
    if len(a.totals) != len(a.picks):
        raise InvalidInput(f"{len(a.totals)} totals for {len(a.picks)} rounds")
    if sum(a.picks) != a.selected or a.selected > units:
        raise InvalidInput(f"picks that do not add up to the {a.selected} selected units")


def _restore_attachments(record: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    found = {
        key.removeprefix(ATTACHMENTS): tensor
        for key, tensor in tensors.items()
        if key.startswith(ATTACHMENTS)
    }
    if found and record["schema"] < 2:
        raise InvalidInput(f"attachments in a file of schema {record['schema']}")
    for name, tensor in found.items():
        check_attachment(name, tensor)
    return found


def _restore_layout(settings: dict[str, Any]) -> Layout:
    kind, names = settings["kind"], tuple(settings["names"])
    shapes = tuple(
        tuple(_whole({"shape": d}, "shape", least=0) for d in shape) for shape in settings["shapes"]
    )
    if kind not in ("tensor", "tuple", "dict") or not all(isinstance(n, str) for n in names):
        raise InvalidInput(f"unknown layout {kind!r}")
    lone = kind == "tensor" and len(names) != 1
    if lone or len(names) != len(shapes) or len(set(names)) != len(names):
        raise InvalidInput(f"{len(names)} names for {len(shapes)} inputs")
    return Layout(kind, names, shapes)


def _restore_features(settings: dict[str, Any], tensors: dict[str, Tensor]) -> Features:
    kind, names = settings["kind"], settings["names"]
    if not (names is None or (isinstance(names, list) and all(isinstance(n, str) for n in names))):
        raise InvalidInput("names that are not text")
    if kind == "elements":
        return Elements(_whole(settings, "n", least=0), names)
    if kind == "groups":
        return Groups(tensors["features.ids"], names)
    if kind == "windows":
        shape = [_whole({"shape": d}, "shape") for d in settings["shape"]]
        return Windows(shape, settings["size"], axes=settings["axes"],
                       stride=settings["stride"], names=names)  # fmt: skip
    raise InvalidInput(f"unknown features {kind!r}")


def _whole(record: dict[str, Any], name: str, least: int = 1) -> int:
    value = record[name]
    if type(value) is not int or value < least:
        raise InvalidInput(f"{name} {value!r}")
    return value


def _known(record: dict[str, Any], name: str) -> float:
    if record[name] is None:
        raise InvalidInput(f"no {name}")
    return record[name]  # type: ignore[no-any-return]


def _mapping(record: dict[str, Any], name: str) -> dict[str, Any]:
    if not isinstance(record[name], dict):
        raise InvalidInput(f"{name} {record[name]!r}")
    return dict(record[name])


def _refuse(constant: str) -> float:
    raise InvalidInput(f"a number {constant}")


def _number(value: float) -> float | None:
    """JSON has no NaN; None stands for it."""
    return None if isnan(value) else value


def _back(value: float | None) -> float:
    if not isinstance(value, float | int | None) or isinstance(value, bool):
        raise InvalidInput(f"a number {value!r}")
    return float("nan") if value is None else float(value)
