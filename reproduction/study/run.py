"""Candidates for the default for photos, by three measures at once.

    python reproduction/study/run.py tune steady-33x3 greedy-20x5 …      one part of the photos
    python reproduction/study/run.py confirm steady-33x3 paper-100x20 …  photos not tuned on
    python reproduction/study/run.py pointing steady-33x3 …              2 × 2 grids of the latter
    python reproduction/study/run.py table                               the results so far

Measures: the network's own curve (SIC, and LIC), the same masks shown to the other network, and the
pointing game. Networks: MobileNetV2 with EfficientNet-Lite0's second opinion, and the reverse.
Photos: those of `make assets` for which both networks predict the same class, split by a fixed
seed. Every result is kept at once, so a stopped run goes on; `table` writes results.md, results.csv
and pareto.png next to this file.
"""

from __future__ import annotations

import argparse
import csv
import json
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.methods import InRounds, with_knobs
from greedypig.images import Photos
from greedypig.network.assets_folder import assets_folder

HERE, OUT = Path(__file__).parent, Path("out/study")
NETWORKS = {"mobilenet-v2": "efficientnet-lite0", "efficientnet-lite0": "mobilenet-v2"}
"""The explained network → the network of the second opinion."""
TUNING, SEED = 46, 7
TOP, VALUES = 15_000, 150_528
"""Values that the pointing game looks at, of so many in a photo."""
DEFAULT = "steady-33x3"
"""The default for photos; its areas on the same photos are beside those of every candidate."""
KEYS = ("part", "network", "candidate", "gradients", "photos")
AREAS = ("own", "second", "loss")
NUMBERS = (*AREAS, "default_own", "default_second", "pointing", "pointing_error")
NOTE = f"""\
Made by `python reproduction/study/run.py table`. AUC of median curves; own and second opinion \
higher is better, loss lower; in brackets what the default, {DEFAULT}, gets on the same photos. \
Pointing: 2 × 2 grids of the confirming photos, the share of classes whose own quadrant holds most \
of the top 15,000, ± standard error."""
HEAD = """
| candidate | gradients | photos | own (default) | second (default) | loss | pointing |
|---|---|---|---|---|---|---|"""
Row = dict[str, Any]


def read_candidates() -> dict[str, tuple[int, Any, Row]]:
    """From a name in candidates.toml to its gradients, method and arguments of gp.explain."""
    candidates = {}
    for name, table in tomllib.loads((HERE / "candidates.toml").read_text()).items():
        knobs, options = dict(table["method"]), dict(table.get("options", {}))
        if blocks := options.pop("blocks", None):
            options["features"] = gp.grid(blocks)
        candidates[name] = table["gradients"], with_knobs(knobs.pop("method"), **knobs), options
    return candidates


def first_rounds(method: Any, options: Row) -> Any:
    """The method without the rounds after the values that the pointing game looks at."""
    if not isinstance(method, InRounds) or "features" in options:
        return method
    picks = method.picks(Elements(VALUES), None)
    enough = int((torch.tensor(picks).cumsum(0) >= TOP).nonzero()[0]) + 1
    return replace(method, rounds=enough, schedule=list(picks[:enough]))


class Sample:
    """The photos for which both networks predict the same class, in a fixed random order."""

    def __init__(self) -> None:
        self.models = {name: gp.models.load(name) for name in NETWORKS}
        self.inputs: dict[str, list[Tensor]] = {name: [] for name in NETWORKS}
        self.names: list[str] = []
        self.classes: list[int] = []
        for photo in Photos([assets_folder() / "photos"]):
            xs = {name: model.preprocess(photo.image) for name, model in self.models.items()}
            with torch.no_grad():
                outputs = [self.models[name](x.unsqueeze(0)) for name, x in xs.items()]
            classes = {int(output.argmax()) for output in outputs}
            if len(classes) == 1:
                self.names.append(f"{photo.path.parent.name}-{photo.path.stem}")
                self.classes.append(classes.pop())
                for name, x in xs.items():
                    self.inputs[name].append(x)
        generator = torch.Generator().manual_seed(SEED)
        order = torch.randperm(len(self.names), generator=generator).tolist()
        self.parts = {"tune": order[:TUNING], "confirm": order[TUNING:]}


