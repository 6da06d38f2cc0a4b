"""Which setting serves under three judges at once? The study behind the defaults for photos.

    python reproduction/study/run.py tune steady-33x3 greedy-20x5 …      one part of the photos
    python reproduction/study/run.py confirm steady-33x3 paper-100x20 …  photos not tuned on
    python reproduction/study/run.py pointing steady-33x3 …              2 × 2 grids of the latter
    python reproduction/study/run.py table                               the results so far

Judges: the network's own curve (SIC, and LIC), the same masks shown to the other network, and the
pointing game. Networks: MobileNetV2 judged by EfficientNet-Lite0 and the other way round. Photos:
those of `make assets` for which both networks predict the same class, split by a fixed seed. Every
result is kept at once, so a stopped run goes on; `table` writes results.md, results.csv and
pareto.png next to this file.
"""

from __future__ import annotations

import argparse
import csv
import json
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.methods import InRounds, with_knobs
from greedypig.images import Photos
from greedypig.images.networks.assets_folder import assets_folder

HERE = Path(__file__).parent
NETWORKS = {"mobilenet-v2": "efficientnet-lite0", "efficientnet-lite0": "mobilenet-v2"}
"""The explained network → the network of the second opinion."""
PARTS = ("tune", "confirm")
TUNING, SEED, GRIDS = 46, 7, 25
DEFAULT = "steady-33x3"
"""The default for photos; its areas on the same photos are beside those of every candidate."""
KEYS = ("part", "network", "candidate", "gradients", "photos")
AREAS = ("own", "second", "loss")
NUMBERS = (*AREAS, "default_own", "default_second", "pointing", "pointing_error")
BATCH = 8
FEW = 12
"""Photos below which a dot is hollow."""
LINE = 0.035
"""Height of a name, as a share of its panel."""
Row = dict[str, Any]


@dataclass(frozen=True)
class Candidate:
    """A method and further arguments of gp.explain."""

    gradients: int
    method: Any
    options: dict[str, Any]

    @staticmethod
    def all() -> dict[str, Candidate]:
        """The candidates of candidates.toml by name."""
        candidates = {}
        for name, table in tomllib.loads((HERE / "candidates.toml").read_text()).items():
            knobs, options = dict(table["method"]), dict(table.get("options", {}))
            if blocks := options.pop("blocks", None):
                options["features"] = gp.grid(blocks)
            method = with_knobs(knobs.pop("method"), **knobs)
            candidates[name] = Candidate(table["gradients"], method, options)
        return candidates

    def first_rounds(self, k: int = 15_000, n: int = 150_528) -> Any:
        """The method without the rounds after the k values that the pointing game looks at."""
        if not isinstance(self.method, InRounds) or "features" in self.options:
            return self.method
        picks = self.method.picks(Elements(n), None)
        enough = int((torch.tensor(picks).cumsum(0) >= k).nonzero()[0]) + 1
        return replace(self.method, rounds=None, schedule=list(picks[:enough]))


class Sample:
    """The photos for which both networks predict the same class, in a fixed random order."""

    def __init__(self, folder: Path) -> None:
        self.models = {name: gp.models.load(name) for name in NETWORKS}
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in NETWORKS}
        self.names: list[str] = []
        self.classes: list[int] = []
        for photo in Photos([folder]):
            xs = {name: model.preprocess(photo.image) for name, model in self.models.items()}
            with torch.no_grad():
                classes = {
                    int(self.models[name](x.unsqueeze(0)).argmax()) for name, x in xs.items()
                }
            if len(classes) == 1:
                self.names.append(f"{photo.path.parent.name}-{photo.path.stem}")
                self.classes.append(classes.pop())
                for name, x in xs.items():
                    self.inputs[name].append(x)
        generator = torch.Generator().manual_seed(SEED)
        order = torch.randperm(len(self.names), generator=generator).tolist()
        self.parts = {"tune": order[:TUNING], "confirm": order[TUNING:]}


def measure_curves(
    sample: Sample, part: str, name: str, network: str, candidate: Candidate, args: Any
) -> None:
    """Own and second-opinion curves of one candidate, a file for each photo."""
    model, judge = sample.models[network], sample.models[NETWORKS[network]]
    folder = args.out / part / network / name
    folder.mkdir(parents=True, exist_ok=True)
    chosen = sample.parts[part][: args.limit]
    files = {i: folder / f"{sample.names[i]}.json" for i in chosen}
    left = [i for i in chosen if not files[i].exists()]
    for start in range(0, len(left), BATCH):
        batch = left[start : start + BATCH]
        xs = [sample.inputs[network][i] for i in batch]
        targets = [sample.classes[i] for i in batch]
        attributions = list(
            gp.explain_many(
                model,
                xs,
                target=targets,
                baseline="gray",
                method=candidate.method,
                **candidate.options,
            )
        )
        own, second = (
            gp.metrics.information_curves_many(model, xs, attributions, judge=who,
                                               points=args.points)
            for who in (None, judge)
        )  # fmt: skip
        for i, a, mine, other in zip(batch, attributions, own, second, strict=True):
            record = {
                "place": chosen.index(i),
                "gradients": a.gradients_used,
                "own": mine["softmax"].to_dict(),
                "loss": mine["loss"].to_dict(),
                "second": other["softmax"].to_dict(),
            }
            files[i].write_text(json.dumps(record))
    records = [json.loads(file.read_text()) for file in files.values()]
    areas = ", ".join(f"{area} {median_auc(records, area):.3f}" for area in AREAS)
    print(f"{part} {network} {name}: {areas}", flush=True)


