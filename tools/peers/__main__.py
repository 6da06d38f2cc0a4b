"""Run other libraries' own tests with our classes in the place of theirs: `make peers`.

Captum's and PyG's tests are in neither their wheels nor their source archives on PyPI, so the user
names checkouts of their repositories. `known_failures.toml` lists the tests that fail, and why. The
job fails where another test fails, and names the listed ones that pass.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
CAPTUM = """
tests/attr/test_integrated_gradients_basic.py tests/attr/test_integrated_gradients_classification.py
tests/attr/test_targets.py tests/attr/test_gradient_shap.py tests/attr/test_input_layer_wrapper.py
tests/attr/test_deeplift_basic.py tests/attr/test_deeplift_classification.py
tests/attr/test_hook_removal.py tests/attr/layer/test_layer_integrated_gradients.py
tests/attr/neuron/test_neuron_integrated_gradients.py tests/metrics
"""
"""Those that import IntegratedGradients."""
FILES = {
    "captum": CAPTUM,
    "captum-one-round": CAPTUM,
    "pyg": "test/explain",
    "sklearn": "test_rfe.py test_sequential.py test_from_model.py",
}
PACKAGES = {"pyg": "torch_geometric", "sklearn": "scikit-learn"}
"""What PyPI calls them, if otherwise."""


def first_line(error: str) -> str:
    """The start of an error, for a list."""
    return error.strip().splitlines()[0][:300]


def covers(entry: str, test: str) -> bool:
    """Is it this test, or one of the parameters of this function?"""
    return test == entry or test.startswith(f"{entry}[")


def outcomes(peer: str, folder: Path, files: list[str]) -> dict[str, str]:
    """Test → the error, or "" if it passed; of the tests that used our classes."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "outcomes.json"
        command = ["-c", os.devnull, "--rootdir", str(folder), "--import-mode=importlib"]
        command += ["-p", "no:cacheprovider", "-p", "tools.peers.plugin", "-W", "ignore", "-q"]
        command += ["--continue-on-collection-errors", *files]
        command += ["--peer", peer, "--outcomes", str(path)]
        environment = os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
        run = subprocess.run(
            [sys.executable, "-m", "pytest", *command],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
        )
        if not path.exists():
            raise SystemExit(f"pytest failed on {peer}:\n{run.stdout}{run.stderr}")
        errors: dict[str, str] = json.loads(path.read_text())
        return errors


def judged(peer: str, errors: dict[str, str]) -> bool:
    """Report one peer's tests; are all that fail known?"""
    groups = tomllib.loads((HERE / "known_failures.toml").read_text()).get(peer, [])
    known = [entry for group in groups for entry in group["tests"]]
    failed = [test for test, error in errors.items() if error]
    new = [test for test in failed if not any(covers(entry, test) for entry in known)]
    print(f"{peer}: {len(errors) - len(failed)} of {len(errors)} pass")
    for entry in known:
        ran = [test for test in errors if covers(entry, test)]
        if ran and not any(errors[test] for test in ran):
            print(f"  passes now, strike it from the list: {entry}")
    for test in new:
        print(f"  FAILED {test}\n    {first_line(errors[test])}")
    if not errors:
        print("  FAILED: no test used our classes")
    return bool(errors) and not new


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="make peers", description=__doc__)
    parser.add_argument("--captum", type=Path, help="a checkout of github.com/pytorch/captum")
    parser.add_argument("--pyg", type=Path, help="a checkout of …/pyg-team/pytorch_geometric")
    arguments = parser.parse_args()
    spec = find_spec("sklearn.feature_selection.tests")
    folders = {
        "captum": arguments.captum,
        "captum-one-round": arguments.captum,
        "pyg": arguments.pyg,
        "sklearn": Path(spec.origin).parent if spec and spec.origin else None,
    }
    good = True
    for peer, folder in folders.items():
        name = PACKAGES.get(peer, peer.split("-")[0])
        files = FILES[peer].split()
        if folder is None or not (folder / files[0]).exists():
            variable = peer.split("-")[0].upper()
            print(f"{peer}: skipped, as its tests are not here. Try make peers {variable}=checkout")
            continue
        if peer == "sklearn":
            files.append(str(HERE / "estimator_checks.py"))
        try:
            print(f"{name} {version(name)}", end=", ", flush=True)
        except PackageNotFoundError:
            print(f"{peer}: skipped, as {name} is not installed")
            continue
        good &= judged(peer, outcomes(peer, folder.resolve(), files))
    raise SystemExit(not good)


if __name__ == "__main__":
    main()
