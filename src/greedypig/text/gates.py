"""How a feature of a text is absent: g(gates) for gates from 0, absent, to 1, present.

- "masked": log(gate) is added to the attention scores of the feature's tokens wherever another
  token looks at them. At 0 that *is* the model with those tokens masked; positions stay as they
  are. Absent tokens still see themselves, so no row of attention is empty.
- "embedding": the feature's embeddings are interpolated to a neutral one.
- "deleted": the feature is cut out of the text, which is tokenized again. Sets only: no gradient.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from ..compat import eager_attention
from ..core.errors import Argument, InvalidInput, InvalidType, NotDifferentiable, did_you_mean
from ..core.numbers import whole
from ..core.objective import Objective
from ..core.registry import BASELINES, TEXTS, serving
from .models import TextModel
from .prompt import Prompt, sentences

log = logging.getLogger(__name__)

ABSENT = serving(BASELINES, TEXTS)
LEAST = 1e-6
"""The gate at which the gradient of a closed gate is taken: that of log(gate) at 0 has no limit,
but its product with the attention has."""
HALF_A_SIGN = "\ufffd"
"""What a decoder writes for the first tokens of a sign of several."""
MOST_KNOWN = 20_000
"""Values that are kept, about."""
VOCABULARY_PART = 4096
"""Embeddings that are summed at once."""
BATCH_BYTES = 1.5e9
"""Memory that a batch's gradient may take, as estimated; a batch has at least one row."""


@dataclass(frozen=True)
class Answer:
    """What a language model says: the text, its tokens, and the tokens that are explained."""

    text: str
    ids: Tensor
    """(tokens,)."""
    explained: Tensor
    """(tokens,) bool."""
    span: tuple[int, int]
    """The explained part of the text."""


