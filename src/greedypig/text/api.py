"""`gp.explain_text`: the few words, sentences or sources that a text model's output rests on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from ..core.arguments import advise
from ..core.attribution import Attribution
from ..core.carry_out import carry_out
from ..core.enough import ENOUGH, first_enough
from ..core.errors import Argument, InvalidInput, InvalidType, did_you_mean, levels_to_caller
from ..core.features import Elements
from ..core.methods import GreedyPIG
from ..core.numbers import whole
from ..core.question import Question, Record
from ..core.stopping import Stop, as_stop
from ..core.two_sided import one_side, title, with_sides
from ..network.fingerprint import callables, digest, versions
from ..results.text_notes import NEARLY, TextFacts, TextNotes, needs_nothing
from ..tensors.targets import Reference, References
from ..tensors.targets import Target as OutputTarget
from ..types import MethodLike, ObjectiveLike, PathOrText, ProgressLike, Seed, Target
from . import models
from .gates import Answer, TextObjective, answer_of, present
from .methods import choose_for_text
from .models import TextModel
from .prompt import Prompt, make_prompt, sentences

LONGEST_ANSWER = 64
"""Tokens that a language model may say, where no answer is given."""
POINTS = 8
"""Sets of the best features that are measured once more, besides the set that is enough."""
TWINS, LARGEST = 3, 3
"""Features that are tried as twins of a selected one, and selected ones that they are tried for."""
PART = 1 / 3
"""A source with this share of another one's effect repeats a part of it."""


class TooManyTokens(InvalidInput):
    """The text does not fit the model; `given` is "text", "context" or "chat"."""

    def __init__(self, sentence: str, *, advice: str, given: str) -> None:
        super().__init__(sentence, advice=advice)
        self.given = given


@advise
def explain_text(
    model: object,
    text: str | Sequence[Mapping[str, object]] | None = None,
    *,
    context: str | Sequence[str] | None = None,
    question: str | None = None,
    answer: str | None = None,
    tokenizer: object = None,
    target: Target = None,
    objective: ObjectiveLike = None,
    absent: str = "masked",
    features: str | Sequence[object] | None = None,
    method: MethodLike | None = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: Seed = 0,
    checkpoint: PathOrText | None = None,
    progress: ProgressLike = None,
) -> Attribution:
    """Which few words, sentences or sources does the model's output rest on?

    The result names them in order, with G(S) after every round, and is measured once more with
    everything else really deleted from the text (docs/texts.md).

    model: a sequence classifier or causal language model of `transformers` with tokenizer=, its
        folder or name, a pipeline, or a name of ours: "smollm2-135m-instruct", "minilm-imdb".
        Nothing is downloaded.
    text: a text; or for language models a chat, a list of {"role": …, "content": …}. For a model
        with a chat template, a text is the user's message.
    context, question: texts to answer a question from; the question is always present.
    answer: what a language model is to say; None takes what it says itself.
    features: "words" (the default for classifiers), "sentences", "paragraphs", "tokens",
        "documents" (the texts of a context; its default), "messages" of a chat, or a list of texts
        or (start, end) places in the text.
    target: a classifier's class by number or name, None for the predicted one. Of a language model
        the part of the answer to explain: a text in it, or the number of one of its sentences.
    objective: for classifiers as in `gp.explain`. For language models "log-probability" of the
        answer, or a callable from the log-probabilities of its explained tokens (m, tokens) to one
        number a row.
        gp.two_sided(…) of any of these asks for necessity beside sufficiency.
    absent: "masked" (no other token sees the feature's tokens), "embedding", "mask-embedding",
        "pad-embedding", "zero-embedding", "mean-embedding", or "deleted" (no gradients).
    method: None (rounds of 4 nodes that crowd at 0, until the output is reached), a name,
        also "leave-one-out", "context-cite" and "attention", or a method such as gp.GreedyPIG(…).
    k, stop, seed, checkpoint, progress: as in `gp.explain`.
    """
    with torch.inference_mode(False):
        text_model = models.load(model, tokenizer)
        prompt = make_prompt(text_model, text, context, question, features)
        problem = TextProblem(text_model, prompt, answer, target, objective, absent)
        stop = as_stop(stop)
        chosen = _default(problem) if method is None else method
        if method is None and k is None and stop.value is None:
            if problem.rise > 0:
                stop = replace(stop, value=problem.bar(ENOUGH * problem.maximised.sides))
            hopeless = problem.answer is not None and problem.needs_nothing
            if hopeless and isinstance(chosen, GreedyPIG):
                chosen = replace(chosen, rounds=1)  # An order; more rounds would say no more.
        search: dict[str, Any] = {"k": k, "stop": stop, "seed": seed}
        asked = problem.question()
        return carry_out(asked, chosen, **search, checkpoint=checkpoint, progress=progress)[0]


