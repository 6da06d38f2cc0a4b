"""A text model with its tokenizer: a classifier or a causal language model of `transformers`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..compat import attention_of
from ..core.errors import InvalidInput, InvalidType, MissingPackage, did_you_mean, first_line
from ..network.fingerprint import fingerprint
from ..network.frozen import Frozen, freeze
from .pretrained import NAMES, folder_of

Kind = Literal["classifier", "language model"]
MASKS = ("sdpa", "eager")
"""Attention implementations that take a mask of numbers for every pair of tokens."""
UNLIMITED = 1_000_000
"""Tokenizers that know no limit give a larger one than this."""


@dataclass(frozen=True, eq=False)
class TextModel:
    """A frozen model, its tokenizer, and what it is."""

    network: Frozen
    tokenizer: Any
    kind: Kind
    name: str

    @property
    def module(self) -> Any:
        """The frozen copy of the model."""
        return self.network.module

    @property
    def device(self) -> torch.device:
        """Where its weights are."""
        device: torch.device = self.module.get_input_embeddings().weight.device
        return device

    @property
    def dtype(self) -> torch.dtype:
        """Of its embeddings."""
        dtype: torch.dtype = self.module.get_input_embeddings().weight.dtype
        return dtype

    @property
    def limit(self) -> int:
        """The most tokens that it takes."""
        limits = [
            getattr(self.module.config, "max_position_embeddings", None),
            getattr(self.tokenizer, "model_max_length", None),
        ]
        return min((int(n) for n in limits if n and 0 < n < UNLIMITED), default=UNLIMITED)

    def bytes_of(self, tokens: int) -> float:
        """Memory that the gradient of one text of so many tokens takes, as measured on SmolLM2:
        attention scores of every layer and head, and 16 vectors a token and layer."""
        config = self.module.config
        layers = getattr(config, "num_hidden_layers", 12)
        heads, width = (
            getattr(config, "num_attention_heads", 12),
            getattr(config, "hidden_size", 768),
        )
        return float(4 * layers * (1.4 * heads * tokens**2 + 16 * width * tokens))

    @property
    def classes(self) -> list[str]:
        """The names of a classifier's classes."""
        labels = self.module.config.id2label
        return [str(labels[i]) for i in range(len(labels))]

    @property
    def windows(self) -> dict[str, int | None]:
        """The kinds of its layers, and how far each looks: a sliding window's size, None for all
        tokens. Where the config names no kinds, all layers are alike."""
        config = self.module.config.get_text_config()
        kinds = getattr(config, "layer_types", None) or ["sliding_attention"]
        window = getattr(config, "sliding_window", None)
        return {kind: window if kind == "sliding_attention" else None for kind in kinds}

    @property
    def chats(self) -> bool:
        """Does its tokenizer have a template for chats?"""
        return getattr(self.tokenizer, "chat_template", None) is not None

    def fingerprint(self) -> str:
        """A digest of its weights and settings."""
        return fingerprint(self.module)

    def outputs(self, last: int | None = None, **inputs: Any) -> Tensor:
        """Logits: (rows, classes), or of the last tokens (rows, last, vocabulary)."""
        if self.kind == "language model":
            inputs["use_cache"] = False
            if "logits_to_keep" in inspect.signature(self.module.forward).parameters:
                inputs["logits_to_keep"] = last
        logits: Tensor = self.network(**inputs).logits
        return logits if last is None else logits[:, -last:]