class TextObjective(Objective):
    """g(gates) of one text: `measure` of the model's output with features gated.

    measure: a classifier's logits (m, classes), or the log-probabilities of the answer's tokens
    (m, tokens), → (m,). removing: are features switched off from 0 to 1, as a counterfactual's?
    causal: does a token see only those before it?
    """

    def __init__(
        self,
        model: TextModel,
        prompt: Prompt,
        answer: Answer | None,
        measure: Callable[[Tensor], Tensor],
        absent: str = "masked",
        *,
        removing: bool = False,
        causal: bool = False,
    ) -> None:
        if absent not in ABSENT:
            raise InvalidInput(
                f"Expected absent to be one of {', '.join(ABSENT)} (got {absent!r})."
                f"{did_you_mean(str(absent), ABSENT)}",
                argument="absent",
            )
        self.model, self.prompt, self.answer, self.measure = model, prompt, answer, measure
        self.absent, self.causal = absent, causal
        ids, self.owners = prompt.tokens(model)
        self.last = ids[-1:]
        """The last token of the prompt. In a causal model it predicts the answer or the class, so
        it is always present."""
        if causal:
            self.owners[-1] = -1
        self.ids = self._with_answer(ids)
        self.owners = torch.cat(
            [self.owners, self.owners.new_full((len(self.ids) - len(ids),), -1)]
        )
        off = torch.zeros(1, 1, len(prompt.spans), device=model.device)
        start, end = (off + 1, off) if removing else (off, off + 1)
        rows = max(1, int(BATCH_BYTES / model.bytes_of(len(self.ids))))
        if answer is None and model.module.config.pad_token_id is None:
            rows = 1  # Classifiers on decoders find a row's last token by its padding.
        super().__init__(
            lambda points, _: measure(self.outputs(points)), start, end, batch_size=rows
        )
        self._neutral: Tensor | None = None
        self._known: dict[bytes, Tensor] = {}
        """Values of masks that were measured, the last MOST_KNOWN of them."""

    def values(self, masks: Tensor, /) -> Tensor:
        """(1, s, n) masks → (1, s): g of each mask. No mask is measured twice."""
        masks = masks.to(self.end)
        keys = keys_of(masks[0])
        new = {key: place for place, key in enumerate(keys) if key not in self._known}
        known = {key: self._known[key] for key in keys if key not in new}
        if new:
            measured = super().values(masks[:, list(new.values())])[0]
            known |= zip(new, measured, strict=True)
            if len(self._known) > MOST_KNOWN:
                self._known.clear()
            self._known |= known
        return torch.stack([known[key] for key in keys]).unsqueeze(0)

    @property
    def measured(self) -> dict[str, Tensor]:
        """The masks that were measured (m, n), and their values (m,), for a checkpoint."""
        if not self._known:
            return {}
        masks = torch.frombuffer(bytearray(b"".join(self._known)), dtype=self.end.dtype)
        return {
            "measured_masks": masks.view(-1, self.n),
            "measured_values": torch.stack(list(self._known.values())),
        }

    def remember(self, saved: Mapping[str, Tensor]) -> None:
        """Take up what was `measured` by a run that was stopped."""
        if "measured_masks" in saved:
            keys = keys_of(saved["measured_masks"].to(self.end))
            values = saved["measured_values"].to(self.end.device)
            self._known = dict(zip(keys, values, strict=True))

    def _with(self, **attributes: Any) -> Self:
        return super()._with(**attributes, _known={})  # Its values are its own.

    @property
    def removes(self) -> bool:  # type: ignore[override]
        """Do the lines lead away from the text, as a counterfactual's do?"""
        return bool(self.start.all())

    def rebuilt(self, **changes: Any) -> TextObjective:
        """The same question with another measure=, absent=, removing= or causal=."""
        own: dict[str, Any] = {
            "measure": self.measure,
            "absent": self.absent,
            "removing": self.removes,
            "causal": self.causal,
        }
        return TextObjective(self.model, self.prompt, self.answer, **own | changes)

    def plain_output(self) -> Tensor:
        """The output for the text itself, without gates."""
        with torch.no_grad():
            return self.read({"input_ids": self.ids.unsqueeze(0)})

    def takes_masks(self, plain: Tensor) -> bool:
        """Is the output the plain one where the mask hides nothing, and is it free of the features
        where it hides them all? Some architectures take no mask for every pair of tokens, limit
        what a token sees in a way of their own, or have layers that see past a mask."""
        opened = torch.ones_like(self.end[0])
        closed = torch.zeros_like(opened)
        # Other tokens in the place of those that are hidden.
        others = torch.where(self.owners < 0, self.ids, self.ids.flip(0))
        near = 1e-3 if self.model.dtype in (torch.float32, torch.float64) else 5e-2
        largest = float(plain.abs().max())

        def alike(a: Tensor, b: Tensor, near: float) -> bool:
            return torch.allclose(a, b, rtol=near, atol=near * largest)

        try:
            with torch.no_grad():
                if not alike(plain, self._gated(opened), near):
                    return False
                # The same operations on both, so rounding differs less than above.
                return alike(self._gated(closed), self._gated(closed, others), near / 10)
        except Exception as error:  # Whatever a foreign model makes of such a mask.
            log.debug("%s takes no 4-D mask: %s", self.model.name, error)
            return False

    def outputs(self, gates: Tensor) -> Tensor:
        """(m, n) gates → logits (m, classes), or log-probabilities of the answer (m, tokens)."""
        return self._deleted(gates) if self.absent == "deleted" else self._gated(gates)

    def _gated(self, gates: Tensor, ids: Tensor | None = None) -> Tensor:
        """The output under gates; ids: other tokens in the place of the text's."""
        ids = self.ids if ids is None else ids
        if gates.requires_grad:  # The value LEAST with the gradient of the gate itself.
            gates = torch.where(gates > LEAST, gates, gates - gates.detach() + LEAST)
        # The last column stands for tokens that belong to no feature: always present.
        each = torch.cat([gates, gates.new_ones(len(gates), 1)], 1)[:, self.owners]
        if self.absent == "masked":
            inputs = {
                "input_ids": ids.expand(len(gates), -1),
                "attention_mask": self._masks(each),
            }
        else:
            embedded = self._embedded(ids)
            mixed = torch.lerp(
                self.neutral.expand_as(embedded), embedded, each.unsqueeze(2).to(embedded)
            )
            inputs = {"inputs_embeds": mixed}
        return self.read(inputs)

    def attention(self) -> Tensor:
        """(n,): the attention that the feature's tokens get, mean over layers, heads and what
        looks: the tokens that predict the answer, or the token that a classifier reads, the first
        one, or the last one of a causal model."""
        self.count_forwards(1)
        module = self.model.module
        with eager_attention(module), torch.no_grad():
            layers = module(input_ids=self.ids.unsqueeze(0), output_attentions=True).attentions
        mean = torch.stack([layer[0].mean(0) for layer in layers]).mean(0)
        if self.answer is None:
            return self.summed(mean[-1 if self.causal else 0])
        return self.summed(mean[-len(self.answer.ids) - 1 : -1].mean(0))

    def summed(self, each: Tensor) -> Tensor:
        """(tokens,) → (n,): the sum over every feature's tokens."""
        total = each.new_zeros(self.n + 1)  # The last is that of tokens of no feature.
        return total.index_add_(0, self.owners % (self.n + 1), each)[: self.n]

    @property
    def neutral(self) -> Tensor:
        """(width,) the embedding of an absent token."""
        if self._neutral is None:
            self._neutral = self._find_neutral()
        return self._neutral

    def _find_neutral(self) -> Tensor:
        name, tokenizer = self.absent.partition("-")[0], self.model.tokenizer
        if name == "embedding":
            name = "mean" if tokenizer.mask_token_id is None else "mask"
        weight: Tensor = self.model.module.get_input_embeddings().weight.detach()
        if name in ("zero", "mean"):
            return torch.zeros_like(weight[0]) if name == "zero" else self._mean_embedding()
        token = getattr(tokenizer, f"{name}_token_id")
        if token is None:
            raise InvalidInput(
                f"Expected a tokenizer with a {name} token for ",
                Argument("absent", self.absent),
                f" (got {type(tokenizer).__name__} without one).",
                advice=Argument("absent", "mean-embedding"),
            )
        return self._embedded(torch.tensor(token, device=weight.device))

    def _mean_embedding(self) -> Tensor:
        """Over the vocabulary, as the model embeds it: some scale their embeddings."""
        count = self.model.module.get_input_embeddings().weight.shape[0]
        parts = torch.split(torch.arange(count, device=self.model.device), VOCABULARY_PART)
        sums = torch.stack([self._embedded(part).double().sum(0) for part in parts])
        mean: Tensor = (sums.sum(0) / count).to(self.model.dtype)
        return mean

    def _embedded(self, ids: Tensor) -> Tensor:
        with torch.no_grad():
            embedded: Tensor = self.model.module.get_input_embeddings()(ids)
        return embedded

    def _masks(self, each: Tensor) -> Tensor | dict[str, Tensor]:
        """(m, tokens) gates → the bias of all layers, or of each kind if their windows differ."""
        count = len(self.ids)
        windows = {kind: min(window or count, count) for kind, window in self.model.windows.items()}
        biases = {window: self._bias(each, window) for window in set(windows.values())}
        if len(biases) == 1:
            return next(iter(biases.values()))
        return {kind: biases[window] for kind, window in windows.items()}

    def _bias(self, each: Tensor, window: int) -> Tensor:
        """(m, tokens) gates → (m, 1, tokens, tokens): what is added to the attention scores of
        every pair (who looks, at whom)."""
        places = torch.arange(len(self.ids), device=each.device)
        back = places[:, None] - places
        # As transformers counts: a causal window holds the token itself, another has two sides.
        unseen = (back < 0) | (back >= window) if self.causal else back.abs() > window
        bias = each.log()[:, None, None, :].expand(-1, 1, len(places), -1)
        return bias.masked_fill(back == 0, 0).masked_fill(unseen, -torch.inf).to(self.model.dtype)

    def _deleted(self, gates: Tensor) -> Tensor:
        """Outputs for texts that are really shorter, one after the other."""
        if gates.requires_grad:
            raise NotDifferentiable(
                "Expected a method without gradients for ",
                Argument("absent", "deleted"),
                " (got one with).",
                advice=("Try ", Argument("method", "leave-one-out"), "."),
            )
        rows = []
        for row in (gates > 0.5).tolist():
            ids = self.prompt.ids(self.model, self.prompt.without_absent(row))
            ids = self._with_answer(ids if len(ids) else self.last)
            rows.append(self.read({"input_ids": ids.unsqueeze(0)}))
        return torch.cat(rows)

    def _with_answer(self, ids: Tensor) -> Tensor:
        return ids if self.answer is None else torch.cat([ids, self.answer.ids])

    def read(self, inputs: dict[str, Any]) -> Tensor:
        """Logits, or log-probabilities of the answer's tokens, for inputs of the model."""
        if self.answer is None:
            return self.model.outputs(**inputs).float()
        said = self.answer.ids
        logits = self.model.outputs(last=len(said) + 1, **inputs)[:, :-1].float()
        chosen = said.expand(len(logits), -1).unsqueeze(2)
        return torch.log_softmax(logits, 2).gather(2, chosen).squeeze(2)