def _default(problem: TextProblem) -> Any:
    """What method=None takes."""
    g, both = problem.objective, problem.maximised.sides == 2
    return choose_for_text(two_sided=both, absent=g.absent, removing=g.removes)


class TextProblem:
    """One text, what is asked about it, and its value with nothing and with everything."""

    def __init__(
        self,
        model: TextModel,
        prompt: Prompt,
        answer: str | None,
        target: Any,
        objective: Any,
        absent: str,
    ) -> None:
        objective, both = one_side(objective)
        self.model, self.prompt, self.given = model, prompt, objective
        self.answer: Answer | None = None
        self.output: Tensor | None = None
        """A classifier's output for the whole text."""
        self.undirected = False
        """Is it a value that is explained in the direction in which the text moves it?"""
        self.settings: dict[str, Any] = {"absent": absent, "features": prompt.features}
        self.facts = TextFacts(
            model=model.name,
            text=prompt.text,
            spans=tuple((start, end) for start, end in prompt.spans),
            unit=prompt.features,
            absent=absent,
        )
        self._check_length(0 if model.kind == "classifier" else self._least_answer(answer))
        if model.kind == "classifier":
            measure, removing = (
                self._class(answer, target, objective),
                objective == "counterfactual",
            )
        else:
            measure, removing = self._answer(answer, target, objective), False
        self.objective = TextObjective(
            model,
            prompt,
            self.answer,
            measure,
            absent,
            removing=removing,
            causal=model.kind == "language model",
        )
        if absent == "masked":
            self._check_mask()
        self.empty, self.full = self.values([(), range(self.objective.n)])
        if self.undirected and self.rise < 0:
            self._turn()
        self.settings["objective"] = title(self.settings["objective"], both)
        self.maximised = with_sides(self.objective, both)
        """The objective of the run. Results are checked by `objective`, its g: of two sides
        G(nothing) = g(nothing), and G(everything) is twice as far from it."""

    @property
    def rise(self) -> float:
        """G(everything) − G(nothing)."""
        return float(self.full - self.empty)

    @property
    def needs_nothing(self) -> bool:
        """Is the output nearly the same without any feature?"""
        is_log = self.settings["objective"].endswith("log-probability")
        return needs_nothing(self.empty, self.full, self.facts.answer_tokens if is_log else None)

    def question(self) -> Question:
        """The question about the text's features."""
        g, sides, before = self.objective, self.maximised.sides, self.objective.forwards_used
        ends = torch.tensor([[self.empty], [self.bar(sides)]], dtype=torch.float64)

        def finish(_: int, a: Attribution) -> Attribution:
            facts = replace(self.facts, forwards=before + a.forwards_used)
            a = replace(a, attachments={})
            return verified(a, self, facts) if a.picks else a.with_notes(facts)

        return Question(
            self.maximised,
            Elements(g.n, self.prompt.names),
            (Record(self.settings, self.provenance(), lambda: (self.facts, {})),),
            known={0: ends[0]},
            full=ends[1],
            finish=finish,
            # No mask is measured twice, also not by a run that goes on.
            memory=lambda: ({}, g.measured),
            take_up=lambda saved: g.remember(saved.attachments),
        )

    def bar(self, share: float) -> float:
        """G at this share of the way from nothing to everything."""
        return float(self.empty + share * self.rise)

    def values(self, sets: Sequence[Sequence[int]], *, deleted: bool = False) -> list[float]:
        """G of sets of features; deleted: with everything else cut out of the text."""
        g = self._deleting if deleted else self.objective
        values: list[float] = g.values(present(sets, g.n))[0].tolist()
        return values

    @cached_property
    def _deleting(self) -> TextObjective:
        """The objective with absent features cut out of the text."""
        return self.objective.rebuilt(absent="deleted")

    def provenance(self) -> dict[str, str]:
        """Versions, and digests of the model, the text and the question."""
        said = "" if self.answer is None else f"{self.answer.text} {self.answer.span}"
        tensors = {"tokens": self.objective.ids, "features": self.objective.owners}
        own = {"model": self.model.fingerprint(), "input": digest(tensors, said)}
        return versions() | callables(objective=self.given) | own

    def _class(self, answer: Any, target: Any, objective: Any) -> Callable[[Tensor], Tensor]:
        """What is measured of a classifier's logits."""
        if answer is not None:
            raise InvalidInput(
                "Expected answer= for language models only (got a classifier). Try target=."
            )
        names = self.model.classes
        several = self.model.module.config.problem_type == "multi_label_classification"
        if len(names) == 1 and not several:  # Where a class is asked for, its logit.
            names = [f"not {names[0]}", names[0]]
        if isinstance(target, str):
            if target not in names:
                end = f" to be one of {', '.join(names)} (got {target!r})."
                near = did_you_mean(target, names)
                raise InvalidInput("Expected ", Argument("target"), end, near)
            target = names.index(target)
        ids = self.prompt.ids(self.model).unsqueeze(0)
        with torch.no_grad():
            self.output = output = self.model.outputs(input_ids=ids).float()
        column = None
        if several and not callable(objective):
            # Each label is a question of its own: is it there or not?
            column = int(output.argmax()) if target is None else whole(target)
            if type(column) is not int or not 0 <= column < len(names):
                end = f" to be a class from 0 to {len(names) - 1} (got {target!r})."
                raise InvalidInput("Expected ", Argument("target"), end)
            names, target = [f"not {names[column]}", names[column]], 1
        aim = OutputTarget(
            objective,
            None if column is None else "logits",
            class_given=target is not None,
        )

        def chosen(output: Tensor) -> Tensor:
            logits = output if column is None else output[:, column]
            return aim.logits(logits, len(logits))

        logits = chosen(output)
        reference = aim.reference(logits[0], target)
        self.undirected = aim.is_undirected(reference)
        if self.undirected:
            aim = OutputTarget("increase")
        references = References.of([reference])
        self.settings |= aim.described(reference)
        if reference.classes:
            self._note_classes(logits[0], reference, names)

        def measure(output: Tensor) -> Tensor:
            problems = torch.zeros(len(output), dtype=torch.long, device=output.device)
            return aim.values(chosen(output), references, problems)

        return measure

    def _check_mask(self) -> None:
        """Refuse a model that does not take gates as masks; some classifiers are causal."""
        g = self.objective
        plain = g.plain_output() if self.output is None else self.output
        if g.takes_masks(plain):
            return
        if self.answer is None:
            self.objective = g.rebuilt(causal=True)
            if self.objective.takes_masks(plain):
                return
        raise InvalidInput(
            "Expected a model whose attention takes a mask of numbers for every pair of tokens "
            f"(got {self.model.name}, whose output is another with a mask that hides nothing, or "
            "depends on tokens that are masked).",
            advice=Argument("absent", "embedding"),
        )

    def _turn(self) -> None:
        """Explain a value that the text lowers by what lowers it."""
        g = self.objective
        self.objective = g.rebuilt(measure=lambda output: -g.measure(output))
        self.settings["objective"] = "decrease"
        self.empty, self.full = -self.empty, -self.full

    def _note_classes(self, logits: Tensor, reference: Reference, names: list[str]) -> None:
        probabilities = torch.softmax(logits.double(), 0).tolist()
        best = sorted(range(len(names)), key=lambda i: -probabilities[i])
        self.facts = replace(
            self.facts,
            label=names[reference.target],
            target=reference.target,
            probability=probabilities[reference.target],
            predictions=tuple((names[i], probabilities[i]) for i in best[:5]),
        )

    def _answer(self, answer: Any, part: Any, objective: Any) -> Callable[[Tensor], Tensor]:
        """What is measured of the log-probabilities of an answer's tokens."""
        if objective not in (None, "log-probability") and not callable(objective):
            raise InvalidInput(
                "Expected ",
                Argument("objective"),
                f" to be 'log-probability' or a callable for a language model (got {objective!r}).",
            )
        self.answer = said = answer_of(self.model, self.prompt, answer, part, LONGEST_ANSWER)
        self._check_length(len(said.ids))
        self.settings["objective"] = "callable" if callable(objective) else "log-probability"
        self.facts = replace(
            self.facts,
            answer_text=said.text,
            answer_span=(said.span[0], said.span[1]),
            answer_tokens=int(said.explained.sum()),
            generated=answer is None,
            cut=answer is None and len(said.ids) >= LONGEST_ANSWER,
        )
        if callable(objective):
            own: Callable[[Tensor], Tensor] = objective
            return lambda logs: own(logs[:, said.explained])
        return lambda logs: logs[:, said.explained].sum(1)

    def _least_answer(self, answer: Any) -> int:
        """Tokens that a language model's answer takes at least."""
        given = answer if isinstance(answer, str) else ""
        return max(1, len(self.model.tokenizer(given, add_special_tokens=False)["input_ids"]))

    def _check_length(self, more: int) -> None:
        """Refuse a text that does not fit the model, and say how much of it would."""
        count, limit = len(self.prompt.ids(self.model)) + more, self.model.limit
        if count <= limit:
            return
        _, owners = self.prompt.tokens(self.model)
        fixed = int((owners < 0).sum()) + more
        room, fits = limit - fixed, 0
        for feature in range(len(self.prompt.spans)):
            room -= int((owners == feature).sum())
            fits += room >= 0
        names = self.prompt.features
        advice = {"context": "fewer or shorter documents", "chat": "fewer messages"}.get(
            self.prompt.given, "text=gp.truncate_text(model, text), which keeps whole sentences"
        )
        raise TooManyTokens(
            f"Expected at most {limit:,} tokens, which {self.model.name} takes (got {count:,}). "
            f"The first {fits:,} of {len(self.prompt.spans):,} {names} fit.",
            advice=f"Try {advice}.",
            given=self.prompt.given,
        )


