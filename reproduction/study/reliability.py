"""How often does the default's explanation hold? One line per network and kind of feature.

    python reproduction/study/reliability.py                       120 photos, elements and pixels
    python reproduction/study/reliability.py --features elements pixels grid windows superpixels
    python reproduction/study/reliability.py --objective log-likelihood

An explanation of a photo holds if its best 10 % give at least 0.9 of the photo's probability. Its
loss curve (LIC) should lie below that of a random order. Photos, and the weights of MobileNetV2,
are those of `make assets`. Every photo's numbers are kept as they come, so a stopped run goes on.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import torch

import greedypig as gp
from greedypig.images import Photos
from greedypig.images.networks.assets_folder import assets_folder

NETWORKS = {"mobilenet-v2": "efficientnet-lite0", "efficientnet-lite0": "mobilenet-v2"}
"""The explained network → the network of the second opinion."""
FEATURES: dict[str, Any] = {
    "elements": "elements",
    "pixels": "pixels",
    "grid": gp.grid(16),
    "windows": gp.windows(16),
    "superpixels": gp.superpixels(200),
}
SHARES = (0.01, 0.05, 0.1)
HOLDS = 0.9


def measure(model: Any, judge: Any, image: Any, features: Any, options: dict[str, Any]) -> dict:
    """The numbers of one photo."""
    x = model.preprocess(image)
    a = gp.explain(model, x, baseline="gray", features=features, **options)
    curves = gp.metrics.information_curves(model, x, a, points=51)
    order = gp.explain(model, x, baseline="gray", features=features, method="random")
    random = gp.metrics.loss_information_curve(model, x, order, points=51)
    own, loss = curves["softmax"], curves["loss"]
    record = {
        "probability": own.full,
        "kept": [own.at(share) for share in SHARES],
        "own": own.auc,
        "loss": loss.auc,
        "random_loss": random.auc,
        "method": a.method,
        "gradients": a.gradients_used,
        "seconds": a.seconds,
    }
    with torch.no_grad():
        other = judge(judge.preprocess(image).unsqueeze(0)).argmax()
    if int(other) == a.settings["target"]:
        second = gp.metrics.softmax_information_curve(model, x, a, judge=judge, points=51)
        record["second"] = second.auc
    return record


def summary(records: list[dict[str, Any]]) -> str:
    """The photos so far in a line."""
    holds = [r["kept"][-1] >= HOLDS * r["probability"] for r in records]
    worse = [r["loss"] > r["random_loss"] for r in records]
    means = {
        name: sum(r[name] for r in records if name in r) / max(1, sum(name in r for r in records))
        for name in ("own", "second", "loss", "random_loss")
    }
    numbers = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    return (
        f"{len(records)} photos: best 10 % hold {sum(holds) / len(holds):.1%}, loss curve above "
        f"random's {sum(worse)}; mean areas: {numbers}"
    )


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--features", nargs="+", choices=FEATURES, default=["elements", "pixels"])
    parser.add_argument("--network", choices=list(NETWORKS), action="append")
    parser.add_argument("--objective", default="softmax")
    parser.add_argument("--photos", type=Path, nargs="+", default=[assets_folder() / "photos"])
    parser.add_argument("--every", type=int, default=1, help="every n-th photo")
    parser.add_argument("--out", type=Path, default=Path("out/reliability"))
    args = parser.parse_args()
    models = {name: gp.models.load(name) for name in NETWORKS}
    for network in args.network or NETWORKS:
        for features in args.features:
            folder = args.out / args.objective / network / features
            folder.mkdir(parents=True, exist_ok=True)
            records = []
            for photo in list(Photos(args.photos))[:: args.every]:
                file = folder / f"{photo.path.parent.name}-{photo.path.stem}.json"
                if not file.exists():
                    record = measure(
                        models[network], models[NETWORKS[network]], photo.image,
                        FEATURES[features], {"objective": args.objective},
                    )  # fmt: skip
                    file.write_text(json.dumps(record))
                records.append(json.loads(file.read_text()))
            print(f"{network}, {features}: {summary(records)}", flush=True)


if __name__ == "__main__":
    main()
