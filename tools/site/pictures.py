"""The pictures of docs/choosing.md: one photo, one choice changed at a time.

python -m tools.site.pictures        writes docs/pictures/*.jpg; a few minutes on one core

Each picture shows the smallest share of the photo that is enough, and its caption says so: with it
alone (of a counterfactual: without it) the probability has moved by 95 % of the whole way.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import skimage

import greedypig as gp

OUT = Path(__file__).parents[2] / "docs/pictures"
PHOTO = Path(skimage.__file__).parent / "data/coffee.png"

ROWS: dict[str, dict[str, dict[str, Any]]] = {
    "features": {
        '"elements"': {},
        '"pixels"': {"features": "pixels"},
        "gp.grid(16)": {"features": gp.grid(16)},
        "gp.windows(24)": {"features": gp.windows(24)},
        "gp.superpixels(60)": {"features": gp.superpixels(60)},
    },
    "baselines": {
        f'"{name}"': {"baseline": name, "features": "pixels"}
        for name in ("gray", "black", "white", "blur")
    },
    "objectives": {
        f'"{name}"': {"objective": name}
        for name in ("softmax", "log-likelihood", "margin:cup", "counterfactual")
    },
    "methods": {
        "steady-pig (default)": {},
        "greedy-pig": {"method": "greedy-pig"},
        **{  # By absolute score, as in the paper.
            name: {"method": name, "ranking": "absolute"} for name in ("ig", "guided-ig", "random")
        },
    },
}


def draw(title: str, knobs: dict[str, Any], net: Any, ax: Any) -> str:
    """The picture of one choice; its caption."""
    a = gp.explain_photo(PHOTO, net, **knobs)
    full = a.about.probability
    removed = knobs.get("objective") == "counterfactual"
    curve = a.about.curves["deletion" if removed else "softmax"]
    end = -float(curve.values[-1])
    share = (curve.falling.enough(end) if removed else curve.enough(full)) or 1.0
    value = curve.at(share)
    (gp.plots.without if removed else gp.plots.kept)(a, share=share, ax=ax)
    caption = f"{share:.0%} {'removed' if removed else 'kept'}: {value:.2f} of {full:.2f}"
    ax.set_title(f"{title}\n{caption}", fontsize=8, loc="left")
    return caption


def main() -> None:
    """All rows."""
    OUT.mkdir(exist_ok=True)
    net = gp.models.load("efficientnet-lite0")
    for name, choices in ROWS.items():
        figure, axes = plt.subplots(1, len(choices), figsize=(2.3 * len(choices), 2.75))
        for ax, (title, knobs) in zip(axes, choices.items(), strict=True):
            print(name, title, draw(title, knobs, net, ax), flush=True)
        figure.tight_layout()
        figure.savefig(OUT / f"{name}.jpg", dpi=110, pil_kwargs={"quality": 82})


if __name__ == "__main__":
    main()
