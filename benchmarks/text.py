"""Texts: the cost of a gradient against a bare loop, peak memory, a whole explanation, and the
error of few nodes.

    python benchmarks/text.py [--tokens 1000] [--pairs 5] [--whole] [--nodes 6] [--write]

The bare loop builds the attention bias, calls the same model and takes the same gradient, without
greedypig. Needs make assets ONLY="smollm2-135m-instruct imdb". Results: benchmarks/RESULTS-text.md.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import count, islice
from pathlib import Path
from statistics import fmean
from typing import Any

import torch
from timing import compare
from torch import Tensor

import greedypig as gp
from greedypig.core.features import Elements
from greedypig.core.rounds import Round
from greedypig.text import models
from greedypig.text.api import TextProblem
from greedypig.text.gates import generated
from greedypig.text.prompt import make_prompt

sys.path.insert(0, os.fspath(Path(__file__).parents[1]))
from reproduction.text.contexts import KINDS, make_context, read_reviews, review_sentences
from reproduction.text.evidence import distractors
from reproduction.text.problems import Question

RESULTS = Path(__file__).parent / "RESULTS-text.md"
MODEL = "smollm2-135m-instruct"
TRUE_NODES, FEW_NODES = 24, (4, 6, 8)
FACT, QUESTION, ANSWER = "The kite costs 27 dollars.", "How much does the kite cost?", (
    "The kite costs 27 dollars."
)  # fmt: skip


def context_of(model: models.TextModel, tokens: int) -> list[str]:
    """Sentences of reviews, with one fact among them: a prompt of at least so many tokens."""
    texts = review_sentences([text for text, _ in read_reviews(300)])
    number = 2
    while True:
        context = [*texts[: number // 2], FACT, *texts[number // 2 : number]]
        prompt = make_prompt(model, None, context, QUESTION, "documents")
        if len(prompt.ids(model)) >= tokens:
            return context
        number += 1


def bare_gradient(problem: TextProblem, gate: float) -> Tensor:
    """One forward and backward of log p(answer) with respect to the gates, in plain torch."""
    g: Any = problem.objective
    gates = torch.full((1, g.n), gate, requires_grad=True)
    length, said = len(g.ids), problem.answer.ids if problem.answer is not None else g.ids
    own = torch.eye(length, dtype=torch.bool)
    later = torch.ones(length, length, dtype=torch.bool).triu(1)
    each = torch.cat([gates, torch.ones(1, 1)], 1)[:, g.owners].log()
    bias = each[:, None, None, :].expand(-1, 1, length, -1).masked_fill(own, 0)
    logits = problem.model.module(
        input_ids=g.ids[None],
        attention_mask=bias.masked_fill(later, -torch.inf),
        use_cache=False,
        logits_to_keep=len(said) + 1,
    ).logits[:, :-1]
    value = torch.log_softmax(logits, 2).gather(2, said[None, :, None]).sum()
    return torch.autograd.grad(value, gates)[0][0]


def peak() -> float:
    """The most memory that this process has held so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def gradients(model: models.TextModel, tokens: int, pairs: int) -> list[str]:
    """Ours against the bare loop, and memory."""
    context = context_of(model, tokens)
    prompt = make_prompt(model, None, context, QUESTION, "documents")
    problem = TextProblem(model, prompt, ANSWER, None, None, "masked")
    g, gate = problem.objective, 0.1
    loaded = peak()
    theirs = bare_gradient(problem, gate)
    bare = peak()
    masks, one = torch.full((1, 1, g.n), gate), torch.ones(1)
    torch.testing.assert_close(g.gradient(masks, one)[0], theirs, rtol=1e-3, atol=1e-4)
    ours = peak()
    r = compare(lambda: g.gradient(masks, one), lambda: bare_gradient(problem, gate), pairs=pairs)
    return [
        f"| {len(g.ids):,} | {g.n} | {r.ours:.2f} | {r.theirs:.2f} | {r.cpu:.2f} | {r.ratio:.2f} "
        f"[{r.low:.2f}, {r.high:.2f}] | {loaded:,.0f} | {bare:,.0f} | {ours:,.0f} |"
    ]


def whole(model: models.TextModel, tokens: int) -> str:
    """The default explanation of one prompt, its answer generated."""
    wall, cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        a = gp.explain_text(
            model.module,
            tokenizer=model.tokenizer,
            context=context_of(model, tokens),
            question=QUESTION,
        )
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    return (
        f"The default on {tokens:,} tokens, {a.features.count} sentences, "
        f"{torch.get_num_threads()} threads: {wall:.0f} s ({cpu:.0f} s of processor time), "
        f"{a.gradients_used} gradients; answer {a.about.answer_text!r}, first {a.top(1)[0]!r}; "
        f"peak memory {peak():,.0f} MB."
    )


def questions(model: models.TextModel) -> Iterator[Question]:
    """Contexts that the model answers rightly, of every kind in turn; not those of the experiment
    (seed 0)."""
    texts = distractors(3000)
    for number in count():
        for kind in KINDS:
            context = make_context(kind, 1, number, texts)
            asked = {"context": context.sentences, "question": context.question}
            prompt = make_prompt(model, None, *asked.values(), "documents")
            said = context.answer_in(generated(model, prompt, 32)[2])
            if context.is_right(said):
                yield Question(model, said, "documents", **asked)


def node_errors(model: models.TextModel, contexts: int) -> list[str]:
    """How far the scores of few nodes are from those of many, with their weights as they are and
    completed: mean and largest over the contexts."""
    errors: dict[tuple[int, bool], list[tuple[float, float]]] = {}
    for question in islice(questions(model), contexts):
        problem = question.problem()
        g, nothing = problem.objective, torch.zeros(1, problem.objective.n)
        first = Round(nothing, Elements(g.n), nothing.bool())
        true = gp.IG(TRUE_NODES, "cubic", complete=True)(g, first)
        for nodes in FEW_NODES:
            for complete in (False, True):
                scores = gp.IG(nodes, "cubic", complete)(g, first)
                away = float((scores - true).abs().sum() / true.abs().sum())
                off = abs(float(scores.sum()) / problem.rise - 1)
                errors.setdefault((nodes, complete), []).append((away, off))
    rows = [
        f"| {nodes} | {'completed' if complete else 'as they are'} | "
        + " | ".join(f"{fmean(each):.3f} | {max(each):.3f}" for each in zip(*pairs, strict=True))
        + " |"
        for (nodes, complete), pairs in errors.items()
    ]
    head = "| nodes | weights | error of the scores | largest | error of their sum | largest |"
    return [
        f"{contexts} contexts; Σ |scores − those of {TRUE_NODES} nodes| / Σ |those|.",
        "",
        head,
        "|---:|---|---:|---:|---:|---:|",
        *rows,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1000)
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--whole", action="store_true", help="only a whole explanation")
    parser.add_argument("--nodes", type=int, metavar="N", help="only few nodes, on N contexts")
    parser.add_argument("--write", action="store_true", help=f"add to {RESULTS.name}")
    args = parser.parse_args()
    model = models.load(MODEL)
    if args.whole:
        lines = [whole(model, args.tokens)]
    elif args.nodes:
        lines = node_errors(model, args.nodes)
    else:
        lines = [
            "| tokens | sentences | ours, s | bare loop, s | processor time, ratio | time, ratio "
            "[quartiles] | MB loaded | MB after the bare loop | MB after ours |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
            *gradients(model, args.tokens, args.pairs),
        ]
    print("\n".join(lines))
    if args.write:
        with RESULTS.open("a", encoding="utf-8") as file:
            file.write("\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
