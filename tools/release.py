"""Build the archives of a release and try the wheel as a user would: `make release`.

Builds dist/*.whl and dist/*.tar.gz, checks their metadata (twine), installs the wheel into a new
environment, and there imports it, asks the command for help, and explains one example.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
TRIAL = """
import greedypig as gp, torch
a = gp.explain(torch.nn.Linear(4, 2), torch.randn(4), k=2)
assert a.selected == 2 and "site-packages" in gp.__file__, gp.__file__
print("greedypig", gp.__version__, a)
"""


def run(*command: str | Path, cwd: Path = ROOT) -> None:
    """A command, shown; its failure is ours."""
    print("$", *command, flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=cwd)


def build() -> tuple[Path, Path]:
    """The wheel and the source archive, checked."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    run(sys.executable, "-m", "build", "--outdir", dist)
    wheel, source = next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))
    run(sys.executable, "-m", "twine", "check", "--strict", wheel, source)
    names = zipfile.ZipFile(wheel).namelist()
    stray = {name.split("/")[0] for name in names if not name.startswith("greedypig")}
    if stray or not any(name.endswith("py.typed") for name in names):
        raise SystemExit(f"Expected only greedypig and its data in the wheel (got {stray}).")
    with tarfile.open(source) as archive:
        print(f"{wheel.name}: {len(names)} files; {source.name}: {len(archive.getnames())} files")
    return wheel, source


def try_wheel(wheel: Path) -> None:
    """Install into an empty environment and use it."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        venv.create(place / "venv", with_pip=True)
        python = place / "venv/bin/python"
        constraints = ROOT / "constraints.txt"
        run(python, "-m", "pip", "install", "--quiet", "-c", constraints, f"{wheel}[cli]")
        run(python, "-c", TRIAL, cwd=place)
        run(place / "venv/bin/greedypig", "--help", cwd=place)


if __name__ == "__main__":
    try_wheel(build()[0])
    print("The archives are in dist.")
