"""What a reader uses now, beside greedypig: quality, gradients and time of one explanation.

    python benchmarks/methods.py [--only photos tables] [--photos 6] [--splits 5] [--write]

Photos of `make assets` on MobileNetV2, judged by its own curve (SIC) and by EfficientNet-Lite0, and
columns of scikit-learn's tables, judged by networks retrained on them. One thread; seconds are
processor time. Results are in benchmarks/RESULTS-methods.md. Graphs: benchmarks/motifs.py.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import captum.attr
import numpy as np
import torch
from sklearn.datasets import load_breast_cancer, load_digits
from sklearn.feature_selection import mutual_info_classif
from sklearn.inspection import permutation_importance
from sklearn.metrics import log_loss
from sklearn.model_selection import train_test_split
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import greedypig as gp
from greedypig.images import find_photos, open_photo
from greedypig.network.assets_folder import assets_folder

RESULTS = Path(__file__).parent / "RESULTS-methods.md"
PHOTOS = assets_folder() / "photos" / "foolbox"


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    start = time.process_time()
    result = call()
    return result, time.process_time() - start


def captum_ig(net: Any, x: torch.Tensor) -> torch.Tensor:
    """What Captum's users write: 50 steps, from gray, of the probability."""
    method = captum.attr.IntegratedGradients(lambda b: net(b).softmax(1))
    target = int(net(x[None]).argmax())
    gray = net.baseline("gray").expand_as(x)
    return method.attribute(x[None], gray[None], target, n_steps=50, internal_batch_size=8)[0]


PHOTO_METHODS: dict[str, tuple[str | None, Any]] = {
    "greedypig (default)": (None, 99),
    "greedypig, half the gradients": (gp.SteadyPIG(rounds=16), 48),
    "Integrated Gradients, 50 steps": ("ig", 50),
    "Smooth IG, 25 copies of 50 steps": ("smooth-ig", 1250),
    "Guided IG, 200 steps": ("guided-ig", 200),
    "Blur IG, 100 steps": ("blur-ig", 100),
    "Captum's IntegratedGradients, 50 steps": (captum_ig, 50),
    "random order": ("random", 0),
}


