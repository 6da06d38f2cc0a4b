"""Results whose order is known beforehand, with the notes that a command line would write."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.methods import with_knobs
from greedypig.results.input_notes import TensorFacts


def known_order(n: int, seed: int = 0) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def ranked(
    shape: tuple[int, ...] = (3, 4, 5), seed: int = 0, method: str = "ig", **options: Any
) -> gp.Attribution:
    """A result without notes. The order of a linear model is that of its weights: `known_order`."""
    n = torch.Size(shape).numel()
    weights = torch.empty(n)
    weights[known_order(n, seed)] = torch.arange(n, 0, -1, dtype=torch.float32) / n
    axes = tuple(range(1, len(shape) + 1))

    def model(x: Tensor) -> Tensor:
        return (x * weights.view(shape)).sum(axes).unsqueeze(1)

    knobs = {knob: options.pop(knob, None) for knob in ("rounds", "per_round", "steps")}
    a = gp.explain(model, torch.ones(shape), method=with_knobs(method, **knobs), **options)
    return replace(a, about=TensorFacts(), attachments={})


def unmeasured(a: gp.Attribution) -> gp.Attribution:
    """The same result without its values."""
    nan = float("nan")
    return replace(a, values=a.values * nan, full_value=nan)


def pixels(height: int, width: int, seed: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(0, 256, (height, width, 3), generator=generator, dtype=torch.uint8)


ABOUT: dict[str, Any] = {
    "kind": "image", "source": "photo.jpg", "model": "efficientnet-lite0", "class": "espresso",
    "target": 967, "probability": 0.75,
    "predictions": [["espresso", 0.75], ["cup", 0.125], ["coffee mug", 0.0625]],
    "baseline": "gray", "objective": "softmax",
    "curves": {
        "softmax": {"fractions": [0, 0.25, 0.5, 1], "values": [0, 0.5, 1.0, 0.75]},
        "loss": {"fractions": [0, 0.5, 1], "values": [4.0, 1.0, 0.0]},
        "second-opinion": {"fractions": [0, 0.5, 1], "values": [0, 0.25, 0.5],
                           "judge": "mobilenet-v2"},
    },
    "kept": {"0.01": 0.02, "0.05": 0.1, "0.1": 0.2},
}  # fmt: skip
"""Peaks at half of the numbers, 0.25 above the whole; AUC 0.0625 + 0.1875 + 0.4375 = 0.6875."""


def photo(shape: tuple[int, int, int] = (3, 4, 5), about: Any = None, **options: Any) -> Any:
    """A picture's result with a whole set of notes; the baseline is level 100."""
    _, height, width = shape
    return ranked(shape, **options).with_notes(
        {**ABOUT, **(about or {})},
        picture=pixels(height, width),
        baseline=torch.full((height, width, 3), 100, dtype=torch.uint8),
    )


COMPARISON: dict[str, dict[str, Any]] = {
    "greedy-pig": {"sic_auc": 0.9, "lic_auc": 0.5, "excess": 0.25, "gradients": 100,
                   "seconds": 10.5, "curve": {"fractions": [0, 1], "values": [0.1, 0.7]}},
    "ig": {"sic_auc": 0.2, "lic_auc": 3.0, "gradients": 50, "seconds": 8.0},
}  # fmt: skip


HOSTILE = (
    "</script></style><script>window.hacked=1</script><img src=x onerror='hacked=1'>\"'&\u202e"
)


def hostile() -> gp.Attribution:
    """The same text wherever a file can hold text."""
    about = {
        "kind": "image", "source": HOSTILE, "model": HOSTILE, "class": HOSTILE, "command": HOSTILE,
        "probability": 0.5, "predictions": [[HOSTILE, 0.5]], "baseline": HOSTILE,
        "objective": HOSTILE,
        "curves": {
            "softmax": {"fractions": [0, 0.5, 1], "values": [0, 0.9, 0.5]},
            "second-opinion": {"fractions": [0, 1], "values": [0, 1], "judge": HOSTILE},
            HOSTILE: {"fractions": [0, 1], "values": [0, 5]},
        },
        "comparison": {HOSTILE: COMPARISON["greedy-pig"]},
    }  # fmt: skip
    a = ranked((3, 4, 5), names=[f"{HOSTILE}{i}" for i in range(60)])
    a = a.with_notes(about, picture=pixels(4, 5))
    return replace(a, settings={HOSTILE: HOSTILE}, provenance={"greedypig": HOSTILE})
