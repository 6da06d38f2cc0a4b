"""Methods that only the experiments on texts compare with: gradient × input, and Captum's.

Those of Captum score features as Captum defines absence: embeddings, or texts really shortened.
Importing this module makes their names known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from greedypig.core.errors import Argument, InvalidInput, MissingPackage
from greedypig.core.numbers import check_knobs
from greedypig.core.objective import Objective
from greedypig.core.registry import TEXT, register
from greedypig.core.rounds import Round
from greedypig.core.scorers import OneShot
from greedypig.text.comparison_methods import as_text


@dataclass(frozen=True)
class GradientInput(OneShot):
    """Gradient × input: one gradient at the text, times the way from the neutral embedding."""

    name = "gradient-input"

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """scores_i = Σ over the feature's tokens of (embedding − neutral) · ∂g/∂embedding."""
        mask = round.mask
        text = as_text(objective, self.name).rebuilt(absent="embedding")
        there = torch.full_like(mask, 0.0 if text.removes else 1.0).unsqueeze(1)
        scores = text.gradient(there, mask.new_ones(1))
        objective.count_gradients(1)
        return scores * (1 - mask)

    @property
    def cost(self) -> int:
        """One gradient."""
        return 1


@dataclass(frozen=True)
class CaptumLayerIG(OneShot):
    """Captum's LayerIntegratedGradients, from the embedding of the mask, pad or end token."""

    steps: int = 50
    name = "captum-layer-ig"

    @property
    def cost(self) -> int:
        """One gradient a step."""
        return self.steps

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """The attributions of each feature's tokens, summed."""
        text, attr, mask = as_text(objective, self.name), captum_attr(), round.mask
        ids, layer = text.ids.unsqueeze(0), text.model.module.get_input_embeddings()
        names = ("mask_token_id", "pad_token_id", "eos_token_id")
        tokens = (getattr(text.model.tokenizer, name) for name in names)
        neutral = next((token for token in tokens if token is not None), 0)
        start = torch.where(text.owners < 0, text.ids, neutral).unsqueeze(0)

        def forward(tokens: Tensor) -> Tensor:
            return text.measure(text.read({"input_ids": tokens}))

        parts = attr.LayerIntegratedGradients(forward, layer).attribute(
            ids, start, n_steps=self.steps, internal_batch_size=max(2, text.rows)
        )
        objective.count_gradients(self.steps)
        text.count_forwards(2)  # Captum evaluates both ends of the path.
        gains = text.summed(parts[0].sum(1).detach()).to(mask).unsqueeze(0) * (1 - mask)
        return -gains if text.removes else gains


@dataclass(frozen=True)
class CaptumAblation(OneShot):
    """Captum's LLMAttribution of FeatureAblation: the text without each feature."""

    name = "captum-ablation"

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """The fall of the answer's log-probability."""
        return llm_scores(objective, round.mask, self.name, captum_attr().FeatureAblation)


@dataclass(frozen=True)
class CaptumShapley(OneShot):
    """Captum's LLMAttribution of ShapleyValueSampling: features added in random orders."""

    orders: int = 5
    name = "captum-shapley"

    def __post_init__(self) -> None:
        check_knobs(self, "orders")

    def __call__(self, objective: Objective, round: Round) -> Tensor:
        """The mean gain of the answer's log-probability."""
        drawn = round.generator(0, 0)

        def orders(features: int, count: int) -> Iterator[list[int]]:
            return (torch.randperm(features, generator=drawn).tolist() for _ in range(count))

        def make(module: Any) -> Any:
            method = captum_attr().ShapleyValueSampling(module)
            method.permutation_generator = orders  # Captum's own draws from the global generator.
            return method

        return llm_scores(objective, round.mask, self.name, make, n_samples=self.orders)


@dataclass(frozen=True)
class Shapley(OneShot):
    """Captum's ShapleyValueSampling over the features: as many permutations as `forwards` forwards
    allow, at least one; a permutation of n features costs n."""

    forwards: int = 64
    name = "shapley"

    def __call__(self, objective: Any, round: Round) -> Tensor:
        """The mean gain of each feature over random orders."""
        from captum.attr import ShapleyValueSampling

        torch.manual_seed(round.seed)
        samples = max(1, (self.forwards - 2) // objective.n)
        method = ShapleyValueSampling(lambda rows: objective.values(rows.unsqueeze(0))[0])
        rows = min(objective.n, objective.points)
        scores: Tensor = method.attribute(
            torch.ones_like(round.mask), n_samples=samples, perturbations_per_eval=rows
        )
        return scores.to(round.mask)


def captum_attr() -> Any:
    """The module `captum.attr`."""
    try:
        import captum.attr
    except ImportError as error:
        raise MissingPackage(
            "Expected the package captum for this method (it is not installed). "
            'Try pip install "greedypig[captum]".'
        ) from error
    return captum.attr


def llm_scores(
    objective: Objective,
    mask: Tensor,
    name: str,
    make: Callable[[Any], Any],
    **options: Any,
) -> Tensor:
    """Captum's scores of the features as parts of a template that are there or empty."""
    text = as_text(objective, name)
    if text.answer is None:
        raise InvalidInput(
            f"Expected a language model for method {name!r} (got a classifier).",
            advice=("Try ", Argument("method", "leave-one-out"), " or 'captum-layer-ig'."),
        )
    attr, prompt, model, calls = captum_attr(), text.prompt, text.model, 0

    def written(*parts: str) -> str:
        pieces, last = [], 0
        for (start, end), part in zip(prompt.spans, parts, strict=True):
            pieces += [prompt.text[last:start], part]
            last = end
        return "".join([*pieces, prompt.text[last:]])

    class Tokens:
        """The tokenizer as Captum calls it, without adding special tokens to a template."""

        def encode(self, words: str, **_: Any) -> Tensor:
            nonlocal calls
            calls += 1
            ids = prompt.ids(model, words)
            return (ids if len(ids) else text.last).unsqueeze(0)

        def __call__(self, *words: Any, **options: Any) -> Any:
            return model.tokenizer(*words, **options)

        def __getattr__(self, name: str) -> Any:
            return getattr(model.tokenizer, name)

    inputs = attr.TextTemplateInput(written, prompt.names)
    method = attr.LLMAttribution(make(model.module), Tokens())
    with torch.no_grad():
        result = method.attribute(
            inputs, text.answer.ids, forward_in_tokens=False, use_cached_outputs=False, **options
        )
    text.count_forwards(calls)
    each: Tensor = result.token_attr[text.answer.explained.to(result.token_attr.device)]
    return each.sum(0).to(mask).unsqueeze(0) * (1 - mask)


for name, title, knobs in (
    ("gradient-input", "GradientInput", ""),
    ("captum-layer-ig", "CaptumLayerIG", "steps"),
    ("captum-ablation", "CaptumAblation", ""),
    ("captum-shapley", "CaptumShapley", "orders"),
    ("shapley", "Shapley", "forwards"),
):
    register(name, f"reproduction.text.rivals:{title}", TEXT, knobs)
