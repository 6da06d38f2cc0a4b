"""Which of the 30 measurements of a tumour does a network use, and how few would do?

Needs the extras tables and sklearn (for its bundled data): python examples/table.py
"""

import csv
import warnings
from pathlib import Path

from sklearn.datasets import load_breast_cancer

import greedypig as gp
from greedypig.tables import (
    Batches,
    Effort,
    new_network,
    open_table,
    retrain,
    survey,
    train_network,
)


def main() -> None:
    folder = Path("out")
    folder.mkdir(exist_ok=True)
    path = folder / "tumours.csv"
    data = load_breast_cancer()
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow([*(name.replace(" ", "_") for name in data.feature_names), "benign"])
        writer.writerows([*row, label] for row, label in zip(data.data, data.target, strict=True))

    table = open_table(path)  # Read in pieces: it need not fit in memory.
    columns = survey(table, "benign")
    train = Batches(table, columns, part="train", share=0.3, batch_size=32)
    valid = Batches(table, columns, part="valid", share=0.3, shuffle=False)
    effort = Effort(epochs=8)
    network = train_network(new_network(columns.schema), train, valid, effort=effort)
    print(f"all 30 columns: log-loss {network.scores.loss:.3f}")

    selection = gp.select_features(network.model, train, k=5, names=columns.schema.names)
    print("best first:", ", ".join(selection.top(5)))

    # Check: a fresh network that never sees the other columns.
    retrained = retrain(
        {"greedy-pig": [selection.top(30)]}, train, valid, ks=[5], seeds=2, effort=effort
    )
    loss = retrained.losses["greedy-pig"][5]
    print(f"only these 5, retrained: log-loss {loss.mean:.3f} ± {loss.standard_error:.3f}")
    selection.save(folder / "tumours.gpig")
    selection.to_html(folder / "tumours.html")  # In a notebook: selection, selection.plot().


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