def keys_of(masks: Tensor) -> list[bytes]:
    """A key for each of the masks (m, n)."""
    return [mask.cpu().numpy().tobytes() for mask in masks]


class NoSuchSentence(InvalidInput):
    """An answer of `count` sentences has none of this number."""

    def __init__(self, number: Any, count: int) -> None:
        super().__init__(
            "Expected ",
            Argument("target"),
            " to be a part of the answer, or the number of one of its sentences, from 0 to "
            f"{count - 1} (got {number!r}).",
        )
        self.count = count


def answer_of(model: TextModel, prompt: Prompt, text: str | None, part: Any, most: int) -> Answer:
    """The given answer, or what the model says, and the part of it that is explained.

    part: None for all of it, a text that stands in it, or the number of one of its sentences.
    """
    if text is None:
        ids, offsets, text = generated(model, prompt, most)
    elif not isinstance(text, str):
        raise InvalidType(f"Expected answer to be a text (got {type(text).__name__}).")
    else:
        lead = ""
        if not prompt.templated and not prompt.text[-1:].isspace() and not text[:1].isspace():
            lead = " "  # As it would follow the prompt.
        encoded = model.tokenizer(
            lead + text, add_special_tokens=False, return_offsets_mapping=True
        )
        ids = torch.tensor(encoded["input_ids"], dtype=torch.long)
        offsets = [(a - len(lead), b - len(lead)) for a, b in encoded["offset_mapping"]]
    if not text.strip() or not len(ids):
        raise InvalidInput(
            "Expected an answer with at least one token (got an empty one).",
            advice=Argument("answer", "…"),
        )
    begin, end = span = _part(text, part)
    explained = torch.tensor([a < end and b > begin for a, b in offsets])
    return Answer(text, ids.to(model.device), explained.to(model.device), span)


