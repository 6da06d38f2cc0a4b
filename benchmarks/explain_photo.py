"""What `greedypig explain photo.png` costs above the gradients and forward passes it must pay.

    python benchmarks/explain_photo.py [--pairs 5]

The whole command runs in this process (reading the photo, loading the network, explaining,
curves, result and page written), in turn with bare loops over the same number of rows in the same
batches: on the network as it is loaded, and on its folded copy (BatchNorm folded, channels last),
which is then made for free, with the command's own gradients (ramps instead of ReLU's steps). The
start of a process, which is mostly `import torch`, is measured apart.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from statistics import median

import torch
from timing import compare

import greedypig as gp
from greedypig.cli.main import main as greedypig
from greedypig.images.api import POINTS, SHARES
from greedypig.images.photos import open_photo
from greedypig.images.soft_relu import SoftReLU
from greedypig.tensors.inputs import Model
from greedypig.tensors.targets import Target

BOUNDS = {
    "the network as loaded, plain gradients": (False, False),
    "its folded copy, the same gradients": (True, True),
}
"""What is measured bare → is it on the folded copy, are ReLU's steps ramps?"""


def photo() -> Path:
    import skimage

    return Path(skimage.__file__).parent / "data" / "coffee.png"


class Bare:
    """Gradients in batches of a round's, forwards in larger ones: nothing else."""

    def __init__(self, run: gp.Attribution, fast: bool, soft: bool) -> None:
        model = gp.models.load("efficientnet-lite0")
        x = model.preprocess(open_photo(photo()))
        frozen = Model(model, Target("softmax"))
        frozen.objective([frozen.example(x, baseline="gray")])  # Makes and checks the folded copy.
        self.network = frozen.network if fast else model
        self.batch = run.gradients_used // len(run.picks)
        self.rounds = len(run.picks)
        self.format = torch.channels_last if fast else torch.contiguous_format
        self.rows = x.expand(16, -1, -1, -1).contiguous(memory_format=self.format)
        self.target = int(run.settings["target"])
        self.around = partial(SoftReLU, gp.SteadyPIG().ramp, self.batch) if soft else nullcontext

    def __call__(self) -> None:
        for _ in range(self.rounds):
            rows = self.rows[: self.batch].clone(memory_format=self.format).requires_grad_()
            with self.around():
                value = torch.softmax(self.network(rows), 1)[:, self.target].sum()
            torch.autograd.grad(value, rows)
        left = POINTS + len(SHARES)
        with torch.no_grad():
            while left > 0:
                self.network(self.rows[: min(left, len(self.rows))])
                left -= len(self.rows)


def start_up(times: int) -> float:
    """Seconds until the program can do anything: the median of `greedypig --version`."""
    seconds = []
    for _ in range(times):
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-m", "greedypig", "--version"], check=True,
                       capture_output=True)  # fmt: skip
        seconds.append(time.perf_counter() - begin)
    return median(seconds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pairs", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:

        def ours() -> None:
            if greedypig(["explain", str(photo()), "--out", folder, "--quiet"]) != 0:
                raise SystemExit("the command failed")

        ours()
        run = gp.load(Path(folder) / "coffee.gpig")
        print(f"{torch.get_num_threads()} threads, {len(run.picks)} rounds, {run.gradients_used} "
              f"gradients, {POINTS + len(SHARES)} forwards")  # fmt: skip
        for name, (fast, soft) in BOUNDS.items():
            result = compare(ours, Bare(run, fast, soft), pairs=args.pairs)
            print(f"whole command {result.ours:.2f} s, bare on {name} {result.theirs:.2f} s: "
                  f"{result.ratio:.2f} × (quartiles {result.low:.2f}–{result.high:.2f}), "
                  f"processor {result.cpu:.2f} ×")  # fmt: skip
    print(f"start of the process: {start_up(args.pairs):.2f} s")


if __name__ == "__main__":
    main()
