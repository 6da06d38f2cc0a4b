"""The reference of every public name as HTML, from the docstrings: `make docs`.

python docs/reference.py [FOLDER]      out/docs by default; open index.html there
"""

from __future__ import annotations

import re
import sys
from dataclasses import is_dataclass
from pathlib import Path
from typing import get_type_hints

import pdoc

import greedypig

PAGES = (
    "greedypig",
    "greedypig.adapters.captum",
    "greedypig.adapters.pyg",
    "greedypig.adapters.sklearn",
)


def with_lists(text: str) -> str:
    """Lines of a docstring that begin with arguments ("rounds, k: how many …") as a list."""
    return re.sub(r"^(\w+(?:, \w+)*): ", r"- **\1**: ", text, flags=re.MULTILINE)


def write(folder: Path) -> None:
    """One page for the package, and one for each of its parts that users import."""
    filters = pdoc.render.env.filters
    to_html = filters["to_html"]
    filters["to_html"] = lambda text: to_html(with_lists(text))
    for name in greedypig.__all__:  # pdoc sees what is there; some names come when asked for.
        thing = getattr(greedypig, name)
        setattr(greedypig, name, thing)
        if is_dataclass(thing):  # Fields of a parent class are written in its module's names.
            annotations = vars(thing)["__init__"].__annotations__
            annotations |= {
                field: hint for field, hint in get_type_hints(thing).items() if field in annotations
            }
    pdoc.render.configure(show_source=False, footer_text=f"greedypig {greedypig.__version__}")
    pdoc.pdoc(*PAGES, output_directory=folder)


if __name__ == "__main__":
    place = Path(sys.argv[1] if len(sys.argv) > 1 else "out/docs")
    write(place)
    print(f"The reference is in {place / 'index.html'}.")