def load(model: Any, tokenizer: Any = None) -> TextModel:
    """The model, frozen: by name, by folder, of a pipeline, or with its tokenizer."""
    if isinstance(model, TextModel):
        return model
    name = None
    if isinstance(model, str | PathLike):
        name = fspath(model)
        model, own = _from_folder(name)
        tokenizer = tokenizer or own
        name = Path(name).name if Path(name).exists() else name
    elif not isinstance(model, nn.Module) and hasattr(model, "model"):  # A pipeline.
        tokenizer = tokenizer or getattr(model, "tokenizer", None)
        model = model.model
    kind = _kind(model)
    if not callable(tokenizer):
        raise InvalidType(
            f"Expected tokenizer= beside a loaded model (got {type(tokenizer).__name__}). "
            "Try transformers.AutoTokenizer.from_pretrained(…)."
        )
    if not getattr(tokenizer, "is_fast", False):
        raise InvalidType(
            f"Expected a tokenizer that knows where in the text its tokens lie "
            f"(got {type(tokenizer).__name__}). Try AutoTokenizer.from_pretrained(…, "
            "use_fast=True)."
        )
    _check_weights(model)
    path = str(getattr(model.config, "name_or_path", "") or "")
    title = name or Path(path).name or type(model).__name__
    return TextModel(freeze(model), tokenizer, kind, title)


def _from_folder(name: str) -> tuple[Any, Any]:
    """A model and its tokenizer from a folder, or by a name of ours or of transformers' cache."""
    try:
        import transformers
    except ImportError as error:
        raise MissingPackage(
            "Expected the package transformers for texts (it is not installed). "
            'Try pip install "greedypig[text]".'
        ) from error
    place = fspath(folder_of(name)) if name in NAMES else name
    try:
        config = transformers.AutoConfig.from_pretrained(place, local_files_only=True)
        architecture = str((config.architectures or [""])[0])
        loaders = {
            "ForSequenceClassification": transformers.AutoModelForSequenceClassification,
            "ForCausalLM": transformers.AutoModelForCausalLM,
            "LMHeadModel": transformers.AutoModelForCausalLM,
        }
        loader = next((each for end, each in loaders.items() if architecture.endswith(end)), None)
        if loader is None:
            raise InvalidInput(
                "Expected a sequence classifier or a causal language model "
                f"(got {architecture or type(config).__name__} in {place!r})."
            )
        with _no_progress_bar(transformers.utils.logging):
            model = loader.from_pretrained(place, local_files_only=True)
        tokenizer = transformers.AutoTokenizer.from_pretrained(place, local_files_only=True)
    except (OSError, ValueError) as error:
        if isinstance(error, InvalidInput):
            raise
        raise InvalidInput(
            f"Expected a folder of transformers, one of {', '.join(NAMES)}, or a model in the "
            f"local cache (got {name!r}: {first_line(error)}).{did_you_mean(name, NAMES)} Nothing "
            "is downloaded: load the model yourself to fetch it, and pass model and tokenizer."
        ) from error
    return model, tokenizer


@contextmanager
def _no_progress_bar(logging: Any) -> Iterator[None]:
    """Transformers shows one for every model it loads."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def _kind(model: Any) -> Kind:
    architecture = type(model).__name__
    if isinstance(model, nn.Module) and hasattr(model, "get_input_embeddings"):
        single = not getattr(model.config, "is_encoder_decoder", False)
        if single and architecture.endswith("ForSequenceClassification"):
            return "classifier"
        if single and getattr(model, "can_generate", bool)():
            return "language model"
    raise InvalidType(
        "Expected a sequence classifier or a causal language model of transformers, its folder or "
        f"name, or a pipeline of one (got {architecture})."
    )


def _check_weights(model: Any) -> None:
    """Refuse weights without gradients, and attention that takes no mask of numbers."""
    dtype = model.get_input_embeddings().weight.dtype
    if getattr(model, "is_quantized", False) or not dtype.is_floating_point:
        kind = getattr(getattr(model, "hf_quantizer", None), "quantization_config", dtype)
        name = getattr(kind, "quant_method", kind)
        raise InvalidType(
            f"Expected weights that gradients pass through (got quantised ones: {name}). "
            "Try loading the model with dtype=torch.float32 or torch.bfloat16, without "
            "quantization_config."
        )
    used = attention_of(model.config)
    if used not in MASKS:
        raise InvalidInput(
            f"Expected attention by {' or '.join(MASKS)} (got {used!r}). "
            "Try from_pretrained(…, attn_implementation='sdpa')."
        )
