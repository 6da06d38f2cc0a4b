"""What `greedypig explain photo.jpg` does, with the library: explain, measure, draw, save.

    python examples/photo.py [photo.jpg]

Without an argument it explains scikit-image's coffee cup. The results are in the folder out.
"""

from __future__ import annotations

import sys
from pathlib import Path

import greedypig as gp


def main() -> None:
    if len(sys.argv) > 1:
        photo = sys.argv[1]
    else:
        import skimage

        photo = str(Path(skimage.__file__).parent / "data" / "coffee.png")
    a = gp.explain_photo(photo)

    notes = a.about  # Class, probability and curves, measured beside the explanation.
    print(f"{notes['source']}: {notes['class']}, probability {notes['probability']:.3f}")
    for share, probability in notes["kept"].items():
        print(f"best {100 * float(share):3g} % of the features: {probability:.3f}")
    auc = notes["curves"]["softmax"]["auc"]
    print(f"area under the curve {auc:.3f}, {a.gradients_used} gradients of {a.method}")

    out = Path("out")
    out.mkdir(exist_ok=True)
    a.save(out / "photo.gpig")
    gp.report.write(a, out / "photo.html")
    gp.plots.panel(a).savefig(out / "photo.png", dpi=120)


if __name__ == "__main__":
    main()
