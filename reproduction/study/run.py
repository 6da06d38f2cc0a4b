"""Which setting serves under three judges at once? The study behind the defaults for photos.

    python reproduction/study/run.py tune steady-33x3 greedy-20x5 …      one part of the photos
    python reproduction/study/run.py confirm steady-33x3 paper-100x20 …  photos not tuned on
    python reproduction/study/run.py pointing steady-33x3 …              2 × 2 grids of the latter
    python reproduction/study/run.py table                               what there is so far

Judges: the network's own curve (SIC, and LIC), the same masks seen by the other network, and the
pointing game. Networks: MobileNetV2 judged by EfficientNet-Lite0 and the other way round. Photos:
those of `make assets` on whose class both networks agree, split by a fixed seed. Every result is
kept as soon as it is there, so a stopped run goes on; `table` writes results.md, results.csv and
pareto.png next to this file.
"""

from __future__ import annotations

import argparse
import csv
import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import greedypig as gp
from greedypig.images import Photos
from greedypig.images.networks.assets_folder import assets_folder

HERE = Path(__file__).parent
NETWORKS = {"mobilenet-v2": "efficientnet-lite0", "efficientnet-lite0": "mobilenet-v2"}
"""Who is explained → who gives the second opinion."""
TUNING, SEED, GRIDS = 46, 7, 25
DEFAULT = "steady-33x3"
"""What photos get; its areas on the same photos are put beside those of every candidate."""
KEYS = ("part", "network", "candidate", "gradients", "photos")
NUMBERS = (
    "own",
    "second",
    "loss",
    "default_own",
    "default_second",
    "pointing",
    "pointing_error",
)
BATCH = 8
FEW = 12
"""Photos below which a dot is hollow."""
LINE = 0.035
"""Height of a name, as a share of its panel."""


class Sample:
    """The photos both networks agree on, as inputs of each, in a fixed random order."""

    def __init__(self, folder: Path) -> None:
        self.models = {name: gp.models.load(name) for name in NETWORKS}
        paths, inputs, classes = [], {name: [] for name in NETWORKS}, []
        for photo in Photos([folder]):
            answers = {}
            for name, model in self.models.items():
                x = model.preprocess(photo.image)
                with torch.no_grad():
                    answers[name] = (x, int(model(x.unsqueeze(0)).argmax()))
            found = {target for _, target in answers.values()}
            if len(found) == 1:
                paths.append(photo.path)
                classes.append(found.pop())
                for name, (x, _) in answers.items():
                    inputs[name].append(x)
        generator = torch.Generator().manual_seed(SEED)
        order = torch.randperm(len(paths), generator=generator).tolist()
        self.parts = {"tune": order[:TUNING], "confirm": order[TUNING:]}
        self.names = [f"{p.parent.name}-{p.stem}" for p in paths]
        self.inputs, self.classes = inputs, classes


def method(candidate: dict[str, Any]) -> dict[str, Any]:
    """The arguments of gp.explain for a candidate."""
    options = dict(candidate["options"])
    if scorer := dict(candidate.get("scorer", {})):
        options["method"] = gp.Greedy(getattr(gp, scorer.pop("name"))(**scorer))
    if blocks := options.pop("blocks", None):
        options["features"] = gp.grid(blocks)
    return options


