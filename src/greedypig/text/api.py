"""`gp.explain_text`: the few words, sentences or sources that a text model's output rests on."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..core.attribution import Attribution
from ..core.errors import InvalidInput, did_you_mean
from ..core.features import Elements
from ..core.methods import as_method
from ..core.run import ALL, Run
from ..core.stopping import Stop, as_stop
from ..network.fingerprint import callables, digest
from ..results.text_notes import TextNotes
from ..tensors.methods import FOR_TEXTS
from ..tensors.run import check_checkpoint, saved_run, versions
from ..tensors.targets import Reference, References, Target, levels_to_caller
from . import models, rivals  # noqa: F401 - The rivals add their names to the methods.
from .gates import Answer, TextObjective, answer_of, present
from .models import TextModel
from .prompt import Prompt, make_prompt, sentences

LONGEST_ANSWER = 64
"""Tokens that a language model may say, where no answer is given."""
REACH = 0.95
"""A set is enough where G(S) has risen by this share of the way from nothing to everything."""
POINTS = 8
"""Sets of the best features that are measured once more, besides the set that is enough."""
TWINS, LARGEST = 3, 4
"""Features that are tried as twins of selected ones, and the largest set they are tried in."""


def explain_text(
    model: Any,
    text: str | Sequence[Mapping[str, str]] | None = None,
    *,
    context: str | Sequence[str] | None = None,
    question: str | None = None,
    answer: str | None = None,
    tokenizer: Any = None,
    features: Any = None,
    target: Any = None,
    objective: Any = None,
    absent: str = "masked",
    method: Any = None,
    k: int | None = None,
    stop: Stop | None = None,
    seed: int = 0,
    checkpoint: str | PathLike[str] | None = None,
    progress: Callable[[Run], object] | None = None,
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
        answer, or a callable from its tokens' log-probabilities (m, tokens) to one number a row.
    absent: "masked" (no other token sees the feature's tokens), "embedding", "mask-embedding",
        "pad-embedding", "zero-embedding", "mean-embedding", or "deleted" (no gradients).
    method: None (rounds of 8 nodes that crowd at 0, until the output is reached), a name, also
        "leave-one-out", "context-cite" and "attention", or a method such as gp.GreedyPIG(…).
    k, stop, seed: as in `gp.explain`.
    checkpoint: a file to which every round is saved; a run that finds it goes on from there.
    progress: called with the run before its first round and after every one.
    """
    check_checkpoint(checkpoint)
    with torch.inference_mode(False):
        text_model = models.load(model, tokenizer)
        prompt = make_prompt(text_model, text, context, question, features)
        problem = TextProblem(text_model, prompt, answer, target, objective, absent)
        chosen = FOR_TEXTS if method is None else as_method(method)
        rule = stop
        if method is None and stop is None and k is None and problem.rise > 0:
            rule = Stop(value=problem.bar(REACH))
        saved = checkpoint if checkpoint is not None and Path(checkpoint).exists() else None
        run = TextRun(problem, chosen, k=k, stop=as_stop(rule), seed=seed, resume=saved)
        run.finish(checkpoint, progress)
        a = run.results()[0]
        return replace(verified(a, problem), seconds=run.seconds) if a.picks else a


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
        self.model, self.prompt, self.given = model, prompt, objective
        self.answer: Answer | None = None
        self.settings: dict[str, Any] = {"absent": absent, "features": prompt.features}
        self.facts: dict[str, Any] = {
            "kind": "text",
            "model": model.name,
            "text": prompt.text,
            "spans": [list(span) for span in prompt.spans],
            "unit": prompt.features,
            "absent": absent,
        }
        self._check_length()
        if model.kind == "classifier":
            measure, removing = (
                self._class(answer, target, objective),
                objective == "counterfactual",
            )
        else:
            measure, removing = self._answer(answer, target, objective), False
        self.objective = TextObjective(
            model, prompt, self.answer, measure, absent, removing=removing
        )
        ends = self.objective.values(present([(), range(self.objective.n)], self.objective.n))
        self.empty, self.full = ends[0].tolist()

    @property
    def rise(self) -> float:
        """G(everything) − G(nothing)."""
        return float(self.full - self.empty)

    def bar(self, share: float) -> float:
        """G at this share of the way from nothing to everything."""
        return float(self.empty + share * self.rise)

    def values(self, sets: Sequence[Sequence[int]], *, deleted: bool = False) -> list[float]:
        """G of sets of features; deleted: with everything else cut out of the text."""
        g = self.objective.deleting() if deleted else self.objective
        values: list[float] = g.values(present(sets, g.n))[0].tolist()
        return values

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
        if isinstance(target, str):
            if target not in names:
                raise InvalidInput(
                    f"Expected target to be one of {', '.join(names)} (got {target!r})."
                    f"{did_you_mean(target, names)}"
                )
            target = names.index(target)
        aim = Target(objective, class_given=target is not None)
        ids = self.prompt.ids(self.model).unsqueeze(0)
        with torch.no_grad():
            logits = aim.logits(self.model.outputs(input_ids=ids).float(), 1)
        reference = aim.reference(logits[0], target)
        if aim.is_undirected(reference):
            aim = Target("increase")
        references = References.of([reference])
        self.settings |= aim.described(reference)
        if reference.classes:
            self._note_classes(logits[0], reference, names)

        def measure(output: Tensor) -> Tensor:
            problems = torch.zeros(len(output), dtype=torch.long, device=output.device)
            return aim.values(aim.logits(output, len(output)), references, problems)

        return measure

    def _note_classes(self, logits: Tensor, reference: Reference, names: list[str]) -> None:
        probabilities = torch.softmax(logits.double(), 0).tolist()
        best = sorted(range(len(names)), key=lambda i: -probabilities[i])
        self.facts |= {
            "class": names[reference.target],
            "target": reference.target,
            "probability": probabilities[reference.target],
            "predictions": [[names[i], probabilities[i]] for i in best[:5]],
        }

    def _answer(self, answer: Any, part: Any, objective: Any) -> Callable[[Tensor], Tensor]:
        """What is measured of the log-probabilities of an answer's tokens."""
        if objective not in (None, "log-probability") and not callable(objective):
            raise InvalidInput(
                "Expected objective to be 'log-probability' or a callable for a language model "
                f"(got {objective!r})."
            )
        self.answer = said = answer_of(self.model, self.prompt, answer, part, LONGEST_ANSWER)
        self._check_length(len(said.ids))
        self.settings["objective"] = "callable" if callable(objective) else "log-probability"
        self.facts |= {
            "answer": said.text,
            "answer_span": list(said.span),
            "generated": answer is None,
        }
        if callable(objective):
            own: Callable[[Tensor], Tensor] = objective
            return own
        return lambda logs: logs[:, said.explained].sum(1)

    def _check_length(self, more: int = 0) -> None:
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
        raise InvalidInput(
            f"Expected at most {limit:,} tokens, which {self.model.name} takes (got {count:,}). "
            f"The first {fits:,} of {len(self.prompt.spans):,} {names} fit. Try "
            "text=gp.truncate_text(model, text), which keeps whole sentences."
        )


