"""Results of texts with known numbers, made without a model."""

from __future__ import annotations

from dataclasses import replace

import torch

import greedypig as gp

SENTENCES = ("It rained.", "The house is red.", "Paint it red!", "We had tea.")
GAINS = (0.02, 0.5, 0.3, -0.1)
START = 0.1


def text_result(parts=SENTENCES, gains=GAINS, *, separator=" ", before="", after="", **notes):
    """The explanation of the parts in a row, each of which adds its gain to START.

    The order is by gain.
    """
    text, spans = before, []
    for part in parts:
        spans.append([len(text), len(text) + len(part)])
        text += part + separator
    text = text.removesuffix(separator) + after
    n, weights = len(parts), torch.tensor(gains)
    a = gp.maximize(
        gp.objective(lambda m: m @ weights + START, n),
        notes.pop("method", gp.GreedyPIG(per_round=1)),
        features=gp.Elements(n, parts),
        k=notes.pop("k", None),
    )
    order = a.order.tolist()
    counts = notes.pop("counts", range(n + 1))

    def value(chosen):
        return START + sum(gains[i] for i in chosen)

    facts = {
        "kind": "text", "model": "tiny", "text": text, "spans": spans, "unit": "sentences",
        "class": "red", "probability": value(order), "predictions": [["red", 0.8], ["blue", 0.2]],
        "counts": list(counts), "only": [value(order[:k]) for k in counts],
        "deleted": [value(order[:k]) - 0.01 for k in counts],
        "without": [value(order[k:]) for k in counts],
        "enough": 2, "twins": [[2, 1]], "source": "house.txt",
        "forwards": 9, "search_seconds": 0.5, "command": "greedypig explain-text house.txt",
    }  # fmt: skip
    settings = dict(a.settings) | {"objective": notes.pop("objective", "softmax")}
    return replace(a, settings=settings).with_notes(facts | notes)


def answered(parts=SENTENCES, gains=GAINS, **notes):
    """The same for a language model's answer."""
    said = {
        "answer": "It is red. I think.", "answer_span": [0, 10], "answer_tokens": 4,
        "generated": True, "class": None, "probability": None, "predictions": [],
        "objective": "log-probability", "model": "speaker",
    }  # fmt: skip
    return text_result(parts, gains, **(said | notes))