def curves(
    sample: Sample, part: str, name: str, network: str, candidate: dict[str, Any], args: Any
) -> None:
    """Own and second-opinion curves of one candidate, a file for each photo."""
    model, judge = sample.models[network], sample.models[NETWORKS[network]]
    folder = args.out / part / network / name
    folder.mkdir(parents=True, exist_ok=True)
    chosen = sample.parts[part][: args.limit]
    left = [i for i in chosen if not (folder / f"{sample.names[i]}.json").exists()]
    for lo in range(0, len(left), BATCH):
        batch = left[lo : lo + BATCH]
        xs = [sample.inputs[network][i] for i in batch]
        targets = [sample.classes[i] for i in batch]
        found = list(
            gp.explain_many(
                model, xs, target=targets, baseline="gray", values="free", **method(candidate)
            )
        )
        own = gp.metrics.information_curves_many(model, xs, found, points=args.points)
        second = gp.metrics.information_curves_many(model, xs, found, judge=judge,
                                                    points=args.points)  # fmt: skip
        for i, a, mine, theirs in zip(batch, found, own, second, strict=True):
            record = {
                "place": chosen.index(i),
                "gradients": a.gradients_used,
                "own": mine["softmax"].to_dict(),
                "loss": mine["loss"].to_dict(),
                "second": theirs["softmax"].to_dict(),
            }
            (folder / f"{sample.names[i]}.json").write_text(json.dumps(record))
    print(f"{part} {network} {name}: {line(folder, chosen, sample)}", flush=True)


def line(folder: Path, chosen: list[int], sample: Sample) -> str:
    """Medians so far, for the eye."""
    records = [json.loads((folder / f"{sample.names[i]}.json").read_text()) for i in chosen]
    return ", ".join(
        f"{what} {median_auc(records, what):.3f}" for what in ("own", "second", "loss")
    )


def median_auc(records: list[dict[str, Any]], what: str) -> float:
    """The area under the median curve."""
    return gp.metrics.median_curve([gp.metrics.Curve.from_dict(r[what]) for r in records]).auc


def pointing(sample: Sample, name: str, network: str, candidate: dict[str, Any], args: Any) -> None:
    """The pointing game on grids of the confirming photos."""
    folder = args.out / "pointing" / network
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    if not file.exists():
        chosen = sample.parts["confirm"]
        options = method(candidate)
        asked = options.pop("method", "greedy-pig")
        game = gp.metrics.pointing_game(
            sample.models[network],
            torch.stack([sample.inputs[network][i] for i in chosen]),
            [sample.classes[i] for i in chosen],
            method=asked,
            grids=args.grids,
            options={"baseline": "gray", "values": "free", **until_enough(options)},
        )
        record = {"score": game.score, "error": game.standard_error, "majority": game.majority,
                  "grids": args.grids, "right": game.right.flatten().tolist()}  # fmt: skip
        file.write_text(json.dumps(record))
    record = json.loads(file.read_text())
    print(f"pointing {network} {name}: {record['score']:.3f} ± {record['error']:.3f}", flush=True)


def until_enough(options: dict[str, Any], k: int = 15_000, n: int = 150_528) -> dict[str, Any]:
    """The same picks, but no rounds beyond the k that the pointing game looks at."""
    if "rounds" not in options:
        return options
    from greedypig.core.schedule import plan_picks

    knobs = {a: options[a] for a in ("rounds", "schedule", "ratio") if a in options}
    picks = plan_picks(n, **knobs)
    total = torch.tensor(picks).cumsum(0)
    enough = int((total >= k).nonzero()[0]) + 1
    rest = {a: v for a, v in options.items() if a not in knobs}
    return {**rest, "schedule": list(picks[:enough])}


