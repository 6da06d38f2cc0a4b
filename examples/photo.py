"""The main job on a real photo with the default model: which few numbers of it does it use?

    python examples/photo.py [photo.jpg]

Prints the answer and writes out/demo.png: the photo, the top 10 % of its numbers alone, and the
order in which they were selected. Without an argument it explains scikit-image's coffee cup.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image, ImageDraw

import greedypig as gp

SHARES = (0.05, 0.10, 0.20)


def photo() -> Path:
    if len(sys.argv) > 1:
        return Path(sys.argv[1])
    import skimage

    return Path(skimage.__file__).parent / "data" / "coffee.png"


def main() -> None:
    model = gp.models.load("efficientnet-lite0")
    path = photo()
    x = model.preprocess(Image.open(path))
    probabilities = torch.softmax(model(x.unsqueeze(0))[0], 0)
    target = int(probabilities.argmax())
    print(f"{path.name}: {model.classes[target]}, probability {probabilities[target]:.3f}")

    a = gp.explain(model, x, target=target, baseline="gray", progress=True)

    gray = model.baseline("gray").expand_as(x)
    kept = [torch.where(a.mask(int(share * x.numel())), x, gray) for share in SHARES]
    with torch.no_grad():
        found = torch.softmax(model(torch.stack(kept)), 1)[:, target].tolist()
    print(f"nothing (a gray picture): {float(a.values[0]):.3f}")
    for share, probability in zip(SHARES, found, strict=True):
        count = int(share * x.numel())
        print(f"only the top {share:4.0%} of its {x.numel():,} numbers ({count:,}): "
              f"{probability:.3f}")  # fmt: skip
    print("(more certain than the whole photo? then these numbers push the network further than")
    print(" the photo does; objective='log-likelihood' asks for its own answer instead)")
    print(f"{a.gradients_used} gradients, {a.seconds:.1f} s")

    out = Path("out")
    out.mkdir(exist_ok=True)
    a.save(out / "demo.gpig")
    draw(model, x, kept[1], a).save(out / "demo.png")
    print(f"wrote {out / 'demo.png'} and {out / 'demo.gpig'}")


def draw(model: torch.nn.Module, x: torch.Tensor, kept: torch.Tensor, a: gp.Attribution):
    """Three panels: the photo, what was kept of it, and when each place was first selected."""
    importance = a.importance().mean(0)
    # Viridis by five of its colours: even steps for the eye, also for the colour-blind.
    stops = np.array([[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]])
    level = importance.numpy() * (len(stops) - 1)
    low = np.clip(level.astype(int), 0, len(stops) - 2)
    part = (level - low)[..., None]
    heat = (stops[low] * (1 - part) + stops[low + 1] * part).astype(np.uint8)
    pictures = [
        ("the photo as the network sees it", as_image(model, x)),
        ("the top 10 %, the rest gray", as_image(model, kept)),
        ("order: yellow first, violet last", Image.fromarray(heat)),
    ]
    size, gap, title = 224, 12, 22
    sheet = Image.new("RGB", (3 * size + 4 * gap, size + 2 * gap + title), "white")
    pen = ImageDraw.Draw(sheet)
    for i, (text, picture) in enumerate(pictures):
        left = gap + i * (size + gap)
        pen.text((left, gap), text, fill="black")
        sheet.paste(picture, (left, gap + title))
    return sheet


def as_image(model: torch.nn.Module, x: torch.Tensor) -> Image.Image:
    pixels = model.to_pixels(x).clamp(0, 1).permute(1, 2, 0).numpy()
    return Image.fromarray((pixels * 255).round().astype(np.uint8))


if __name__ == "__main__":
    main()