def _part(text: str, part: Any) -> tuple[int, int]:
    if part is None:
        return 0, len(text)
    if isinstance(part, str):
        start = text.find(part)
        if start >= 0 and part.strip():
            return start, start + len(part)
        stands = f" to stand in the answer {text!r} (got {part!r})."
        raise InvalidInput("Expected ", Argument("target"), stands)
    spans, part = sentences(text), whole(part)
    if type(part) is int and 0 <= part < len(spans):
        return spans[part]
    raise NoSuchSentence(part, len(spans))


def generated(
    model: TextModel, prompt: Prompt, most: int
) -> tuple[Tensor, list[tuple[int, int]], str]:
    """What the model says, taking the most probable token each time: its tokens, where each stands
    in the text, and the text."""
    ids = prompt.ids(model).unsqueeze(0)
    end = model.tokenizer.eos_token_id
    with torch.no_grad():
        every = model.module.generate(
            ids,
            attention_mask=torch.ones_like(ids),
            max_new_tokens=max(1, min(most, model.limit - ids.shape[1])),
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            return_dict_in_generate=False,
            repetition_penalty=1.0,
            temperature=None,
            top_p=None,
            top_k=None,
            pad_token_id=model.tokenizer.pad_token_id if end is None else end,
        )
    said = every[0, ids.shape[1] :].cpu()
    special = torch.tensor(model.tokenizer.all_special_ids)
    said = said[~torch.isin(said, special)]
    texts = [model.tokenizer.decode(said[:count]) for count in range(len(said) + 1)]
    whole = texts[-1]
    start = len(whole) - len(whole.lstrip()) if prompt.templated else 0
    ends = [min(len(text), len(whole)) - start for text in texts]
    # A sign of several tokens belongs to each of them: it is there with the last one.
    there = [not text.endswith(HALF_A_SIGN) for text in texts[:-1]] + [True]
    spans = [
        (
            next(ends[k] for k in range(token, -1, -1) if there[k]),
            next(ends[k] for k in range(token + 1, len(ends)) if there[k]),
        )
        for token in range(len(said))
    ]
    return said, spans, whole[start:].rstrip()


def present(sets: Sequence[Sequence[int]], count: int) -> Tensor:
    """(1, sets, count) masks of sets of features."""
    masks = torch.zeros(1, len(sets), count)
    for row, chosen in enumerate(sets):
        masks[0, row, list(chosen)] = 1
    return masks
