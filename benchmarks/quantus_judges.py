"""Quantus' judges on maps of integrated gradients and of Greedy PIG: digits, small CNNs.

Every difference is paired by example with integrated gradients, with its standard error.

    pip install quantus scikit-learn captum
    python benchmarks/quantus_judges.py [--networks 5] [--examples 40]
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from captum.attr import IntegratedGradients
from scipy.stats import spearmanr
from sklearn.datasets import load_digits
from torch import Tensor, nn

import greedypig as gp
from greedypig.adapters.captum import GreedyPIG

if not hasattr(np, "trapz"):  # Quantus 0.6 calls it; NumPy 2.4 has it under another name.
    np.trapz = np.trapezoid  # type: ignore[attr-defined]
import quantus

TRAIN = 1200
FIRST_SEED, FIRST_DIGIT = 100, 1400
"""Smaller seeds and digits 1,200 to 1,400 were used to choose the definition of contributions."""
ADAPTER: dict[str, Any] = {"objective": "logit", "rounds": 10, "rule": "gauss-legendre", "steps": 5}
"""What the Captum adapter does by default, for `gp.explain`."""
Explainer = Callable[..., np.ndarray]


def digits() -> tuple[Tensor, Tensor]:
    """(1797, 1, 8, 8) from 0 to 1, and the classes."""
    data = load_digits()
    return torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)


def trained(seed: int) -> nn.Module:
    """A CNN of two convolutions, trained for 12 epochs on the first 1,200 digits."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2), nn.Flatten(), nn.Linear(512, 64), nn.ReLU(), nn.Linear(64, 10),
    )  # fmt: skip
    x, y = digits()
    optimiser = torch.optim.Adam(net.parameters(), 2e-3)
    for _ in range(12):
        for rows in torch.randperm(TRAIN).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            optimiser.step()
    return net.eval()


def of_captum(method: type, *, softmax: bool, **options: Any) -> Explainer:
    """A Captum class on the logit, or on the probability, of the class."""

    def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
        def forward(x: Tensor) -> Tensor:
            return model(x).softmax(1) if softmax else model(x)

        x, y = torch.as_tensor(inputs, dtype=torch.float32), torch.as_tensor(targets)
        return method(forward).attribute(x, target=y, **options).detach().numpy().astype("float32")

    return explain


def of_explain(part: str, **options: Any) -> Explainer:
    """A map of `gp.explain`'s results: contributions, importance, scores or the bare ranks."""

    def read(a: gp.Attribution) -> Tensor:
        if part == "ranks":
            return 1 - a.features.first_rank(a.order).view(1, 8, 8) / (a.features.n - 1)
        return a.scores if part == "scores" else getattr(a, part)()

    def explain(model: nn.Module, inputs: Any, targets: Any, **_: Any) -> np.ndarray:
        x = torch.as_tensor(inputs, dtype=torch.float32)
        found = gp.explain_many(model, list(x), target=[int(t) for t in targets], **options)
        return torch.stack([read(a) for a in found]).numpy()

    return explain


def explainers(softmax: bool) -> dict[str, Explainer]:
    """Integrated gradients first: the rest is compared with it."""
    made = {"integrated gradients (Captum)": of_captum(IntegratedGradients, softmax=softmax)}
    if not softmax:
        made["Captum adapter, default"] = of_captum(GreedyPIG, softmax=False)
        options = ADAPTER
    else:
        options = {}
        made["gp.explain, contributions()"] = of_explain("contributions")
    made["one round"] = of_explain("scores", **{**options, "rounds": 1})
    made["scores alone"] = of_explain("scores", **options)
    made["ranks alone"] = of_explain("ranks", **options)
    return made


def judges() -> dict[str, tuple[Any, str]]:
    """Fresh judges by name, and which direction is better."""
    q: Any = quantus
    quiet = {"disable_warnings": True, "display_progressbar": False, "return_aggregate": False}
    black = quiet | {"perturb_baseline": "black"}
    return {
        "MPRT, all layers": (q.MPRT(abs=False, return_last_correlation=True, **quiet), "lower"),
        "MPRT, mean of layers": (
            q.MPRT(abs=False, return_average_correlation=True, **quiet), "lower",
        ),
        "RandomLogit": (q.RandomLogit(num_classes=10, **quiet), "lower"),
        "FaithfulnessCorrelation, 8": (q.FaithfulnessCorrelation(subset_size=8, **black), "higher"),
        "FaithfulnessCorrelation, 16": (
            q.FaithfulnessCorrelation(subset_size=16, **black), "higher",
        ),
        "FaithfulnessEstimate": (q.FaithfulnessEstimate(features_in_step=1, **black), "higher"),
        "PixelFlipping, area": (
            q.PixelFlipping(features_in_step=1, return_auc_per_sample=True, **black), "lower",
        ),
        "Selectivity": (q.Selectivity(patch_size=2, **black), "lower"),
        "Infidelity": (
            q.Infidelity(perturb_patch_sizes=[2], n_perturb_samples=50, **black), "lower",
        ),
        "AvgSensitivity": (q.AvgSensitivity(nr_samples=5, lower_bound=0.05, **quiet), "lower"),
        "Sparseness": (q.Sparseness(**quiet), "information"),
        "Complexity": (q.Complexity(**quiet), "information"),
    }  # fmt: skip