def measure_curves(sample: Sample, part: str, network: str, name: str, limit: int | None) -> None:
    """Own and second-opinion curves of one candidate, a file for each photo."""
    model, judge = sample.models[network], sample.models[NETWORKS[network]]
    _, method, options = read_candidates()[name]
    records = []
    for place, i in enumerate(sample.parts[part][:limit]):
        file = OUT / part / network / name / f"{sample.names[i]}.json"
        if not file.exists():
            x, target = sample.inputs[network][i], sample.classes[i]
            a = gp.explain(model, x, target=target, baseline="gray", method=method, **options)
            own = gp.metrics.information_curves(model, x, a)
            second = gp.metrics.softmax_information_curve(model, x, a, judge=judge)
            curves = {"own": own["softmax"], "loss": own["loss"], "second": second}
            record = {key: curve.to_dict() for key, curve in curves.items()}
            save(file, {"place": place, "gradients": a.gradients_used, **record})
        records.append(json.loads(file.read_text()))
    areas = ", ".join(f"{area} {median_auc(records, area):.3f}" for area in AREAS)
    print(f"{part} {network} {name}: {areas}", flush=True)


def play(sample: Sample, network: str, name: str, grids: int) -> None:
    """The pointing game on grids of the confirming photos."""
    file = OUT / "pointing" / network / f"{name}.json"
    if not file.exists():
        _, method, options = read_candidates()[name]
        chosen = sample.parts["confirm"]
        game = gp.metrics.pointing_game(
            sample.models[network],
            [sample.inputs[network][i] for i in chosen],
            [sample.classes[i] for i in chosen],
            method=first_rounds(method, options),
            grids=grids,
            baseline="gray",
            **options,
        )
        save(file, {"score": game.score, "error": game.standard_error, "majority": game.majority})
    record = json.loads(file.read_text())
    print(f"pointing {network} {name}: {record['score']:.3f} ± {record['error']:.3f}", flush=True)


def save(file: Path, record: Row) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record))


def median_auc(records: list[Row], area: str) -> float:
    """The area under the median curve."""
    return gp.metrics.median_curve([gp.metrics.Curve.from_dict(r[area]) for r in records]).auc


def measured_rows() -> Iterator[Row]:
    """One row for every candidate, network and part that was measured here."""
    for name, (gradients, _, _) in read_candidates().items():
        for folder in OUT.glob(f"*/*/{name}"):
            part, network = folder.parts[-3:-1]
            records = [json.loads(f.read_text()) for f in sorted(folder.glob("*.json"))]
            row = dict(zip(KEYS, (part, network, name, gradients, len(records)), strict=True))
            row |= {area: round(median_auc(records, area), 3) for area in AREAS}
            usual = [json.loads(f.read_text()) for f in (folder.parent / DEFAULT).glob("*.json")]
            same = [r for r in usual if r["place"] < len(records)]
            if len(same) == len(records):
                row |= {f"default_{a}": round(median_auc(same, a), 3) for a in AREAS[:2]}
            game = OUT / "pointing" / network / f"{name}.json"
            if part == "confirm" and game.exists():
                record = json.loads(game.read_text())
                row["pointing"] = round(record["score"], 3)
                row["pointing_error"] = round(record["error"], 3)
            yield row