def rows(out: Path, candidates: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """One row for every candidate, network and part that has results."""
    for part in ("tune", "confirm"):
        for network in NETWORKS:
            for name, candidate in candidates.items():
                files = sorted((out / part / network / name).glob("*.json"))
                if not files:
                    continue
                records = [json.loads(f.read_text()) for f in files]
                row = {"part": part, "network": network, "candidate": name,
                       "gradients": candidate["gradients"], "photos": len(records)}  # fmt: skip
                for what in ("own", "second", "loss"):
                    row[what] = round(median_auc(records, what), 3)
                yield row


def with_pointing(found: list[dict[str, Any]], out: Path) -> None:
    """Put the pointing games that were played here into the confirmed rows."""
    for row in found:
        game = out / "pointing" / row["network"] / f"{row['candidate']}.json"
        if row["part"] == "confirm" and game.exists():
            record = json.loads(game.read_text())
            row["pointing"] = round(record["score"], 3)
            row["pointing_error"] = round(record["error"], 3)


def with_default(found: list[dict[str, Any]], out: Path) -> None:
    """Put beside every row what the default gets on its photos: the first of the same order."""
    for row in found:
        folder = out / row["part"] / row["network"] / DEFAULT
        records = [json.loads(f.read_text()) for f in folder.glob("*.json")]
        same = [r for r in records if r["place"] < row["photos"]]
        for what in ("own", "second"):
            if len(same) == row["photos"]:
                row[f"default_{what}"] = round(median_auc(same, what), 3)
            else:
                row.setdefault(f"default_{what}", None)


def with_earlier(found: list[dict[str, Any]], candidates: dict[str, Any]) -> list[dict[str, Any]]:
    """What is measured here, and rows of results.csv that were measured elsewhere or earlier."""
    kept = {}
    if (HERE / "results.csv").exists():
        with (HERE / "results.csv").open() as file:
            for row in csv.DictReader(file):
                typed: dict[str, Any] = dict(row)
                for name in ("gradients", "photos"):
                    typed[name] = int(row[name])
                for name in NUMBERS:
                    typed[name] = float(row[name]) if row.get(name) else None
                kept[row["part"], row["network"], row["candidate"]] = typed
    for row in found:
        key = row["part"], row["network"], row["candidate"]
        before = kept.get(key, {})
        if row["photos"] >= before.get("photos", 0):
            played = {name: before.get(name) for name in ("pointing", "pointing_error")}
            kept[key] = played | row
    networks, places = list(NETWORKS), list(candidates)
    return sorted(
        kept.values(),
        key=lambda r: (
            r["part"] != "tune",
            networks.index(r["network"]),
            places.index(r["candidate"]),
        ),
    )


def beside(row: dict[str, Any], what: str) -> str:
    """A candidate's area, and in brackets the default's on the same photos."""
    usual = row[f"default_{what}"]
    told = row["candidate"] == DEFAULT or usual is None
    return f"{row[what]}" if told else f"{row[what]} ({usual})"


def table(args: Any, candidates: dict[str, Any]) -> None:
    """results.csv, results.md and the Pareto picture of what there is."""
    found = with_earlier(list(rows(args.out, candidates)), candidates)
    with_pointing(found, args.out)
    with_default(found, args.out)
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *NUMBERS], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(found)
    lines = [
        "Made by `python reproduction/study/run.py table`. AUC of median curves; own and second "
        f"opinion higher is better, loss lower; in brackets what the default, {DEFAULT}, gets on "
        "the same photos. Pointing: 2 × 2 grids of the confirming photos, the share of classes "
        "whose own quadrant holds most of the top 15,000, ± standard error.",
    ]
    for part in ("tune", "confirm"):
        for network, judge in NETWORKS.items():
            mine = [r for r in found if (r["part"], r["network"]) == (part, network)]
            if not mine:
                continue
            lines += ["", f"### {part}: {network}, second opinion by {judge}", "",
                      "| candidate | gradients | photos | own (default) | second (default) | loss "
                      "| pointing |", "|---|---|---|---|---|---|---|"]  # fmt: skip
            for r in mine:
                game = "" if r["pointing"] is None else f"{r['pointing']} ± {r['pointing_error']}"
                own, second = (beside(r, what) for what in ("own", "second"))
                lines.append(f"| {r['candidate']} | {r['gradients']} | {r['photos']} | {own} "
                             f"| {second} | {r['loss']} | {game} |")  # fmt: skip
    (HERE / "results.md").write_text("\n".join(lines) + "\n")
    pareto(found, HERE / "pareto.png")
    print("\n".join(lines))


def _span(rows: list[dict[str, Any]]) -> float:
    seconds = [r["second"] for r in rows]
    return (max(seconds) - min(seconds)) or 1.0


