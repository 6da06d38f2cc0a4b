"""`transformers` pipelines: the parts of a text that the model's output rests on, as the
token-classification pipelines of `transformers` give theirs: one dict for each part."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..core.attribution import Attribution
from ..text.api import explain_text


class TextExplainer:
    """A callable around a pipeline: `TextExplainer(pipe)("The film was good.")`.

    pipe: a text-classification or text-generation pipeline, or any model that `gp.explain_text`
    takes. options: keyword arguments of `gp.explain_text`, the same for every call.

    A call takes a text, or a chat as the pipeline does, or context= and question=, and gives the
    parts that were selected, in order: {"text", "start", "end", "rank", "score"}. start and end are
    places in `attribution.about.text`, which for a classifier is the text itself, and for a
    model that chats the text with its template. score is the one that the part had in the round
    that selected it. A list of texts gives a list of such lists.
    """

    attribution: Attribution
    """The whole result of the last call."""

    def __init__(self, pipe: Any, **options: Any) -> None:
        self.pipe, self.options = pipe, options

    def __call__(self, inputs: Any = None, **options: Any) -> list[Any]:
        """The selected parts, first to last."""
        several = isinstance(inputs, Sequence) and not isinstance(inputs, str)
        if several and not all(isinstance(each, Mapping) for each in inputs):
            return [self(each, **options) for each in inputs]
        self.attribution = a = explain_text(self.pipe, inputs, **self.options | options)
        facts: Any = a.about
        text, spans = facts.text, facts.spans
        scores = a.feature_scores.tolist()
        return [
            {
                "text": text[start:end],
                "start": start,
                "end": end,
                "rank": rank,
                "score": scores[feature],
            }
            for rank, feature in enumerate(a.order[: a.selected].tolist(), 1)
            for start, end in [spans[feature]]
        ]