def all_rows() -> list[Row]:
    """The rows of results.csv, and those measured here with as many photos or more."""
    rows: dict[tuple[str, str, str], Row] = {}
    with (HERE / "results.csv").open() as file:
        for line in csv.DictReader(file):
            row: Row = {key: line[key] for key in KEYS[:3]}
            row |= {key: int(line[key]) for key in KEYS[3:]}
            row |= {key: float(line[key]) if line[key] else None for key in NUMBERS}
            rows[line["part"], line["network"], line["candidate"]] = row
    for row in measured_rows():
        key = row["part"], row["network"], row["candidate"]
        before = rows.get(key, dict.fromkeys(NUMBERS) | {"photos": 0})
        if row["photos"] >= before["photos"]:
            rows[key] = before | row
    return list(rows.values())


def write_table() -> None:
    """results.csv, results.md and the Pareto picture."""
    rows = all_rows()
    with (HERE / "results.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, [*KEYS, *NUMBERS])
        writer.writeheader()
        writer.writerows(rows)
    panels: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        panels.setdefault((row["part"], row["network"]), []).append(row)
    lines = [NOTE]
    for (part, network), panel in panels.items():
        lines += ["", f"### {part}: {network}, second opinion by {NETWORKS[network]}", HEAD]
        for r in panel:
            game = "" if r["pointing"] is None else f"{r['pointing']} ± {r['pointing_error']}"
            own, second = r["own"], r["second"]
            if r["candidate"] != DEFAULT and r["default_own"] is not None:
                own, second = f"{own} ({r['default_own']})", f"{second} ({r['default_second']})"
            cells = (r["candidate"], r["gradients"], r["photos"], own, second, r["loss"], game)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    (HERE / "results.md").write_text("\n".join(lines) + "\n")
    draw_pareto(panels, HERE / "pareto.png")
    print("\n".join(lines))


def draw_pareto(panels: dict[tuple[str, str], list[Row]], path: Path) -> None:
    """Own curve against second opinion, one panel for each network and part."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 10.4), layout="constrained")
    axes = figure.subplots(2, 2).flatten()
    for ax, ((part, network), rows) in zip(axes, panels.items(), strict=False):
        middle = (min(r["own"] for r in rows) + max(r["own"] for r in rows)) / 2
        line = 0.035 * (max(r["second"] for r in rows) - min(r["second"] for r in rows))
        heights = {True: -1.0, False: -1.0}  # The last name at each side, so that none overlap.
        for r in sorted(rows, key=lambda r: r["second"]):
            colour = "#d55e00" if r["candidate"] == DEFAULT else "#0072b2"
            size, place = 14 + 9 * r["gradients"] ** 0.5, (r["own"], r["second"])
            ax.scatter(*place, s=size, color=colour, alpha=0.6)
            side = r["own"] > middle
            heights[side] = max(r["second"], heights[side] + line)
            name, align = f"    {r['candidate']}    ", "right" if side else "left"
            above = (r["own"], heights[side])
            ax.annotate(name, place, above, fontsize=6.5, ha=align, va="center")
        ax.set_xlabel("own curve (SIC AUC)")
        ax.set_ylabel(f"second opinion by {NETWORKS[network]} (SIC AUC)")
        ax.set_title(f"{network}, {part}: up to {max(r['photos'] for r in rows)} photos")
        ax.grid(alpha=0.25)
        ax.margins(y=0.12)
    figure.suptitle("Up and right is better; a dot's area grows with its gradients")
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["tune", "confirm", "pointing", "table"])
    parser.add_argument("names", nargs="*", help="candidates (default: all)")
    parser.add_argument("--limit", type=int, help="photos at most")
    parser.add_argument("--grids", type=int, default=25)
    args = parser.parse_args()
    if args.what == "table":
        write_table()
        return
    candidates = read_candidates()
    if unknown := set(args.names) - set(candidates):
        parser.error(f"unknown candidates: {', '.join(sorted(unknown))}")
    sample = Sample()
    for name in args.names or candidates:
        for network in NETWORKS:
            if args.what == "pointing":
                play(sample, network, name, args.grids)
            else:
                measure_curves(sample, args.what, network, name, args.limit)


if __name__ == "__main__":
    main()