def _room(seconds: list[float]) -> tuple[float, float]:
    margin = 0.08 * ((max(seconds) - min(seconds)) or 1.0)
    return min(seconds) - margin, max(seconds) + 2 * margin


def pareto(found: list[dict[str, Any]], path: Path) -> None:
    """Own curve against second opinion, one panel a network and part."""
    from matplotlib.figure import Figure

    panels = [(p, n) for p in ("tune", "confirm") for n in NETWORKS
              if any((r["part"], r["network"]) == (p, n) for r in found)]  # fmt: skip
    figure = Figure(figsize=(6.4 * min(2, len(panels)), 5.2 * -(-len(panels) // 2)))
    for spot, (part, network) in enumerate(panels):
        axes = figure.add_subplot(-(-len(panels) // 2), min(2, len(panels)), spot + 1)
        mine = [r for r in found if (r["part"], r["network"]) == (part, network)]
        middle = (min(r["own"] for r in mine) + max(r["own"] for r in mine)) / 2
        bottom, top = _room([r["second"] for r in mine])
        axes.set_ylim(bottom, top)
        height = {}
        for left in (True, False):  # Names stay inside the panel, and apart from each other.
            below = -float("inf")
            for r in sorted((r for r in mine if (r["own"] > middle) is left),
                            key=lambda r: r["second"]):  # fmt: skip
                below = height[r["candidate"]] = max(r["second"], below + LINE * _span(mine))
        for r in mine:
            left = r["own"] > middle
            colour = "#d55e00" if r["candidate"] == DEFAULT else "#0072b2"
            few = r["photos"] < FEW
            axes.scatter(r["own"], r["second"], s=14 + 9 * r["gradients"] ** 0.5, alpha=0.6,
                         facecolors="none" if few else colour, edgecolors=colour,
                         linewidths=1.2 if few else 0)  # fmt: skip
            shift = (height[r["candidate"]] - r["second"]) / (top - bottom) * axes.bbox.height
            axes.annotate(r["candidate"], (r["own"], r["second"]), fontsize=6.5,
                          textcoords="offset points", va="center", ha="right" if left else "left",
                          xytext=(-14 if left else 14, shift * 72 / figure.dpi),
                          arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.5,
                                      "shrinkA": 0, "shrinkB": 3})  # fmt: skip
        axes.set_xlabel("own curve (SIC AUC)")
        axes.set_ylabel(f"second opinion by {NETWORKS[network]} (SIC AUC)")
        axes.set_title(f"{network}, {part}: up to {max(r['photos'] for r in mine)} photos",
                       fontsize=10)  # fmt: skip
        axes.grid(alpha=0.25)
    figure.suptitle(
        "Up and right is better; a dot's area grows with its gradients; orange: the default; "
        f"hollow: fewer than {FEW} photos", fontsize=9,
    )  # fmt: skip
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["tune", "confirm", "pointing", "table"])
    parser.add_argument("names", nargs="*", help="candidates (default: all)")
    parser.add_argument("--network", choices=list(NETWORKS), action="append")
    parser.add_argument("--photos", type=Path, default=assets_folder() / "photos")
    parser.add_argument("--out", type=Path, default=Path("out/study"))
    parser.add_argument("--limit", type=int, default=None, help="photos at most")
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--grids", type=int, default=GRIDS)
    args = parser.parse_args()
    candidates = tomllib.loads((HERE / "candidates.toml").read_text())
    if args.what == "table":
        table(args, candidates)
        return
    if unknown := set(args.names) - set(candidates):
        parser.error(f"unknown candidates: {', '.join(sorted(unknown))}")
    sample = Sample(args.photos)
    for name in args.names or candidates:
        for network in args.network or NETWORKS:
            if args.what == "pointing":
                pointing(sample, name, network, candidates[name], args)
            else:
                curves(sample, args.what, name, network, candidates[name], args)


if __name__ == "__main__":
    main()