def photos(count: int, folder: Path) -> list[str]:
    net, judge = gp.models.load("mobilenet-v2"), gp.models.load("efficientnet-lite0")
    files = find_photos(str(folder))
    files = files[:: max(1, len(files) // count)][:count]
    rows = []
    for name, (method, gradients) in PHOTO_METHODS.items():
        own, second, seconds = [], [], []
        for file in files:
            x = net.preprocess(open_photo(file))
            if callable(method) and not isinstance(method, gp.SteadyPIG):
                a, spent = timed(lambda x=x, method=method: method(net, x).detach())
                ranking = {"target": int(net(x[None]).argmax()), "ranking": "absolute"}
            else:
                a, spent = timed(
                    lambda x=x, method=method: gp.explain(net, x, baseline="gray", method=method)
                )
                ranking = {}
            sic = gp.metrics.softmax_information_curve
            seconds.append(spent)
            own.append(sic(net, x, a, baseline="gray", **ranking))
            second.append(sic(net, x, a, baseline="gray", judge=judge, **ranking))
        median = gp.metrics.median_curve
        row = [name, f"{median(own).auc:.2f}", f"{median(second).auc:.2f}", f"{gradients:,}"]
        rows.append([*row, f"{mean(seconds):.1f}"])
        print(*rows[-1], sep="\t", flush=True)
    title = f"## Photos: MobileNetV2, {len(files)} photos of `make assets`"
    note = (
        "SIC and second opinion are areas under the median curve. The predicted class, from gray."
    )
    heads = ["method", "SIC ↑", "second opinion ↑", "gradients", "CPU s"]
    return [title, "", note, "", *table(heads, rows)]


TABLES = {"breast_cancer, k = 5": (load_breast_cancer, 5), "digits, k = 12": (load_digits, 12)}


def selectors(model: Any, k: int) -> dict[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]:
    """Method → the k best columns, of rows and labels."""

    def ours(**knobs: Any) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
        def select(X: np.ndarray, y: np.ndarray) -> np.ndarray:
            return gp.FeatureSelector(model, n_features_to_select=k, **knobs).fit(X, y).order_[:k]

        return select

    def permutation(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        found = permutation_importance(
            model, X, y, n_repeats=10, random_state=0, scoring="neg_log_loss"
        )
        return np.argsort(-found.importances_mean)[:k]

    def mutual(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.argsort(-mutual_info_classif(X, y, random_state=0))[:k]

    def at_random(X: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.random.default_rng(len(y)).permutation(X.shape[1])[:k]

    return {
        '`gp.FeatureSelector(baseline="conditional")`': ours(baseline="conditional"),
        "`gp.FeatureSelector()`": ours(),
        "`gp.FeatureSelector(method=gp.IG(50))`": ours(method=gp.IG(50)),
        "permutation importance, 10 repeats": permutation,
        "mutual information": mutual,
        "random columns": at_random,
    }


def network(seed: int) -> Any:
    return make_pipeline(
        StandardScaler(), MLPClassifier((32,), alpha=1.0, max_iter=500, random_state=seed)
    )


def tables(splits: int) -> list[str]:
    lines = []
    for title, (load, k) in TABLES.items():
        X, y = load(return_X_y=True)
        found: dict[str, list[tuple[float, float]]] = {}
        for seed in range(splits):
            X1, X2, y1, y2 = train_test_split(X, y, test_size=1 / 3, random_state=seed, stratify=y)
            model = network(seed).fit(X1, y1)
            for name, select in selectors(model, k).items():
                columns, seconds = timed(lambda select=select, X1=X1, y1=y1: select(X1, y1))
                small = [network(10 * seed + i).fit(X1[:, columns], y1) for i in range(3)]
                losses = [log_loss(y2, m.predict_proba(X2[:, columns])) for m in small]
                found.setdefault(name, []).append((mean(losses), seconds))
            found.setdefault("all columns", []).append((log_loss(y2, model.predict_proba(X2)), 0))
        rows = []
        for name, pairs in found.items():
            losses = [loss for loss, _ in pairs]
            error = stdev(losses) / len(losses) ** 0.5
            seconds = f"{mean(s for _, s in pairs):.2f}" if name != "all columns" else ""
            rows.append([name, f"{mean(losses):.3f} ± {error:.3f}", seconds])
            print(title, *rows[-1], sep="\t", flush=True)
        note = f"Test log-loss of networks retrained on the k columns, mean of {splits} splits."
        heads = ["method", "log-loss ↓", "CPU s"]
        lines += [f"## Columns: {title}", "", note, "", *table(heads, rows), ""]
    return lines


def table(heads: list[str], rows: list[list[str]]) -> list[str]:
    lines = [heads, ["---"] * len(heads), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=("photos", "tables"))
    parser.add_argument("--photos", type=int, default=6)
    parser.add_argument("--folder", type=Path, default=PHOTOS, help="the photos")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--write", action="store_true", help=f"write {RESULTS.name}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    parts = args.only or ("photos", "tables")
    lines = [
        "# The methods in use today, beside greedypig",
        "",
        f"Measured by `python benchmarks/methods.py --photos {args.photos} --splits {args.splits}` "
        f"(torch {torch.__version__}, one thread of a shared machine, processor time).",
        "",
    ]
    if "photos" in parts:
        lines += [*photos(args.photos, args.folder), ""]
    if "tables" in parts:
        lines += tables(args.splits)
    text = "\n".join(lines).rstrip() + "\n"
    print(text)
    if args.write:
        RESULTS.write_text(text)


if __name__ == "__main__":
    main()
