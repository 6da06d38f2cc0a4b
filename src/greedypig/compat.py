"""The private parts of other packages that are used here; they may change in any release.
tests/test_compat.py checks that each does what is relied on, the extras in pyproject.toml end
before the next release, and where one is absent an error names the versions that have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import version
from typing import Any

from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode

from .core.errors import MissingPackage

NEEDS = {
    "torch": "torch>=2.4",
    "captum": "captum>=0.7,<0.10",
    "scikit-learn": "scikit-learn>=1.6",
    "torch_geometric": "torch_geometric>=2.5,<2.9",
    "transformers": "transformers>=5,<6",
}
"""What pyproject.toml asks for."""
PARTS = {
    "torch": "torch._C:_push_on_torch_dispatch_stack torch._C:_pop_torch_dispatch_stack",
    "captum": "captum._utils.common:_format_additional_forward_args "
    "captum._utils.common:_format_output captum._utils.common:_run_forward "
    "captum.attr._utils.common:_format_input_baseline captum.log:log_usage",
    "scikit-learn": "sklearn.utils.validation:_check_sample_weight",
}
"""Functions of each package, as module:name."""
MASK = ("explain", "_edge_mask", "_loop_mask", "_apply_sigmoid")
"""Attributes of PyG's layers by which messages are masked."""


def missing(package: str, part: str) -> MissingPackage:
    """The error for a version of a package without a part."""
    return MissingPackage(
        f"Expected {NEEDS[package]}, which has {part} (got version {version(package)}). "
        f'Try pip install "{NEEDS[package]}".'
    )


def private(package: str) -> list[Any]:
    """The functions in PARTS of a package, which is imported here."""
    functions = []
    for part in PARTS[package].split():
        module, name = part.split(":")
        try:
            functions.append(getattr(import_module(module), name))
        except (ImportError, AttributeError) as error:
            raise missing(package, part) from error
    return functions


def argument_names(operation: Any) -> set[str]:
    """The arguments of an operation of torch."""
    return {argument.name for argument in operation._schema.arguments}


def attention_of(config: Any) -> str:
    """The attention implementation of a model of transformers."""
    return str(getattr(config, "_attn_implementation", "eager"))


@contextmanager
def eager_attention(model: Any) -> Iterator[None]:
    """In this block a model of transformers can return its attention."""
    if not hasattr(model, "set_attn_implementation"):
        raise missing("transformers", "set_attn_implementation")
    before = attention_of(model.config)
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def forget_degrees(layer: Any) -> None:
    """A layer of PyG no longer caches the degrees of one graph."""
    if getattr(layer, "cached", None) is True:
        layer.cached = False
        for name in [name for name in vars(layer) if name.startswith("_cached")]:
            setattr(layer, name, None)


def takes_mask(layer: nn.Module) -> bool:
    """Is it a layer of PyG whose messages can be masked?"""
    return hasattr(layer, "explain_message") and hasattr(layer, "_edge_mask")


@contextmanager
def masked_messages(layers: Sequence[Any], mask: Tensor, loops: Tensor) -> Iterator[None]:
    """In this block PyG's layers multiply their messages by a mask (columns,). A layer that adds
    loops of its own takes those of the graph, loops (columns,), away first."""
    before = [[getattr(layer, name) for name in MASK] for layer in layers]
    try:
        for layer in layers:
            _set_mask(layer, True, mask, ~loops, False)
        yield
    finally:
        for layer, values in zip(layers, before, strict=True):
            _set_mask(layer, *values)


def _set_mask(layer: Any, *values: Any) -> None:
    for name, value in zip(MASK, values, strict=True):
        # PyG's GNNExplainer leaves its mask registered as a parameter, which no tensor can replace.
        layer._parameters.pop(name, None)
        setattr(layer, name, value)


def explainer_loss(algorithm: Any, mode: str) -> Any:
    """(output, target) → PyG's loss of a model of this mode, such as "regression"."""
    if not hasattr(algorithm, f"_loss_{mode}"):
        raise missing("torch_geometric", f"ExplainerAlgorithm._loss_{mode}")
    return getattr(algorithm, f"_loss_{mode}")