def verified(a: Attribution, problem: TextProblem, facts: TextFacts) -> Attribution:
    """The result with what was measured at its sets: only they present, really deleted, and
    without them; the smallest set that is enough; and features that say the same."""
    n, order = a.features.count, a.order.tolist()
    reached = a.reach()
    named = [count for count in (reached, a.settings["k"]) if count]
    counts = sorted({0, n, *named, *_counts(n)})
    curve = dict(zip(counts, problem.values([order[:count] for count in counts]), strict=True))
    enough = None
    if problem.maximised.sides == 2:
        enough = reached
    elif problem.rise > 0:
        enough = _smallest(curve, order, problem)
    counts = sorted(curve)
    tops, values = [order[:count] for count in counts], [curve[count] for count in counts]
    twins = twins_of(a, problem, enough) if enough else []
    error = None
    if a.settings.get("complete") and a.totals and (rise := a.full_value - float(a.values[0])):
        error = abs(a.totals[0] / rise - 1)
    facts = replace(
        facts,
        counts=tuple(counts),
        enough=enough,
        only=tuple(values),
        deleted=tuple(problem.values(tops, deleted=True)),
        without=tuple(problem.values([order[count:] for count in counts])),
        twins=tuple((j, i) for j, i, _ in twins),
        twin_shares=tuple(share for _, _, share in twins),
        sum_error=error,
    )
    a = a.with_notes(facts)
    for caution in TextNotes.of(a).cautions():
        warnings.warn(caution.line, stacklevel=levels_to_caller())
    return a


