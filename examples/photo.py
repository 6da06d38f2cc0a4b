"""What `greedypig explain photo.jpg` does, with the library: explain, measure, draw, save.

    python examples/photo.py [photo.jpg]

Without an argument it explains scikit-image's coffee cup. The results are in the folder out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import greedypig as gp
from greedypig import plots, report
from greedypig.images.photos import open_photo
from greedypig.results.photo_notes import Notes

SHARES = (0.01, 0.05, 0.1)


def photo() -> Path:
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    import skimage

    return Path(skimage.__file__).parent / "data" / "coffee.png"


def main() -> None:
    model = gp.models.load("efficientnet-lite0")
    path = photo()
    x = model.preprocess(open_photo(path))
    probabilities = torch.softmax(model(x.unsqueeze(0))[0], 0)
    target = int(probabilities.argmax())
    name, probability = model.classes[target], float(probabilities[target])
    print(f"{path.name}: {name}, probability {probability:.3f}")

    a = gp.explain(model, x, target=target, baseline="gray")
    print(f"explained by {a.method}")
    curves = gp.metrics.information_curves(model, x, a)
    # These shares lie between the curve's 100 points, so they are measured too.
    exact = gp.metrics.softmax_information_curve(model, x, a, points=[0.0, *SHARES])
    kept = dict(zip(SHARES, exact.values[1:].tolist(), strict=True))
    for share, value in kept.items():
        print(f"best {100 * share:3g} % of the features: {value:.3f}")
    auc = curves["softmax"].auc
    print(f"area under the curve {auc:.3f}, {a.gradients_used} gradients, {a.seconds:.1f} s")

    # What figures and pages show beside the result itself.
    a = a.with_notes(
        {
            "kind": "image", "source": path.name, "model": model.name, "class": name,
            "target": target, "probability": probability, "baseline": "gray",
            "curves": {key: each.to_dict() for key, each in curves.items()},
            "kept": {f"{share:g}": value for share, value in kept.items()},
        },
        picture=as_levels(model, x),
        baseline=as_levels(model, model.baseline("gray").expand_as(x)),
    )  # fmt: skip
    excess = Notes.of(a).excess()
    if excess is not None:
        share, value = excess
        print(f"warning: {100 * share:.2g} % of the features give more ({value:.3f})")

    out = Path("out")
    out.mkdir(exist_ok=True)
    a.save(out / "photo.gpig")
    report.write(a, out / "photo.html")
    plots.panel(a).savefig(out / "photo.png", dpi=120)
    print(f"wrote {out / 'photo.gpig'}, {out / 'photo.html'} and {out / 'photo.png'}")


def as_levels(model: gp.models.ImageModel, x: torch.Tensor) -> torch.Tensor:
    """(h, w, 3) levels from 0 to 255 of the network's input."""
    return (model.to_pixels(x) * 255).round().to(torch.uint8).permute(1, 2, 0)


if __name__ == "__main__":
    main()
