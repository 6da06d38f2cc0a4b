"""How often does the default's explanation hold? One line per network and kind of feature.

    python reproduction/study/reliability.py                       120 photos, elements and pixels
    python reproduction/study/reliability.py --features elements pixels grid windows superpixels
    python reproduction/study/reliability.py --objective log-likelihood
    python reproduction/study/reliability.py --below 0.6667        photos the network is unsure of

An explanation of a photo holds if its best 10 % give at least 0.9 of the photo's probability. Its
loss curve (LIC) should lie below that of a random order. Photos, and the weights of MobileNetV2,
are those of `make assets`. Every photo's numbers are kept as they come, so a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from run import NETWORKS, Row, save

import greedypig as gp
from greedypig.images import Photos
from greedypig.network.assets_folder import assets_folder

FEATURES: dict[str, Any] = {
    "elements": "elements",
    "pixels": "pixels",
    "grid": gp.grid(16),
    "windows": gp.windows(16),
    "superpixels": gp.superpixels(200),
}
OUT, SHARE, HOLDS = Path("out/reliability"), 0.1, 0.9


def probability(model: Any, image: Any) -> float:
    """Of the predicted class."""
    with torch.no_grad():
        return float(model(model.preprocess(image).unsqueeze(0)).softmax(1).max())


def measure(model: Any, judge: Any, image: Any, features: Any, objective: str) -> Row:
    """The numbers of one photo."""
    x = model.preprocess(image)
    a = gp.explain(model, x, baseline="gray", features=features, objective=objective)
    curves = gp.metrics.information_curves(model, x, a, points=51)
    order = gp.explain(model, x, baseline="gray", features=features, method="random")
    random = gp.metrics.loss_information_curve(model, x, order, points=51)
    own, loss = curves["softmax"], curves["loss"]
    record = {
        "holds": own.at(SHARE) >= HOLDS * own.full,
        "own": own.auc,
        "loss": loss.auc,
        "random_loss": random.auc,
        "falls": float(own.values[own.fractions >= SHARE].min()) < HOLDS * own.full,
    }
    with torch.no_grad():
        other = judge(judge.preprocess(image).unsqueeze(0)).argmax()
    if int(other) == a.settings["target"]:
        second = gp.metrics.softmax_information_curve(model, x, a, judge=judge, points=51)
        record["second"] = second.auc
    return record


def summary(records: list[Row]) -> str:
    """The photos so far in a line."""
    worse = sum(r["loss"] > r["random_loss"] for r in records)
    falls = sum(r["falls"] for r in records)
    names = ("own", "second", "loss", "random_loss")
    areas = {name: [r[name] for r in records if name in r] for name in names}
    numbers = ", ".join(f"{name} {fmean(each):.3f}" for name, each in areas.items() if each)
    return (
        f"{len(records)} photos: best 10 % hold {fmean(r['holds'] for r in records):.1%}, loss "
        f"curve above random's {worse}, falls after 10 % {falls}; mean areas: {numbers}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=["elements", "pixels"])
    parser.add_argument("--objective", default="softmax")
    parser.add_argument("--every", type=int, default=1, help="every n-th photo")
    parser.add_argument("--below", type=float, default=1.1, help="of photos below this probability")
    args = parser.parse_args()
    models = {name: gp.models.load(name) for name in NETWORKS}
    for network, judge in NETWORKS.items():
        for name in args.features:
            folder, records = OUT / args.objective / network / name, []
            for photo in list(Photos([assets_folder() / "photos"]))[:: args.every]:
                if probability(models[network], photo.image) >= args.below:
                    continue
                file = folder / f"{photo.path.parent.name}-{photo.path.stem}.json"
                if not file.exists():
                    pair, features = (models[network], models[judge]), FEATURES[name]
                    save(file, measure(*pair, photo.image, features, args.objective))
                records.append(json.loads(file.read_text()))
            print(f"{network}, {name}: {summary(records)}", flush=True)


if __name__ == "__main__":
    main()
