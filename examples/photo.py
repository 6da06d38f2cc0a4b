"""What `greedypig explain photo.jpg` does: python examples/photo.py [photo.jpg]

Without an argument it explains scikit-image's coffee cup. The result, its page and its figure are
in the folder out.
"""

import sys
from pathlib import Path

import skimage

import greedypig as gp

a = gp.explain_photo(sys.argv[1] if sys.argv[1:] else f"{skimage.data_dir}/coffee.png")
print(f"{a.about.label}, probability {a.about.probability:.3f}: {a}")
Path("out").mkdir(exist_ok=True)
a.save("out/photo.gpig")
a.to_html("out/photo.html")  # In a notebook: a, a.plot() and a.show().
a.plot().savefig("out/photo.png")