def judged(name: str, net: nn.Module, x: Any, y: Any, explain: Explainer, softmax: bool) -> Any:
    """(examples,) a judge's scores."""
    np.random.seed(0)
    torch.manual_seed(0)
    found = judges()[name][0](
        model=net, x_batch=x, y_batch=y, a_batch=explain(net, x, y), explain_func=explain,
        device="cpu", softmax=softmax,
    )  # fmt: skip
    rows = list(found.values())[-1] if isinstance(found, dict) else found
    return np.array([np.mean(row) for row in rows], dtype=float)


def table(softmax: bool, networks: int, examples: int) -> Iterator[str]:
    """One Markdown row per judge."""
    names = list(explainers(softmax))
    yield "| judge | better | " + " | ".join(names) + " |"
    yield "|---|---|" + "---|" * len(names)
    held_out = digits()[0][FIRST_DIGIT:]
    nets = [trained(FIRST_SEED + i) for i in range(networks)]
    for judge, (_, better) in judges().items():
        scores: dict[str, list[Any]] = {name: [] for name in names}
        for i, net in enumerate(nets):
            x = held_out[i * examples : (i + 1) * examples]
            y = net(x).argmax(1).numpy()
            for name, explain in explainers(softmax).items():
                scores[name].append(judged(judge, net, x.numpy(), y, explain, softmax))
        rows = {name: np.concatenate(parts) for name, parts in scores.items()}
        first = rows[names[0]]
        cells = [f"{first.mean():.3f} ± {first.std() / len(first) ** 0.5:.3f}"]
        for name in names[1:]:
            off = rows[name] - first
            cells.append(f"{rows[name].mean():.3f} ({off.mean():+.3f} ± "
                         f"{off.std() / len(off) ** 0.5:.3f})")  # fmt: skip
        yield f"| {judge} | {better} | " + " | ".join(cells) + " |"


def likeness(networks: int, examples: int) -> Iterator[str]:
    """Spearman's correlation of a trained and a random network's maps of the same class."""
    yield "| map | all pixels | the digit's pixels | background | positive, trained | random |"
    yield "|---|---|---|---|---|---|"
    maps = {part: of_explain(part, **ADAPTER)
            for part in ("ranks", "importance", "scores", "contributions")}  # fmt: skip
    maps["integrated gradients"] = of_captum(IntegratedGradients, softmax=False)
    found: dict[str, list[list[float]]] = {name: [] for name in maps}
    for i in range(networks):
        net = trained(FIRST_SEED + i)
        x = digits()[0][FIRST_DIGIT:][i * examples : (i + 1) * examples]
        y = net(x).argmax(1)
        other = deepcopy(net)
        for layer in other:
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        for name, explain in maps.items():
            pairs = zip(x.flatten(1), explain(net, x, y).reshape(examples, -1),
                        explain(other, x, y).reshape(examples, -1), strict=True)  # fmt: skip
            for pixels, ours, theirs in pairs:
                on = (pixels != 0).numpy()
                parts = [spearmanr(ours[w], theirs[w])[0] for w in (on | True, on, ~on)]
                found[name].append([*parts, (ours[on] > 0).mean(), (theirs[on] > 0).mean()])
    for name, rows in found.items():
        means, spread = np.mean(rows, 0), np.std(rows, 0) / len(rows) ** 0.5
        cells = [f"{m:.3f} ± {e:.3f}" if np.isfinite(m) else "all 0"
                 for m, e in zip(means[:3], spread[:3], strict=True)]  # fmt: skip
        yield f"| {name} | " + " | ".join([*cells, *(f"{m:.2f}" for m in means[3:])]) + " |"


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=int, default=5)
    parser.add_argument("--examples", type=int, default=40, help="for each network")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    for softmax in (False, True):
        what = "probability" if softmax else "logit"
        print(f"\n## Explained and judged: the predicted class's {what}\n", flush=True)
        for line in table(softmax, args.networks, args.examples):
            print(line, flush=True)
    print("\n## How alike a trained and a random network's maps are\n", flush=True)
    for line in likeness(args.networks, args.examples):
        print(line, flush=True)


if __name__ == "__main__":
    main()
