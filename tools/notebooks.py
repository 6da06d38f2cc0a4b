"""Execute the notebooks of docs/notebooks: `make notebooks` saves their outputs in place.

python -m tools.notebooks [names …]           execute and save
python -m tools.notebooks --check [names …]   execute only: is every cell still right?
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from greedypig.results.files import write_whole

FOLDER = Path(__file__).parents[1] / "docs/notebooks"
SECONDS = 1200
"""For one cell."""
LARGEST = 400_000
"""Bytes of a notebook with its outputs."""


def execute(path: Path, *, save: bool) -> None:
    """Run all cells of a notebook in an empty folder; an error in a cell is an error here."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        client = NotebookClient(
            notebook, timeout=SECONDS, resources=resources, coalesce_streams=True
        )
        client.extra_arguments = ["--log-level=ERROR"]
        client.execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # Times: they differ from run to run.
        for output in cell.get("outputs", ()):
            if "image/jpeg" in output.get("data", {}):
                output.data.pop("image/png", None)  # The same picture, several times as large.
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    text = nbformat.writes(notebook) + "\n"
    if len(text.encode()) > LARGEST:
        raise ValueError(f"{path.name} has {len(text.encode()):,} bytes, more than {LARGEST:,}.")
    if save:
        write_whole(path, text)


def main(arguments: list[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="photo, table, …; all of them by default")
    parser.add_argument("--check", action="store_true", help="do not save the outputs")
    options = parser.parse_args(arguments)
    names = options.names or sorted(path.stem for path in FOLDER.glob("*.ipynb"))
    for name in names:
        path = FOLDER / f"{name}.ipynb"
        print(f"{name} …", end=" ", flush=True)
        execute(path, save=not options.check)
        print(f"{path.stat().st_size / 1000:,.0f} kB", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