def median_auc(records: list[Row], area: str) -> float:
    """The area under the median curve."""
    return gp.metrics.median_curve([gp.metrics.Curve.from_dict(r[area]) for r in records]).auc


def play(sample: Sample, name: str, network: str, candidate: Candidate, args: Any) -> None:
    """The pointing game on grids of the confirming photos."""
    folder = args.out / "pointing" / network
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{name}.json"
    if not file.exists():
        chosen = sample.parts["confirm"]
        game = gp.metrics.pointing_game(
            sample.models[network],
            torch.stack([sample.inputs[network][i] for i in chosen]),
            [sample.classes[i] for i in chosen],
            method=candidate.first_rounds(),
            grids=args.grids,
            options={"baseline": "gray", **candidate.options},
        )
        record = {"score": game.score, "error": game.standard_error, "majority": game.majority,
                  "grids": args.grids, "right": game.right.flatten().tolist()}  # fmt: skip
        file.write_text(json.dumps(record))
    record = json.loads(file.read_text())
    print(f"pointing {network} {name}: {record['score']:.3f} ± {record['error']:.3f}", flush=True)


def measured_rows(out: Path, candidates: dict[str, Candidate]) -> Iterator[Row]:
    """One row for every candidate, network and part that has results in `out`."""
    for part in PARTS:
        for network in NETWORKS:
            usual = [json.loads(f.read_text()) for f in (out / part / network / DEFAULT).glob("*")]
            for name, candidate in candidates.items():
                files = sorted((out / part / network / name).glob("*.json"))
                if not files:
                    continue
                records = [json.loads(f.read_text()) for f in files]
                row = {"part": part, "network": network, "candidate": name,
                       "gradients": candidate.gradients, "photos": len(records)}  # fmt: skip
                row |= {area: round(median_auc(records, area), 3) for area in AREAS}
                same = [r for r in usual if r["place"] < len(records)]
                if len(same) == len(records):
                    row |= {f"default_{a}": round(median_auc(same, a), 3) for a in AREAS[:2]}
                game = out / "pointing" / network / f"{name}.json"
                if part == "confirm" and game.exists():
                    record = json.loads(game.read_text())
                    row["pointing"] = round(record["score"], 3)
                    row["pointing_error"] = round(record["error"], 3)
                yield row


def all_rows(out: Path, candidates: dict[str, Candidate]) -> list[Row]:
    """The rows measured here, and those of results.csv with more photos."""
    rows: dict[tuple[str, ...], Row] = {}
    if (HERE / "results.csv").exists():
        with (HERE / "results.csv").open() as file:
            for line in csv.DictReader(file):
                row: Row = {key: line[key] for key in KEYS[:3]}
                row |= {key: int(line[key]) for key in KEYS[3:]}
                row |= {key: float(line[key]) if line.get(key) else None for key in NUMBERS}
                rows[line["part"], line["network"], line["candidate"]] = row
    for row in measured_rows(out, candidates):
        key = row["part"], row["network"], row["candidate"]
        before = rows.get(key, dict.fromkeys(NUMBERS) | {"photos": 0})
        if row["photos"] >= before["photos"]:
            rows[key] = before | row
    networks, names = list(NETWORKS), list(candidates)
    last = len(names)  # Candidates that are no longer in the file.
    return sorted(rows.values(), key=lambda r: (
        PARTS.index(r["part"]), networks.index(r["network"]),
        names.index(r["candidate"]) if r["candidate"] in names else last,
    ))  # fmt: skip