def _smallest(curve: dict[int, float], order: list[int], problem: TextProblem) -> int | None:
    """The fewest of the best features that are enough, by halving the gap between measured counts.

    What is measured on the way is added to the curve.
    """
    bar, counts = problem.bar(ENOUGH), sorted(curve)
    enough = first_enough(counts, [curve[count] for count in counts], problem.full)
    if enough is None:
        return None
    below = max((count for count in curve if count < enough), default=enough - 1)
    while enough - below > 1:
        middle = (below + enough) // 2
        (curve[middle],) = problem.values([order[:middle]])
        below, enough = (below, middle) if curve[middle] >= bar else (middle, enough)
    return enough


def _counts(n: int) -> list[int]:
    """About POINTS counts from 1 to n, each about the same multiple of the one before."""
    return sorted({round(n ** (i / (POINTS - 1))) for i in range(POINTS)})


def twins_of(a: Attribution, problem: TextProblem, enough: int) -> list[tuple[int, int, float]]:
    """(feature j, selected feature i that it repeats, share of i's effect that j has alone).

    Feature j repeats i, which was selected after P, if alone it does a good part of what i does,
    share = (G(P + j) − G(P)) / (G(P + i) − G(P)) ≥ PART, and loses most of that beside i,
    G(P + i + j) − G(P + i) ≤ 1/2 · (G(P + j) − G(P)). For a class, whose probability saturates,
    the share must be NEARLY 1: else most words would repeat each other. Tried are the features with
    the highest scores of the first round, in which those that say the same still share their score.
    """
    order = a.order.tolist()
    first = a.last_scores if a.first_scores is None else a.first_scores
    best = torch.argsort(first, descending=True, stable=True).tolist()
    least = NEARLY if problem.answer is None else PART
    trials = []
    for place in range(min(enough, LARGEST)):
        before, i = order[:place], order[place]
        others = [j for j in best if j not in order[: place + 1] and float(first[j]) > 0]
        trials += [(before, i, j) for j in others[:TWINS]]
    sets = [[*p, *more] for p, i, j in trials for more in ((), (i,), (j,), (i, j))]
    values = problem.values(sets) if sets else []
    twins = []
    for (_, i, j), place in zip(trials, range(0, len(values), 4), strict=True):
        bare, with_i, with_j, both = values[place : place + 4]
        matters = with_i - bare > 0.2 * problem.rise
        share = (with_j - bare) / (with_i - bare) if matters else 0.0
        if share >= least and both - with_i <= (with_j - bare) / 2:
            twins.append((j, i, share))
    return twins


def truncate_text(model: object, text: str, *, tokenizer: object = None) -> str:
    """The text's first sentences that the model takes, as many as fit whole.

    What a language model is asked about it, and its answer, need room too.
    """
    if not isinstance(text, str):
        raise InvalidType(f"Expected text to be a text (got {type(text).__name__}).")
    text_model = models.load(model, tokenizer)
    room = text_model.limit - (2 * LONGEST_ANSWER if text_model.kind == "language model" else 0)
    kept = ""
    for _, end in sentences(text):
        part = make_prompt(text_model, text[:end], None, None, "sentences")
        if len(part.ids(text_model)) > room:
            break
        kept = text[:end]
    if text.strip() and not kept:
        raise InvalidInput(
            f"Expected a first sentence that fits {text_model.name} (got one of more than "
            f"{max(0, room):,} tokens). Try a shorter text."
        )
    return kept