class TextRun(Run):
    """A run over the features of one text. Its results carry the text."""

    def __init__(self, problem: TextProblem, method: Any, *, resume: Any, **search: Any) -> None:
        self.problem = problem
        provenance = problem.provenance()
        super().__init__(
            problem.objective,
            method,
            features=Elements(problem.objective.n, problem.prompt.names),
            settings=[problem.settings],
            provenance=[provenance],
            resume=saved_run(resume, provenance),
            **search,
        )
        ends = torch.tensor([[problem.empty], [problem.full]], dtype=torch.float64)
        self.values |= {0: ends[0], ALL: ends[1]}

    def results(self, *, measure: bool = True) -> list[Attribution]:
        """One result, with the text."""
        return [a.with_notes(self.problem.facts) for a in super().results(measure=measure)]


def verified(a: Attribution, problem: TextProblem) -> Attribution:
    """The result with what was measured at its sets: only they present, really deleted, and
    without them; the smallest set that is enough; and features that say the same."""
    n, order = a.features.count, a.order.tolist()
    reached = a.reach(REACH)
    counts = sorted({0, n, *([reached] if reached else []), *_counts(n)})
    tops = [order[:count] for count in counts]
    values = problem.values(tops)
    reaching = (c for c, v in zip(counts, values, strict=True) if v >= problem.bar(REACH))
    enough = next(reaching, None) if problem.rise > 0 else None
    facts: dict[str, Any] = {"counts": counts, "enough": enough, "reach": REACH, "only": values}
    facts["deleted"] = problem.values(tops, deleted=True)
    facts["without"] = problem.values([order[count:] for count in counts])
    facts["twins"] = _twins(a, problem, enough) if enough else []
    a = a.with_notes(facts)
    notes = TextNotes.of(a)
    for caution in notes.cautions() if notes is not None else ():
        warnings.warn(caution, stacklevel=levels_to_caller())
    return a


def _counts(n: int) -> list[int]:
    """About POINTS counts from 1 to n, each about the same multiple of the one before."""
    return sorted({round(n ** (i / (POINTS - 1))) for i in range(POINTS)})


def _twins(a: Attribution, problem: TextProblem, enough: int) -> list[list[int]]:
    """[feature, selected feature] where the first can take the second's place in the set.

    Tried are the features outside of the set with the highest scores of the first round, in which
    features that say the same still share theirs.
    """
    chosen = a.order[:enough].tolist()
    if enough > LARGEST or a.first_scores is None:
        return []
    best = torch.argsort(a.first_scores, descending=True, stable=True).tolist()
    others = [i for i in best if i not in chosen and float(a.first_scores[i]) > 0][:TWINS]
    if not others:
        return []
    lacking = [[i for i in chosen if i != out] for out in chosen]
    values = problem.values([chosen, *lacking, *([*rest, j] for rest in lacking for j in others)])
    whole, without, swapped = values[0], values[1 : 1 + enough], values[1 + enough :]
    twins = []
    for place, (out, bare) in enumerate(zip(chosen, without, strict=True)):
        lost = whole - bare
        for j, value in zip(others, swapped[place * len(others) :], strict=False):
            if lost > 0.2 * problem.rise and value - bare >= 0.8 * lost:
                twins.append([j, out])
    return twins


def truncate_text(model: Any, text: str, *, tokenizer: Any = None) -> str:
    """The text's first sentences that the model takes, as many as fit whole.

    What a language model is asked about it, and its answer, need room too.
    """
    text_model = models.load(model, tokenizer)
    room = text_model.limit - (2 * LONGEST_ANSWER if text_model.kind == "language model" else 0)
    kept = ""
    for _, end in sentences(text):
        part = make_prompt(text_model, text[:end], None, None, "sentences")
        if len(part.ids(text_model)) > room:
            break
        kept = text[:end]
    return kept
