"""Columns of small tables: `greedypig select`, FeatureSelector and mutual information side by side.

python benchmarks/small_tables.py digits:12 diabetes:3

A third of the rows is a test set that no step of a choice sees. The other rows are written as CSV
and given to each of the three. Judges are trained on the same rows with the columns chosen: the
default network of the command, which holds out a part of them to end its training, and a model of
scikit-learn (a support-vector classifier, or ridge regression). Log-loss (lower is better) or R²
(higher is better) on the test set, mean and standard error over the splits.
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
import tempfile
import warnings
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import torch
from sklearn import datasets
from sklearn.feature_selection import mutual_info_classif, mutual_info_regression
from sklearn.linear_model import RidgeCV
from sklearn.metrics import log_loss, r2_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import greedypig as gp
from greedypig.cli.main import main as command
from greedypig.tables import (
    Batches,
    count_rows,
    evaluate,
    new_network,
    open_table,
    survey,
    train_network,
)

SPLITS = 5


def written(path: Path, x: Any, y: Any) -> Path:
    """The rows as CSV, columns x0, x1, …"""
    heads = ",".join([*(f"x{i}" for i in range(x.shape[1])), "y"])
    np.savetxt(path, np.column_stack([x, y]), "%.12g", ",", header=heads, comments="")
    return path


def by_select(train: Path, k: int, seed: int) -> list[str]:
    """The top k of `greedypig select`."""
    out = io.StringIO()
    words = ["select", train, "--label", "y", "--k", k, "--methods", "greedy-pig", "--seeds", 1,
             "--seed", seed, "--out", train.parent / "out", "--json"]  # fmt: skip
    with contextlib.redirect_stdout(out):
        assert command([str(word) for word in words]) == 0
    order: list[str] = json.loads(out.getvalue())["order"]
    return order[:k]


def by_selector(x: Any, y: Any, k: int) -> list[str]:
    """The top k of gp.FeatureSelector with its own perceptron."""
    found = gp.FeatureSelector().fit(x, y)
    return [f"x{i}" for i in found.attribution_.order[:k].tolist()]


def by_information(x: Any, y: Any, k: int, classes: bool) -> list[str]:
    """The k columns of the largest mutual information with the label."""
    measure = mutual_info_classif if classes else mutual_info_regression
    return [f"x{i}" for i in np.argsort(-measure(x, y, random_state=0))[:k]]


def network_says(folder: Path, columns: list[str], seeds: int = 3) -> float:
    """Test log-loss or R² of the default network, retrained on these columns."""
    table, test = (open_table(folder / name) for name in ("train.csv", "test.csv"))
    found = survey(table, "y")
    share = min(0.3, max(0.1, 1000 / found.total))
    common: dict[str, Any] = {"share": share, "schema": found.schema.only(columns)}
    train = Batches(table, found, part="train", **common)
    valid = Batches(table, found, part="valid", batch_size=4096, shuffle=False, **common)
    rows = Batches(test, count_rows(test, found.schema), batch_size=4096, shuffle=False,
                   schema=common["schema"])  # fmt: skip
    losses = []
    for seed in range(seeds):
        fresh = new_network(train.schema, seed=seed)
        losses.append(evaluate(train_network(fresh, train, valid, seed=seed).model, rows).loss)
    if found.schema.label.task != "number":
        return fmean(losses)
    label = torch.cat([y for _, y in rows]).double() * found.schema.label.deviation
    return 1 - fmean(losses) / float(label.var(correction=0))


def plain_model_says(x: Any, y: Any, v: Any, w: Any, columns: list[str], classes: bool) -> float:
    """Test log-loss of a support-vector classifier, or R² of ridge regression."""
    at = [int(name[1:]) for name in columns]
    if classes:
        model = make_pipeline(StandardScaler(), SVC(C=10, probability=True, random_state=0))
        return float(log_loss(w, model.fit(x[:, at], y).predict_proba(v[:, at])))
    model = make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))
    return float(r2_score(w, model.fit(x[:, at], y).predict(v[:, at])))


def one_split(name: str, k: int, seed: int) -> dict[str, tuple[float, float]]:
    """Method → (network, plain model) on the test rows."""
    data = getattr(datasets, f"load_{name}")()
    classes = hasattr(data, "target_names")
    x, v, y, w = train_test_split(
        data.data, data.target, test_size=1 / 3, random_state=seed,
        stratify=data.target if classes else None,
    )  # fmt: skip
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        train = written(folder / "train.csv", x, y)
        written(folder / "test.csv", v, w)
        chosen = {
            "greedypig select": by_select(train, k, seed),
            "FeatureSelector": by_selector(x, y, k),
            "mutual information": by_information(x, y, k, classes),
        }
        return {
            method: (network_says(folder, columns),
                     plain_model_says(x, y, v, w, columns, classes))
            for method, columns in chosen.items()
        }  # fmt: skip


def main() -> None:
    """Print a table for every name:k."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    for word in sys.argv[1:]:
        name, k = word.split(":")
        found = [one_split(name, int(k), seed) for seed in range(SPLITS)]
        print(f"\n{name}, k = {k}, {SPLITS} splits\n\n| method | network | plain model |")
        print("|---|---|---|")
        for method in found[0]:
            cells = []
            for judge in range(2):
                values = [one[method][judge] for one in found]
                cells.append(f"{fmean(values):.4f} ± {stdev(values) / SPLITS**0.5:.4f}")
            print(f"| {method} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