def write_table(out: Path, candidates: dict[str, Candidate]) -> None:
    """results.csv, results.md and the Pareto picture."""
    rows = all_rows(out, candidates)
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *NUMBERS], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    lines = [
        "Made by `python reproduction/study/run.py table`. AUC of median curves; own and second "
        f"opinion higher is better, loss lower; in brackets what the default, {DEFAULT}, gets on "
        "the same photos. Pointing: 2 × 2 grids of the confirming photos, the share of classes "
        "whose own quadrant holds most of the top 15,000, ± standard error.",
    ]
    for (part, network), panel in panels(rows).items():
        lines += ["", f"### {part}: {network}, second opinion by {NETWORKS[network]}", "",
                  "| candidate | gradients | photos | own (default) | second (default) | loss "
                  "| pointing |", "|---|---|---|---|---|---|---|"]  # fmt: skip
        for r in panel:
            game = "" if r["pointing"] is None else f"{r['pointing']} ± {r['pointing_error']}"
            alone = r["candidate"] == DEFAULT or r["default_own"] is None
            own, second = (f"{r[area]}" if alone else f"{r[area]} ({r[f'default_{area}']})"
                           for area in ("own", "second"))  # fmt: skip
            lines.append(f"| {r['candidate']} | {r['gradients']} | {r['photos']} | {own} "
                         f"| {second} | {r['loss']} | {game} |")  # fmt: skip
    (HERE / "results.md").write_text("\n".join(lines) + "\n")
    draw_pareto(rows, HERE / "pareto.png")
    print("\n".join(lines))


def panels(rows: list[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of every part and network that has some."""
    by: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        by.setdefault((row["part"], row["network"]), []).append(row)
    return by


def draw_pareto(rows: list[Row], path: Path) -> None:
    """Own curve against second opinion, one panel for each network and part."""
    from matplotlib.figure import Figure

    by = panels(rows)
    across, down = min(2, len(by)), -(-len(by) // 2)
    figure = Figure(figsize=(6.4 * across, 5.2 * down))
    for spot, ((part, network), panel) in enumerate(by.items()):
        axes = figure.add_subplot(down, across, spot + 1)
        draw_panel(axes, panel, 72 / figure.dpi)
        axes.set_xlabel("own curve (SIC AUC)")
        axes.set_ylabel(f"second opinion by {NETWORKS[network]} (SIC AUC)")
        photos = max(r["photos"] for r in panel)
        axes.set_title(f"{network}, {part}: up to {photos} photos", fontsize=10)
        axes.grid(alpha=0.25)
    figure.suptitle(
        "Up and right is better; a dot's area grows with its gradients; orange: the default; "
        f"hollow: fewer than {FEW} photos", fontsize=9,
    )  # fmt: skip
    figure.tight_layout()
    figure.savefig(path, dpi=110)


def draw_panel(axes: Any, rows: list[Row], points_per_pixel: float) -> None:
    """Dots with their names; names are inside the panel and apart from each other."""
    low, high = min(r["second"] for r in rows), max(r["second"] for r in rows)
    span = (high - low) or 1.0
    axes.set_ylim(low - 0.08 * span, high + 0.16 * span)
    middle = (min(r["own"] for r in rows) + max(r["own"] for r in rows)) / 2
    below = {True: -torch.inf, False: -torch.inf}
    for r in sorted(rows, key=lambda r: r["second"]):
        left, few = r["own"] > middle, r["photos"] < FEW
        height = below[left] = max(r["second"], below[left] + LINE * span)
        colour = "#d55e00" if r["candidate"] == DEFAULT else "#0072b2"
        axes.scatter(r["own"], r["second"], s=14 + 9 * r["gradients"] ** 0.5, alpha=0.6,
                     facecolors="none" if few else colour, edgecolors=colour,
                     linewidths=1.2 if few else 0)  # fmt: skip
        shift = (height - r["second"]) / (1.24 * span) * axes.bbox.height * points_per_pixel
        axes.annotate(r["candidate"], (r["own"], r["second"]), fontsize=6.5,
                      textcoords="offset points", va="center", ha="right" if left else "left",
                      xytext=(-14 if left else 14, shift),
                      arrowprops={"arrowstyle": "-", "color": "0.6", "linewidth": 0.5,
                                  "shrinkA": 0, "shrinkB": 3})  # fmt: skip


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=[*PARTS, "pointing", "table"])
    parser.add_argument("names", nargs="*", help="candidates (default: all)")
    parser.add_argument("--network", choices=list(NETWORKS), action="append")
    parser.add_argument("--photos", type=Path, default=assets_folder() / "photos")
    parser.add_argument("--out", type=Path, default=Path("out/study"))
    parser.add_argument("--limit", type=int, default=None, help="photos at most")
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--grids", type=int, default=GRIDS)
    args = parser.parse_args()
    candidates = Candidate.all()
    if args.what == "table":
        write_table(args.out, candidates)
        return
    if unknown := set(args.names) - set(candidates):
        parser.error(f"unknown candidates: {', '.join(sorted(unknown))}")
    sample = Sample(args.photos)
    for name in args.names or candidates:
        for network in args.network or NETWORKS:
            if args.what == "pointing":
                play(sample, name, network, candidates[name], args)
            else:
                measure_curves(sample, args.what, name, network, candidates[name], args)


if __name__ == "__main__":
    main()
